"""Slides and bare code are made from the lessons, and need nothing from elsewhere."""

import ast
import re

import tlkit
import tlkit.classroom.handouts as handouts
from tlkit.classroom.notebooks import lessons
from tlkit.cli import main


def test_slides_and_code_of_every_lesson(tmp_path, capsys):
    assert main(["handouts", "--output", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(lessons())
    for lesson in lessons():
        page = (tmp_path / "slides" / f"{lesson.stem}.html").read_text(encoding="utf-8")
        assert page.count("<section>") > 8, "headings begin slides"
        linked = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page)
        for target in linked:
            assert target.startswith("data:") or (tmp_path / "slides" / target).is_file(), target
        assert "from 'https:" not in page, "no module from another server"
        style = (tmp_path / "slides" / "reveal" / "dist" / "theme" / "white.css").read_text(encoding="utf-8")
        assert "http" not in "".join(re.findall(r"@import[^;]+;", style))
        code = (tmp_path / "code" / f"{lesson.stem}.py").read_text(encoding="utf-8")
        ast.parse(code)
        assert "import tlkit as tl" in code and "[markdown]" not in code and "tl.check(" not in code
        assert not any(f"tl.{name}" in code for name in tlkit._WHERE["classroom.widgets"]), "panels are the reader's"


def test_without_reveal_the_way_on_is_said(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(handouts.importlib.util, "find_spec", lambda name: None)
    assert main(["handouts", "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "need reveal.js" in said and "[book]" in said

"""The glossary: sorted, complete entries, and every link to a term or a lesson leads somewhere."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
GLOSSARY = (FOLDER / "glossary.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^## ([^\n]+)\n\n(.*?)(?=\n\n(?:## |<a id)|\Z)", GLOSSARY, re.MULTILINE | re.DOTALL))
LINKING = [*sorted(FOLDER.glob("*.py")), FOLDER / "instructors.md", FOLDER.parent / "README.md"]


def slug(heading):
    """The anchor that GitHub and the web book give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


ANCHORS = {slug(heading) for heading in ENTRIES}


def test_terms_are_sorted_and_each_is_there_once():
    terms = re.findall(r"^## (.+)$", GLOSSARY, re.MULTILINE)
    assert len(terms) >= 50 and len(ANCHORS) == len(terms)
    assert terms == sorted(terms, key=str.lower)
    assert list(ENTRIES) == terms


@pytest.mark.parametrize("term", ENTRIES)
def test_an_entry_explains_its_term_and_names_its_lesson(term):
    text = " ".join(ENTRIES[term].split())
    told, number = re.fullmatch(r"(.+[.]) \*(?:\[)?(?:Lesson|Appendix) (A?\d+)(?:\]\(\w+\.ipynb\))?\.\*", text).groups()
    assert len(told.split()) >= 6 and list(FOLDER.glob(f"{number.zfill(2)}_*.py"))
    for number, target in re.findall(r"\[(?:Lesson|Appendix) (A?\d+)\]\((\w+\.ipynb)\)", text):
        assert (FOLDER / target).is_file() and target[:2] == number.zfill(2)


def test_every_anchor_can_be_reached_in_jupyterlab_too():
    """It keeps a heading's capitals in its anchor, so such a heading has a second one in small letters."""
    for term in ENTRIES:
        if term.replace(" ", "-") != slug(term):
            assert f'<a id="{slug(term)}"></a>\n\n## {term}\n' in GLOSSARY


def test_every_link_to_a_term_leads_to_it():
    linked = {(page.name, target) for page in LINKING for target in _targets(page.read_text(encoding="utf-8"))}
    assert linked, "no lesson links a term"
    assert [link for link in sorted(linked) if link[1] not in ANCHORS] == []
    assert set(re.findall(r"\]\(#([^)]*)\)", GLOSSARY)) <= ANCHORS


def _targets(text):
    return re.findall(r"glossary\.md#([^)\s]*)", text)

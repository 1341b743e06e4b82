"""What a student gets back: one page with a card for each exercise, which needs no other file, program or network."""

import html
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tlkit.classroom import cards
from tlkit.classroom.exercises import LEVELS, tasks_of
from tlkit.classroom.lab.experiments import experiments_of
from tlkit.classroom.notebooks import lessons

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 52rem; margin: 0 auto;
  padding: 1rem 1.2rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.5rem; margin: 0 0 .3rem; }}
h2 {{ font-size: 1.1rem; margin: 1.6rem 0 .2rem; }}
summary:focus-visible {{ outline: .2rem solid #0067a0; }}
@media print {{
  section {{ break-inside: avoid; }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{whose}</p>
<p><strong>{summary}</strong></p>
{cards}
</main>
</body>
</html>
"""
NOT_GRADED = "This file could not be graded: it {reason}. Please talk to your teacher."


def write_feedback(marks: pd.DataFrame, folder: Path, *, hints: bool = True) -> list[Path]:
    """Write a page for each notebook that was graded, or could not be.

    Args:
        marks: what `grade_all` returned.
        folder: where the pages go; made where it is not there.
        hints: whether exercises that are not right yet bring their hints, folded up.

    Returns:
        The files, in the order of the notebooks; their names begin with the student's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for _, rows in marks.groupby("notebook", sort=False):
        first = rows.iloc[0]
        parts = (first["name"], first.student, f"lesson{first.lesson}" if first.lesson else "not_graded")
        stem = re.sub(r"[^\w.-]+", "_", "-".join(part for part in parts if part))[:150].strip("._-") or "page"
        file, number = folder / f"{stem}.html", 1
        while file in written:  # a student has handed in two files of one lesson
            number += 1
            file = folder / f"{stem}-{number}.html"
        file.write_text(feedback_page(rows, hints=hints), encoding="utf-8")
        written.append(file)
    return written


def feedback_page(rows: pd.DataFrame, *, hints: bool = True) -> str:
    """Write the page of one notebook as HTML.

    Args:
        rows: of `grade_all`, those of this notebook.
        hints: as in `write_feedback`.
    """
    first = rows.iloc[0]
    whose = f"{first['name'] or first.student} · {Path(first.notebook).name}"
    title = next((lesson.title for lesson in lessons() if lesson.stem[:2] == first.lesson), f"Lesson {first.lesson}")
    if rows.right.isna().any():
        reason = first.reason.rstrip(".")
        parts = [cards.card(cards.NOTE, Path(first.notebook).name, NOT_GRADED.format(reason=reason))]
        title, summary = title if first.lesson else "Your exercises", "Not graded"
    else:
        decided = rows.exercise.isin(experiments_of(first.lesson))
        parts = [_exercise(row, hints) for row in rows[~decided].itertuples()]
        parts += [_experiment(row) for row in rows[decided].itertuples()]
        summary = f"{rows[~decided].right.sum()} of {(~decided).sum()} exercises are right."
    values = {"title": title, "whose": whose, "summary": summary}
    return PAGE.format(cards="\n".join(parts), **{name: html.escape(value) for name, value in values.items()})


def _exercise(row, hints: bool) -> str:
    task = tasks_of(row.lesson)[row.exercise]
    number = f"Exercise {int(row.lesson)}.{row.exercise.split('_')[1]} ({LEVELS[task.level]})"
    if row.right:
        card = cards.card(cards.RIGHT, row.exercise, f"Checked was {task.looks_at}.")
    else:
        shown: Sequence[str] = task.hints if hints else ()
        card = cards.card(cards.NOT_YET, row.exercise, _sentence(row.reason), shown)
    return _section(number, card)


def _experiment(row) -> str:
    """Of a decision that the notebook has stored; only its method is judged."""
    if row.right:
        card = cards.card(cards.RIGHT, row.exercise, "Your runs support your decision.")
    else:
        card = cards.card(cards.NOT_YET, row.exercise, _sentence(row.reason))
    return _section("Your experiment (gives no points)", card)


def _section(heading: str, card: str) -> str:
    card = card.replace(' role="status"', "", 1)  # a page that is there from the beginning has no news to call out
    return f"<section>\n<h2>{html.escape(heading)}</h2>\n{card}\n</section>"


def _sentence(reason: str) -> str:
    """What was said, without what Markdown would take for a link, a picture or HTML: it may quote a student's text."""
    text = re.sub(r"(`[^`]*`)|([\\\[\]<>!])", lambda found: found[1] or f"\\{found[2]}", reason)
    return text if text.endswith((".", "?", "!")) else f"{text}."

"""The write-up of a study: a template in which every figure comes from the record, as Markdown and as one HTML page."""

import html
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from string import Template

import pandas as pd

from tlkit.checkpoints import write_text_atomically
from tlkit.classroom.study.method import REPORT
from tlkit.classroom.study.questions import six_questions
from tlkit.classroom.study.reading import read_study
from tlkit.classroom.study.record import RECORD, Study
from tlkit.classroom.study.words import NAMES, WORDS, figures, render
from tlkit.corpus import SPLITS
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL
from tlkit.reports.findings import listed
from tlkit.reports.lessons.study import difference_chart

TEMPLATE = Path(__file__).with_name("report.md")
TABLE = "table.csv"
PAGE = "report.html"
LEFT_OUT = ("text_sha256", "questions_sha256", "learning_rates")  # of the provenance: for programs, or said above
STYLE = """\
:root { --ink: #1b1b1b; --line: #c9c9c9; --band: #f3f6f9; }
body { margin: 0 auto; max-width: 52rem; padding: 1rem; color: var(--ink); background: #fff;
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.frame { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; vertical-align: top; overflow-wrap: normal; }
th { background: var(--band); } img { max-width: 100%; height: auto; } figure { margin: 1.5rem 0; }"""


def write_up(study: Study, folder: str | Path) -> list[Path]:
    """Write a study: its record, its report as Markdown and as one HTML page, and its table for `tlkit audit`.

    Where the folder holds a record of other runs on the same text, the test split was opened once more, and the new
    record says so.

    Args:
        study: with a decision.
        folder: is made where there is none.

    Returns:
        The paths written.

    Raises:
        ValueError: where there is no decision, or words name a figure that the study does not have.
        OSError: where the folder cannot be written.
    """
    folder = Path(folder)
    study = replace(study, openings=_openings(study, folder))
    report, page = report_markdown(study), report_page(study)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {RECORD: study.to_json(), REPORT: report, PAGE: page, TABLE: table_of(study).to_csv(index=False)}
    for name, content in contents.items():
        write_text_atomically(folder / name, content)
    return [folder / name for name in contents]


def table_of(study: Study) -> pd.DataFrame:
    """The table that a paper would print: one row each, so that `audit` can be asked what its readers could tell.

    Args:
        study: the record.

    Returns:
        Columns strategy, nats (the mean over documents of nats a token, and over seeds), deviation (over documents)
        and documents.
    """
    scores = study.scores[study.scores.tokens > 0]
    scores = scores[scores.strategy != CONTROL].assign(nats=scores.nats / scores.tokens)
    means = scores.groupby(["strategy", "document"], sort=False).nats.mean().reset_index()
    table = means.groupby("strategy", sort=False).nats.agg(nats="mean", deviation="std", documents="size")
    return table.round({"nats": 4, "deviation": 4}).reset_index()


def report_markdown(study: Study) -> str:
    """Fill the template in.

    Args:
        study: with a decision.

    Raises:
        ValueError: where there is no decision, or words name a figure that the study does not have.
    """
    if study.decision is None:
        raise ValueError("there is no decision yet: add one with study.decided(Decision(...)), also “cannot tell”")
    known = figures(study)
    opened = "once" if study.openings == 1 else f"{study.openings} times"
    values = known | {
        "question": study.plan.question,
        "strategies": listed(study.plan.strategies, "strategies"),
        "text": study.text.name,
        "model": study.model,
        "answer": _answer(study),
        **{part: render(getattr(study.decision, part), study) for part in WORDS},
        "splits": _rows((split, known[f"{split}_documents"], known[f"{split}_tokens"]) for split in SPLITS),
        "baseline_documents": str(study.baseline.documents),
        "memory": _rows(
            (name, known.get(f"estimate_{name}", "not estimated"), known.get(f"peak_{name}", "not measured"))
            for name in study.plan.strategies
        ),
        "tuning": _rows(
            (_named(name), str(sum(one.strategy == name for one in study.tried)), known.get(f"rate_{short}", ""))
            for name, short in [*((name, name) for name in study.plan.strategies), (CONTROL, "control")]
        ),
        "openings_said": opened,
        "results": _rows(_results(study, known)),
        "pairs": _rows(
            (
                f"{row.first} against {row.second}",
                known[f"difference_{row.first}_{row.second}"],
                known[f"difference_{row.first}_{row.second}_interval"],
                "yes" if row.separated else "no",
            )
            for row in study.compared.itertuples()
        ),
        "forgetting": _rows(
            (name, known[f"forgetting_{name}"], known[f"forgetting_{name}_interval"]) for name in study.forgetting.index
        ),
        "answers": _answers(study),
        "questions": _rows((str(one.number), one.question, one.answer) for one in six_questions(study)),
        "provenance": "\n".join(
            f"- {key}: {_cell(value)}" for key, value in study.provenance.items() if key not in LEFT_OUT
        ),
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def report_page(study: Study) -> str:
    """The report as one HTML page that needs no other file, with the chart of the differences.

    Args:
        study: with a decision.

    Raises:
        ValueError: as `report_markdown`.
    """
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(report_markdown(study))
    body = body.replace("<table>", '<div class="frame" tabindex="0"><table>').replace("</table>", "</table></div>")
    chart = difference_chart(study.compared, study.plan.worthwhile)
    picture = f'<figure><img alt="{html.escape(chart.alt)}" src="data:image/png;base64,{chart.png()}"></figure>'
    body = body.replace("<h2>What it costs</h2>", f"{picture}<h2>What it costs</h2>")
    title = html.escape(study.plan.question)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _openings(study: Study, folder: Path) -> int:
    """How often the test split has been opened for this study: a record of other runs on the same text counts."""
    if not (folder / RECORD).is_file():
        return study.openings
    before = read_study(folder)
    if before.text.sha256 != study.text.sha256:
        return study.openings
    return before.openings + (before.digest != study.digest)


def _results(study: Study, known: dict[str, str]) -> Iterable[tuple[str, ...]]:
    values = {one.strategy: f"{one.trainable_values:,}" for one in study.trained}
    for name in study.perplexities.index:
        runs = [run for run in study.runs if run.strategy == name]
        trained = "none" if name == ZERO_SHOT else values.get(name, f"{runs[0].trainable_values:,}")
        seeds = "" if name == ZERO_SHOT else str(len(runs))
        gain, interval = known.get(f"gain_{name}", ""), known.get(f"gain_{name}_interval", "")
        yield _named(name), trained, seeds, known[f"perplexity_{NAMES.get(name, name)}"], gain, interval


def _answers(study: Study) -> str:
    if not study.answered:
        return "No questions were asked."
    rows = _rows(
        (
            one.strategy,
            one.questions,
            str(one.asked),
            f"{100 * one.before:.0f}%",
            f"{100 * one.change:+.0f} points",
            "no interval" if one.low is None or one.high is None else f"{100 * one.low:+.0f} to {100 * one.high:+.0f}",
        )
        for one in study.answered
    )
    head = (
        "| strategy | questions | asked | right before | change | interval |\n| --- | --- | ---: | ---: | ---: | --- |"
    )
    return f"{head}\n{rows}"


def _rows(cells: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in cells)


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _named(strategy: str) -> str:
    """What a row is about, in the words of the lesson."""
    return f"{NAMES[strategy]} ({strategy})" if strategy in NAMES else strategy


def _answer(study: Study) -> str:
    """The decision as a sentence; names of strategies stay as they are written in code."""
    said = str(study.decision)
    return said if said.startswith(study.decision.strategy) else said[:1].upper() + said[1:]

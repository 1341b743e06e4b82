"""One bug report, three answers: the untouched model, shown examples, and tuned. All were recorded for lesson 12."""

import html
import json

import pandas as pd

from course.panels.views import Panel, View, button, choice, on_change, row
from tlkit.settings import DATA

FIELDS = ["crate", "version", "system", "kind"]
WAYS = {
    "untouched-0-0-0-0-test": "untouched",
    "shown3-0-0-0-0-test": "three examples",
    "lora-285-288-0.001-0-renamed-test-cuda": "tuned",
}
LETTERS_SHOWN = 480  # of a report; the rest would not fit a screen


def recorded_answers() -> pd.DataFrame:
    """What three models answered to each report of the test.

    Returns:
        Three rows for each report, indexed by its id and by the way in which the answer was got: "prompt" is the
        report, "completion" the right answer and "answer" what was written; "valid" says whether that is JSON, "crate",
        "version", "system" and "kind" which fields are right, and "exact" whether all are, each as 0 or 1.
    """
    reports = pd.read_json(DATA / "tickets" / "test.jsonl", lines=True).set_index("id")[["prompt", "completion"]]
    rows = pd.read_csv(DATA / "tickets" / "runs" / "answers.csv", keep_default_na=False).query("split == 'test'")
    rows = rows.assign(way=rows.run.map(WAYS)).dropna(subset=["way"])
    return rows.join(reports, on="id").set_index(["id", "way"])


def answers_view(answers: pd.DataFrame, exact: pd.Series) -> View:
    """Show a report, and side by side the right values and those of three answers, marked right or wrong.

    Args:
        answers: the rows of one report, from `recorded_answers()`, by their way.
        exact: the share of all reports that each way gets right as a whole.
    """
    report = answers.iloc[0]
    columns = {"right": json.loads(report.completion)} | {way: _marked(answers.loc[way]) for way in WAYS.values()}
    table = pd.DataFrame(columns).loc[FIELDS].fillna("null")
    table.loc["all four right, of 96 reports"] = ["", *(f"{exact[way]:.0%}" for way in WAYS.values())]
    chat = html.escape(_shortened(answers.loc[next(iter(WAYS.values()))].answer, 110))
    page = f"<p>{html.escape(_shortened(report.prompt, LETTERS_SHOWN))}</p>{table.to_html(border=0)}"
    counts = ", ".join(str(answers.loc[way, FIELDS].sum()) for way in WAYS.values())
    return View(f"Of four fields are right: {counts}.", page=f"{page}<p>Untouched it began: {chat}</p>")


def three_ways() -> Panel:
    """Give one report to three models; from code: `recorded_answers()`."""
    answers = recorded_answers()
    exact = answers.groupby("way").exact.mean()
    reports = answers.groupby("id", sort=False).prompt.first()
    options = [(f"{place + 1}: {_shortened(report, 60)}", key) for place, (key, report) in enumerate(reports.items())]
    chosen = choice("Report", options, reports.index[0])

    def update() -> None:
        panel.show(answers_view(answers.loc[chosen.value], exact))

    def go_on() -> None:
        chosen.value = reports.index[(reports.index.get_loc(chosen.value) + 1) % len(reports)]

    panel = Panel(row(chosen, button("Next", "The next report", go_on, space=True)))
    on_change(update, chosen)
    update()
    return panel


def _marked(answer: pd.Series) -> dict[str, str]:
    values = json.loads(answer.answer) if answer.valid else dict.fromkeys(FIELDS, "no JSON")
    given = {field: "null" if values.get(field) is None else str(values[field]) for field in FIELDS}
    return {field: f"{'✓' if answer[field] else '✗'} {_shortened(given[field], 24)}" for field in FIELDS}


def _shortened(text: str, letters: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= letters else f"{line[:letters].rsplit(' ', 1)[0]} …"

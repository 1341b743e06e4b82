"""How a lab notebook looks: its runs as dots on one scale, and the same in numbers; as HTML and as text."""

import html
import math
from collections.abc import Sequence

import pandas as pd

from tlkit.classroom import cards
from tlkit.classroom.lab.experiments import Experiment, Run, amount, as_code, signed, written
from tlkit.classroom.lab.method import difference

LOOK = cards.Look("▤", "lab notebook", "#5a5a5a")
OPEN_ROWS = 8  # of runs; more are folded up
TABLE = "border-collapse:collapse;margin:.4em 0"
CELL = "text-align:left;padding:.1em .9em .1em 0;white-space:nowrap"
STRIP = "position:relative;height:1.3em;min-width:11em;background:linear-gradient(#999,#999) center/100% 1px no-repeat"
MARK = "position:absolute;width:1em;margin-left:-.5em;text-align:center;left:"


def as_text(experiment: Experiment, runs: Sequence[Run]) -> str:
    """Write a notebook as text: a line for each setting, and one for each run."""
    from tabulate import tabulate

    head = f"[LAB NOTEBOOK] {experiment.name}: {experiment.question}"
    if not runs:
        return f"{head}\n{_empty(experiment)} {rule(experiment)}"
    found = [summary(experiment, runs), table(experiment, runs)]
    parts = [tabulate(part, headers="keys", showindex=False, disable_numparse=True) for part in found if len(part)]
    return "\n\n".join([head, *parts, rule(experiment)])


def as_html(experiment: Experiment, runs: Sequence[Run]) -> str:
    """Draw a notebook as a card; only the list of many runs is folded up."""
    if not runs:
        return cards.card(LOOK, experiment.question, f"{_empty(experiment)} {rule(experiment)}", kind="tlkit-lab")
    folded = "" if len(runs) > OPEN_ROWS else " open"
    button = f'<summary style="{cards.BUTTON}">All runs ({len(runs)})</summary>'
    listed = f"<details{folded}>{button}{_list(experiment, runs)}</details>"
    inside = f"{_chart(experiment, runs)}{listed}{cards.rendered(rule(experiment))}"
    return cards.card(LOOK, experiment.question, "", picture=inside, kind="tlkit-lab", widest="none")


def table(experiment: Experiment, runs: Sequence[Run]) -> pd.DataFrame:
    """List the runs: the number of each, what differs from the control, its seed and split, its metrics, a note."""
    rows = []
    for run in runs:
        row: dict[str, object] = {"run": run.number, "setting": written(experiment, run.settings)}
        row |= {experiment.pair: run.pair} if experiment.seeds > 1 else {}
        row |= {"split": run.split} if experiment.split else {}
        row |= {name: _value(run, name) for name in experiment.metrics}
        row |= {"with": run.setup} if len({one.setup for one in runs}) > 1 else {}
        rows.append(row | {"note": f"struck out: {run.struck}" if run.struck else ""})
    found = pd.DataFrame(rows)
    return found if any(run.struck for run in runs) else found.drop(columns="note", errors="ignore")


def summary(experiment: Experiment, runs: Sequence[Run]) -> pd.DataFrame:
    """List the settings: how many runs each has, the mean of what decides, and its difference from the control.

    Only runs that count and that have the setup of the last one are in it.
    """
    groups, metric = _groups(experiment, runs), experiment.metrics[0]
    control = _finite(experiment, groups.get("control", []))
    rows = []
    for name, group in groups.items():
        values = [run.metrics[metric] for run in _finite(experiment, group)]
        mean = amount(sum(values) / len(values)) if values else "diverged"
        against = "" if name == "control" else _against(experiment, _finite(experiment, group), control)
        rows.append({"setting": name, "runs": len(group), f"mean {metric}": mean, "against the control": against})
    return pd.DataFrame(rows)


def rule(experiment: Experiment) -> str:
    """Say in a sentence or two how the runs are compared."""
    what = f"{experiment.metrics[0]} ({experiment.better} is better)"
    pairs = f", over at least {experiment.seeds} {experiment.pair}s of each setting" if experiment.seeds > 1 else ""
    where = f" on the {experiment.split} split" if experiment.split else ""
    *most, last = experiment.may_change
    names = f"{', '.join(most)} or {last}" if most else last
    one_at_a_time = ", one at a time" if most else ""
    small = f" A difference of up to {amount(experiment.matters)} does not matter." if experiment.matters else ""
    learned = " and ".join(f"{name} is {amount(limit)} or less" for name, limit in experiment.keep.items())
    learned = f" A model counts as having learned something if {learned}." if learned else ""
    return f"Runs are compared by {what}{where}{pairs}. You may change {names}{one_at_a_time}.{small}{learned}"


def value_in_words(value: float | None) -> str:
    """Write what was measured; what is not finite has diverged."""
    return "diverged" if value is None else amount(value)


def _empty(experiment: Experiment) -> str:
    return f"No run is logged yet. Begin with the control: {as_code(experiment.control)}."


def _value(run: Run, name: str) -> str:
    return value_in_words(run.metrics[name]) if name in run.metrics else ""


def _finite(experiment: Experiment, runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.metrics.get(experiment.metrics[0]) is not None]


def _groups(experiment: Experiment, runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs that count, by their setting, the control first."""
    counted = [run for run in runs if not run.struck]
    counted = [run for run in counted if run.setup == counted[-1].setup]
    groups: dict[str, list[Run]] = {}
    for run in sorted(counted, key=lambda run: run.settings != experiment.control):
        groups.setdefault(written(experiment, run.settings), []).append(run)
    return groups


def _against(experiment: Experiment, group: list[Run], control: list[Run]) -> str:
    found = difference(experiment, group, control)
    if not found.pairs:
        return "no pair yet" if control else "no control yet"
    if found.low == found.high:
        return signed(found.mean)
    if math.isinf(found.low):
        return f"{signed(found.mean)} (one {experiment.pair}: no interval)"
    return f"{signed(found.mean)} (95%: {signed(found.low)} to {signed(found.high)})"


def _chart(experiment: Experiment, runs: Sequence[Run]) -> str:
    """Each setting's runs as dots, all on one scale, in a table that says the same in numbers."""
    groups = _groups(experiment, runs)
    values = [
        run.metrics[experiment.metrics[0]] for group in groups.values() for run in _finite(experiment, group)
    ] or [0.0]
    pad = 0.08 * (max(values) - min(values)) or 0.08 * abs(max(values)) or 1
    low, high = min(values) - pad, max(values) + pad
    rows = []
    for row in summary(experiment, runs).to_dict("records"):
        setting, *numbers = (html.escape(str(value)) for value in row.values())
        rows.append([setting, _strip(experiment, groups[row["setting"]], low, high), *numbers])
    metric = html.escape(experiment.metrics[0])
    ends = f"<span>{amount(low)}</span><span>{metric}</span><span>{amount(high)}</span>"
    scale = f'<div style="display:flex;justify-content:space-between;gap:.9em;min-width:11em">{ends}</div>'
    names = ["setting", scale, "runs", f"mean {metric}", "against the control"]
    return _as_table(names, rows) if groups else ""


def _strip(experiment: Experiment, group: list[Run], low: float, high: float) -> str:
    finite = _finite(experiment, group)
    values = [run.metrics[experiment.metrics[0]] for run in finite]
    sign = "○" if group[0].settings == experiment.control else "●"
    marks = [(sign, value) for value in values] + ([("|", sum(values) / len(values))] if len(values) > 1 else [])
    dots = "".join(f'<span style="{MARK}{100 * (at - low) / (high - low):.0f}%">{mark}</span>' for mark, at in marks)
    more = "✕ diverged" if len(finite) < len(group) else ""
    return f'<div aria-hidden="true" style="{STRIP}">{dots}{more}</div>'


def _list(experiment: Experiment, runs: Sequence[Run]) -> str:
    found = table(experiment, runs)
    rows = []
    for run, row in zip(runs, found.to_dict("records"), strict=True):
        cells = [html.escape(str(value)) for value in row.values()]
        rows.append([f"<s>{cell}</s>" for cell in cells[:-1]] + cells[-1:] if run.struck else cells)
    return _as_table([html.escape(str(name)) for name in found.columns], rows)


def _as_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col" style="{CELL}">{name}</th>' for name in names)
    lines = ["".join(f'<td style="{CELL}">{cell}</td>' for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div style="overflow-x:auto" tabindex="0"><table style="{TABLE}"><tr>{head}</tr>{body}</table></div>'

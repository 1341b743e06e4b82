"""Scores of strategies with their intervals, and the differences between them, pair by pair."""

import math
from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from tlkit.evidence.fronts import perplexity_front
from tlkit.names import CHANCE, CONTROL, QUESTION_SETS, ZERO_SHOT
from tlkit.reports.cost_charts import cost_chart, forgetting_chart, parameters_chart
from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    INK,
    UNTOUCHED,
    Chart,
    described,
    headline,
    height_for,
    mark,
    marker,
    new_figure,
    plain_numbers,
)
from tlkit.reports.findings import listed, lowest_of, number
from tlkit.reports.fronts import pareto_chart
from tlkit.reports.labels import beside_rows
from tlkit.reports.task_charts import class_accuracy_chart

LOWER, HIGHER = "#BFE0F5", "#F7DDA8"  # the row's perplexity, in a matrix of pairs
FAR_OUT = 2.0  # a row this many times beyond the others' range stands at the edge, with an arrow and its value


@described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on held-out text, with the 95% interval over documents; rows are in the order of the table.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, perplexity_low, perplexity_high; with the
            column rank of a comparison, the title says what is separated.
    """
    table = table.dropna(subset="perplexity").reset_index(drop=True)
    figure, axes = new_figure(height_for(len(table)))
    rows = range(len(table))
    edge = _edge(table)
    inside = table[table.perplexity <= edge]
    # The interval of one document is a point, up to rounding.
    errors = [inside.perplexity - inside.perplexity_low, inside.perplexity_high - inside.perplexity]
    errors = [error.clip(lower=0) for error in errors]
    # Points, not bars: on a log scale a bar has no zero to start from.
    axes.errorbar(inside.perplexity, inside.index, xerr=errors, fmt="o", color=COLOURS[0], ecolor=INK, capsize=4)
    for row in table[table.perplexity > edge].itertuples():
        axes.plot(edge, row.Index, ">", color=COLOURS[1], markersize=9)
        behind = {"xytext": (-8, 0), "textcoords": "offset points", "ha": "right", "va": "center", "fontsize": "small"}
        axes.annotate("far beyond the scale", (edge, row.Index), color=COLOURS[1], **behind)
    axes.set_xscale("log")
    low, high = inside.perplexity_low.min(), max(inside.perplexity_high.max(), edge if len(inside) < len(table) else 0)
    axes.set_xlim(low / 1.06, high * 1.06)
    plain_numbers(axes.xaxis, low, high)
    axes.set_yticks(rows, table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xlabel("perplexity (log scale, lower is better; lines: 95% interval over documents)")
    if (table.strategy == ZERO_SHOT).any() and len(table) > 2:
        mark(axes, table.perplexity[table.strategy == ZERO_SHOT].iloc[0], UNTOUCHED)
    beside_rows(axes, rows, [_with_interval(row, "perplexity") for row in table.itertuples()])
    headline(figure, _perplexity_finding(table))
    return figure


@described
def accuracy_chart(table: pd.DataFrame) -> Chart:
    """Share of four-option questions answered correctly, with 95% intervals; the dashed line is what guessing gives.

    Args:
        table: a row for each strategy, with column strategy and for each set of questions its accuracy (0 to 1) and
            interval: rust_accuracy, rust_accuracy_low, rust_accuracy_high; general_accuracy and so on.
    """
    table = table[table.strategy != CONTROL].iloc[::-1]
    figure, axes = new_figure(height_for(1.3 * len(table)))
    said = []
    for order, name in enumerate(QUESTION_SETS):
        values, low, high = (100 * table[f"{name}_accuracy{end}"] for end in ("", "_low", "_high"))
        errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]
        places = [place + 0.17 - 0.34 * order for place in range(len(table))]
        style = {"color": COLOURS[order], "marker": marker(order), "linestyle": "none", "capsize": 4}
        axes.errorbar(values, places, xerr=errors, label=f"{name} questions", **style)
        for value, place in zip(values, places, strict=True):
            axes.text(1.02, place, f"{name} {value:.0f}%", **_aside(axes, COLOURS[order]))
        above = int((low > 100 * CHANCE).sum())
        said.append(f"{name} questions: {above} of {len(table)}")
    mark(axes, 100 * CHANCE, "guessing")
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel("questions answered correctly (%; lines: 95% interval over questions)")
    headline(figure, f"Better than guessing (interval above {100 * CHANCE:.0f}%): {', '.join(said)}")
    return figure


@described
def differences_chart(table: pd.DataFrame, against: str = "full") -> Chart:
    """Each strategy's perplexity minus that of one other; where the interval includes zero, the two are not separated.

    Args:
        table: a row for each strategy, with columns strategy, difference, difference_low, difference_high; rows
            without a difference are left out.
        against: the strategy that was subtracted.
    """
    table = table.dropna(subset="difference").sort_values("difference", ascending=False)
    figure, axes = new_figure(height_for(len(table)))
    clear = (table.difference_low > 0) | (table.difference_high < 0)
    errors = [table.difference - table.difference_low, table.difference_high - table.difference]
    axes.errorbar(table.difference, table.strategy, xerr=errors, fmt="o", color=COLOURS[0], ecolor=INK, capsize=4)
    for row, separated in enumerate(clear):
        if not separated:
            axes.plot(table.difference.iloc[row], row, "o", color="white", markeredgecolor=COLOURS[0], zorder=4)
    mark(axes, 0, against)
    axes.set_ylim(-0.5, len(table) - 0.5)
    beside_rows(axes, range(len(table)), [_with_interval(row, "difference", "+") for row in table.itertuples()])
    axes.set_xlabel(f"perplexity more than {against} (lines: interval over documents and seeds; hollow: includes zero)")
    higher, lower = table[table.difference_low > 0].strategy[::-1], table[table.difference_high < 0].strategy[::-1]
    said = [f"{listed(lower, 'strategies')} below {against}"] if len(lower) else []
    said += [f"{listed(higher, 'strategies')} above {against}"] if len(higher) else []
    said += [f"not separated from {against}: {listed(table.strategy[~clear][::-1], 'strategies')}"] * (not clear.all())
    said = "; ".join(said)
    headline(figure, said[0].upper() + said[1:] if said.startswith("not ") else said)
    return figure


@described
def pairs_chart(pairs: pd.DataFrame) -> Chart:
    """Perplexity of the row's strategy minus the column's, a field for each pair; coloured where they are separated.

    Args:
        pairs: what `compare_pairs` returned; without its columns low and high, intervals are not written.
    """
    names = list(dict.fromkeys([*pairs["first"], *pairs["second"]]))
    total = dict.fromkeys(names, 0.0)
    for pair in pairs.itertuples():
        total[pair.first] += pair.difference
        total[pair.second] -= pair.difference
    names.sort(key=total.get)  # the lowest perplexity first
    figure, axes = new_figure(1.4 + 0.58 * len(names))
    axes.grid(False)
    intervals = {"low", "high"} <= set(pairs)
    for pair in pairs.itertuples():
        x, y = sorted((names.index(pair.first), names.index(pair.second)))
        sign = 1 if names[y] == pair.first else -1
        difference = sign * pair.difference
        shade = ("white", HIGHER if difference > 0 else LOWER)[int(pair.separated)]
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="grey"))
        known = intervals and not math.isnan(pair.low)
        style = {"ha": "center", "va": "center", "color": INK if pair.separated else FAINT}
        weight = "bold" if pair.separated else "normal"
        axes.text(x, y - 0.15 * known, f"{difference:+.1f}", fontweight=weight, **style)
        if known:
            low, high = sorted((sign * pair.low, sign * pair.high))
            axes.text(x, y + 0.2, f"{low:+.1f} to {high:+.1f}", fontsize="small", **style)
    axes.set_xticks(range(len(names) - 1), [name.replace("_", "_\n") for name in names[:-1]])
    axes.set_yticks(range(1, len(names)), names[1:])
    axes.tick_params(length=0)
    axes.set_xlim(-0.52, len(names) - 1.48)
    axes.set_ylim(len(names) - 0.48, 0.48)
    axes.spines[:].set_visible(False)
    key = ["orange: the row is higher", "blue: the row is lower", "white: not separated"]
    key = [line for line in key if "blue" not in line or any(p.get_facecolor() == to_rgba(LOWER) for p in axes.patches)]
    where = {"transform": axes.transAxes, "ha": "right", "va": "top", "color": FAINT, "linespacing": 1.5}
    axes.text(0.99, 0.97, "\n".join(key), **where)
    axes.set_xlabel("perplexity of the row minus the column" + (", below it the interval" if intervals else ""))
    headline(figure, _pairs_finding(pairs, names))
    return figure


def _pairs_finding(pairs: pd.DataFrame, names: list[str]) -> str:
    """How many pairs are separated, which are not if these are few, and which strategies are from all others."""
    unclear = pairs[~pairs.separated.astype(bool)]
    said = f"{len(pairs) - len(unclear)} of {len(pairs)} pairs are separated"
    if 0 < len(unclear) <= 3:
        told = ", ".join(f"{pair.first} and {pair.second}" for pair in unclear.itertuples())
        return f"{said}; not separated: {told}"
    tied = {*unclear["first"], *unclear["second"]}
    clear = [name for name in names if name not in tied]
    if not clear or unclear.empty:
        return said
    verb = "is" if len(clear) == 1 else "are"
    return f"{said}; {listed(clear, 'strategies')} {verb} separated from every other strategy"


def _edge(table: pd.DataFrame) -> float:
    """Where the scale ends: the control, which begins with random weights, would leave the others no room."""
    others = table[table.strategy != CONTROL]
    if others.empty or others.perplexity_high.isna().all():
        return math.inf
    edge = FAR_OUT * others.perplexity_high.max()
    return others.perplexity_high.max() * 1.25 if table.perplexity.max() > edge else math.inf


def _with_interval(row, column: str, sign: str = "") -> str:
    """A value and its interval as text; without an interval, the value."""
    value, low, high = (getattr(row, f"{column}{end}", math.nan) for end in ("", "_low", "_high"))
    digits = 1 if max(abs(value), 1) < 100 else 0
    if math.isnan(low):
        return f"{value:{sign},.{digits}f}"
    return f"{value:{sign},.{digits}f} ({low:{sign},.{digits}f} to {high:{sign},.{digits}f})"


def _perplexity_finding(table: pd.DataFrame) -> str:
    """What may be said of a table of scores: of pairs before and after, of ranks, or of intervals that overlap."""
    scores = {row.strategy: row for row in table.itertuples()}
    texts = [name.removesuffix(", before") for name in scores if name.endswith(", before")]
    if texts and len(scores) == 2 * len(texts) and all(f"{text}, after" in scores for text in texts):
        changes = [(text, scores[f"{text}, before"].perplexity, scores[f"{text}, after"].perplexity) for text in texts]
        told = ", and ".join(
            f"{'falls' if after < before else 'rises'} from {number(before)} to {number(after)} on {text}"
            for text, before, after in changes
        )
        return f"Perplexity {told}"
    if len(table) == 1:
        return f"Perplexity {_with_interval(table.iloc[0], 'perplexity')}"
    if len(table) == 2:
        lower, higher = (table.loc[pick()] for pick in (table.perplexity.idxmin, table.perplexity.idxmax))
        values = f"{number(lower.perplexity)} against {number(higher.perplexity)}"
        order = "scores lower than" if lower.perplexity_high < higher.perplexity_low else "is not separated from"
        return f"{lower.strategy} {order} {higher.strategy}: perplexity {values}"
    ranks = {row.rank: row for row in table.itertuples() if isinstance(getattr(row, "rank", None), str)}
    if "1" in ranks:
        others = [row.strategy for row in table.itertuples() if isinstance(row.rank, str) and row.rank not in ("", "1")]
        rest = others[0] if len(others) == 1 else "all other strategies"
        return f"{ranks['1'].strategy} is lowest ({number(ranks['1'].perplexity)}), separated from {rest}"
    if ranks:
        first = [row.strategy for row in table.itertuples() if str(row.rank).startswith("tied 1-")]
        return f"{listed(first, 'strategies')} have the lowest perplexity, and are not separated from each other"
    return lowest_of(table.strategy, table.perplexity, table.perplexity_low, table.perplexity_high)


def _aside(axes: Axes, shade: str) -> dict:
    return {"transform": axes.get_yaxis_transform(), "fontsize": "x-small", "va": "center", "color": shade}


def _differences_of(comparison) -> Chart | None:
    """None where nothing is there to be compared: one strategy, or the reference failed."""
    if comparison.table.difference.isna().all():
        return None
    return differences_chart(comparison.table, comparison.provenance["against"])


def _forgetting_of(comparison) -> Chart | None:
    """None where nothing could be forgotten that this task can show."""
    return None if comparison.table.general.isna().all() else forgetting_chart(comparison.table)


def _accuracy_of(comparison) -> Chart | None:
    """None where no questions were asked."""
    return accuracy_chart(comparison.table) if len(comparison.answers) else None


def _class_accuracy_of(comparison) -> Chart | None:
    """None where no classes were to be found."""
    if "balanced_accuracy" not in comparison.table:
        return None
    return class_accuracy_chart(comparison.table, comparison.provenance["classes"])


def _pairs_of(comparison) -> Chart | None:
    """None where there is no pair whose spread is known."""
    pairs = comparison.pairs
    return pairs_chart(pairs) if len(pairs) and pairs.low.notna().all() else None


# Each draws a comparison, or returns None where it has nothing to draw.
# What a comparison measures beside perplexity, and how its axis is called.
COSTS = {
    "trainable_values": "values trained",
    "peak_memory_mb": "peak memory of tensors (MB)",
    "seconds": "seconds of training",
    "file_mb": "file of weights (MB)",
    "general": "perplexity on general text (lower: forgot less)",
}


def pareto_of(documents: pd.DataFrame, runs: pd.DataFrame, costs: Iterable[str] = tuple(COSTS)) -> Chart | None:
    """Draw `pareto_chart` of the runs of a comparison; None where there are fewer than two strategies to compare.

    Args:
        documents: of a comparison.
        runs: of a comparison.
        costs: some of `COSTS`.
    """
    runs = runs[~runs.strategy.isin([ZERO_SHOT, CONTROL])].assign(file_mb=runs.file_bytes / 1e6)
    if runs.strategy.nunique() < 2:
        return None
    fronts = {cost: perplexity_front(documents, runs, cost) for cost in costs if (runs[cost] > 0).all()}
    return pareto_chart(fronts, COSTS)


CHARTS = {
    "perplexity": lambda comparison: perplexity_chart(comparison.table),
    "differences": _differences_of,
    "parameters": lambda comparison: parameters_chart(comparison.table),
    "cost": lambda comparison: cost_chart(comparison.table),
    "forgetting": _forgetting_of,
    "class_accuracy": _class_accuracy_of,
    "pairs": _pairs_of,
    "accuracy": _accuracy_of,
    "pareto": lambda comparison: pareto_of(comparison.documents, comparison.runs),
}

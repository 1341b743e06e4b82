"""Scores of strategies with their intervals, and the differences between them, pair by pair."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tlkit.names import CHANCE, CONTROL, QUESTION_SETS, ZERO_SHOT
from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    INK,
    MARKERS,
    UNTOUCHED,
    Chart,
    described,
    headline,
    height_for,
    mark,
    new_figure,
    plain_numbers,
)
from tlkit.reports.findings import listed, number
from tlkit.reports.labels import beside_rows

LOWER, HIGHER = "#BFE0F5", "#F7DDA8"  # the row's perplexity, in a matrix of pairs
FAR_OUT = 2.0  # a row this many times beyond the others' range is left to its figure at the right


@described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on held-out text, with the 95% interval over documents; rows are in the order of the table.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, perplexity_low, perplexity_high; with the
            column rank of a comparison, the title says what is separated.
    """
    table = table.dropna(subset="perplexity").reset_index(drop=True)
    figure, axes = new_figure(height_for(len(table)))
    # The control, which begins with random weights, would leave the others no room.
    reach = table.perplexity_high[table.strategy != CONTROL].max()
    inside = table[(table.strategy != CONTROL) | ~(table.perplexity > FAR_OUT * reach)]
    # Points, not bars: on a log scale a bar has no zero to start from.
    _draw_rows(axes, inside.index, *(inside[f"perplexity{end}"] for end in ("", "_low", "_high")))
    axes.set_xscale("log")
    low, high = inside.perplexity_low.min(), inside.perplexity_high.max()
    axes.set_xlim(low / 1.06, high * 1.06)
    plain_numbers(axes.xaxis, low, high)
    _name_rows(axes, table.strategy)
    axes.set_xlabel("perplexity (log scale, lower is better; lines: 95% interval over documents)")
    if (table.strategy == ZERO_SHOT).any() and len(table) > 2:
        mark(axes, table.perplexity[table.strategy == ZERO_SHOT].iloc[0], UNTOUCHED)
    beyond = ["" if place in inside.index else "→ " for place in table.index]
    intervals = [_with_interval(row, "perplexity") for row in table.itertuples()]
    beside_rows(axes, table.index, [arrow + text for arrow, text in zip(beyond, intervals, strict=True)])
    headline(figure, _perplexity_finding(table))
    return figure


@described
def accuracy_chart(table: pd.DataFrame) -> Chart:
    """Share of four-option questions answered correctly, with 95% intervals; the dashed line is what guessing gives.

    Args:
        table: a row for each strategy, with column strategy and for each set of questions its accuracy (0 to 1) and
            interval: rust_accuracy, rust_accuracy_low, rust_accuracy_high; general_accuracy and so on.
    """
    table = table[table.strategy != CONTROL].reset_index(drop=True)
    figure = _shares_chart(table, {f"{name} questions": f"{name}_accuracy" for name in QUESTION_SETS}, CHANCE)
    figure.axes[0].set_xlabel("questions answered correctly (%; lines: 95% interval over questions)")
    above = {name: int((table[f"{name}_accuracy_low"] > CHANCE).sum()) for name in QUESTION_SETS}
    counts = ", ".join(f"{name} questions: {count} of {len(table)}" for name, count in above.items())
    headline(figure, f"Better than guessing (interval above {CHANCE:.0%}): {counts}")
    return figure


@described
def class_accuracy_chart(table: pd.DataFrame, classes: int | None = None) -> Chart:
    """Balanced accuracy of each strategy with its 95% interval over texts; the dashed line is what guessing gives.

    Args:
        table: a row for each strategy, with columns strategy, balanced_accuracy, balanced_accuracy_low and
            balanced_accuracy_high, from 0 to 1.
        classes: how many there are; None draws no line.
    """
    table = table.dropna(subset="balanced_accuracy").reset_index(drop=True)
    figure = _shares_chart(table, {"balanced accuracy": "balanced_accuracy"}, 1 / classes if classes else None)
    figure.axes[0].set_xlabel("balanced accuracy (%; lines: 95% interval over test texts)")
    best = table.loc[table.balanced_accuracy.idxmax()]
    headline(figure, f"{best.strategy} finds the class most often, in {best.balanced_accuracy:.0%}")
    return figure


@described
def pairs_chart(pairs: pd.DataFrame) -> Chart:
    """Perplexity of the row's strategy minus the column's, a field for each pair; coloured where they are separated.

    Args:
        pairs: what `compare_pairs` returned; without its columns low and high, intervals are not written.
    """
    mirrored = pairs.rename(columns={"first": "second", "second": "first"})
    mirrored = mirrored.assign(difference=-pairs.difference)
    if "low" in pairs:
        mirrored = mirrored.assign(low=-pairs.high, high=-pairs.low)
    both = pd.concat([pairs, mirrored])
    names = list(both.groupby("first").difference.sum().sort_values(kind="stable").index)  # the lowest perplexity first
    figure, axes = new_figure(1.4 + 0.58 * len(names))
    axes.grid(False)
    for pair in both.itertuples():
        x, y = names.index(pair.second), names.index(pair.first)
        if x > y:
            continue
        shade = (HIGHER if pair.difference > 0 else LOWER) if pair.separated else "white"
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="grey"))
        has_interval = not math.isnan(getattr(pair, "low", math.nan))
        style = {"ha": "center", "va": "center", "color": INK if pair.separated else FAINT}
        weight = "bold" if pair.separated else "normal"
        axes.text(x, y - 0.15 * has_interval, f"{pair.difference:+.1f}", fontweight=weight, **style)
        if has_interval:
            axes.text(x, y + 0.2, f"{pair.low:+.1f} to {pair.high:+.1f}", fontsize="small", **style)
    axes.set_xticks(range(len(names) - 1), [name.replace("_", "_\n") for name in names[:-1]])
    axes.set_yticks(range(1, len(names)), names[1:])
    axes.tick_params(length=0)
    axes.set_xlim(-0.52, len(names) - 1.48)
    axes.set_ylim(len(names) - 0.48, 0.48)
    axes.spines[:].set_visible(False)
    key = "orange: the row is higher\nblue: the row is lower\nwhite: not separated"
    axes.text(0.99, 0.97, key, transform=axes.transAxes, ha="right", va="top", color=FAINT, linespacing=1.5)
    axes.set_xlabel("perplexity of the row minus the column" + (", below it the interval" if "low" in pairs else ""))
    headline(figure, _pairs_finding(pairs, names))
    return figure


def _draw_rows(axes: Axes, rows, values, low, high, **style) -> None:
    """A point with its interval in each row."""
    # The interval of one document is a point, up to rounding.
    errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]
    style = {"fmt": "o", "color": COLOURS[0], "ecolor": INK, "capsize": 4} | style
    axes.errorbar(values, rows, xerr=errors, **style)


def _name_rows(axes: Axes, names: pd.Series) -> None:
    """Write the names of rows, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _shares_chart(table: pd.DataFrame, series: dict[str, str], guessing: float | None) -> Chart:
    """Rows with shares in percent and their intervals: for each series its column, its name and figure at the right."""
    figure, axes = new_figure(height_for(len(series) ** 0.4 * len(table)))
    for order, (name, column) in enumerate(series.items()):
        values, low, high = (100 * table[f"{column}{end}"] for end in ("", "_low", "_high"))
        rows = table.index + 0.34 * (order - (len(series) - 1) / 2)
        style = {"fmt": MARKERS[order], "color": COLOURS[order], "ecolor": COLOURS[order], "label": name}
        _draw_rows(axes, rows, values, low, high, **style)
        beside_rows(axes, rows, [f"{value:.0f}%" + f" {name}" * (len(series) > 1) for value in values])
    if guessing is not None:
        mark(axes, 100 * guessing, "guessing")
    _name_rows(axes, table.strategy)
    return figure


def _with_interval(row, column: str, sign: str = "") -> str:
    """A value and its interval as text; without an interval, the value."""
    value, low, high = (getattr(row, f"{column}{end}", math.nan) for end in ("", "_low", "_high"))
    digits = 1 if max(abs(value), 1) < 100 else 0
    interval = "" if math.isnan(low) else f" ({low:{sign},.{digits}f} to {high:{sign},.{digits}f})"
    return f"{value:{sign},.{digits}f}{interval}"


def _perplexity_finding(table: pd.DataFrame) -> str:
    """Of pairs before and after, how each changed; of ranks, who is first; of scores alone, which is lowest."""
    scores = table.set_index("strategy").perplexity
    texts = [name.removesuffix(", before") for name in scores.index if name.endswith(", before")]
    if texts and set(scores.index) == {f"{text}, {when}" for text in texts for when in ("before", "after")}:
        changes = {text: (scores[f"{text}, before"], scores[f"{text}, after"]) for text in texts}
        findings = [
            f"{'falls' if after < before else 'rises'} from {number(before)} to {number(after)} on {text}"
            for text, (before, after) in changes.items()
        ]
        return f"Perplexity {', and '.join(findings)}"
    if len(table) <= 2:
        return "Perplexity: " + " against ".join(f"{number(score)} of {name}" for name, score in scores.items())
    ranks = table.get("rank", pd.Series("", table.index)).fillna("").astype(str)
    first = table.strategy[(ranks == "1") | ranks.str.startswith("tied 1-")]
    if len(first) == 1:
        return f"{first.iloc[0]} is lowest ({number(scores[first.iloc[0]])}), separated from all other strategies"
    if len(first):
        return f"{listed(first, 'strategies')} have the lowest perplexity, and are not separated from each other"
    return f"{scores.idxmin()} is lowest ({number(scores.min())})"


def _pairs_finding(pairs: pd.DataFrame, names: list[str]) -> str:
    """How many pairs are separated, which are not if these are few, and which strategies are from all others."""
    unclear = pairs[~pairs.separated.astype(bool)]
    sentence = f"{len(pairs) - len(unclear)} of {len(pairs)} pairs are separated"
    if 0 < len(unclear) <= 3:
        undecided = ", ".join(f"{pair.first} and {pair.second}" for pair in unclear.itertuples())
        return f"{sentence}; not separated: {undecided}"
    clear = [name for name in names if name not in {*unclear["first"], *unclear["second"]}]
    if not clear or unclear.empty:
        return sentence
    verb = "is" if len(clear) == 1 else "are"
    return f"{sentence}; {listed(clear, 'strategies')} {verb} separated from every other strategy"

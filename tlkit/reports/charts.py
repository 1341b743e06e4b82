"""The charts that a comparison is exported with, each drawn from one of its tables, which are as in `Comparison`."""

import pandas as pd
from matplotlib.axes import Axes

from tlkit.names import CHANCE, CONTROL, QUESTION_SETS, ZERO_SHOT
from tlkit.reports.figure import COLOURS, FAINT, INK, Chart, described, headline, new_figure, number

LOWER, HIGHER = "#BFE0F5", "#F7DDA8"  # the row's perplexity, in a matrix of pairs
MARKERS = "osD^vPX*"


@described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on held-out text, with the 95% interval over documents; rows are in the order of the table.

    The control, which begins with random weights, is left out: it would leave the others no room.
    """
    table = table[table.strategy != CONTROL]
    figure, axes = _rows_chart(table, {"perplexity": "perplexity"}, "{:,.1f}")
    axes.set_xlabel("perplexity (lower is better; lines: 95% interval over documents)")
    headline(figure, "Perplexity on held-out text")
    return figure


@described
def accuracy_chart(table: pd.DataFrame, columns: dict[str, str], chance: float) -> Chart:
    """Share of right answers of each strategy, with 95% intervals; the dashed line is what guessing gives.

    Args:
        columns: of the table, by what is said of them; beside each stands its interval, as in rust_accuracy_low.
        chance: the share that guessing gives.
    """
    figure, axes = _rows_chart(table[table.strategy != CONTROL], columns, "{:.0%}")
    axes.axvline(chance, color=INK, linestyle="--", label="guessing")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel("right answers (lines: 95% interval over what was asked)")
    figure.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    headline(figure, "How often each model is right")
    return figure


@described
def pairs_chart(pairs: pd.DataFrame) -> Chart:
    """Perplexity of the row's strategy minus the column's, a field for each pair; coloured where they are separated."""
    turned = pairs.rename(columns={"first": "second", "second": "first"}).assign(difference=-pairs.difference)
    both = pd.concat([pairs, turned])
    names = list(both.groupby("first").difference.sum().sort_values(kind="stable").index)  # the lowest perplexity first
    figure, axes = new_figure(1.4 + 0.4 * len(names))
    axes.grid(False)
    for pair in both.itertuples():
        x, y = names.index(pair.second), names.index(pair.first)
        if x < y:
            shade = (HIGHER if pair.difference > 0 else LOWER) if pair.separated else "white"
            field = {"facecolor": shade, "edgecolor": "none", "pad": 3}
            axes.text(x, y, f"{pair.difference:+.1f}", ha="center", va="center", fontsize="small", bbox=field)
    axes.set_xticks(range(len(names) - 1), [name.replace("_", "_\n") for name in names[:-1]], fontsize="small")
    axes.set_yticks(range(1, len(names)), names[1:])
    axes.set_xlim(-0.5, len(names) - 1.5)
    axes.set_ylim(len(names) - 0.5, 0.5)
    axes.set_xlabel("perplexity of the row minus the column; orange: higher, blue: lower, white: not separated")
    headline(figure, f"{pairs.separated.sum()} of {len(pairs)} pairs are separated")
    return figure


@described
def forgetting_chart(table: pd.DataFrame) -> Chart:
    """What was gained on the new text against what was lost on general text; the best corner is at the bottom left."""
    table = table[table.strategy != CONTROL].dropna(subset="perplexity")
    figure, axes = new_figure()
    for before in table[table.strategy == ZERO_SHOT].itertuples():
        axes.axhline(before.general, color=FAINT, linestyle=":", linewidth=1)
        axes.axvline(before.perplexity, color=FAINT, linestyle=":", linewidth=1)
    others = 0
    for row in table.itertuples():
        shade = INK if row.strategy == ZERO_SHOT else COLOURS[others % len(COLOURS)]
        marker = MARKERS[(others + others // len(COLOURS)) % len(MARKERS)]
        style = {"color": shade, "marker": marker, "markersize": 9, "linestyle": "none"}
        axes.plot(row.perplexity, row.general, label=row.strategy, **style)
        others += row.strategy != ZERO_SHOT
    axes.set_xlabel("perplexity on the new text (lower: gained more)")
    axes.set_ylabel("perplexity on general text (higher: forgot more)")
    figure.legend(loc="outside right center", fontsize="small", frameon=False)
    headline(figure, "What each strategy gained, and what it forgot")
    return figure


@described
def cost_chart(table: pd.DataFrame) -> Chart:
    """Seconds of training and peak memory of tensors, side by side."""
    table = table[table.seconds > 0]
    figure, panels = new_figure(_height(len(table)), panels=2)
    columns = {"seconds": "training time (s, on one machine)", "peak_memory_mb": "peak memory of tensors (MB)"}
    for axes, (column, label), shade in zip(panels, columns.items(), COLOURS[4:6], strict=True):
        bars = axes.barh(table.strategy, table[column], color=shade, edgecolor=INK)
        axes.bar_label(bars, [number(value) for value in table[column]], padding=3, fontsize="small")
        axes.margins(x=0.2)
        axes.set_xlabel(label)
    panels[0].invert_yaxis()
    headline(figure, "Time and memory of a training")
    return figure


def _height(rows: int) -> float:
    """Inches that leave each row of a chart room for a line of text, and the title and the axis theirs."""
    return 1.6 + 0.34 * rows


def _rows_chart(table: pd.DataFrame, series: dict[str, str], form: str) -> tuple[Chart, Axes]:
    """A row for each strategy, the first on top: its points with their intervals, and the figures at the right."""
    table = table.dropna(subset=list(series.values())).reset_index(drop=True)
    figure, axes = new_figure(_height(len(series) * len(table)))
    for order, (name, column) in enumerate(series.items()):
        values, low, high = (table[f"{column}{end}"] for end in ("", "_low", "_high"))
        rows = table.index + 0.4 * (order - (len(series) - 1) / 2)
        errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]  # of one document 0, up to rounding
        style = {"fmt": MARKERS[order], "color": COLOURS[order], "capsize": 4, "label": name}
        axes.errorbar(values, rows, xerr=errors, **style)
        for row, value in zip(rows, values, strict=True):
            place = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": "small"}
            axes.text(1.02, row, form.format(value), color=COLOURS[order], **place)
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    return figure, axes


QUESTIONS = {f"{name} questions": f"{name}_accuracy" for name in QUESTION_SETS}
CLASSES = {"balanced accuracy": "balanced_accuracy"}
# Each draws a comparison, or returns None where it has nothing to draw.
CHARTS = {
    "perplexity": lambda of: perplexity_chart(of.table),
    "cost": lambda of: cost_chart(of.table),
    "forgetting": lambda of: forgetting_chart(of.table) if of.table.general.notna().any() else None,
    "class_accuracy": lambda of: (
        accuracy_chart(of.table, CLASSES, 1 / of.provenance["classes"]) if "balanced_accuracy" in of.table else None
    ),
    "pairs": lambda of: pairs_chart(of.pairs) if len(of.pairs) and of.pairs.low.notna().all() else None,
    "accuracy": lambda of: accuracy_chart(of.table, QUESTIONS, CHANCE) if len(of.answers) else None,
}

"""The charts that a comparison is exported with, each drawn from one of its tables, which are as in `Comparison`."""

import pandas as pd
from matplotlib.axes import Axes

from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.figure import COLOURS, FAINT, INK, Chart, described, headline, new_figure, short

LOWER, HIGHER = "#BFE0F5", "#F7DDA8"  # the row's perplexity, in a matrix of pairs
MARKERS = "osD^vPX*"


@described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on held-out text, with the 95% interval over documents; rows are in the order of the table."""
    figure, axes = _rows_chart(table, "perplexity", "{:,.1f}")
    axes.set_xlabel("perplexity (lower is better; lines: 95% interval over documents)")
    headline(figure, "Perplexity on held-out text")
    return figure


@described
def accuracy_chart(table: pd.DataFrame, chance: float) -> Chart:
    """Balanced accuracy of each strategy, with 95% intervals; the dashed line is what guessing gives."""
    figure, axes = _rows_chart(table, "balanced_accuracy", "{:.0%}")
    axes.axvline(chance, color=INK, linestyle="--", label="guessing")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel("balanced accuracy (lines: 95% interval over texts)")
    figure.legend(loc="outside lower center", fontsize="small", frameon=False)
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
    for number, row in enumerate(table.itertuples()):
        shade = INK if row.strategy == ZERO_SHOT else COLOURS[number % len(COLOURS)]
        marker = MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]
        style = {"color": shade, "marker": marker, "markersize": 9, "linestyle": "none"}
        axes.plot(row.perplexity, row.general, label=row.strategy, **style)
    axes.set_xlabel("perplexity on the new text (lower: gained more)")
    axes.set_ylabel("perplexity on general text (higher: forgot more)")
    figure.legend(loc="outside right center", fontsize="small", frameon=False)
    headline(figure, "What each strategy gained, and what it forgot")
    return figure


@described
def cost_chart(table: pd.DataFrame) -> Chart:
    """Seconds of training and peak memory of tensors, side by side."""
    table = table[table.seconds > 0]
    figure, panels = new_figure(1.6 + 0.34 * len(table), panels=2)
    columns = {"seconds": "training time (s, on one machine)", "peak_memory_mb": "peak memory of tensors (MB)"}
    for axes, (column, label), shade in zip(panels, columns.items(), COLOURS[4:6], strict=True):
        bars = axes.barh(table.strategy, table[column], color=shade, edgecolor=INK)
        axes.bar_label(bars, table[column].map(short), padding=3, fontsize="small")
        axes.margins(x=0.2)
        axes.set_xlabel(label)
    panels[0].invert_yaxis()
    headline(figure, "Time and memory of a training")
    return figure


def _rows_chart(table: pd.DataFrame, column: str, form: str) -> tuple[Chart, Axes]:
    """A row for each strategy, the first on top: its point with its interval, and the figure at the right.

    The control, which begins with random weights, is left out: it would leave the others no room.
    """
    table = table[table.strategy != CONTROL].dropna(subset=column).reset_index(drop=True)
    figure, axes = new_figure(1.6 + 0.34 * len(table))  # inches: a line of text for each row, the title and the axis
    values, low, high = (table[f"{column}{end}"] for end in ("", "_low", "_high"))
    errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]  # of one document 0, up to rounding
    axes.errorbar(values, table.index, xerr=errors, fmt=MARKERS[0], color=COLOURS[0], capsize=4)
    for row, value in values.items():
        place = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": "small"}
        axes.text(1.02, row, form.format(value), color=COLOURS[0], **place)
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    return figure, axes


# Each draws a comparison, or returns None where it has nothing to draw.
CHARTS = {
    "perplexity": lambda of: perplexity_chart(of.table),
    "cost": lambda of: cost_chart(of.table),
    "forgetting": lambda of: forgetting_chart(of.table) if of.table.general.notna().any() else None,
    "class_accuracy": lambda of: (
        accuracy_chart(of.table, 1 / of.provenance["classes"]) if "balanced_accuracy" in of.table else None
    ),
    "pairs": lambda of: pairs_chart(of.pairs) if len(of.pairs) and of.pairs.low.notna().all() else None,
}

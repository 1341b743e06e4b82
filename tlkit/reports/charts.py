"""The charts that a comparison is exported with."""

import pandas as pd

from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.figure import COLOURS, FAINT, INK, Chart, described, headline, new_figure, short

MARKERS = "osD^vPX*"


@described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on held-out text, with the 95% interval over documents."""
    label = "perplexity (lower is better; lines: 95% interval over documents)"
    return _rows_chart(table, "perplexity", "{:,.1f}", label, "Perplexity on held-out text")


@described
def accuracy_chart(table: pd.DataFrame, chance: float) -> Chart:
    """Balanced accuracy of each strategy, with 95% intervals; the dashed line is what guessing gives."""
    label = "balanced accuracy (lines: 95% interval over texts)"
    figure = _rows_chart(table, "balanced_accuracy", "{:.0%}", label, "How often each model is right")
    figure.axes[0].axvline(chance, color=INK, linestyle="--", label="guessing")
    figure.axes[0].xaxis.set_major_formatter("{x:.0%}")
    figure.legend(loc="outside lower center", fontsize="small", frameon=False)
    return figure


@described
def forgetting_chart(table: pd.DataFrame) -> Chart:
    """What was gained on the new text against what was lost on general text; best at the bottom left."""
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


def _rows_chart(table: pd.DataFrame, column: str, form: str, label: str, title: str) -> Chart:
    """A point with its interval for each strategy but the control, which is far from the others."""
    table = table[table.strategy != CONTROL].dropna(subset=column).reset_index(drop=True)
    figure, axes = new_figure(1.6 + 0.34 * len(table))
    values, low, high = (table[f"{column}{end}"] for end in ("", "_low", "_high"))
    errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]  # of one document 0, up to rounding
    axes.errorbar(values, table.index, xerr=errors, fmt=MARKERS[0], color=COLOURS[0], capsize=4)
    for row, value in values.items():
        place = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": "small"}
        axes.text(1.02, row, form.format(value), color=COLOURS[0], **place)
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xlabel(label)
    headline(figure, title)
    return figure


# Of a comparison; None where there is nothing to draw.
CHARTS = {
    "perplexity": lambda of: perplexity_chart(of.table),
    "cost": lambda of: cost_chart(of.table),
    "forgetting": lambda of: forgetting_chart(of.table) if of.table.general.notna().any() else None,
    "class_accuracy": lambda of: (
        accuracy_chart(of.table, 1 / of.provenance["classes"]) if "balanced_accuracy" in of.table else None
    ),
}

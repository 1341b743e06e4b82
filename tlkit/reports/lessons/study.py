"""Pictures of a study: the path from a text to a report, and the differences that it found."""

import pandas as pd

from tlkit.reports.drawing import INK, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, Chart, described, headline, new_figure

STATIONS = (
    ("1 · Text", "sizes, copies,\nwhat can be shown"),
    ("2 · Baseline", "untouched model,\nwith an interval"),
    ("3 · Card", "what each strategy\nneeds, and a limit"),
    ("4 · Tuning", "as many tries for all,\non validation text"),
    ("5 · Runs", "seeds, a control,\nthe test split once"),
    ("6 · Costs", "what is forgotten,\nquestions, memory"),
    ("7 · Decision", "from the interval,\nor “cannot tell”"),
    ("8 · Report", "figures from the\nrecord, six questions"),
)


@described
def study_path() -> Chart:
    """The path of a study in eight stations, from a text to a report, with the record between them."""
    figure, axes = paper(4.3, 100, 52)
    for place, (name, told) in enumerate(STATIONS):
        upper = place < 4
        x, y = (26 * place, 37) if upper else (26 * (7 - place), 2)
        ground = PASSED if place < 3 else COLOURS[2] if place in (3, 4) else SPARED
        box(axes, (x + 0.5, y), 21, 13, name, told, facecolor=ground)
    for place in range(3):
        arrow(axes, (26 * place + 21.5, 43.5), (26 * place + 26.5, 43.5))
        arrow(axes, (26 * (3 - place) + 0.5, 8.5), (26 * (3 - place) - 4.5, 8.5))
    arrow(axes, (89, 37), (89, 15))
    box(axes, (0.5, 21.5), 78, 9, "study.json: everything that was measured. The report and the judgement read it,")
    axes.texts[-1].set_position((39.5, 27.6))
    axes.text(39.5, 24.2, "and neither reads anything else.", ha="center", va="center", color=INK, fontsize="small")
    for x, start, end in (
        (11, 37, 30.5),
        (37, 37, 30.5),
        (63, 37, 30.5),
        (63, 15, 21.5),
        (37, 15, 21.5),
        (11, 21.5, 15),
    ):
        arrow(axes, (x, start), (x, end), linewidth=0.9)
    figure.words = tuple(f"{name}: {' '.join(told.split())}" for name, told in STATIONS)
    headline(figure, "From a text to a report: what is chosen is chosen before the test split is opened")
    return figure


@described
def difference_chart(pairs: pd.DataFrame, worthwhile: float) -> Chart:
    """Each difference of two strategies with its interval, and the band in which a difference is not worthwhile.

    Args:
        pairs: `Study.compared`, in percent of perplexity.
        worthwhile: the smallest difference that matters, in percent.
    """
    figure, axes = new_figure(1.6 + 0.55 * max(1, len(pairs)))
    axes.axvspan(-worthwhile, worthwhile, color=COLOURS[0], alpha=0.12, label=f"not worthwhile: within {worthwhile:g}%")
    axes.axvline(0, color=INK, linewidth=1)
    names = []
    for place, row in enumerate(pairs.itertuples()):
        names.append(f"{row.first} against {row.second}")
        shade = TRAINED if row.separated else INK
        if row.low == row.low and row.high == row.high:
            axes.plot([row.low, row.high], [place, place], color=shade, linewidth=2)
        axes.plot(row.difference, place, marker="o" if row.separated else "s", color=shade, markersize=7)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("difference of perplexity (%), negative where the first is better, with its interval")
    axes.legend(loc="best", fontsize="small")
    apart = int(pairs.separated.sum())
    told = {0: "No two strategies can be told apart", 1: "One pair of strategies can be told apart"}
    headline(figure, told.get(apart, f"{apart} of {len(pairs)} pairs of strategies can be told apart"))
    return figure

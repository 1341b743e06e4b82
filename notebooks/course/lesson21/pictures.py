"""Pictures of a study: the path from a text to a report, the differences that it found, and what was forgotten."""

import pandas as pd
from matplotlib.patches import Patch

from tlkit.reports.drawing import INK, PASSED, SPARED, arrow, box, paper
from tlkit.reports.figure import COLOURS, FAINT, Chart, dark, described, headline, height_for, new_figure, styles

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
TESTED = "#FFFFFF"  # stations that use the test split; those before it are grey
BEFORE = SPARED


@described
def study_path() -> Chart:
    """The path of a study in eight stations, from a text to a report, with the record between them."""
    figure, axes = paper(4.5, 100, 57)
    for place, (name, told) in enumerate(STATIONS):
        upper = place < 4
        x, y = (26 * place, 40) if upper else (26 * (7 - place), 7)
        box(axes, (x + 0.5, y), 21, 13, name, told, facecolor=BEFORE if upper else TESTED)
    for place in range(3):
        arrow(axes, (26 * place + 21.5, 46.5), (26 * place + 26.5, 46.5))
        arrow(axes, (26 * (3 - place) + 0.5, 13.5), (26 * (3 - place) - 4.5, 13.5))
    arrow(axes, (95, 40), (95, 20))
    box(axes, (0.5, 24.5), 91, 10, "study.json, the record: everything that was measured, the plan and the decision")
    axes.texts[-1].set_position((46, 31))
    words = {"ha": "center", "va": "center", "color": INK, "fontsize": "small"}
    axes.text(
        46, 27.6, "The report is filled in from it, and the rules judge by it; a person reads the words.", **words
    )
    for x in (11, 37, 63, 85):
        arrow(axes, (x, 40), (x, 34.5), linewidth=0.9)
    for x in (37, 63, 85):
        arrow(axes, (x, 20), (x, 24.5), linewidth=0.9)
    arrow(axes, (11, 24.5), (11, 20), linewidth=0.9)
    kinds = {"before the test split is opened": BEFORE, "after": TESTED}
    patches = [Patch(facecolor=shade, edgecolor=INK, label=kind) for kind, shade in kinds.items()]
    axes.legend(handles=patches, loc="lower center", ncols=2, fontsize="small", frameon=False)
    figure.words = tuple(f"{name}: {' '.join(told.split())}" for name, told in STATIONS)
    headline(figure, "Plan, rates and settings are fixed before the test split is opened")
    return figure


@described
def difference_chart(pairs: pd.DataFrame, worthwhile: float) -> Chart:
    """Each difference of two strategies with its interval, and the band in which a difference is not worthwhile.

    Args:
        pairs: `Study.compared`, in percent of perplexity.
        worthwhile: the smallest difference that matters, in percent.
    """
    figure, axes = new_figure(1.6 + 0.55 * max(1, len(pairs)))
    axes.axvspan(-worthwhile, worthwhile, color=PASSED, label=f"not worthwhile: within {worthwhile:g}%")
    axes.axvline(0, color=INK, linewidth=1)
    names = []
    for place, row in enumerate(pairs.itertuples()):
        names.append(f"{row.first} against {row.second}")
        shade = COLOURS[0] if row.separated else INK
        if row.low == row.low and row.high == row.high:
            axes.plot([row.low, row.high], [place, place], color=shade, linewidth=2)
        axes.plot(row.difference, place, marker="o" if row.separated else "s", color=shade, markersize=7)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("difference of perplexity (%), negative where the first is better, with its interval")
    axes.legend(loc="best", fontsize="small")
    headline(figure, _difference_finding(pairs, worthwhile))
    return figure


@described
def seed_forgetting_chart(forgetting: pd.DataFrame, means: pd.DataFrame, may_forget: float) -> Chart:
    """How far perplexity on general text rose with each seed, the mean with its interval, and what the plan allows.

    Args:
        forgetting: `Study.forgetting_by_seed`, in percent.
        means: `Study.forgetting`, by strategy with low and high.
        may_forget: the plan's limit, in percent.
    """
    figure, axes = new_figure(height_for(1.4 * len(means)))
    drawn = styles(means.index)
    for place, (name, row) in enumerate(means.iterrows()):
        shade, form = drawn[name]
        seeds = forgetting[forgetting.strategy == name].change
        spread = [[row["mean"] - row.low], [row.high - row["mean"]]] if row.low == row.low else None
        style = {"color": shade, "marker": form, "markersize": 9, "capsize": 4}
        axes.errorbar(row["mean"], place, xerr=spread, label=f"{name}, mean and 95% interval over seeds", **style)
        axes.plot(seeds, [place + 0.25] * len(seeds), "|", color=dark(shade), markersize=11, markeredgewidth=2)
    axes.axvline(may_forget, color=INK, linestyle="--", linewidth=1.2)
    inwards, side = (-4, "right") if may_forget > forgetting.change.max() else (4, "left")
    beside = {"xytext": (inwards, -3), "textcoords": "offset points", "ha": side, "va": "top", "fontsize": "small"}
    axes.annotate(f"the plan allows {may_forget:g}%", (may_forget, 1), xycoords=axes.get_xaxis_transform(), **beside)
    axes.set_yticks(range(len(means)), means.index)
    axes.set_ylim(len(means) - 0.4, -0.7)
    axes.set_xlabel("rise of perplexity on general text (%)")
    figure.supxlabel(
        "points: means; lines: their 95% intervals over seeds; ticks: the seeds", fontsize="small", color=FAINT
    )
    headline(figure, _forgetting_finding(forgetting, means))
    return figure


def _difference_finding(pairs: pd.DataFrame, worthwhile: float) -> str:
    apart = pairs[pairs.separated]
    if len(pairs) != 1 or apart.empty:
        told = {0: "No two strategies can be told apart", 1: "One pair of strategies can be told apart"}
        return told.get(len(apart), f"{len(apart)} of {len(pairs)} pairs of strategies can be told apart")
    row = apart.iloc[0]
    way = "below" if row.difference < 0 else "above"
    nearest, furthest = sorted((abs(row.low), abs(row.high)))
    size = "more than" if nearest > worthwhile else "less than" if furthest <= worthwhile else "perhaps more than"
    return (
        f"{row['first']} ends {abs(row.difference):.0f}% {way} {row['second']}: {size} the {worthwhile:g}% that matters"
    )


def _forgetting_finding(forgetting: pd.DataFrame, means: pd.DataFrame) -> str:
    """Who forgets more, and whether each seed says so."""
    if len(means) < 2:
        return "What was forgotten with each seed"
    most, least = means["mean"].idxmax(), means["mean"].idxmin()
    if len(means) > 2:
        return f"On average {most} forgets most, {least} least"
    by_seed = forgetting.pivot(index="seed", columns="strategy", values="change").dropna()
    agreed = int((by_seed[most] > by_seed[least]).sum())
    if agreed == len(by_seed) > 1:
        return f"{most} forgot more than {least}, with each of {agreed} seeds"
    return f"{most} forgot more than {least} with {agreed} of {len(by_seed)} seed{'s'[: len(by_seed) - 1]}"

"""Pictures of a published leaderboard: its scores, which pairs can be told apart, and what running it again changes."""

import numpy as np
import pandas as pd

from tlkit.evidence.audit import Audit
from tlkit.reports.figure import COLOURS, INK, Chart, described, headline, height_for, new_figure, plain_numbers
from tlkit.reports.fronts import LIKELY, SELDOM, SURE, draw_front, name_rows, name_shares
from tlkit.reports.labels import beside_rows


@described
def standings_chart(scores: pd.Series, first: int = 10) -> Chart:
    """All scores of a leaderboard in their order; the first ones are coloured.

    Args:
        scores: shares from 0 to 1, in any order.
        first: how many are coloured.
    """
    ordered = 100 * np.sort(scores.to_numpy(dtype=float))[::-1]
    figure, axes = new_figure(3.6)
    places = np.arange(1, len(ordered) + 1)
    axes.bar(places, ordered, color=[COLOURS[0]] * first + ["#C9C9C9"] * (len(ordered) - first), width=0.8)
    axes.set_xlim(0.2, len(ordered) + 0.8)
    axes.set_xlabel("place in the leaderboard")
    axes.set_ylabel("questions answered correctly (%)")
    headline(figure, f"The first {first} of {len(ordered)} lie between {ordered[0]:.1f}% and {ordered[first - 1]:.1f}%")
    return figure


@described
def scores_chart(table: pd.DataFrame, first: int = 10) -> Chart:
    """The first scores of an audited table with the 95% interval of each, over test items alone.

    Args:
        table: of an `Audit` of shares.
        first: how many rows are drawn.
    """
    rows = table.head(first)
    figure, axes = new_figure(height_for(len(rows)))
    value, low, high = (100 * rows[column] for column in ("value", "low", "high"))
    axes.errorbar(
        value, range(len(rows)), xerr=[value - low, high - value], fmt="o", color=COLOURS[0], ecolor=INK, capsize=4
    )
    axes.axvspan(low.iloc[0], high.iloc[0], color=COLOURS[0], alpha=0.08)
    axes.set_yticks(range(len(rows)), rows.name)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    beside_rows(axes, range(len(rows)), [f"{number:.1f}%" for number in value])
    axes.set_xlabel("questions answered correctly (%; lines: 95% intervals; shaded: that of the first row)")
    inside = int((value >= low.iloc[0]).sum()) - 1
    headline(figure, f"The interval of the first row holds the scores of {inside} of the other {len(rows) - 1}")
    return figure


@described
def apart_chart(audit: Audit) -> Chart:
    """Every pair of an audited table, in the order of the scores: told apart, undecided, or out of reach.

    Args:
        audit: of a table.
    """
    place = {name: number for number, name in enumerate(audit.table.name)}
    size, pairs = len(place), audit.pairs
    state = np.full((size, size), np.nan)
    rows, columns = pairs["first"].map(place), pairs["second"].map(place)
    found = np.where(pairs.separated, 2, np.where(pairs.possible, 1, 0))
    state[rows, columns] = state[columns, rows] = found
    figure, axes = new_figure(5.2)
    kinds = {
        2: (COLOURS[0], f"told apart: {audit.separated:,} pairs"),
        1: ("#F7DDA8", f"not told apart; the answers to\neach question could help: {audit.undecided:,}"),
        0: (COLOURS[1], f"out of reach of these questions,\nwhatever the answers: {audit.out_of_reach:,}"),
    }
    picture = np.ones((size, size, 3))
    for kind, (shade, _) in kinds.items():
        picture[state == kind] = [int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    axes.imshow(picture, extent=(0.5, size + 0.5, size + 0.5, 0.5), interpolation="nearest")
    axes.grid(False)
    axes.set_xlabel("place of one row")
    axes.set_ylabel("place of the other row")
    marks = [axes.plot([], [], "s", color=shade, label=name, markersize=10)[0] for shade, name in kinds.values()]
    axes.legend(handles=marks, loc="center left", bbox_to_anchor=(1.03, 0.5), frameon=False, fontsize="small")
    beside = int((state[np.arange(size - 1), np.arange(1, size)] == 2).sum())
    headline(
        figure,
        f"{audit.separated:,} of {len(pairs):,} pairs can be told apart, but only {beside} of {size - 1} neighbours",
    )
    figure.words = tuple(name.replace("\n", " ") for _, name in kinds.values())
    return figure


@described
def front_chart(table: pd.DataFrame, cost: str, unit: str, least: float) -> Chart:
    """Accuracy against a cost: each row's share of the resampled tests in which no other row beats it on both.

    Args:
        table: a row for each method, with columns name, accuracy (0 to 1), `cost`, and, of `front_shares`, front and
            share.
        cost: the column of the cost, lower is better.
        unit: what is written at the axis of the cost.
        least: accuracies below it are left out of the picture.
    """
    shown = table.assign(percent=100 * table.accuracy)[table.accuracy >= least]
    figure, axes = new_figure(5.8)
    axes.set_xscale("log")
    draw_front(axes, shown, cost, "percent")
    plain_numbers(axes.xaxis, shown[cost].min(), shown[cost].max())
    axes.set_xlabel(f"{unit} (lower is better)")
    spared = f"; from {100 * least:.0f}% on" if (table.accuracy < least).any() else ""
    axes.set_ylabel(f"accuracy (%, higher is better{spared})")
    which = f"named: from {LIKELY:.0%} on, and the most accurate row"
    name_shares(figure, axes, f"share of the draws in which a row is on the front ({which})")
    named = shown[(shown.share >= LIKELY) | (shown.accuracy == shown.accuracy.max())]
    names = [f"{name} {100 * share:.0f}%" for name, share in zip(named.name, named.share, strict=True)]
    name_rows(axes, names, named, cost, "percent")
    front = shown[shown.front]
    held, could = int((front.share >= SURE).sum()), int(((shown.share >= SELDOM) & ~shown.front).sum())
    counted = f"Of the {len(shown)} rows{' shown' if spared else ''}, {len(front)} are on the front, {held} of them in"
    headline(figure, f"{counted} {SURE:.0%} or more of the draws; {could} others reach it in {SELDOM:.0%} or more")
    return figure

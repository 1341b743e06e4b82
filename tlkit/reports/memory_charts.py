"""Charts of memory: what a step needs, what fits a card, and how a training went on with less."""

import math
import re
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from tlkit.fitting.attempts import Attempt
from tlkit.fitting.estimate import MemoryEstimate
from tlkit.fitting.ladder import FALLBACK_TIERS, Rung
from tlkit.memory import parse_size
from tlkit.names import CARD_SHARE
from tlkit.reports.figure import COLOURS, HATCHES, INK, Chart, described, headline, height_for, new_figure
from tlkit.reports.findings import listed, number
from tlkit.reports.labels import beside_rows


@described
def memory_chart(estimates: dict[str, MemoryEstimate], budgets: dict[str, int] | None = None) -> Chart:
    """Estimated bytes by category, a bar for each estimate; a card's usable 85% and its whole memory are marked.

    Args:
        estimates: by name what `estimate_memory` returned.
        budgets: by name the bytes of a card.
    """
    budgets = budgets or {}
    peaks = {estimate.phase for estimate in estimates.values() if estimate.phases}
    figure, axes = new_figure(height_for(len(estimates), 0.5 if len(peaks) > 1 else 0.34) + 0.7)
    unit, divisor = ("GiB", 2**30) if max(e.peak for e in estimates.values()) >= 2**30 else ("MiB", 2**20)
    rows, left = range(len(estimates)), [0.0] * len(estimates)
    for place, category in enumerate(max((e.categories for e in estimates.values()), key=len)):
        sizes = [estimate.categories.get(category, 0) / divisor for estimate in estimates.values()]
        style = {"color": COLOURS[place], "edgecolor": INK, "hatch": HATCHES[place]}
        axes.barh(rows, sizes, left=left, label=category, **style)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    _mark_cards(axes, {name: budget / divisor for name, budget in budgets.items()})
    names = [f"{name}\npeak: {e.phase}" if len(peaks) > 1 else name for name, e in estimates.items()]
    _finish_bars(figure, axes, names, [f"{number(size)} {unit}" for size in left])
    axes.set_xlabel(f"tensors held at the peak of a step ({unit})")
    headline(figure, _memory_finding(estimates, budgets))
    return figure


@described
def ladder_chart(rungs: list[Rung], budgets: dict[str, int]) -> Chart:
    """What each rung of the ladder should need on the device, coloured by tier; a card's usable 85% is marked.

    Args:
        rungs: with their estimates.
        budgets: by name the bytes of a card.
    """
    figure, axes = new_figure(height_for(len(rungs)) + 0.5)
    for order, (tier, names) in enumerate(FALLBACK_TIERS.items()):
        places = [place for place, rung in enumerate(rungs) if rung.name in names]
        sizes = [rungs[place].estimate / 2**30 for place in places]
        style = {"color": COLOURS[order], "edgecolor": INK, "hatch": HATCHES[order]}
        axes.barh(places, sizes, label=tier if places else None, **style)
    _mark_cards(axes, {name: budget / 2**30 for name, budget in budgets.items()})
    labels = [_rung_label(rung) for rung in rungs]
    _finish_bars(figure, axes, labels, [f"{rung.estimate / 2**30:.1f} GiB" for rung in rungs])
    axes.set_xlabel("peak of a training step on the device (GiB)")
    said = []
    for name, budget in sorted(budgets.items(), key=lambda pair: pair[1]):
        fits = [label for label, rung in zip(labels, rungs, strict=True) if rung.estimate <= CARD_SHARE * budget]
        said.append(f"{name}: {fits[0] if fits else 'none'}")
    headline(figure, f"First rung that fits {'; '.join(said)}" if said else "What each rung of the ladder needs")
    return figure


@described
def attempts_chart(attempts: list[Attempt], limit: int | None = None) -> Chart:
    """How much memory each attempt of a fallback held on the card at its highest, and whether it was enough.

    Args:
        attempts: from a `FallbackLog`, in their order.
        limit: bytes that the card has; by default what the name of its device says.
    """
    limit = limit or _limit_of(attempts)
    figure, axes = new_figure(height_for(len(attempts)) + 0.5)
    for order, (label, failed) in enumerate({"out of memory": True, "holds": False}.items()):
        places = [place for place, attempt in enumerate(attempts) if bool(attempt.failed_in) is failed]
        sizes = [attempts[place].peak / 2**20 for place in places]
        axes.barh(places, sizes, color=COLOURS[1 + order], hatch=HATCHES[1 - order], edgecolor=INK, label=label)
    # What was asked for when memory ran out, on top of what was held then.
    for place, attempt in enumerate(attempts):
        if limit and attempt.failed_in and not math.isnan(attempt.bytes_asked + attempt.bytes_available):
            held = (limit - attempt.bytes_available) / 2**20
            style = {"facecolor": "none", "edgecolor": COLOURS[1], "linestyle": ":", "linewidth": 1.5}
            axes.barh(place, attempt.bytes_asked / 2**20, left=held, **style)
    if limit:
        _mark_limit(axes, limit / 2**20, f"card: {limit / 2**20:.0f} MiB")
    names = [f"{place}. {attempt.rung}" for place, attempt in enumerate(attempts, 1)]
    _finish_bars(figure, axes, names, [_end_of(attempt) for attempt in attempts])
    axes.set_xlabel("most bytes held on the card (MiB); dotted: asked for when memory ran out")
    failed = sum(bool(attempt.failed_in) for attempt in attempts)
    done = [attempt.rung for attempt in attempts if not attempt.failed_in]
    tried = f"{failed} attempt{'s' * (failed != 1)} ran out of memory"
    headline(figure, f"{tried}; “{done[0]}” holds" if done else tried)
    return figure


@described
def fit_chart(table: pd.DataFrame) -> Chart:
    """What each strategy needs, against the memory of common cards (log scale); of a card, 85% can be used.

    Args:
        table: what `fit_table` returned.
    """
    table = table.dropna(subset="gib").reset_index(drop=True)
    figure, axes = new_figure(height_for(len(table)) + 0.3)
    cards = {column: float(column.split()[0]) for column in table if column.endswith(" GB")}
    axes.set_xscale("log", base=2)
    axes.plot(table.gib, table.index, "o", color=COLOURS[0], markersize=9)
    axes.set_yticks(table.index, table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    places = [*table.gib, *(CARD_SHARE * size for size in cards.values())]
    axes.set_xlim(min(places) / 1.25, max(places) * 1.25)
    for order, (name, size) in enumerate(cards.items()):
        _mark_limit(axes, CARD_SHARE * size, name, order % 2)
    axes.xaxis.set_major_formatter("{x:g}")
    smallest = [
        next((card for card, size in cards.items() if gib <= CARD_SHARE * size), "none of these") for gib in table.gib
    ]
    beside_rows(
        axes, table.index, [f"{number(gib)} GiB: {card}" for gib, card in zip(table.gib, smallest, strict=True)]
    )
    axes.set_xlabel("peak of a step (GiB, log scale); dashed: the 85% of a card that can be used")
    by_card = table.strategy.groupby(pd.Categorical(smallest, [*cards, "none of these"], ordered=True), observed=True)
    said = [f"{card}: {listed(names, 'strategies')}" for card, names in by_card]
    headline(figure, f"Smallest card that is enough: {'; '.join(said)}")
    return figure


def _mark_cards(axes: Axes, sizes: dict[str, float]) -> None:
    """Mark what cards allow: a dashed line at the share that can be used, shaded from there to the whole card."""
    for order, (name, size) in enumerate(sizes.items()):
        axes.axvspan(CARD_SHARE * size, size, color=INK, alpha=0.12, linewidth=0, zorder=0)
        told = f"{name}\n{CARD_SHARE:.0%}: {CARD_SHARE * size:.3g}"
        _mark_limit(axes, CARD_SHARE * size, told, 2 * (order % 2))


def _mark_limit(axes: Axes, place: float, name: str, lines_up: int = 0) -> None:
    """Draw a dashed line with its name over it, so many lines up that neighbours do not collide."""
    axes.axvline(place, color=INK, linestyle="--", linewidth=1.2, label=f"_{name}")
    style = {"ha": "center", "va": "bottom", "fontsize": "x-small", "textcoords": "offset points"}
    axes.annotate(name, (place, 1), xytext=(0, 3 + 10 * lines_up), xycoords=axes.get_xaxis_transform(), **style)


def _finish_bars(figure: Chart, axes: Axes, names: Sequence[str], told: Sequence[str]) -> None:
    """Name the bars of a chart, the first on top, with a figure at the right of each and a legend below."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    beside_rows(axes, range(len(names)), told)
    figure.legend(loc="outside lower center", ncols=4, fontsize="small", frameon=False)


def _memory_finding(estimates: dict[str, MemoryEstimate], budgets: dict[str, int]) -> str:
    """Which of several estimates fit each card; of one, whether it fits and what it needs most of."""
    if budgets and len(estimates) > 1:
        fits = {
            card: [name for name, estimate in estimates.items() if estimate.peak <= CARD_SHARE * budget]
            for card, budget in budgets.items()
        }
        told = [
            f"{card}: {'all of these' if len(names) == len(estimates) else listed(names, 'of these') or 'none'}"
            for card, names in fits.items()
        ]
        return f"What fits {'; '.join(told)}"
    name, estimate = max(estimates.items(), key=lambda pair: pair[1].peak)
    part = max(estimate.categories, key=estimate.categories.get)
    verdicts = [
        f"{'fits' if estimate.peak <= CARD_SHARE * budget else 'does not fit'} {card}"
        for card, budget in budgets.items()
    ]
    share = f"{100 * estimate.categories[part] / estimate.peak:.0f}% of its peak is {part}"
    return f"{name} {' and '.join(verdicts)}, and {share}" if verdicts else f"{name}: {share}"


def _limit_of(attempts: list[Attempt]) -> int | None:
    """Bytes of the card that attempts name as their device, as in "virtual card of 48MB"."""
    sizes = [re.search(r"\d+(?:\.\d+)? ?[MG]i?B", attempt.device) for attempt in attempts]
    return next((parse_size(size.group()) for size in sizes if size), None)


def _end_of(attempt: Attempt) -> str:
    if attempt.failed_in:
        return f"fails in the {attempt.failed_in}"
    return f"holds: {attempt.peak / 2**20:.0f} MiB" if math.isfinite(attempt.peak) else "holds"


def _rung_label(rung: Rung) -> str:
    return f"micro-batches of {rung.plan.micro_batch_size}" if rung.name == "smaller micro-batch" else rung.name

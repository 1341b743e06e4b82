"""Charts of memory: what a step needs, what fits a card, and how a training went on with less."""

import math
import re

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

LARGE = 0.05  # share of the longest bar below which nobody misses a kind of bytes


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
    names, left = list(estimates), [0.0] * len(estimates)
    for place, category in enumerate(max((e.categories for e in estimates.values()), key=len)):
        sizes = [estimate.categories.get(category, 0) / divisor for estimate in estimates.values()]
        style = {"color": COLOURS[place], "edgecolor": INK, "hatch": HATCHES[place]}
        axes.barh(names, sizes, left=left, label=category, **style)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    mark_limits(axes, {name: budget / divisor for name, budget in budgets.items()})
    labels = [f"{name}\npeak: {e.phase}" if len(peaks) > 1 else name for name, e in estimates.items()]
    axes.set_yticks(range(len(names)), labels)
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    beside_rows(axes, range(len(names)), [f"{number(size)} {unit}" for size in left])
    # A kind of bytes that is there in one bar and not in another would puzzle the reader.
    axes.set_xlabel("\n".join([f"tensors held at the peak of a step ({unit})", *_absent(estimates)]))
    figure.legend(loc="outside lower center", ncols=4, fontsize="small", frameon=False)
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
        if not places:
            continue
        sizes = [rungs[place].estimate / 2**30 for place in places]
        style = {"color": COLOURS[order], "edgecolor": INK, "hatch": HATCHES[order]}
        axes.barh(places, sizes, label=tier, **style)
    mark_limits(axes, {name: budget / 2**30 for name, budget in budgets.items()})
    axes.set_yticks(range(len(rungs)), [_rung_label(rung) for rung in rungs])
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    beside_rows(axes, range(len(rungs)), [f"{rung.estimate / 2**30:.1f} GiB" for rung in rungs])
    axes.set_xlabel("peak of a training step on the device (GiB)")
    figure.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    said = []
    for name, budget in sorted(budgets.items(), key=lambda pair: pair[1]):
        fits = [_rung_label(rung) for rung in rungs if rung.estimate <= CARD_SHARE * budget]
        said.append(f"the first rung that fits {name} is “{fits[0]}”" if fits else f"no rung fits {name}")
    headline(figure, _sentence(said) or "What each rung of the ladder needs")
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
        if (
            attempt.failed_in
            and math.isfinite(attempt.bytes_asked)
            and math.isfinite(attempt.bytes_available)
            and limit
        ):
            held = (limit - attempt.bytes_available) / 2**20
            style = {"facecolor": "none", "edgecolor": COLOURS[1], "linestyle": ":", "linewidth": 1.5}
            asked = axes.barh(place, attempt.bytes_asked / 2**20, left=held, **style)
            asked.set_label("_asked for")
    if limit:
        mark_limits(axes, {f"card: {limit / 2**20:.0f} MiB": limit / 2**20}, share=1.0)
    axes.set_yticks(range(len(attempts)), [f"{n}. {attempt.rung}" for n, attempt in enumerate(attempts, 1)])
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    beside_rows(axes, range(len(attempts)), [_end_of(attempt) for attempt in attempts])
    axes.set_xlabel("most bytes held on the card (MiB); dotted: asked for when memory ran out")
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    failed = sum(bool(attempt.failed_in) for attempt in attempts)
    done = next((attempt.rung for attempt in attempts if not attempt.failed_in), None)
    tried = f"{failed} attempt{'s' * (failed != 1)} ran out of memory"
    headline(figure, f"{tried}; “{done}” holds" if done else tried)
    return figure


@described
def fit_chart(table: pd.DataFrame) -> Chart:
    """What each strategy needs, against the memory of common cards (log scale); of a card, 85% can be used.

    Args:
        table: what `fit_table` returned.
    """
    table = table.dropna(subset="gib").reset_index(drop=True)
    figure, axes = new_figure(height_for(len(table)) + 0.3)
    cards = {column: float(column.split()[0]) for column in table.columns[table.columns.str.endswith(" GB")]}
    axes.set_xscale("log", base=2)
    axes.plot(table.gib, table.index, "o", color=COLOURS[0], markersize=9)
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    usable = [CARD_SHARE * size for size in cards.values()]
    if usable:
        low, high = min(table.gib.min(), *usable), max(table.gib.max(), *usable)
        axes.set_xlim(low / 1.25, high * 1.25)
    mark_limits(axes, cards, whole=False)
    axes.xaxis.set_major_formatter("{x:g}")
    smallest = [
        next((card for card, size in cards.items() if row.gib <= CARD_SHARE * size), "") for row in table.itertuples()
    ]
    told = [
        f"{number(gib)} GiB: " + (f"{card} card" if card else "none of these")
        for gib, card in zip(table.gib, smallest, strict=True)
    ]
    beside_rows(axes, range(len(table)), told, "smallest card")
    axes.set_xlabel("peak of a step (GiB, log scale); dashed: the 85% of a card that can be used")
    if cards and len(table):
        first, fits = next(
            (
                (card, [name for name, found in zip(table.strategy, smallest, strict=True) if found == card])
                for card in cards
                if card in smallest
            ),
            (None, []),
        )
        if first is None:
            headline(figure, f"Nothing fits {list(cards)[-1]}")
        else:
            said = f"{listed(fits, 'strategies')} fit{'s' * (len(fits) == 1)} a card of {first}"
            none = [name for name, found in zip(table.strategy, smallest, strict=True) if not found]
            headline(
                figure,
                said
                + (
                    f", and {listed(none, 'strategies')} do{'es' * (len(none) == 1)} not even fit {list(cards)[-1]}"
                    if none
                    else f", and {table.strategy[table.gib.idxmax()]} needs one of {smallest[table.gib.idxmax()]}"
                ),
            )
    return figure


def mark_limits(axes: Axes, sizes: dict[str, float], *, share: float = CARD_SHARE, whole: bool = True) -> None:
    """Mark what cards allow: a dashed line at the share that can be used, shaded from there to the whole card.

    Args:
        axes: of a chart with bars or points along the horizontal axis; its limits are kept, or made to hold the cards.
        sizes: by name what a card has, in units of the horizontal axis.
        share: of it that can be used.
        whole: whether the rest of the card is shaded.
    """
    label = {"ha": "center", "va": "bottom", "fontsize": "x-small", "textcoords": "offset points"}
    texts = []
    for name, size in sizes.items():
        axes.axvline(share * size, color=INK, linestyle="--", linewidth=1.2, label=f"_{name}")
        if whole and share < 1:
            axes.axvspan(share * size, size, color=INK, alpha=0.12, linewidth=0, zorder=0)
        told = f"{name}\n{100 * share:.0f}%: {share * size:.3g}" if share < 1 and whole else name
        texts.append(
            axes.annotate(told, (share * size, 1), xytext=(0, 3), xycoords=axes.get_xaxis_transform(), **label)
        )
    _lift(axes, texts)


def _lift(axes: Axes, texts: list) -> None:
    """Move labels over the axes up, step by step, until none lies over one that is written already."""
    axes.figure.draw_without_rendering()
    placed = []
    for text in sorted(texts, key=lambda text: text.xy[0]):
        for height in range(3, 60, 6):
            text.set_position((0, height))
            box = text.get_window_extent().padded(1)
            if not any(box.overlaps(other) for other in placed):
                break
        placed.append(box)


def _memory_finding(estimates: dict[str, MemoryEstimate], budgets: dict[str, int]) -> str:
    """Which estimates fit the cards, or what the largest needs most of."""
    if budgets and len(estimates) > 1:
        fitting = {
            card: [name for name, estimate in estimates.items() if estimate.peak <= CARD_SHARE * budget]
            for card, budget in budgets.items()
        }
        if all(re.fullmatch(r"\d+ cards?", name) for name in estimates):
            most = list(estimates)[-1]
            enough = [f"{fits[0] if fits else 'more than ' + most} of {card}" for card, fits in fitting.items()]
            return f"{' or '.join(filter(None, [', '.join(enough[:-1]), enough[-1]]))} are enough"
        said = []
        for card, fits in fitting.items():
            who = "all of these" if len(fits) == len(estimates) else listed(fits, "of these") or "none of these"
            said.append(f"{card} {'' if said else 'is enough '}for {who}")
        return _sentence(said)
    name, estimate = max(estimates.items(), key=lambda pair: pair[1].peak)
    part = max(estimate.categories, key=estimate.categories.get)
    verdicts = [
        f"{'fits' if estimate.peak <= CARD_SHARE * budget else 'does not fit'} {card}"
        for card, budget in budgets.items()
    ]
    share = f"{100 * estimate.categories[part] / estimate.peak:.0f}% of {'its' if verdicts else 'the'} peak is {part}"
    return f"{name} {' and '.join(verdicts)}, and {share}" if verdicts else f"{name}: {share}"


def _sentence(said: list[str]) -> str:
    """Clauses as one sentence, with a capital letter and without a full stop."""
    whole = ", and ".join(filter(None, ["; ".join(said[:-1]), *said[-1:]]))
    return whole[:1].upper() + whole[1:]


def _absent(estimates: dict[str, MemoryEstimate]) -> list[str]:
    """Which kinds of bytes are there in one bar and missing in another, and at what moment that one has its peak."""
    found = []
    for category in dict.fromkeys(name for estimate in estimates.values() for name in estimate.categories):
        sizes = {name: estimate.categories.get(category, 0) for name, estimate in estimates.items()}
        without = [name for name, size in sizes.items() if not size]
        largest = max(estimate.peak for estimate in estimates.values())
        if category == "gathered" or not without or max(sizes.values()) < LARGE * largest:
            continue
        phases = listed(dict.fromkeys(estimates[name].phase for name in without), "phases")
        found.append(f"there are no {category} at the peak of {listed(without, 'estimates')}, in the {phases}")
    return found


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

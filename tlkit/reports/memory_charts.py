"""What a step needs of memory, beside what cards have."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from tlkit.fitting.estimate import MemoryEstimate
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
    mark_cards(axes, {name: budget / divisor for name, budget in budgets.items()})
    names = [f"{name}\npeak: {e.phase}" if len(peaks) > 1 else name for name, e in estimates.items()]
    finish_bars(figure, axes, names, [f"{number(size)} {unit}" for size in left])
    axes.set_xlabel(f"tensors held at the peak of a step ({unit})")
    headline(figure, _memory_finding(estimates, budgets))
    return figure


def mark_cards(axes: Axes, sizes: dict[str, float]) -> None:
    """Mark what cards allow: a dashed line at the share that can be used, shaded from there to the whole card."""
    for order, (name, size) in enumerate(sizes.items()):
        axes.axvspan(CARD_SHARE * size, size, color=INK, alpha=0.12, linewidth=0, zorder=0)
        told = f"{name}\n{CARD_SHARE:.0%}: {CARD_SHARE * size:.3g}"
        mark_limit(axes, CARD_SHARE * size, told, 2 * (order % 2))


def mark_limit(axes: Axes, place: float, name: str, lines_up: int = 0) -> None:
    """Draw a dashed line with its name over it, so many lines up that neighbours do not collide."""
    axes.axvline(place, color=INK, linestyle="--", linewidth=1.2, label=f"_{name}")
    style = {"ha": "center", "va": "bottom", "fontsize": "x-small", "textcoords": "offset points"}
    axes.annotate(name, (place, 1), xytext=(0, 3 + 10 * lines_up), xycoords=axes.get_xaxis_transform(), **style)


def finish_bars(figure: Chart, axes: Axes, names: Sequence[str], told: Sequence[str]) -> None:
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

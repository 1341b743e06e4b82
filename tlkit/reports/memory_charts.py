"""Charts of memory: what a step needs, what fits a card, and how a training went on with less."""

import pandas as pd

from tlkit.fitting.attempts import Attempt
from tlkit.fitting.estimate import MemoryEstimate
from tlkit.fitting.ladder import FALLBACK_TIERS, Rung
from tlkit.reports.figure import COLOURS, HATCHES, Chart, described, mark, new_figure


@described
def memory_chart(estimates: dict[str, MemoryEstimate], budgets: dict[str, int] | None = None) -> Chart:
    """Estimated bytes by category, a bar for each estimate; memory that is there is a dashed line.

    Args:
        estimates: by name what `estimate_memory` returned.
        budgets: by name the bytes of a card.
    """
    figure, axes = new_figure()
    unit, divisor = ("GiB", 2**30) if max(e.peak for e in estimates.values()) >= 2**30 else ("MiB", 2**20)
    left = [0.0] * len(estimates)
    for number, category in enumerate(max((e.categories for e in estimates.values()), key=len)):
        sizes = [estimate.categories.get(category, 0) / divisor for estimate in estimates.values()]
        style = {"color": COLOURS[number], "edgecolor": "black", "hatch": HATCHES[number]}
        axes.barh(list(estimates), sizes, left=left, label=category, **style)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    for name, budget in (budgets or {}).items():
        mark(axes, budget / divisor, name)
    axes.invert_yaxis()
    axes.set_xlabel(f"bytes at the peak of a step ({unit})")
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


@described
def ladder_chart(rungs: list[Rung], budgets: dict[str, int]) -> Chart:
    """What each rung of the ladder should need on the device, coloured by tier; memory that is there is a dashed line.

    Args:
        rungs: with their estimates.
        budgets: by name the bytes of a card.
    """
    figure, axes = new_figure()
    for number, (tier, names) in enumerate(FALLBACK_TIERS.items()):
        places = [place for place, rung in enumerate(rungs) if rung.name in names]
        if not places:
            continue
        sizes = [rungs[place].estimate / 2**30 for place in places]
        style = {"color": COLOURS[number], "edgecolor": "black", "hatch": HATCHES[number]}
        axes.barh(places, sizes, label=tier, **style)
    for name, budget in budgets.items():
        mark(axes, budget / 2**30, name)
    axes.set_yticks(range(len(rungs)), [_rung_label(rung) for rung in rungs])
    axes.invert_yaxis()
    axes.set_xlabel("peak of a training step on the device (GiB)")
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


@described
def attempts_chart(attempts: list[Attempt]) -> Chart:
    """How much memory each attempt of a fallback held on the card at its highest, and whether it was enough.

    Args:
        attempts: from a `FallbackLog`, in their order.
    """
    figure, axes = new_figure()
    for number, (label, failed) in enumerate({"out of memory": True, "holds": False}.items()):
        places = [place for place, attempt in enumerate(attempts) if bool(attempt.failed_in) is failed]
        sizes = [attempts[place].peak / 2**20 for place in places]
        axes.barh(places, sizes, color=COLOURS[1 + number], hatch=HATCHES[1 - number], edgecolor="black", label=label)
    axes.set_yticks(range(len(attempts)), [f"{n}. {attempt.rung}" for n, attempt in enumerate(attempts, 1)])
    axes.invert_yaxis()
    axes.set_xlabel("most bytes held on the card (MiB)")
    figure.legend(loc="outside upper center", ncols=2, fontsize="small")
    return figure


@described
def fit_chart(table: pd.DataFrame) -> Chart:
    """What each strategy needs, against the memory of common cards (log scale).

    Args:
        table: what `fit_table` returned.
    """
    figure, axes = new_figure()
    table = table.dropna(subset="gib")
    axes.plot(table.gib, table.strategy, "o", color=COLOURS[0], markersize=9)
    for column in table.columns[table.columns.str.endswith(" GB")]:
        mark(axes, float(column.split()[0]), column)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("peak of a step (GiB, log scale); dashed: whole cards, of which 85% may be used")
    return figure


def _rung_label(rung: Rung) -> str:
    return f"micro-batches of {rung.plan.micro_batch_size}" if rung.name == "smaller micro-batch" else rung.name

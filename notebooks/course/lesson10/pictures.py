"""Pictures of a step that needs less memory: the ladder of fallbacks, micro-batches, activation checkpointing."""

from dataclasses import dataclass, fields
from fractions import Fraction

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tlkit.fitting.attempts import Attempt
from tlkit.fitting.ladder import FALLBACK_TIERS, LADDER, Rung
from tlkit.names import CARD_SHARE
from tlkit.reports.drawing import INK, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, HATCHES, Chart, described, headline, height_for, new_figure
from tlkit.reports.findings import listed, number
from tlkit.reports.labels import beside_rows
from tlkit.reports.memory_charts import finish_bars, mark_cards, mark_limit
from tlkit.settings import Plan

PRICES = ("time", "rounding", "host memory")
BATCH = 4  # rows of the batch that the rungs of the diagram are asked about
# What each setting of a plan means in a picture, and what has to be given for it.
_MEANS = {
    "chunked_loss": ("the loss is computed for a part of the tokens at a time", ("time",)),
    "micro_batch_size": ("fewer rows at once; their gradients are added up", ("time",)),
    "activation_checkpointing": ("activations are dropped and computed a second time", ("time",)),
    "precision": ("linear layers and attention compute in bf16", ("rounding",)),
    "offload_activations": ("activations wait on the host for the backward pass", ("time", "host memory")),
    "offload_optimizer": ("AdamW's averages and its update move to the host", ("time", "host memory")),
    "train_on_host": ("all of a training step is computed on the host", ("time", "host memory")),
    "evaluate_on_host": ("scoring the model moves to the host, too", ("time", "host memory")),
}


@dataclass(frozen=True)
class RungFacts:
    """One rung as the diagram tells it: what it changes, and which of `PRICES` it costs."""

    name: str
    tier: str
    change: str
    prices: tuple[str, ...]


def facts_of_rungs() -> list[RungFacts]:
    """List the rungs of `LADDER` with what they change, read from the settings of the plan that each of them sets."""
    found = []
    for name, lower in LADDER.items():
        before, after = Plan(), lower(Plan(), BATCH)
        changed = [field.name for field in fields(Plan) if getattr(before, field.name) != getattr(after, field.name)]
        change, prices = _MEANS[changed[-1]]  # evaluation on the host comes on top of training there
        tier = next(tier for tier, names in FALLBACK_TIERS.items() if name in names)
        found.append(RungFacts(name, tier, change, prices))
    return found


@described
def ladder_diagram() -> Chart:
    """The ladder of fallbacks: what each rung changes in carrying out a step, and what it costs."""
    rungs = facts_of_rungs()
    tiers = [tier for tier in FALLBACK_TIERS if any(rung.tier == tier for rung in rungs)]
    figure, axes = paper(0.38 * (len(rungs) + 1) + 0.36 * len(tiers) + 1.4)
    columns = dict(zip(PRICES, (0.815, 0.89, 0.965), strict=True))
    words = {"fontsize": "small", "color": INK, "va": "center"}
    bold = words | {"fontweight": "bold"}
    axes.text(0.06, 0, "rung", **bold)
    axes.text(0.345, 0, "what changes in carrying out the step", **bold)
    axes.text(columns["rounding"], -0.55, "what it costs", **bold, ha="center")
    for price, x in columns.items():
        axes.text(x, 0.05, price.replace(" ", "\n"), **words, ha="center")
    axes.plot([0, 1], [0.45, 0.45], color=INK, linewidth=0.8)
    y = 1.0
    _rung_box(axes, y, "as planned", "white", INK)
    axes.text(0.345, y, "nothing: here every training begins", **words)
    numbered = {rung.name: number for number, rung in enumerate(rungs, 1)}
    for order, (shade, tier) in enumerate(zip(COLOURS, tiers, strict=False), 1):  # colours of the chart of their needs
        y += 0.9
        axes.text(0.06, y, f"tier {order}: {tier}", **bold | {"color": shade})
        for rung in (rung for rung in rungs if rung.tier == tier):
            y += 0.85
            _rung_box(axes, y, f"{numbered[rung.name]}. {rung.name}", shade, "white")
            axes.text(0.345, y, rung.change, **words)
            for price, x in columns.items():
                size, colour = (9, INK) if price in rung.prices else (3, "#BBBBBB")
                axes.plot([x], [y], "o", color=colour, markersize=size)
    arrow(axes, (0.035, 1.0), (0.035, y), linewidth=2.5)
    axes.text(0.012, (1.0 + y) / 2, "if memory runs out, go one rung down", **words, ha="center", rotation=90)
    axes.set_xlim(-0.01, 1.02)
    axes.set_ylim(y + 0.5, -0.85)
    rounded = listed([rung.name for rung in rungs if "rounding" in rung.prices], "rungs")
    headline(figure, f"Every rung takes the same step in another way; only {rounded} changes its result")
    figure.words = tuple(f"{rung.name}: {rung.change}, costs {' and '.join(rung.prices)}" for rung in rungs)
    return figure


@described
def micro_batch_picture(targets: torch.Tensor, size: int) -> Chart:
    """How much each token of a batch counts, with the right sum over micro-batches and with the mean of their means.

    Args:
        targets: token ids of the labels, shape (rows, tokens); -100 where a label does not count.
        size: rows of a micro-batch; each has a token that counts.
    """
    counted = targets != -100
    parts = counted.split(size)
    total = int(counted.sum())
    means = [Fraction(1, len(parts) * int(part.sum())) for part in parts]
    height = 0.42 * len(targets) + 0.35 * len(parts) + 1.2
    figure, axes = paper(height)
    width = targets.shape[1]
    gap, right = 0.8, width + 1.6
    deepest = max(float(share) for share in means)
    for left, shares, name in (
        (0, [Fraction(1, total)] * len(parts), "right: the sum of losses, divided once by all"),
        (right, means, "wrong: the mean of the means"),
    ):
        axes.text(left, -1.25, name, fontsize="medium", fontweight="bold", color=INK, va="center")
        for place, (part, share) in enumerate(zip(parts, shares, strict=True)):
            top = sum(len(one) for one in parts[:place]) + gap * place
            _token_rows(axes, part, left, top, share, float(share) / deepest)
            said = f"micro-batch {place + 1}: {int(part.sum())} tokens count"
            axes.text(left, top - 0.66, said, fontsize="small", color=INK, va="center")
            axes.plot([left - 0.2] * 2, [top - 0.42, top + len(part) - 0.58], color=INK, linewidth=3)
    axes.set_xlim(-0.5, right + width + 0.1)
    axes.set_ylim(len(targets) + gap * (len(parts) - 1) - 0.3, -1.6)
    most = max(means) / min(means)
    finding = "All tokens count the same"
    if most > 1:
        finding = f"With the mean of means, some tokens count {float(most):.3g} times as much as others"
    headline(figure, finding)
    sizes = ", ".join(str(int(part.sum())) for part in parts)
    figure.words = (f"{len(parts)} micro-batches with {sizes} tokens that count", finding)
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
    mark_cards(axes, {name: budget / 2**30 for name, budget in budgets.items()})
    rows = {"smaller micro-batch": "micro-batches of {}"}
    labels = [rows.get(rung.name, rung.name).format(rung.plan.micro_batch_size) for rung in rungs]
    finish_bars(figure, axes, labels, [f"{rung.estimate / 2**30:.1f} GiB" for rung in rungs])
    axes.set_xlabel("peak of a training step on the device (GiB)")
    said = []
    for name, budget in sorted(budgets.items(), key=lambda pair: pair[1]):
        fits = [label for label, rung in zip(labels, rungs, strict=True) if rung.estimate <= CARD_SHARE * budget]
        said.append(f"{name}: {fits[0] if fits else 'none'}")
    headline(figure, f"First rung that fits {'; '.join(said)}")
    return figure


@described
def attempts_chart(attempts: list[Attempt], card: int) -> Chart:
    """How much memory each attempt of a fallback held on the card at its highest, and whether it was enough.

    Args:
        attempts: from a `FallbackLog`, in their order.
        card: its bytes.
    """
    figure, axes = new_figure(height_for(len(attempts)) + 0.5)
    for order, (label, failed) in enumerate({"out of memory": True, "holds": False}.items()):
        places = [place for place, attempt in enumerate(attempts) if bool(attempt.failed_in) is failed]
        sizes = [attempts[place].peak / 2**20 for place in places]
        axes.barh(places, sizes, color=COLOURS[1 + order], hatch=HATCHES[1 - order], edgecolor=INK, label=label)
    for place, attempt in enumerate(attempts):  # what was asked for when memory ran out, on top of what was held then
        if attempt.failed_in:
            held = (card - attempt.bytes_available) / 2**20
            style = {"facecolor": "none", "edgecolor": COLOURS[1], "linestyle": ":", "linewidth": 1.5}
            axes.barh(place, attempt.bytes_asked / 2**20, left=held, **style)
    mark_limit(axes, card / 2**20, f"card: {card / 2**20:.0f} MiB")
    ends = [f"fails in the {a.failed_in}" if a.failed_in else f"holds: {a.peak / 2**20:.0f} MiB" for a in attempts]
    finish_bars(figure, axes, [f"{place}. {attempt.rung}" for place, attempt in enumerate(attempts, 1)], ends)
    axes.set_xlabel("most bytes held on the card (MiB); dotted: asked for when memory ran out")
    failed = sum(bool(attempt.failed_in) for attempt in attempts)
    done = [attempt.rung for attempt in attempts if not attempt.failed_in]
    headline(figure, f"{failed} attempt{'s' * (failed != 1)} ran out of memory; “{done[0]}” holds")
    return figure


@described
def fit_chart(table: pd.DataFrame) -> Chart:
    """What each strategy needs, against the memory of common cards (log scale); of a card, 85% can be used.

    Args:
        table: what `fit_table` returned, without what could not be estimated.
    """
    table = table.reset_index(drop=True)
    figure, axes = new_figure(height_for(len(table)) + 0.3)
    cards = {column: float(column.split()[0]) for column in table if column.endswith(" GB")}
    axes.set_xscale("log", base=2)
    axes.plot(table.gib, table.index, "o", color=COLOURS[0], markersize=9)
    axes.set_yticks(table.index, table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    places = [*table.gib, *(CARD_SHARE * size for size in cards.values())]
    axes.set_xlim(min(places) / 1.25, max(places) * 1.25)
    for order, (name, size) in enumerate(cards.items()):
        mark_limit(axes, CARD_SHARE * size, name, order % 2)
    axes.xaxis.set_major_formatter("{x:g}")
    none = "none of these"
    smallest = [next((card for card, size in cards.items() if gib <= CARD_SHARE * size), none) for gib in table.gib]
    told = [f"{number(gib)} GiB: {card}" for gib, card in zip(table.gib, smallest, strict=True)]
    beside_rows(axes, table.index, told)
    axes.set_xlabel("peak of a step (GiB, log scale); dashed: the 85% of a card that can be used")
    by_card = table.strategy.groupby(pd.Categorical(smallest, [*cards, none], ordered=True), observed=True)
    said = [f"{card}: {listed(names, 'strategies')}" for card, names in by_card]
    headline(figure, f"Smallest card that is enough: {'; '.join(said)}")
    return figure


def _rung_box(axes: Axes, y: float, name: str, shade: str, ink: str) -> None:
    box(axes, (0.06, y - 0.32), 0.265, 0.64, facecolor=shade, rounding=0.01)
    axes.text(0.0725, y, name, va="center", fontsize="small", color=ink)


def _token_rows(axes: Axes, counted: torch.Tensor, left: float, top: float, share: Fraction, depth: float) -> None:
    """The tokens of a micro-batch as cells, deeper where one counts for more."""
    for row, tokens in enumerate(counted.tolist()):
        for column, counts in enumerate(tokens):
            place = (left + column + 0.04, top + row - 0.42)
            cell = Rectangle(place, 0.92, 0.84, facecolor=TRAINED if counts else SPARED, edgecolor="none")
            cell.set_alpha(0.15 + 0.85 * depth if counts else 1)
            axes.add_patch(cell)
            said = f"{share.numerator}/{share.denominator}" if counts else "–"
            colour = "white" if counts and depth > 0.75 else INK
            axes.text(left + column + 0.5, top + row, said, ha="center", va="center", fontsize="x-small", color=colour)

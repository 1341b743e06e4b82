"""Pictures of cards and processes that share the work: adding up gradients in a ring, sharding, and equal losses."""

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from tlkit.reports.drawing import GRADIENT, INK, PASSED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, FAINT, Chart, described, headline

STATE = {"weights": (4, TRAINED), "gradients": (4, GRADIENT), "optimizer state": (8, COLOURS[2])}  # bytes a value, fp32


def ring_states(cards: int) -> list[list[list[int]]]:
    """Play an all-reduce in a ring.

    Args:
        cards: how many, at least 2.

    Returns:
        For the start and after each step, for each card and each part of the gradients, how many cards' gradients are
        added up in what it holds.
    """
    held = [[1] * cards for _ in range(cards)]
    states = [[list(parts) for parts in held]]
    for step in range(2 * (cards - 1)):
        adding = step < cards - 1
        # What each card sends to the next one: first what it has just received and added to, then finished sums.
        sent = [(card - step if adding else card + 1 - (step - cards + 1)) % cards for card in range(cards)]
        amounts = [held[card][sent[card]] for card in range(cards)]
        for card in range(cards):
            after = (card + 1) % cards
            held[after][sent[card]] = amounts[card] + held[after][sent[card]] if adding else amounts[card]
        states.append([list(parts) for parts in held])
    return states


@described
def ring_scheme(cards: int = 4) -> Chart:
    """How cards add up their gradients in a ring: before, when every part is summed somewhere, and when all have all.

    Args:
        cards: how many, 2 to 8.
    """
    states = ring_states(cards)
    figure, axes = paper(1.2 + 0.62 * cards, 100, 10 * cards + 5, bottom=-3)
    panels = {
        "at the start": states[0],
        f"after {cards - 1} round{'s' * (cards > 2)} of adding": states[cards - 1],
        f"after {cards - 1} more, handing out": states[-1],
    }
    width = 18 / cards
    for panel, (title, state) in enumerate(panels.items()):
        left = 36 * panel + 1
        axes.text(left + 13, 10 * cards + 1, title, ha="center", fontsize="medium", fontweight="bold", color=INK)
        for card, parts in enumerate(state):
            y = 10 * (cards - 1 - card) + 2
            axes.text(left + 6.6, y + 3, f"card {card + 1}", ha="right", va="center", fontsize="small", color=INK)
            for part, count in enumerate(parts):
                shade = GRADIENT if count == cards else PASSED
                axes.add_patch(Rectangle((left + 8 + part * width, y), width, 6, facecolor=shade, edgecolor=INK))
                ink = "white" if count == cards else INK
                where = (left + 8 + (part + 0.5) * width, y + 3)
                axes.text(*where, count, ha="center", va="center", fontsize="small", color=ink)
            if card < cards - 1:
                arrow(axes, (left + 17, y), (left + 17, y - 4))
        if panel < 2:
            _ring_back(axes, left, cards)
    share = 2 * (cards - 1) / cards
    times = "once" if share == 1 else f"{share:.3g} times"
    axes.text(
        50,
        -2.5,
        "each box: a part of the gradients; the number says how many cards' gradients are added up in it",
        ha="center",
        fontsize="small",
        color=FAINT,
    )
    figure.words = (f"in {2 * (cards - 1)} rounds each card sends one part of the gradients a round to the next card",)
    headline(
        figure,
        f"In a ring of {cards}, each card sends {times} the size of the gradients, and in no ring more than twice",
    )
    return figure


@described
def sharding_scheme(cards: int = 4, values: int = 6_738_415_616) -> Chart:
    """What each card holds of weights, gradients and optimizer state with DDP and with FSDP, in fp32 with AdamW.

    Args:
        cards: how many, 2 to 8.
        values: of the model, all trained; by default those of llama2-7b.
    """
    figure, axes = paper(4.6, 100, 64)
    whole = sum(size for size, _ in STATE.values()) * values
    wide = 88 / cards
    for base, (name, parts, told) in {
        34: ("DDP", 1, "a whole copy each"),
        2: ("FSDP", cards, f"1 of {cards} parts each, the rest gathered block by block"),
    }.items():
        held = whole / parts
        axes.text(1, base + 26.5, f"{name}: {told}", fontsize="medium", fontweight="bold", color=INK, va="center")
        axes.text(99, base + 26.5, f"{_gib(held)} on every card", fontsize="medium", color=INK, va="center", ha="right")
        for card in range(cards):
            left = 1 + card * (wide + 10 / (cards - 1))
            box(axes, (left, base), wide, 24)
            axes.text(left + wide / 2, base + 21.5, f"card {card + 1}", ha="center", va="center", fontsize="small")
            for row, (size, shade) in enumerate(STATE.values()):
                full = (wide - 3) * size / max(size for size, _ in STATE.values())
                y, step = base + 14 - 6 * row, full / parts
                outline = {"facecolor": "none", "edgecolor": FAINT, "linestyle": ":"}
                axes.add_patch(Rectangle((left + 1.5, y), full, 4.5, **outline))
                at = card * step if parts > 1 else 0
                axes.add_patch(Rectangle((left + 1.5 + at, y), step, 4.5, facecolor=shade, edgecolor=INK))
    kinds = {
        f"{kind} ({_gib(size * values)} in all)": Patch(facecolor=shade, edgecolor=INK)
        for kind, (size, shade) in STATE.items()
    }
    figure.legend(kinds.values(), kinds, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    figure.words = (
        f"DDP: {_gib(whole)} on each of {cards} cards",
        f"FSDP: {_gib(whole / cards)} on each, and activations",
    )
    headline(
        figure,
        f"FSDP leaves each of {cards} cards {_gib(whole / cards)} of the {_gib(whole)} that DDP keeps on every card "
        "(activations come on top of both)",
    )
    return figure


def _gib(size: float) -> str:
    return f"{size / 2**30:.3g} GiB" if size >= 2**30 else f"{size / 2**20:.3g} MiB"


def _ring_back(axes: Axes, left: float, cards: int) -> None:
    """The way from the last card back to the first."""
    start, end = (left + 26.5, 5), (left + 26.5, 10 * (cards - 1) + 5)
    arrow(axes, start, end, linewidth=1.2, connectionstyle="arc3,rad=0.35")

"""Pictures of cards that add up their gradients in a ring, and of who holds what."""

from matplotlib.patches import Rectangle

from course.drawing import GRADIENT, PASSED, TRAINED, arrow, paper
from tlkit.reports.figure import COLOURS, INK, Chart, described, headline


@described
def ring_scheme(cards: int = 4) -> Chart:
    """How cards add up their gradients in a ring: before, when every part is summed somewhere, and when all have all.

    Args:
        cards: how many, 3 to 8.
    """
    figure, axes = paper(1.2 + 0.62 * cards, 100, 10 * cards + 5, bottom=-3)
    # For each card and part: how many cards' gradients are in it. Each card sends its own part first.
    added = [[(card - part) % cards + 1 for part in range(cards)] for card in range(cards)]
    panels = {
        "at the start": [[1] * cards] * cards,
        f"after {cards - 1} rounds of adding": added,
        f"after {cards - 1} more, handing out": [[cards] * cards] * cards,
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
                thick = 3 if panel == 0 and part == card else 1
                box = Rectangle((left + 8 + part * width, y), width, 6, facecolor=shade, edgecolor=INK, linewidth=thick)
                axes.add_patch(box)
                ink = "white" if count == cards else INK
                where = (left + 8 + (part + 0.5) * width, y + 3)
                axes.text(*where, count, ha="center", va="center", fontsize="small", color=ink)
            if card < cards - 1 and panel < 2:
                arrow(axes, (left + 17, y), (left + 17, y - 4))
        if panel < 2:  # from the last card back to the first
            start, end = (left + 26.5, 5), (left + 26.5, 10 * (cards - 1) + 5)
            arrow(axes, start, end, linewidth=1.2, connectionstyle="arc3,rad=0.35")
    axes.text(
        50,
        -2.5,
        "each box: a part of the gradients; the number says how many cards' gradients are in it (thick: sent first)",
        ha="center",
        fontsize="small",
        color="#666666",
    )
    figure.words = (f"in {2 * (cards - 1)} rounds each card sends one part of the gradients a round to the next card",)
    times = f"{2 - 2 / cards:.3g} times"
    headline(
        figure,
        f"In a ring of {cards}, each card sends {times} the size of the gradients, and in no ring more than twice",
    )
    return figure


KINDS = (("weights", 4, TRAINED), ("gradients", 4, GRADIENT), ("optimizer state", 8, COLOURS[2]))  # bytes


def _bytes_held(cards: int, stage: int) -> list[float]:
    """Of weights, gradients and optimizer state, for each parameter; stage 0 is DDP."""
    return [size / cards if place >= 3 - stage else size for place, (_, size, _) in enumerate(KINDS)]


@described
def zero_scheme(cards: int = 4) -> Chart:
    """What each card holds with DDP and with the three stages of ZeRO.

    Args:
        cards: how many, 2 to 8.
    """
    figure, axes = paper(1.5 + 0.36 * cards, 100, 8 * cards + 9, bottom=-8)
    for stage, title in enumerate(("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3 (FSDP)")):
        left, sizes = 8 + 23.4 * stage, _bytes_held(cards, stage)
        axes.text(left, 8 * cards + 5, title, fontsize="medium", fontweight="bold", color=INK)
        axes.text(left, 8 * cards + 1, f"{sum(sizes):.3g} bytes a parameter", fontsize="small", color=INK)
        for card in range(cards):
            start, y = left, 8 * (cards - 1 - card)
            for (_, size, shade), held in zip(KINDS, sizes, strict=True):
                axes.add_patch(Rectangle((start, y), 1.3 * size, 6, facecolor="white", edgecolor=INK))
                first = start + 1.3 * card * held * (held < size)
                axes.add_patch(Rectangle((first, y), 1.3 * held, 6, facecolor=shade, edgecolor=INK))
                start += 1.3 * size
    for card in range(cards):
        where = (7, 8 * (cards - 1 - card) + 3)
        axes.text(*where, f"card {card + 1}", ha="right", va="center", fontsize="small", color=INK)
    for place, (kind, size, shade) in enumerate(KINDS):
        axes.add_patch(Rectangle((8 + 28 * place, -6.5), 2.5, 4, facecolor=shade, edgecolor=INK))
        text = f"{kind} ({size} bytes)"
        axes.text(11.5 + 28 * place, -4.5, text, va="center", fontsize="small", color=INK)
    figure.words = ("what is divided among the cards: optimizer state, then also gradients, then also weights",)
    least = [sum(_bytes_held(cards, stage)) for stage in (1, 3)]
    headline(
        figure,
        f"Of 16 bytes a parameter, a card of {cards} holds {least[0]:.3g} with stage 1 and {least[1]:.3g} with stage 3",
    )
    return figure

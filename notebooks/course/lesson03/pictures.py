"""Pictures of a score before training: a document's tokens, tests of several sizes, and a ruler."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullFormatter

from tlkit.reports.drawing import INK, PASSED, TRAINED
from tlkit.reports.figure import COLOURS, Chart, described, headline, new_figure

RESULT = COLOURS[1]  # the one number that the many make


@described
def surprise_chart(pieces: Sequence[str], nats: Sequence[float]) -> Chart:
    """The loss of each token of a text, in nats, and their mean.

    Args:
        pieces: the tokens as text, in order.
        nats: the loss of each.
    """
    figure, axes = new_figure(height=3.8)
    mean = math.fsum(nats) / len(nats)
    axes.bar(range(len(nats)), nats, color=TRAINED, width=0.8)
    axes.axhline(mean, color=RESULT, linewidth=2)
    told = f"mean {mean:.2f} nats: perplexity {math.exp(mean):.3g}"
    axes.text(len(nats) - 0.5, 1.12 * max(nats), told, color=RESULT, ha="right", va="top", fontweight="bold")
    shown = [piece.replace(" ", "␣").replace("\n", "⏎") for piece in pieces]
    axes.set_xticks(range(len(nats)), shown, rotation=90, fontfamily="monospace")
    axes.set_ylabel("loss of the token (nats)")
    axes.set_xlim(-0.7, len(nats) - 0.3)
    axes.set_ylim(0, 1.15 * max(nats))
    axes.grid(visible=False, axis="x")
    headline(figure, f"{_making_half(nats)} of these {len(nats)} tokens make half of the loss")
    hardest = max(range(len(nats)), key=lambda place: nats[place])
    figure.words = (told, f"the most surprising token is {pieces[hardest].strip()!r} with {nats[hardest]:.1f} nats")
    return figure


def _making_half(nats: Sequence[float]) -> int:
    """How many of the most surprising tokens make half of the loss."""
    reached = accumulate(sorted(nats, reverse=True))
    return next(number for number, loss in enumerate(reached, 1) if loss >= math.fsum(nats) / 2 - 1e-9)


@described
def draws_chart(draws: Mapping[str, torch.Tensor]) -> Chart:
    """Scores of one model on many tests, for tests of several sizes: a histogram for each, and its middle 95%.

    Args:
        draws: by name of the size, the perplexity of each test.
    """
    figure, axes = new_figure(height=1.3 + 1.1 * len(draws))
    spans = draw_draws(axes, {name: scores.numpy() for name, scores in draws.items()}, list(draws), digits=0)
    axes.margins(x=0.2)
    axes.set_xlabel("perplexity of a test (bar: the middle 95% of all tests)")
    told = {name: f"{low:.0f} to {high:.0f}" for name, (low, high) in spans.items()}
    few, *_, many = draws
    headline(figure, f"Tests of {few} score {told[few]}, and tests of {many} {told[many]}")
    figure.words = tuple(f"{name}: {span}" for name, span in told.items())
    return figure


def draw_draws(
    axes: Axes, draws: Mapping[str, np.ndarray], labels: Sequence[str], *, shades=(RESULT,), digits: int = 1
) -> dict[str, tuple[float, float]]:
    """Draw scores as histograms below one another, each with a bar over the middle 95% of its scores.

    Args:
        axes: to draw on, with the scores on its horizontal axis.
        draws: by name the scores of all draws.
        labels: of the histograms; each is 1 high.
        shades: of the histograms, in turns.
        digits: behind the decimal point of the ends of a bar.

    Returns:
        The ends of each bar.
    """
    edges = np.linspace(min(map(np.min, draws.values())), max(map(np.max, draws.values())), 60)
    spans = {name: tuple(np.quantile(scores, [0.025, 0.975])) for name, scores in draws.items()}
    for place, (name, scores) in enumerate(draws.items()):
        counts, _ = np.histogram(scores, edges)
        base, shade, (low, high) = -1.5 * place, shades[place % len(shades)], spans[name]
        axes.bar(edges[:-1], counts / counts.max(), np.diff(edges), base, align="edge", color=shade, alpha=0.6)
        axes.plot((low, high), [base - 0.12] * 2, color=INK, linewidth=3, solid_capstyle="butt")
        told = f"  95%: {low:.{digits}f} to {high:.{digits}f}"
        axes.text(high, base - 0.12, told, va="center", fontweight="bold", color=INK)
    axes.set_yticks([0.5 - 1.5 * place for place in range(len(draws))], labels)
    return spans


@described
def perplexity_ruler(scores: dict[str, float], vocabulary: int) -> Chart:
    """Where scores lie between certainty (perplexity 1) and guessing uniformly (the size of the vocabulary).

    Args:
        scores: a perplexity for each name.
        vocabulary: how many tokens there are to choose from.
    """
    placed = sorted(scores.items(), key=lambda score: score[1])
    figure, axes = new_figure(height=1.6 + 0.36 * len(placed))
    highest = 4 * max(vocabulary, placed[-1][1])
    axes.axvspan(1, vocabulary, color=PASSED, alpha=0.5)
    axes.axvspan(vocabulary, highest, color=RESULT, alpha=0.18)
    for x, told, side in ((1.06, "better than guessing", "left"), (highest / 1.06, "worse", "right")):
        axes.text(x, len(placed) + 0.75, told, ha=side, va="center", fontsize="small", color=INK)
    axes.axvline(vocabulary, color=INK, linestyle="--")
    uniform = f"uniform guess: {vocabulary:,} "
    axes.text(vocabulary, len(placed) + 0.75, uniform, ha="right", va="center", fontsize="small", fontweight="bold")
    readable = withStroke(linewidth=3, foreground="white")  # where a line runs through the words
    for height, (name, score) in enumerate(placed, 1):
        axes.plot(score, height, "D", color=TRAINED if score < vocabulary else RESULT, markersize=8)
        left = math.sqrt(vocabulary) < score < vocabulary or score > highest / 300  # else the right has room
        told = f"{name}: {score:,.0f}"
        place = {"ha": "right" if left else "left", "va": "center", "path_effects": [readable]}
        axes.text(score, height, f"{told}   " if left else f"   {told}", color=INK, **place)
    _plain_log(axes, 1, highest)
    axes.set_xlim(1, highest)
    axes.set_ylim(0.3, len(placed) + 1.25)
    axes.set_yticks([])
    axes.set_xlabel("perplexity (log scale, lower is better)")
    worse = sum(score > vocabulary for score in scores.values())
    said = (
        f"{worse} of {len(scores)} scores {'is' if worse == 1 else 'are'} worse" if worse else "All scores are better"
    )
    headline(figure, f"{said} than guessing uniformly among {vocabulary:,} tokens")
    figure.words = (uniform.strip(), *(f"{name}: {score:,.0f}" for name, score in placed))
    return figure


def _plain_log(axes: Axes, low: float, high: float) -> None:
    """A log scale with plain numbers, close enough together for the range."""
    axes.set_xscale("log")
    steps = (1, 10) if high / low > 300 else (1, 2, 5) if high / low > 12 else (1, 1.5, 2, 3, 4, 5, 7)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10**power for power in powers for step in steps if low / 1.3 <= step * 10**power <= high * 1.2]
    axes.set_xticks(sorted(set(ticks)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())

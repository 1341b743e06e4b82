"""Pictures of a score before training: a document's tokens, windows over a text, resampled documents, a ruler."""

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullFormatter

from tlkit.evaluation import BOOTSTRAP_DRAWS, PerplexityResult
from tlkit.reports.drawing import INK, PASSED, TRAINED
from tlkit.reports.figure import COLOURS, Chart, described, headline, new_figure

RESULT = COLOURS[1]  # the one number that the many make


@described
def surprise_chart(pieces: Sequence[str], nats: Sequence[float]) -> Chart:
    """The loss of each token of a text, in nats, and their mean.

    Args:
        pieces: the tokens as text, in order.
        nats: the loss of each.

    Raises:
        ValueError: where there is not one loss for each token.
    """
    if len(pieces) != len(nats) or not pieces:
        raise ValueError(f"{len(pieces)} tokens and {len(nats)} losses: expected one loss for each token")
    figure, axes = new_figure(height=3.8)
    mean = math.fsum(nats) / len(nats)
    axes.bar(range(len(nats)), nats, color=TRAINED, width=0.8)
    axes.axhline(mean, color=RESULT, linewidth=2)
    told = f"mean {mean:.2f} nats: perplexity {math.exp(mean):.0f}"
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


@described
def window_chart(tokens: int, *ways: tuple[int, int]) -> Chart:
    """Which tokens each window reads as context and which it scores.

    Args:
        tokens: in the text.
        *ways: a window and a stride each, in tokens; 1 <= stride <= window.

    Raises:
        ValueError: for an impossible stride.
    """
    for context, stride in ways:
        if not 1 <= stride <= context:
            raise ValueError(f"stride={stride}: expected 1 to context={context}")
    rows = [windows_of(tokens, *way) for way in ways]
    figure, axes = new_figure(height=0.7 + 0.42 * sum(len(found) + 1.2 for found in rows))
    top = 0.0
    for (context, stride), found in zip(ways, rows, strict=True):
        top -= 1
        told = f"windows of {context} tokens that move on by {stride}"
        axes.text(0, top + 0.15, told, fontweight="bold", color=INK, va="bottom")
        for begin, scored, end in found:
            top -= 1
            for token in range(begin, end):
                colour = TRAINED if token >= scored else PASSED
                axes.add_patch(Rectangle((token, top), 0.88, 0.72, facecolor=colour, edgecolor=INK, linewidth=0.6))
    kinds = {"scored": Patch(facecolor=TRAINED, edgecolor=INK), "read as context": Patch(facecolor=PASSED)}
    figure.legend(kinds.values(), kinds, loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    axes.set_xlim(-0.2, tokens + 0.2)
    axes.set_ylim(top - 0.3, 0.2)
    axes.axis("off")
    read = [sum(end - begin for begin, _, end in found) for found in rows]
    cost = f"read {max(read)} tokens instead of {min(read)}"
    headline(figure, f"With overlap, only the first window begins without context, but the windows {cost}")
    figure.words = tuple(
        f"windows of {context} tokens, stride {stride}: {len(found)} windows read {tokens} tokens"
        for (context, stride), found in zip(ways, rows, strict=True)
    )
    return figure


def _making_half(nats: Sequence[float]) -> int:
    """How many of the most surprising tokens make half of the loss."""
    reached = accumulate(sorted(nats, reverse=True))
    return next(number for number, loss in enumerate(reached, 1) if loss >= math.fsum(nats) / 2 - 1e-9)


def windows_of(tokens: int, context: int, stride: int) -> list[tuple[int, int, int]]:
    """List the windows over a text: each token is scored exactly once.

    Args:
        tokens: in the text.
        context: tokens that a window reads.
        stride: tokens that it moves on by.

    Returns:
        For each window its first token, the first that it scores, and the place behind its last.
    """
    found, scored = [], 0
    for begin in range(0, tokens, stride):
        end = min(begin + context, tokens)
        found.append((begin, scored, end))
        scored = end
        if end == tokens:
            break
    return found


@described
def splits_chart(splits: dict[str, tuple[int, str]]) -> Chart:
    """The parts of a data set as boxes, as wide as they have documents, each with what it is for.

    Args:
        splits: for each part its number of documents and a line about its use.
    """
    total = sum(count for count, _ in splits.values())
    figure, axes = new_figure(height=1.6)
    left, words = 0.0, []
    for shade, (name, (count, use)) in zip((TRAINED, COLOURS[2], COLOURS[1]), splits.items(), strict=False):
        width = count / total
        axes.add_patch(Rectangle((left, 0.45), width - 0.004, 0.5, facecolor=shade, edgecolor=INK))
        axes.text(left + width / 2, 0.7, f"{count}", color="white", ha="center", va="center", fontweight="bold")
        place = {"ha": "center", "va": "top", "fontsize": "small", "color": INK}
        axes.text(left + width / 2, 0.36, f"{name}\n{use}", **place)
        words.append(f"{name}: {count} documents, {use}".replace("\n", " "))
        left += width
    axes.set_xlim(0, 1.02)
    axes.set_ylim(-0.1, 1)
    axes.axis("off")
    first, (count, _) = next(iter(splits.items()))
    headline(figure, f"{100 * count / total:.0f}% of the documents are for {first}, the rest is held out")
    figure.words = tuple(words)
    return figure


@described
def resampling_chart(result: PerplexityResult, shown: int = 3) -> Chart:
    """How a perplexity's interval is made: the documents, some draws of as many, and the scores of all draws.

    Args:
        result: what `perplexity` returned, for two documents or more.
        shown: draws that are drawn one by one.

    Raises:
        ValueError: for a single document, which cannot be resampled.
    """
    if result.documents < 2:
        raise ValueError("one document cannot be resampled: expected a result of at least two")
    nats, tokens, draws, scores = _resampled(result, result.documents)
    own = (nats / tokens).exp()
    figure, axes = new_figure(height=2.6 + 0.6 * shown)
    axes.plot(own, [shown + 1] * len(own), "o", color=TRAINED, alpha=0.6)
    _score(axes, result.perplexity, shown + 1)
    for number in range(shown):
        times = torch.bincount(draws[number], minlength=len(own))
        there = times > 0
        axes.scatter(
            own[there], [shown - number] * int(there.sum()), s=28 * times[there], color=TRAINED, alpha=0.45, zorder=2
        )
        _score(axes, float(scores[number]), shown - number)
    edges = np.geomspace(float(scores.min()), float(scores.max()), 26)
    told = draws_row(axes, scores.numpy(), edges, -1.0, ends=(result.low, result.high), digits=0)
    names = [f"the {len(own)} documents", *(f"draw {number + 1}" for number in range(shown))]
    axes.set_yticks([*range(shown + 1, 0, -1), -0.5], [*names, f"{len(scores):,} draws"])
    _plain_log(axes, float(own.min()), float(own.max()))
    axes.set_ylim(-1.45, shown + 1.75)
    axes.set_xlabel("perplexity (log scale); circle: a document, larger if drawn more often; diamond: score")
    ends = f"{result.low:.0f} and {result.high:.0f}"
    headline(figure, f"Of {len(scores):,} draws of {len(own)} documents, the middle 95% score between {ends}")
    figure.words = (told, f"single documents lie between {own.min():.0f} and {own.max():.0f}")
    return figure


def draws_row(
    axes: Axes,
    scores: np.ndarray,
    edges: np.ndarray,
    base: float,
    *,
    ends: tuple[float, float],
    shade: str = RESULT,
    digits: int = 1,
) -> str:
    """Draw the scores of many draws of a bootstrap as a histogram, and below it a bar over the middle 95% of them.

    Args:
        axes: to draw on, with the scores on its horizontal axis.
        scores: one for each draw.
        edges: of the histogram's bars.
        base: the place of the histogram's foot; it is 1 high.
        ends: of the middle 95%.
        shade: of the histogram.
        digits: behind the decimal point of the ends.

    Returns:
        What is written beside the bar.
    """
    counts, _ = np.histogram(scores, edges)
    axes.bar(edges[:-1], counts / counts.max(), np.diff(edges), base, align="edge", color=shade, alpha=0.6)
    axes.plot(ends, [base - 0.12] * 2, color=INK, linewidth=3, solid_capstyle="butt")
    told = f"95%: {ends[0]:.{digits}f} to {ends[1]:.{digits}f}"
    axes.text(ends[1], base - 0.12, f"  {told}", va="center", fontweight="bold", color=INK)
    return told


@described
def small_tests_chart(result: PerplexityResult, sizes: Sequence[int] = (1, 2, 5, 10, 20, 40)) -> Chart:
    """How far tests of few and of many documents scatter for one and the same model.

    Args:
        result: what `perplexity` returned; its documents are drawn with replacement.
        sizes: documents in a test.
    """
    figure, axes = new_figure(height=1.5 + 0.45 * len(sizes))
    words, ends, ranges = [], [], []
    for place, size in enumerate(sizes):
        scores = _resampled(result, size)[3]
        low, high = torch.quantile(scores, torch.tensor([0.025, 0.975], dtype=scores.dtype)).tolist()
        height = len(sizes) - place
        axes.plot(scores[:60], [height] * 60, "|", color=TRAINED, alpha=0.6, markersize=9)
        axes.plot([low, high], [height - 0.27] * 2, color=INK, linewidth=2.5, solid_capstyle="butt")
        axes.text(high, height - 0.27, f"  {low:.0f} to {high:.0f}", va="center", fontsize="small", color=INK)
        words.append(f"{size} document{'s' * (size > 1)}: {low:.0f} to {high:.0f}")
        ends += [low, high]
        ranges.append(f"{low:.0f} to {high:.0f} on {size}")
    axes.axvline(result.perplexity, color=RESULT, linewidth=1.5, zorder=0)
    axes.set_yticks(range(len(sizes), 0, -1), [f"{size} document{'s' * (size > 1)}" for size in sizes])
    axes.set_ylim(0.4, len(sizes) + 0.6)
    axes.set_xlim(min(ends) / 1.1, max(ends) * 1.3)
    _plain_log(axes, min(ends), max(ends))
    axes.set_xlabel("perplexity of a test (log scale); tick: one test; bar: 95% of 1,000 tests; line: all documents")
    headline(figure, f"The same model scores {ranges[0]} document{'s' * (sizes[0] > 1)}, but {ranges[-1]}")
    figure.words = tuple(words)
    return figure


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


def _resampled(result: PerplexityResult, size: int):
    """Nats and tokens of each document, 1,000 draws of `size` documents, and the perplexity of each draw."""
    nats = torch.tensor(result.document_nats, dtype=torch.float64)
    tokens = torch.tensor(result.document_tokens, dtype=torch.float64)
    # The draws that `perplexity` makes, so that the interval in the picture is that of the result.
    draws = torch.randint(len(nats), (BOOTSTRAP_DRAWS, size), generator=torch.Generator().manual_seed(0))
    return nats, tokens, draws, (nats[draws].sum(1) / tokens[draws].sum(1)).exp()


def _score(axes: Axes, value: float, height: float) -> None:
    axes.plot(value, height, "D", color=RESULT, markeredgecolor=INK, markersize=9, zorder=3)
    axes.text(value, height + 0.24, f"{value:.0f}", color=RESULT, ha="center", va="bottom", fontweight="bold")


def _plain_log(axes: Axes, low: float, high: float) -> None:
    """A log scale with plain numbers, close enough together for the range."""
    axes.set_xscale("log")
    steps = (1, 10) if high / low > 300 else (1, 2, 5) if high / low > 12 else (1, 1.5, 2, 3, 4, 5, 7)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10**power for power in powers for step in steps if low / 1.3 <= step * 10**power <= high * 1.2]
    axes.set_xticks(sorted(set(ticks)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())

"""From a comparison's tables to matplotlib figures; nothing else in the package draws.

Colours are Okabe and Ito's, told apart by the colour-blind; markers differ too, for greyscale.
"""

import base64
import io
from collections.abc import Callable
from functools import wraps

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from tlkit.estimate import MemoryEstimate
from tlkit.fallback import Attempt
from tlkit.flops import StepFlops
from tlkit.gradient_flow import GradientFlow
from tlkit.ladder import TIERS, Rung
from tlkit.strategies import STRATEGIES, StrategyReport
from tlkit.sweeps import CONTROL
from tlkit.training import TrainingResult

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
MARKERS = "osD^vPX*"
HATCHES = ["", "///", "...", "xxx", "\\\\\\", "--", "++"]
SIZE = (8, 4.5)
PLACES = {name: place for place, name in enumerate((*STRATEGIES, "zero-shot"))}


class Chart(Figure):
    """A figure that says in words what it shows: its alternative text, in a notebook's file and on its pages."""

    about = ""

    @property
    def alt(self) -> str:
        """What it is, its axes, and what is drawn; the numbers stand in the table beside it."""
        panels = []
        for axes in self.axes:
            named = [text.get_text() for text in [*axes.get_yticklabels(), *axes.get_xticklabels()]]
            # Not the marks of a scale, be they digits or powers in TeX, which nobody wants read out.
            places = [name for name in named if "$" not in name and any(letter.isalpha() for letter in name)]
            _, series = axes.get_legend_handles_labels()
            parts = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), ", ".join(dict.fromkeys(places + series))]
            panels.append("; ".join(part for part in parts if part))
        return f"{self.about} Shown: {'. '.join(panels)}."

    def png(self, dpi: int = 100) -> str:
        """The picture as a PNG file in base64, for a page or a notebook."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=dpi)
        return base64.b64encode(buffer.getvalue()).decode()

    def _repr_mimebundle_(self, include=None, exclude=None):
        picture = {"image/png": self.png(), "text/plain": repr(self)}
        return picture, {"image/png": {"alt": self.alt}}


def _described(draw: Callable[..., Chart]) -> Callable[..., Chart]:
    """A chart is about what the first line of its function says."""

    @wraps(draw)
    def drawn(*tables, **options) -> Chart:
        chart = draw(*tables, **options)
        chart.about = draw.__doc__.splitlines()[0]
        return chart

    return drawn


@_described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on the test text by strategy, with the 95% interval over documents."""
    table = table.sort_values("perplexity", ascending=False)
    figure, axes = _figure()
    # The interval of one document is a point, up to rounding.
    errors = [table.perplexity - table.perplexity_low, table.perplexity_high - table.perplexity]
    errors = [error.clip(lower=0) for error in errors]
    # Points, not bars: on a log scale a bar has no zero to start from.
    axes.errorbar(table.perplexity, table.strategy, xerr=errors, fmt="o", color=COLOURS[0], ecolor="black", capsize=4)
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis, table.perplexity_low.min(), table.perplexity_high.max())
    axes.set_xlabel("perplexity on held-out text (log scale, lower is better; lines: 95% interval)")
    return figure


@_described
def learning_curves(curves: pd.DataFrame) -> Chart:
    """Training loss by optimizer step, averaged over seeds; the control, which begins far above, is left out."""
    figure, axes = _figure()
    curves = curves[curves.strategy != CONTROL]
    for number, (strategy, part) in enumerate(curves.groupby("strategy", sort=False)):
        mean = part.groupby("step").loss.mean().rolling(5, min_periods=1).mean()
        style = {"color": _colour(number, strategy), "marker": _marker(number, strategy), "markevery": 0.1}
        axes.plot(mean.index, mean, label=strategy, **style)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("training loss (nats per token, mean of up to 5 steps)")
    axes.legend(fontsize="small")
    return figure


@_described
def parameters_chart(table: pd.DataFrame) -> Chart:
    """Trainable values (log scale) against perplexity, without the control."""
    return _scatter(
        table[(table.trainable_values > 0) & (table.strategy != CONTROL)],
        "trainable_values",
        "perplexity",
        "trainable values (log scale)",
        "perplexity on held-out text",
        log_x=True,
    )


@_described
def cost_chart(table: pd.DataFrame) -> Chart:
    """Seconds of training and peak memory of tensors, side by side."""
    table = table[table.seconds > 0]
    figure, (left, right) = plt.subplots(1, 2, FigureClass=Chart, figsize=SIZE, sharey=True, layout="constrained")
    left.barh(table.strategy, table.seconds, color=COLOURS[5], edgecolor="black")
    left.set_xlabel("seconds of training")
    right.barh(table.strategy, table.peak_memory_mb, color=COLOURS[4], edgecolor="black", hatch="//")
    right.set_xlabel("peak memory of tensors (MB)")
    plt.close(figure)
    return figure


@_described
def forgetting_chart(table: pd.DataFrame) -> Chart:
    """What was gained on the new text against what was lost on general text."""
    table = table[table.strategy != CONTROL]
    return _scatter(
        table, "perplexity", "general", "perplexity on Rust (lower: adapted more)", "perplexity on general text"
    )


@_described
def differences_chart(table: pd.DataFrame, against: str = "full") -> Chart:
    """Each strategy's perplexity minus that of `against`, seed by seed; an interval across zero separates nothing."""
    table = table.dropna(subset="difference").sort_values("difference", ascending=False)
    figure, axes = _figure()
    errors = [table.difference - table.difference_low, table.difference_high - table.difference]
    axes.errorbar(table.difference, table.strategy, xerr=errors, fmt="o", color=COLOURS[0], ecolor="black", capsize=4)
    axes.axvline(0, color="black", linestyle="--")
    axes.set_xlabel(f"perplexity more than {against} (lines: 95% interval of the mean difference over seeds)")
    return figure


@_described
def sweep_chart(record: pd.DataFrame, x: str, x_label: str, y: str = "validation_perplexity") -> Chart:
    """A line a strategy over the setting `x` (log scale), through the means of its seeds, each seed a dot."""
    figure, axes = _figure()
    record = record[record[y] < float("inf")]
    for number, (strategy, part) in enumerate(record.groupby("strategy", sort=False)):
        mean = part.groupby(x)[y].mean()
        colour, marker = _colour(number, strategy), _marker(number, strategy)
        axes.plot(mean.index, mean, color=colour, marker=marker, label=strategy)
        axes.plot(part[x], part[y], ".", color=colour, alpha=0.6)
    axes.set_xscale("log")
    axes.set_xticks(sorted(record[x].unique()), minor=False)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yscale("log")
    _plain_numbers(axes.yaxis, record[y].min(), record[y].max())
    axes.set_xlabel(x_label)
    axes.set_ylabel("validation perplexity (log scale)")
    axes.legend(fontsize="small")
    return figure


@_described
def tradeoff_chart(paths: dict[str, pd.DataFrame]) -> Chart:
    """Gain against loss along several paths; each table has perplexities `rust` and `general`, and a `label` a point.

    The best corner is at the bottom left.
    """
    figure, axes = _figure()
    for number, (name, path) in enumerate(paths.items()):
        axes.plot(path.rust, path.general, color=_colour(number), marker=_marker(number), label=name)
        for point in path.itertuples():
            offset = {"xytext": (5, 5 - 14 * (number % 2)), "textcoords": "offset points", "fontsize": "small"}
            axes.annotate(point.label, (point.rust, point.general), color=_colour(number), **offset)
    axes.set_xlabel("perplexity on Rust (lower: adapted more)")
    axes.set_ylabel("perplexity on general text")
    axes.legend(fontsize="small")
    return figure


@_described
def overfitting_chart(runs: dict[str, TrainingResult]) -> Chart:
    """Training loss (dashed) and validation loss (solid) of each run, by epoch."""
    figure, axes = _figure()
    for number, (name, run) in enumerate(runs.items()):
        history = run.history
        epochs = history.set_index("step").epoch
        axes.plot(history.epoch, history.loss, "--", color=_colour(number), alpha=0.5)
        at = run.validation.step.map(epochs)
        axes.plot(at, run.validation.validation_loss, color=_colour(number), marker=_marker(number), label=name)
    axes.set_xlabel("epoch")
    axes.set_ylabel("nats per token; solid: validation, dashed: training")
    axes.legend(fontsize="small")
    return figure


@_described
def components_chart(*reports: StrategyReport) -> Chart:
    """Where a model's values are, and which of them each strategy trains; one panel a report, bottom block lowest."""
    figure, panels = plt.subplots(
        1, len(reports), FigureClass=Chart, figsize=SIZE, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, report in zip(panels[0], reports, strict=True):
        names = list(report.components)
        trained = [report.components[name].trainable_values / 1e6 for name in names]
        frozen = [c.total_values / 1e6 - t for c, t in zip(report.components.values(), trained, strict=True)]
        axes.barh(names, trained, color=COLOURS[0], edgecolor="black", label="trained")
        axes.barh(names, frozen, left=trained, color="white", edgecolor="black", hatch="///", label="frozen")
        axes.set_title(report.strategy)
        axes.set_xlim(0, 1.05 * max(part.total_values for part in report.components.values()) / 1e6)
        axes.set_xlabel("million values")
        axes.legend(fontsize="small")
    plt.close(figure)
    return figure


@_described
def gradient_flow_chart(flow: GradientFlow) -> Chart:
    """The gradient's norm at each place of the model, in the first two steps; a gap is where none arrived."""
    norms = flow.table.set_index("place")[["norm_1", "norm_2"]].pow(2).groupby(level=0, sort=False).sum().pow(0.5)
    figure, axes = _figure()
    for number, column in enumerate(norms):
        places = [place + 0.4 * number - 0.2 for place in range(len(norms))]
        step = f"step {number + 1}"
        axes.bar(
            places, norms[column], 0.4, color=COLOURS[number], hatch=HATCHES[number], edgecolor="white", label=step
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(norms)), norms.index, rotation=30, ha="right")
    axes.set_ylabel("norm of the gradient (log scale)")
    axes.legend(fontsize="small")
    return figure


@_described
def quantization_chart(weights: torch.Tensor, quantized: torch.Tensor) -> Chart:
    """What becomes of weights that share one scale: each goes to the nearest of sixteen values."""
    figure, axes = _figure()
    low, high = float(weights.min()), float(weights.max())
    axes.plot([low, high], [low, high], color="grey", linestyle="--", label="no error")
    axes.scatter(weights.flatten(), quantized.flatten(), s=30, color=COLOURS[1], label="in 4 bits", zorder=2)
    axes.set_xlabel("weight as trained")
    axes.set_ylabel("weight that is computed with")
    axes.legend(fontsize="small")
    return figure


@_described
def flops_chart(steps: dict[str, StepFlops]) -> Chart:
    """Arithmetic of a training step by strategy: forward and backward pass, in billions of operations."""
    figure, axes = _figure()
    names, forward = list(steps), [step.forward / 1e9 for step in steps.values()]
    backward = [step.backward / 1e9 for step in steps.values()]
    axes.barh(names, forward, color=COLOURS[5], edgecolor="black", label="forward pass")
    axes.barh(names, backward, left=forward, color=COLOURS[4], edgecolor="black", hatch="//", label="backward pass")
    axes.set_xlabel("billion floating-point operations")
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    return figure


@_described
def memory_chart(estimates: dict[str, MemoryEstimate], budgets: dict[str, int] | None = None) -> Chart:
    """Estimated bytes by category, a bar each; `budgets` (bytes) are drawn as lines with their names."""
    figure, axes = _figure()
    unit, divisor = ("GiB", 2**30) if max(e.peak for e in estimates.values()) >= 2**30 else ("MiB", 2**20)
    left = [0.0] * len(estimates)
    for number, category in enumerate(max((e.categories for e in estimates.values()), key=len)):
        sizes = [estimate.categories[category] / divisor for estimate in estimates.values()]
        style = {"color": COLOURS[number], "edgecolor": "black", "hatch": HATCHES[number]}
        axes.barh(list(estimates), sizes, left=left, label=category, **style)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    for name, budget in (budgets or {}).items():
        _mark(axes, budget / divisor, name)
    axes.invert_yaxis()
    axes.set_xlabel(f"bytes at the peak of a step ({unit})")
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


@_described
def ladder_chart(rungs: list[Rung], budgets: dict[str, int]) -> Chart:
    """What each rung of the ladder should need on the device, coloured by tier; `budgets` (bytes) are lines."""
    figure, axes = _figure()
    for number, (tier, names) in enumerate(TIERS.items()):
        places = [place for place, rung in enumerate(rungs) if rung.name in names]
        if not places:
            continue
        sizes = [rungs[place].estimate / 2**30 for place in places]
        style = {"color": COLOURS[number], "edgecolor": "black", "hatch": HATCHES[number]}
        axes.barh(places, sizes, label=tier, **style)
    for name, budget in budgets.items():
        _mark(axes, budget / 2**30, name)
    axes.set_yticks(range(len(rungs)), [_rung_label(rung) for rung in rungs])
    axes.invert_yaxis()
    axes.set_xlabel("peak of a training step on the device (GiB)")
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


@_described
def attempts_chart(attempts: list[Attempt]) -> Chart:
    """How much memory each attempt of a fallback held on the card at its highest, and whether it was enough."""
    figure, axes = _figure()
    for number, (label, failed) in enumerate({"out of memory": True, "holds": False}.items()):
        places = [place for place, attempt in enumerate(attempts) if bool(attempt.failed_in) is failed]
        sizes = [attempts[place].peak / 2**20 for place in places]
        axes.barh(places, sizes, color=COLOURS[1 + number], hatch=HATCHES[1 - number], edgecolor="black", label=label)
    axes.set_yticks(range(len(attempts)), [f"{n}. {attempt.rung}" for n, attempt in enumerate(attempts, 1)])
    axes.invert_yaxis()
    axes.set_xlabel("most bytes held on the card (MiB)")
    figure.legend(loc="outside upper center", ncols=2, fontsize="small")
    return figure


def _plain_numbers(axis, low: float, high: float) -> None:
    """Marks of a log scale as people write numbers: many on a short stretch, 1, 2 and 5 on a longer one."""
    axis.set_major_formatter("{x:,.0f}")
    marks = (1, 2, 5) if high < 100 * low else (1,)
    if high < 5 * low:
        marks = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    axis.set_major_locator(LogLocator(subs=marks))
    axis.set_minor_formatter("")


def _mark(axes, x: float, name: str) -> None:
    """A dashed line with its name at its lower end."""
    axes.axvline(x, color="black", linestyle="--")
    transform = axes.get_xaxis_transform()
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    axes.text(x, 0.02, name, transform=transform, rotation=90, ha="right", va="bottom", fontsize="small", bbox=behind)


def _rung_label(rung: Rung) -> str:
    return f"micro-batches of {rung.plan.micro_batch_size}" if rung.name == "smaller micro-batch" else rung.name


@_described
def fit_chart(table: pd.DataFrame) -> Chart:
    """What each strategy needs, against the memory of common cards (log scale); from `recommendation.fit_table`."""
    figure, axes = _figure()
    table = table.dropna(subset="gib")
    axes.plot(table.gib, table.strategy, "o", color=COLOURS[0], markersize=9)
    for column in table.columns[table.columns.str.endswith(" GB")]:
        _mark(axes, float(column.split()[0]), column)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("peak of a step (GiB, log scale); dashed: whole cards, of which 85% may be used")
    return figure


def _differences_of(comparison) -> Chart | None:
    """None where nothing is there to be compared: one strategy, or the reference failed."""
    if comparison.table.difference.isna().all():
        return None
    return differences_chart(comparison.table, comparison.provenance["against"])


# Each draws a comparison, or returns None where it has nothing to draw.
CHARTS = {
    "perplexity": lambda comparison: perplexity_chart(comparison.table),
    "differences": _differences_of,
    "learning_curves": lambda comparison: learning_curves(comparison.curves),
    "parameters": lambda comparison: parameters_chart(comparison.table),
    "cost": lambda comparison: cost_chart(comparison.table),
    "forgetting": lambda comparison: forgetting_chart(comparison.table),
}


def _figure():
    figure, axes = plt.subplots(FigureClass=Chart, figsize=SIZE, layout="constrained")
    plt.close(figure)  # a notebook shows what a cell returns, once
    axes.grid(alpha=0.3)
    return figure, axes


def _scatter(table: pd.DataFrame, x: str, y: str, x_label: str, y_label: str, log_x: bool = False) -> Chart:
    figure, axes = _figure()
    for number, row in enumerate(table.itertuples()):
        style = {"color": _colour(number, row.strategy), "marker": _marker(number, row.strategy)}
        axes.scatter(getattr(row, x), getattr(row, y), s=70, label=row.strategy, **style)
    if log_x:
        axes.set_xscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(fontsize="small")
    return figure


def _colour(number: int, name: str = "") -> str:
    """The same for a strategy in every chart; for others by their number."""
    return COLOURS[PLACES.get(name, number) % len(COLOURS)]


def _marker(number: int, name: str = "") -> str:
    return MARKERS[PLACES.get(name, number) % len(MARKERS)]

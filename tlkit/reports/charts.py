"""From tables and results to matplotlib figures: what training gains, costs and forgets."""

import pandas as pd
import torch
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator

from tlkit.evidence.flops import StepFlops
from tlkit.evidence.gradient_flow import GradientFlow
from tlkit.evidence.learning_rates import CONTROL
from tlkit.evidence.questions import CHANCE, QUESTION_SETS
from tlkit.reports.figure import COLOURS, HATCHES, Chart, colour, described, marker, new_figure, panels_beside
from tlkit.strategies import StrategyReport
from tlkit.training import TrainingResult


@described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on the test text by strategy, with the 95% interval over documents.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, perplexity_low, perplexity_high.
    """
    table = table.dropna(subset="perplexity").sort_values("perplexity", ascending=False)
    figure, axes = new_figure()
    # The interval of one document is a point, up to rounding.
    errors = [table.perplexity - table.perplexity_low, table.perplexity_high - table.perplexity]
    errors = [error.clip(lower=0) for error in errors]
    # Points, not bars: on a log scale a bar has no zero to start from.
    axes.errorbar(table.perplexity, table.strategy, xerr=errors, fmt="o", color=COLOURS[0], ecolor="black", capsize=4)
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis, table.perplexity_low.min(), table.perplexity_high.max())
    axes.set_xlabel("perplexity on held-out text (log scale, lower is better; lines: 95% interval)")
    return figure


@described
def accuracy_chart(table: pd.DataFrame) -> Chart:
    """Share of four-option questions answered rightly, with 95% intervals; the dashed line is what guessing gives.

    Args:
        table: a row for each strategy, with column strategy and for each set of questions its accuracy (0 to 1) and
            interval: rust_accuracy, rust_accuracy_low, rust_accuracy_high; general_accuracy and so on.
    """
    table = table[table.strategy != CONTROL].iloc[::-1]
    figure, axes = new_figure()
    for number, name in enumerate(QUESTION_SETS):
        values, low, high = (100 * table[f"{name}_accuracy{end}"] for end in ("", "_low", "_high"))
        errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]
        places = [place + 0.12 - 0.24 * number for place in range(len(table))]
        style = {"color": COLOURS[number], "marker": marker(number), "linestyle": "none", "capsize": 4}
        axes.errorbar(values, places, xerr=errors, label=f"{name} questions", **style)
    axes.axvline(100 * CHANCE, color="black", linestyle="--", label="guessing")
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_xlabel("questions answered rightly (%; lines: 95% interval over questions)")
    axes.legend(fontsize="small")
    return figure


@described
def learning_curves(curves: pd.DataFrame) -> Chart:
    """Training loss by optimizer step, averaged over seeds; the control, which begins far above, is left out.

    Args:
        curves: a row for each step of each run, with columns strategy, seed, step, loss (nats per token).
    """
    figure, axes = new_figure()
    curves = curves[curves.strategy != CONTROL]
    for number, (strategy, part) in enumerate(curves.groupby("strategy", sort=False)):
        mean = part.groupby("step").loss.mean().rolling(5, min_periods=1).mean()
        style = {"color": colour(number, strategy), "marker": marker(number, strategy), "markevery": 0.1}
        axes.plot(mean.index, mean, label=strategy, **style)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("training loss (nats per token, mean of up to 5 steps)")
    axes.legend(fontsize="small")
    return figure


@described
def parameters_chart(table: pd.DataFrame) -> Chart:
    """Trainable values (log scale) against perplexity, without the control.

    Args:
        table: a row for each strategy, with columns strategy, trainable_values, perplexity.
    """
    return _scatter(
        table[(table.trainable_values > 0) & (table.strategy != CONTROL)],
        "trainable_values",
        "perplexity",
        "trainable values (log scale)",
        "perplexity on held-out text",
        log_x=True,
    )


@described
def cost_chart(table: pd.DataFrame) -> Chart:
    """Seconds of training and peak memory of tensors, side by side.

    Args:
        table: a row for each strategy, with columns strategy, seconds, peak_memory_mb.
    """
    table = table[table.seconds > 0]
    figure, (left, right) = panels_beside(2)
    left.barh(table.strategy, table.seconds, color=COLOURS[5], edgecolor="black")
    left.set_xlabel("seconds of training")
    right.barh(table.strategy, table.peak_memory_mb, color=COLOURS[4], edgecolor="black", hatch="//")
    right.set_xlabel("peak memory of tensors (MB)")
    return figure


@described
def forgetting_chart(table: pd.DataFrame) -> Chart:
    """What was gained on the new text against what was lost on general text.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, general (perplexity on general text).
    """
    table = table[table.strategy != CONTROL].dropna(subset="perplexity")
    return _scatter(
        table, "perplexity", "general", "perplexity on Rust (lower: adapted more)", "perplexity on general text"
    )


@described
def differences_chart(table: pd.DataFrame, against: str = "full") -> Chart:
    """Each strategy's perplexity minus that of one other; where the interval includes zero, the two are not separated.

    Args:
        table: a row for each strategy, with columns strategy, difference, difference_low, difference_high; rows
            without a difference are left out.
        against: the strategy that was subtracted.
    """
    table = table.dropna(subset="difference").sort_values("difference", ascending=False)
    figure, axes = new_figure()
    errors = [table.difference - table.difference_low, table.difference_high - table.difference]
    axes.errorbar(table.difference, table.strategy, xerr=errors, fmt="o", color=COLOURS[0], ecolor="black", capsize=4)
    axes.axvline(0, color="black", linestyle="--")
    axes.set_xlabel(f"perplexity more than {against} (lines: interval over documents and seeds)")
    return figure


@described
def pairs_chart(pairs: pd.DataFrame) -> Chart:
    """Perplexity of the row's strategy minus the column's; coloured where the two are separated.

    Args:
        pairs: what `compare_pairs` returned.
    """
    names = list(dict.fromkeys([*pairs["first"], *pairs["second"]]))
    figure, axes = new_figure()
    axes.grid(False)
    for pair in pairs.itertuples():
        for row, column, sign in ((pair.first, pair.second, 1), (pair.second, pair.first, -1)):
            x, y, difference = names.index(column), names.index(row), sign * pair.difference
            shade = ("white", COLOURS[4] if difference > 0 else COLOURS[5])[int(pair.separated)]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="grey"))
            axes.text(x, y, f"{difference:+.1f}", ha="center", va="center", fontsize="small")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(
        "perplexity of the row minus the column (blue: row lower; orange: row higher; white: not separated)"
    )
    return figure


@described
def sweep_chart(record: pd.DataFrame, x: str, x_label: str, y: str = "validation_perplexity") -> Chart:
    """A line for each strategy over one setting (log scale), through the means of its seeds; each seed is a dot.

    Args:
        record: a row for each run, with columns strategy, `x` and `y`; what is infinite is left out.
        x: column of the setting.
        x_label: what the setting is, with its unit.
        y: column of the result, a perplexity.
    """
    figure, axes = new_figure()
    record = record[record[y] < float("inf")]
    for number, (strategy, part) in enumerate(record.groupby("strategy", sort=False)):
        mean = part.groupby(x)[y].mean()
        shade = colour(number, strategy)
        axes.plot(mean.index, mean, color=shade, marker=marker(number, strategy), label=strategy)
        axes.plot(part[x], part[y], ".", color=shade, alpha=0.6)
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


@described
def tradeoff_chart(paths: dict[str, pd.DataFrame]) -> Chart:
    """Gain against loss along several paths; the best corner is at the bottom left.

    Args:
        paths: by name a table with a row for each point: its label, and its perplexities rust and general.
    """
    figure, axes = new_figure()
    for number, (name, path) in enumerate(paths.items()):
        axes.plot(path.rust, path.general, color=colour(number), marker=marker(number), label=name)
        for point in path.itertuples():
            offset = {"xytext": (5, 5 - 14 * (number % 2)), "textcoords": "offset points", "fontsize": "small"}
            axes.annotate(point.label, (point.rust, point.general), color=colour(number), **offset)
    axes.set_xlabel("perplexity on Rust (lower: adapted more)")
    axes.set_ylabel("perplexity on general text")
    axes.legend(fontsize="small")
    return figure


@described
def overfitting_chart(runs: dict[str, TrainingResult]) -> Chart:
    """Training loss (dashed) and validation loss (solid) of each run, by epoch.

    Args:
        runs: by name what `train` returned, with validation.
    """
    figure, axes = new_figure()
    for number, (name, run) in enumerate(runs.items()):
        history = run.history
        epochs = history.set_index("step").epoch
        axes.plot(history.epoch, history.loss, "--", color=colour(number), alpha=0.5)
        at = run.validation.step.map(epochs)
        axes.plot(at, run.validation.validation_loss, color=colour(number), marker=marker(number), label=name)
    axes.set_xlabel("epoch")
    axes.set_ylabel("nats per token; solid: validation, dashed: training")
    axes.legend(fontsize="small")
    return figure


@described
def components_chart(*reports: StrategyReport) -> Chart:
    """Where a model's values are, and which of them each strategy trains; one panel a report, bottom block lowest.

    Args:
        reports: what `apply_strategy` returned, for models of one architecture.
    """
    figure, panels = panels_beside(len(reports))
    for axes, report in zip(panels, reports, strict=True):
        names = list(report.components)
        trained = [report.components[name].trainable_values / 1e6 for name in names]
        frozen = [c.total_values / 1e6 - t for c, t in zip(report.components.values(), trained, strict=True)]
        axes.barh(names, trained, color=COLOURS[0], edgecolor="black", label="trained")
        axes.barh(names, frozen, left=trained, color="white", edgecolor="black", hatch="///", label="frozen")
        axes.set_title(report.strategy)
        axes.set_xlim(0, 1.05 * max(part.total_values for part in report.components.values()) / 1e6)
        axes.set_xlabel("million values")
        axes.legend(fontsize="small")
    return figure


@described
def gradient_flow_chart(flow: GradientFlow) -> Chart:
    """The gradient's norm at each place of the model, in the first two steps; a gap is where none arrived.

    Args:
        flow: what `check_gradient_flow` returned.
    """
    norms = flow.table.set_index("place")[["norm_1", "norm_2"]].pow(2).groupby(level=0, sort=False).sum().pow(0.5)
    figure, axes = new_figure()
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


@described
def quantization_chart(weights: torch.Tensor, quantized: torch.Tensor) -> Chart:
    """What becomes of weights that share one scale: each goes to the nearest of sixteen values.

    Args:
        weights: as trained, any shape.
        quantized: the same weights after 4 bits and back, of the same shape.
    """
    figure, axes = new_figure()
    low, high = float(weights.min()), float(weights.max())
    axes.plot([low, high], [low, high], color="grey", linestyle="--", label="no error")
    axes.scatter(weights.flatten(), quantized.flatten(), s=30, color=COLOURS[1], label="in 4 bits", zorder=2)
    axes.set_xlabel("weight as trained")
    axes.set_ylabel("weight that is computed with")
    axes.legend(fontsize="small")
    return figure


@described
def flops_chart(steps: dict[str, StepFlops]) -> Chart:
    """Arithmetic of a training step by strategy: forward and backward pass, in billions of operations.

    Args:
        steps: by strategy what `count_flops` returned.
    """
    figure, axes = new_figure()
    names, forward = list(steps), [step.forward / 1e9 for step in steps.values()]
    backward = [step.backward / 1e9 for step in steps.values()]
    axes.barh(names, forward, color=COLOURS[5], edgecolor="black", label="forward pass")
    axes.barh(names, backward, left=forward, color=COLOURS[4], edgecolor="black", hatch="//", label="backward pass")
    axes.set_xlabel("billion floating-point operations")
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    return figure


def _plain_numbers(axis, low: float, high: float) -> None:
    """Marks of a log scale as people write numbers: many on a short stretch, 1, 2 and 5 on a longer one."""
    axis.set_major_formatter("{x:,.0f}")
    marks = (1, 2, 5) if high < 100 * low else (1,)
    if high < 5 * low:
        marks = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    axis.set_major_locator(LogLocator(subs=marks))
    axis.set_minor_formatter("")


def _differences_of(comparison) -> Chart | None:
    """None where nothing is there to be compared: one strategy, or the reference failed."""
    if comparison.table.difference.isna().all():
        return None
    return differences_chart(comparison.table, comparison.provenance["against"])


def _accuracy_of(comparison) -> Chart | None:
    """None where no questions were asked."""
    return accuracy_chart(comparison.table) if len(comparison.answers) else None


# Each draws a comparison, or returns None where it has nothing to draw.
CHARTS = {
    "perplexity": lambda comparison: perplexity_chart(comparison.table),
    "differences": _differences_of,
    "learning_curves": lambda comparison: learning_curves(comparison.curves),
    "parameters": lambda comparison: parameters_chart(comparison.table),
    "cost": lambda comparison: cost_chart(comparison.table),
    "forgetting": lambda comparison: forgetting_chart(comparison.table),
    "accuracy": _accuracy_of,
}


def _scatter(table: pd.DataFrame, x: str, y: str, x_label: str, y_label: str, log_x: bool = False) -> Chart:
    figure, axes = new_figure()
    for number, row in enumerate(table.itertuples()):
        style = {"color": colour(number, row.strategy), "marker": marker(number, row.strategy)}
        axes.scatter(getattr(row, x), getattr(row, y), s=70, label=row.strategy, **style)
    if log_x:
        axes.set_xscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(fontsize="small")
    return figure

"""Charts of training: validation loss by epoch or step, results over a setting, and the arithmetic of a step."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tlkit.evidence.flops import StepFlops
from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    INK,
    UNTOUCHED,
    Chart,
    described,
    headline,
    height_for,
    new_figure,
    panels_beside,
    plain_numbers,
    styles,
)
from tlkit.reports.labels import beside_rows, label_ends
from tlkit.training import TrainingResult

CLEARLY = 0.05  # nats per token; a run that ends closer to the untouched model than this is not counted as better
RING = {"markersize": 14, "markerfacecolor": "none", "markeredgewidth": 1.5, "label": "_best", "zorder": 4}


@described
def sweep_chart(record: pd.DataFrame, x: str, x_label: str) -> Chart:
    """A line for each strategy over one setting (log scale), through the means of its seeds; each seed is a dot.

    Args:
        record: a row for each run, with columns strategy, `x` and validation_perplexity; what is infinite is left out.
        x: column of the setting.
        x_label: what the setting is, with its unit.
    """
    figure, axes = new_figure()
    record = record[record.validation_perplexity < float("inf")]
    means, drawn = {}, styles(record.strategy)
    for strategy, part in record.groupby("strategy", sort=False):
        mean = means[strategy] = part.groupby(x).validation_perplexity.mean()
        shade, form = drawn[strategy]
        axes.plot(mean.index, mean, color=shade, marker=form, label=strategy)
        axes.plot(part[x], part.validation_perplexity, ".", color=shade, alpha=0.6)
        if len(mean) > 1:
            axes.plot(mean.idxmin(), mean.min(), "o", **RING, markeredgecolor=shade)
    axes.set_xscale("log")
    plain_numbers(axes.xaxis, record[x].min(), record[x].max())
    axes.set_yscale("log")
    plain_numbers(axes.yaxis, record.validation_perplexity.min(), record.validation_perplexity.max())
    axes.set_xlabel(x_label)
    axes.set_ylabel("validation perplexity (log scale, lower is better)")
    ends = {strategy: (mean.index[-1], mean.iloc[-1]) for strategy, mean in means.items()}
    label_ends(axes, ends, {strategy: shade for strategy, (shade, _) in drawn.items()})
    headline(figure, _sweep_finding(record, means, x))
    return figure


@described
def overfitting_chart(runs: dict[str, TrainingResult], *, untouched: float | None = None) -> Chart:
    """Validation loss by epoch, of one run with its training loss, of several each beside the first one.

    Args:
        runs: by name what `train` returned, with validation. One run is drawn with its training loss. Each of several
            has a panel, with the first run behind it in grey and its training loss at the end written down.
        untouched: validation loss in nats per token before any training: drawn as a line, and as the curves' epoch 0.
    """
    curves = {name: _by_epoch(run, untouched) for name, run in runs.items()}
    first, *others = runs
    if others:
        rows = -(-len(others) // 3)
        figure, panels = panels_beside(len(others), height=1.0 + 2.3 * rows, rows=rows)
        for axes, name in zip(panels, others, strict=True):
            axes.grid(alpha=0.3)
            axes.plot(curves[first].index, curves[first], color=FAINT, linewidth=2.5, alpha=0.45, label=first)
            _draw_validation(axes, curves[name], "this run", untouched)
            axes.set_title(name, fontsize="medium")
            told = f"training ends at {_training_end(runs[name]):.2f}"
            axes.text(0.03, 0.96, told, transform=axes.transAxes, fontsize="small", ha="left", va="top")
        lowest, highest = (edge(map(edge, curves.values())) for edge in (min, max))
        room = highest - lowest  # for what is written above
        panels[0].set_ylim(lowest - 0.1 * room, highest + 0.2 * room)
    else:
        figure, axes = new_figure()
        panels, history = [axes], runs[first].history
        axes.plot(history.epoch, history.loss, "--", color=FAINT, label="training", linewidth=1.2)
        _draw_validation(axes, curves[first], "validation", untouched)
    longest = max(run.history.epoch.max() for run in runs.values())
    for axes in panels:
        axes.set_xlim(0, 1.02 * longest)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(labelbottom=True)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(f"{'validation loss' if others else 'loss'} (nats per token)")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    headline(figure, _overfitting_finding(runs, curves, untouched))
    return figure


@described
def flops_chart(steps: dict[str, StepFlops]) -> Chart:
    """Arithmetic of a training step by strategy: forward and backward pass, in billions of operations.

    Args:
        steps: by strategy what `count_flops` returned.
    """
    figure, axes = new_figure(height_for(len(steps)))
    passes = pd.DataFrame({name: (step.forward, step.backward) for name, step in steps.items()}) / 1e9
    forward, backward = passes.to_numpy()
    axes.barh(passes.columns, forward, color=COLOURS[5], edgecolor=INK, label="forward pass")
    style = {"color": COLOURS[4], "edgecolor": INK, "hatch": "//", "label": "backward pass"}
    axes.barh(passes.columns, backward, left=forward, **style)
    axes.set_xlabel("billion floating-point operations in a training step")
    axes.invert_yaxis()
    total = passes.sum()
    shares, most, least = 100 * total / total.max(), total.idxmax(), total.idxmin()
    told = [f"{value:.3g}" + f" ({shares[name]:.0f}%)" * (name != most) for name, value in total.items()]
    beside_rows(axes, range(len(total)), told)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    if len(steps) > 1:
        headline(figure, f"{least} needs {shares[least]:.0f}% of the arithmetic of {most}")
    else:
        ratio = backward[0] / forward[0]
        headline(figure, f"The backward pass is {ratio:.2g} times the arithmetic of the forward pass")
    return figure


def _draw_validation(axes: Axes, curve: pd.Series, name: str, untouched: float | None) -> None:
    """A curve of validation loss with a ring around its lowest point, and the untouched model as a line."""
    axes.plot(curve.index, curve, color=COLOURS[0], marker="o", markersize=4, label=name)
    axes.plot(curve.idxmin(), curve.min(), "o", **RING, markeredgecolor=COLOURS[0])
    if untouched is not None:
        axes.axhline(untouched, color=FAINT, linestyle=":", label=UNTOUCHED)


def _stopped_early(run: TrainingResult) -> bool:
    """Whether the run brought its best weights back, so that this is where it ends."""
    return getattr(run, "stopped_early", False)


def _training_end(run: TrainingResult) -> float:
    """Mean training loss of the last three steps of the weights that a run ends with."""
    step = run.history.step.max()
    if _stopped_early(run):
        step = run.validation.step[run.validation.validation_loss.idxmin()]
    return run.history.loss[run.history.step <= step].tail(3).mean()


def _by_epoch(run: TrainingResult, untouched: float | None) -> pd.Series:
    """Validation loss by epoch, from epoch 0 on where it is known."""
    epochs = run.history.set_index("step").epoch
    curve = pd.Series(run.validation.validation_loss.to_numpy(), index=run.validation.step.map(epochs).to_numpy())
    return curve if untouched is None else pd.concat([pd.Series([untouched], index=[0.0]), curve])


def _sweep_finding(record: pd.DataFrame, means: dict[str, pd.Series], x: str) -> str:
    """Which strategy is lowest at every setting with every seed; where none is, the best setting of each."""
    setting = x.replace("_", " ")
    runs = record.groupby([x, "strategy"]).validation_perplexity
    lowest, highest = runs.min().unstack(), runs.max().unstack()
    for name in means if len(means) > 1 else ():
        tried = highest[name].dropna()
        if (tried < lowest.drop(columns=name).min(axis=1)[tried.index]).all():
            return f"{name} is lowest at every number of {setting}, with every seed"
    best = {name: mean.idxmin() for name, mean in means.items()}
    if len(best) > 5:
        return f"The best {setting} is between {min(best.values()):g} and {max(best.values()):g}, by strategy"
    return f"Best {setting}: " + ", ".join(f"{value:g} for {name}" for name, value in best.items())


def _overfitting_finding(runs: dict[str, TrainingResult], curves: dict[str, pd.Series], untouched: float | None) -> str:
    """Where the validation loss of one run turned, or how many of several end below the untouched model."""
    ends = {name: curve.min() if _stopped_early(runs[name]) else curve.iloc[-1] for name, curve in curves.items()}
    if len(runs) == 1:
        ((name, curve),) = curves.items()
        if ends[name] > curve.min() + 0.005:
            best = f"best at epoch {curve.idxmin():.2g} ({curve.min():.2f})"
            return f"Validation loss is {best} and ends at {ends[name]:.2f} nats per token"
        return f"Validation loss still falls at the end, to {ends[name]:.2f} nats per token"
    if untouched is None:
        return f"{min(ends, key=ends.get)} ends lowest, at {min(ends.values()):.2f} nats per token (one seed)"
    better = f"{sum(end < untouched - CLEARLY for end in ends.values())} of {len(ends)} runs"
    return f"{better} end more than {CLEARLY} nats per token below the untouched model ({untouched:.2f})"

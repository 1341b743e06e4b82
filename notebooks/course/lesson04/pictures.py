"""Pictures of lesson 4: what a run goes through, step by step, and where its validation loss turns."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tlkit.reports.figure import COLOURS, FAINT, SIZE, UNTOUCHED, Chart, described, headline, new_figure, panels_beside
from tlkit.reports.training_charts import RING
from tlkit.training import TrainingResult

CLEARLY = 0.05  # nats per token; a run that ends closer to the untouched model than this is not counted as better


@described
def run_chart(result: TrainingResult, untouched: float) -> Chart:
    """One run step by step: the loss of each batch and its mean, and below them the learning rate.

    Args:
        result: what `train` returned.
        untouched: loss on held-out text before training, in nats per token; drawn as a line.
    """
    options = {"figsize": SIZE, "sharex": True, "height_ratios": (3, 1), "layout": "constrained"}
    figure, (upper, lower) = plt.subplots(2, 1, FigureClass=Chart, **options)
    plt.close(figure)
    history = result.history
    mean = history.loss.rolling(5, min_periods=1).mean()
    upper.plot(history.step, history.loss, "o", color=COLOURS[5], label="loss of one batch")
    upper.plot(history.step, mean, color=COLOURS[0], label="mean of up to five batches")
    upper.axhline(untouched, color=FAINT, linestyle="--", label="held-out text, before training")
    upper.set_ylabel("loss (nats per token)")
    upper.legend(fontsize="small")
    lower.plot(history.step, history.learning_rate, color=COLOURS[1], marker=".")
    lower.set_ylim(bottom=0)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("optimizer step")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    last, apart = mean.iloc[-1], untouched - mean.iloc[-1]
    side = "below" if apart > 0 else "above"
    finding = f"The last batches average {last:.2f} nats per token, {abs(apart):.2f} {side} the untouched model"
    headline(figure, finding)
    return figure


@described
def overfitting_chart(runs: dict[str, TrainingResult], *, untouched: float) -> Chart:
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
    ends = {name: curve.min() if runs[name].stopped_early else curve.iloc[-1] for name, curve in curves.items()}
    if others:
        better = f"{sum(end < untouched - CLEARLY for end in ends.values())} of {len(ends)} runs"
        headline(figure, f"{better} end more than {CLEARLY} nats per token below the untouched model ({untouched:.2f})")
    else:
        best = f"best at epoch {curves[first].idxmin():.2g} ({curves[first].min():.2f})"
        headline(figure, f"Validation loss is {best} and ends at {ends[first]:.2f} nats per token")
    return figure


def _draw_validation(axes: Axes, curve: pd.Series, name: str, untouched: float) -> None:
    """A curve of validation loss with a ring around its lowest point, and the untouched model as a line."""
    axes.plot(curve.index, curve, color=COLOURS[0], marker="o", markersize=4, label=name)
    axes.plot(curve.idxmin(), curve.min(), "o", **RING, markeredgecolor=COLOURS[0])
    axes.axhline(untouched, color=FAINT, linestyle=":", label=UNTOUCHED)


def _training_end(run: TrainingResult) -> float:
    """Mean training loss of the last three steps of the weights that a run ends with."""
    best = run.validation.step[run.validation.validation_loss.idxmin()]
    history = run.history[run.history.step <= best] if run.stopped_early else run.history
    return history.loss.tail(3).mean()


def _by_epoch(run: TrainingResult, untouched: float) -> pd.Series:
    """Validation loss by epoch, from epoch 0 on."""
    epochs = run.validation.step.map(run.history.set_index("step").epoch)
    return pd.Series([untouched, *run.validation.validation_loss], index=[0.0, *epochs])

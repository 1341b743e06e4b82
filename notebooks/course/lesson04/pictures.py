"""The picture of lesson 4: what a run goes through, loss and learning rate, step by step."""

import matplotlib.pyplot as plt

from tlkit.reports.figure import COLOURS, FAINT, SIZE, Chart, described, headline
from tlkit.training import TrainingResult


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

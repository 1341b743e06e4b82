"""A picture of the same training by several numbers of processes."""

import pandas as pd

from tlkit.reports.figure import COLOURS, Chart, described, headline, new_figure

SIZES = (18, 11, 5)  # markers within one another, so that equal curves can all be seen


@described
def same_curve_chart(losses: pd.DataFrame) -> Chart:
    """Training losses of the same steps, taken by different numbers of processes.

    Args:
        losses: nats a token, a row a step, a column a number of processes (at most three).

    Raises:
        ValueError: for more numbers of processes.
    """
    if losses.shape[1] > len(SIZES):
        raise ValueError(f"{losses.shape[1]} numbers of processes: expected at most {len(SIZES)}, more are not legible")
    figure, axes = new_figure(3.6)
    for count, size, shade in zip(losses.columns, SIZES, (COLOURS[5], COLOURS[4], COLOURS[0]), strict=False):
        name = f"{count} process{'es' * (count > 1)}"
        axes.plot(losses.index, losses[count], "o-", color=shade, markersize=size, label=name, linewidth=size / 4)
    axes.set_xticks(losses.index)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("training loss (nats per token)")
    axes.legend(frameon=False)
    apart = float((losses.max(axis=1) - losses.min(axis=1)).max())
    headline(figure, f"{_listed(losses.columns)} processes: the losses are at most {apart:.7f} nats apart")
    return figure


def _listed(counts) -> str:
    *first, last = map(str, counts)
    return f"{', '.join(first)} and {last}" if first else last

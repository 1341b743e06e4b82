"""Results of training over a setting, and the arithmetic of a step."""

import pandas as pd

from tlkit.evidence.flops import StepFlops
from tlkit.reports.figure import (
    COLOURS,
    INK,
    Chart,
    described,
    headline,
    height_for,
    new_figure,
    plain_numbers,
    styles,
)
from tlkit.reports.labels import beside_rows, label_ends

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

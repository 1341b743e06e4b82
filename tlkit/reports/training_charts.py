"""Charts of training: losses step by step, and results over a setting that was varied."""

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from tlkit.evidence.learning_rates import CONTROL
from tlkit.reports.figure import (
    FAINT,
    INK,
    SIZE,
    UNTOUCHED,
    Chart,
    best_corner,
    colour,
    dark,
    described,
    headline,
    marker,
    new_figure,
    panels_beside,
    plain_numbers,
)
from tlkit.reports.findings import listed, number
from tlkit.reports.labels import label_ends, label_points
from tlkit.training import TrainingResult

LAST_STEPS = 5  # whose mean is where a curve ends


@described
def learning_curves(curves: pd.DataFrame) -> Chart:
    """Training loss by optimizer step, averaged over seeds; the control, which begins far above, is left out.

    Args:
        curves: a row for each step of each run, with columns strategy, seed, step, loss (nats per token).
    """
    figure, axes = new_figure()
    curves = curves[curves.strategy != CONTROL]
    ends, shades, last = {}, {}, {}
    for order, (strategy, part) in enumerate(curves.groupby("strategy", sort=False)):
        mean = part.groupby("step").loss.mean().rolling(LAST_STEPS, min_periods=1).mean()
        shade = colour(order, strategy)
        axes.plot(mean.index, mean, label=strategy, color=shade, marker=marker(order, strategy), markevery=0.1)
        ends[strategy], shades[strategy] = (mean.index[-1], mean.iloc[-1]), shade
        last[strategy] = part.sort_values("step").groupby("seed").loss.apply(lambda loss: loss.tail(LAST_STEPS).mean())
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(f"training loss (nats per token, mean of up to {LAST_STEPS} steps)")
    axes.margins(x=0.02)
    label_ends(axes, ends, shades)
    headline(figure, _lowest_with_every_seed(last, "training loss ends"))
    return figure


@described
def sweep_chart(
    record: pd.DataFrame, x: str, x_label: str, y: str = "validation_perplexity", *, untouched: float | None = None
) -> Chart:
    """A line for each strategy over one setting (log scale), through the means of its seeds; each seed is a dot.

    Args:
        record: a row for each run, with columns strategy, `x` and `y`; what is infinite is left out.
        x: column of the setting.
        x_label: what the setting is, with its unit.
        y: column of the result, a perplexity.
        untouched: the result of the model before any training, for a dashed line.
    """
    figure, axes = new_figure()
    record = record[record[y] < float("inf")]
    means, shades = {}, {}
    for order, (strategy, part) in enumerate(record.groupby("strategy", sort=False)):
        mean = means[strategy] = part.groupby(x)[y].mean()
        shade = shades[strategy] = colour(order, strategy)
        axes.plot(mean.index, mean, color=shade, marker=marker(order, strategy), label=strategy)
        axes.plot(part[x], part[y], ".", color=shade, alpha=0.6)
        if len(mean) > 1:  # a ring around the best setting
            best = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": shade, "markeredgewidth": 1.5}
            axes.plot(mean.idxmin(), mean.min(), "o", label=f"_best of {strategy}", zorder=4, **best)
    axes.set_xscale("log")
    axes.set_xticks(sorted(record[x].unique()), minor=False)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yscale("log")
    lowest, highest = record[y].min(), record[y].max()
    if untouched is not None:
        axes.axhline(untouched, color=INK, linestyle="--", linewidth=1.2)
        lowest, highest = min(lowest, untouched), max(highest, untouched)
    plain_numbers(axes.yaxis, lowest, highest)
    axes.set_xlabel(x_label)
    axes.set_ylabel("validation perplexity (log scale, lower is better)")
    ends = {strategy: (mean.index[-1], mean.iloc[-1]) for strategy, mean in means.items()}
    if untouched is not None:
        named = f"{UNTOUCHED} {untouched:.0f}"
        ends[named], shades[named] = (axes.get_xlim()[1], untouched), INK
    label_ends(axes, ends, shades)
    headline(figure, _sweep_finding(record, means, x, y))
    return figure


@described
def tradeoff_chart(paths: dict[str, pd.DataFrame]) -> Chart:
    """Gain against loss along several paths; the best corner is at the bottom left.

    Args:
        paths: by name a table with a row for each point: its label, and its perplexities rust and general.
    """
    figure, axes = new_figure(SIZE[1] + 0.4)
    points, labels, shades = [], [], []
    for order, (name, path) in enumerate(paths.items()):
        axes.plot(path.rust, path.general, color=colour(order), marker=marker(order), label=name)
        points += zip(path.rust, path.general, strict=True)
        labels += list(path.label)
        shades += [dark(colour(order))] * len(path)
    axes.set_xlabel("perplexity on Rust (lower: gained more)")
    axes.set_ylabel("perplexity on general text (higher: forgot more)")
    axes.margins(0.1)
    best_corner(axes)
    if len(paths) > 1:
        figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
        headline(figure, _paths_finding(paths))
    else:
        headline(figure, _path_finding(paths))
    label_points(axes, points, labels, shades)
    return figure


@described
def overfitting_chart(runs: dict[str, TrainingResult], *, untouched: float | None = None) -> Chart:
    """Training loss (dashed) and validation loss (solid) of each run, by epoch; several runs have a panel each.

    Args:
        runs: by name what `train` returned, with validation.
        untouched: validation loss in nats per token before any training: drawn as a line, and as the curves' epoch 0.
    """
    columns = min(len(runs), 4 if len(runs) > 6 else 3)
    rows = -(-len(runs) // max(columns, 1))
    options = {"height": SIZE[1] if rows == 1 else 1.0 + 2.1 * rows, "rows": rows, "sharey": True}
    figure, panels = panels_beside(rows * columns, **options)
    for spare in panels[len(runs) :]:
        spare.remove()
    lowest, longest = {}, max(run.history.epoch.max() for run in runs.values())
    for order, (axes, (name, run)) in enumerate(zip(panels, runs.items(), strict=False)):
        shade = colour(order)
        axes.grid(alpha=0.3)
        axes.plot(run.history.epoch, run.history.loss, "--", color=FAINT, label="training", linewidth=1.2)
        curve = _by_epoch(run, untouched)
        axes.plot(curve.index, curve, color=shade, marker=marker(order), markersize=4, label="validation")
        if len(runs) > 1:
            axes.set_title(name, fontsize="medium", color=dark(shade))
        # Early stopping brings its best weights back, so that is where such a run ends.
        end = curve.min() if getattr(run, "stopped_early", False) else curve.iloc[-1]
        lowest[name] = (curve.idxmin(), curve.min(), end)
        axes.plot(curve.idxmin(), curve.min(), "o", **RING, markeredgecolor=shade)
        if untouched is not None:
            axes.axhline(untouched, color=FAINT, linestyle=":", label=UNTOUCHED)
        axes.set_xlim(0, 1.02 * longest)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for place, axes in enumerate(panels[: len(runs)]):
        if place + columns >= len(runs):
            axes.set_xlabel("epoch")
        else:
            axes.tick_params(labelbottom=True)
        if place % columns == 0:
            axes.set_ylabel("loss (nats per token)")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    headline(figure, _overfitting_finding(lowest, untouched))
    return figure


RING = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 1.5, "label": "_best", "zorder": 4}


def _by_epoch(run: TrainingResult, untouched: float | None) -> pd.Series:
    """Validation loss by epoch, from epoch 0 on where it is known."""
    epochs = run.history.set_index("step").epoch
    curve = pd.Series(run.validation.validation_loss.to_numpy(), index=run.validation.step.map(epochs).to_numpy())
    return curve if untouched is None else pd.concat([pd.Series([untouched], index=[0.0]), curve])


def _lowest_with_every_seed(results: dict[str, pd.Series], what: str) -> str:
    """Claim an order only where every seed of the lowest is below every seed of the others."""
    means = {name: values.mean() for name, values in results.items()}
    best = min(means, key=means.get)
    said = f"{best}'s {what} lowest, at {number(means[best])} nats"
    if len(means) == 1:
        return f"{best}'s {what} at {number(means[best])} nats"
    if min(len(values) for values in results.values()) < 2:
        return f"{said}, in one run each"
    unclear = [name for name in results if name != best and results[name].min() <= results[best].max()]
    return f"{said}, but its seeds overlap with {listed(unclear)}" if unclear else f"{said} with every seed"


def _sweep_finding(record: pd.DataFrame, means: dict[str, pd.Series], x: str, y: str) -> str:
    spans = record.groupby(["strategy", x])[y].agg(["min", "max"])
    everywhere = [
        name
        for name in means
        if len(means) > 1
        and all(
            spans.loc[(name, place), "max"] < spans.loc[(other, place), "min"]
            for other in means
            for place in means[other].index
            if other != name and (name, place) in spans.index
        )
    ]
    setting = x.replace("_", " ")
    if everywhere:
        return f"{everywhere[0]} is lowest at every number of {setting}, with every seed"
    best = {name: mean.idxmin() for name, mean in means.items()}
    if len(best) > 5:
        return f"The best {setting} is between {min(best.values()):g} and {max(best.values()):g}, by strategy"
    return f"Best {setting}: " + ", ".join(f"{value:g} for {name}" for name, value in best.items())


def _path_finding(paths: dict[str, pd.DataFrame]) -> str:
    """Where each path has its lowest perplexity on Rust, and whether all that lies beyond is worse on both texts."""
    said, worse = [], []
    for name, path in paths.items():
        best = path.rust.argmin()
        beyond = path.iloc[best + 1 :]
        is_worse = (beyond.rust > path.rust.iloc[best]) & (beyond.general > path.general.iloc[best])
        worse.append(len(beyond) > 0 and bool(is_worse.all()))
        said.append(f"{name} = {path.label.iloc[best]}")
    start = f"Perplexity on Rust is lowest at {' and at '.join(said)}"
    return f"{start}; with more, it rises on Rust and on general text" if all(worse) else start


def _paths_finding(paths: dict[str, pd.DataFrame]) -> str:
    """Whether less on one axis costs more on the other, and which of two paths forgets less at the same gain."""
    if len(paths) == 2:
        (first, one), (second, other) = paths.items()
        one, other = (path.sort_values("rust") for path in (one, other))
        low, high = max(one.rust.min(), other.rust.min()), min(one.rust.max(), other.rust.max())
        if low < high:
            at = np.linspace(low, high, 20)
            apart = np.interp(at, one.rust, one.general) - np.interp(at, other.rust, other.general)
            for sign, name, instead in ((-1, first, second), (1, second, first)):
                if (sign * apart > 0).all():
                    return f"At the same perplexity on Rust, {name} forgets less than {instead}"
    if all(path.sort_values("rust").general.is_monotonic_decreasing for path in paths.values()):
        return "On every path, a lower perplexity on Rust costs perplexity on general text"
    return _path_finding(paths)


def _overfitting_finding(lowest: dict[str, tuple[float, float, float]], untouched: float | None) -> str:
    """Where the validation loss turned, or which runs end below the untouched model."""
    if len(lowest) == 1:
        ((epoch, best, end),) = lowest.values()
        if end > best + 0.005:
            return f"Validation loss is best at epoch {epoch:.2g} ({best:.2f}) and ends at {end:.2f} nats per token"
        return f"Validation loss still falls at the end, to {end:.2f} nats per token"
    if untouched is not None:
        better = [name for name, (_, _, end) in lowest.items() if end < untouched]
        return f"{len(better)} of {len(lowest)} runs end below the untouched model ({untouched:.2f} nats per token)"
    name = min(lowest, key=lambda name: lowest[name][2])
    overfitted = sum(end > best + 0.005 for _, best, end in lowest.values())
    return f"{overfitted} of {len(lowest)} runs end above their best validation loss; {name} ends lowest (one seed)"

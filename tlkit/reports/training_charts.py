"""Charts of training: losses step by step, and results over a setting that was varied."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tlkit.reports.figure import (
    FAINT,
    INK,
    MARKERS,
    SIZE,
    UNTOUCHED,
    Chart,
    best_corner,
    colour,
    described,
    headline,
    marker,
    new_figure,
    panels_beside,
    plain_numbers,
    styles,
)
from tlkit.reports.labels import label_ends, label_path
from tlkit.training import TrainingResult

CLEARLY = 0.05  # nats per token; a run that ends closer to the untouched model than this is not counted as better


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
    means, shades, drawn = {}, {}, styles(record.strategy)
    for strategy, part in record.groupby("strategy", sort=False):
        mean = means[strategy] = part.groupby(x)[y].mean()
        shade, form = drawn[strategy]
        shades[strategy] = shade
        axes.plot(mean.index, mean, color=shade, marker=form, label=strategy)
        axes.plot(part[x], part[y], ".", color=shade, alpha=0.6)
        if len(mean) > 1:  # a ring around the best setting
            best = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": shade, "markeredgewidth": 1.5}
            axes.plot(mean.idxmin(), mean.min(), "o", label=f"_best of {strategy}", zorder=4, **best)
    axes.set_xscale("log")
    axes.set_xticks(_apart(sorted(record[x].unique()), [mean.idxmin() for mean in means.values()]), minor=False)
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


def _apart(values: list[float], first: list[float]) -> list[float]:
    """Those of some values that can be written side by side on a log scale: `first`, then what fits between them."""
    shown: list[float] = []
    for value in [*dict.fromkeys(first), *values]:
        if all(abs(math.log(value / other)) > 0.105 * math.log(values[-1] / values[0]) for other in shown):
            shown.append(value)
    return sorted(shown)


@described
def tradeoff_chart(paths: dict[str, pd.DataFrame]) -> Chart:
    """Gain against loss along several paths; the best corner is at the bottom left.

    Args:
        paths: by name a table with a row for each point: its label, and its perplexities rust and general.
    """
    figure, axes = new_figure(SIZE[1] + 0.4)
    for order, (name, path) in enumerate(paths.items()):
        # The line is faint, so that a mark of one path that lies on the line of another is not taken for a part of it.
        axes.plot(path.rust, path.general, color=colour(order), linewidth=1.2, alpha=0.5, zorder=1, label="_line")
        look = {"markersize": 8, "markeredgecolor": "white", "linestyle": "none", "zorder": 3}
        axes.plot(path.rust, path.general, color=colour(order), marker=marker(order), label=name, **look)
    axes.set_xlabel("perplexity on Rust (lower: gained more)")
    axes.set_ylabel("perplexity on general text (higher: forgot more)")
    axes.margins(0.1)
    best_corner(axes)
    if len(paths) > 1:
        figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
        headline(figure, _paths_finding(paths))
    else:
        headline(figure, _path_finding(paths))
    for order, path in enumerate(paths.values()):
        label_path(axes, list(zip(path.rust, path.general, strict=True)), list(path.label), colour(order))
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
    # Early stopping brings its best weights back, so that is where such a run ends.
    ends = {
        name: curve.min() if getattr(runs[name], "stopped_early", False) else curve.iloc[-1]
        for name, curve in curves.items()
    }
    longest = max(run.history.epoch.max() for run in runs.values())
    if len(runs) == 1:
        ((name, run),) = runs.items()
        figure, axes = new_figure()
        axes.plot(run.history.epoch, run.history.loss, "--", color=FAINT, label="training", linewidth=1.2)
        _validation(axes, curves[name], colour(0), untouched)
        panels = [axes]
    else:
        first, *others = runs
        rows = -(-len(others) // 3)
        figure, panels = panels_beside(len(others), height=1.0 + 2.3 * rows, rows=rows)
        for axes, name in zip(panels, others, strict=True):
            axes.grid(alpha=0.3)
            axes.plot(curves[first].index, curves[first], color=FAINT, linewidth=2.5, alpha=0.45, label=first)
            _validation(axes, curves[name], colour(0), untouched)
            axes.set_title(name, fontsize="medium")
            told = f"training ends at {_training_end(runs[name]):.2f}"
            axes.text(0.03, 0.96, told, transform=axes.transAxes, fontsize="small", ha="left", va="top")
        low, high = (edge(map(edge, curves.values())) for edge in (min, max))
        panels[0].set_ylim(low - 0.1 * (high - low), high + 0.2 * (high - low))  # with room for what is written above
    for axes in panels:
        axes.set_xlim(0, 1.02 * longest)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(labelbottom=True)
    for axes in panels:
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(f"{'loss' if len(runs) == 1 else 'validation loss'} (nats per token)")
    handles, names = panels[0].get_legend_handles_labels()
    names = ["this run" if len(runs) > 1 and name == "validation" else name for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    lowest = {name: (curve.idxmin(), curve.min(), ends[name]) for name, curve in curves.items()}
    headline(figure, _overfitting_finding(lowest, untouched))
    return figure


@described
def live_curves(
    curves: dict[str, list[tuple[int, float]]],
    now: str,
    *,
    untouched: float,
    across: tuple[float, float],
    upwards: tuple[float, float],
    diverged: dict[str, int],
) -> Chart:
    """Validation loss by optimizer step, of a run while it trains, over the runs before it.

    Args:
        curves: by name of each run the steps and losses (nats per token) so far.
        now: the name of the run that trains, which is drawn last and strongest.
        untouched: the loss before any training, where every curve begins.
        across: from where to where the steps go.
        upwards: from where to where the losses go; both stay, so that curves do not move while one grows.
        diverged: by name at which step a run was given up; it leaves the picture at the top.
    """
    figure, axes = new_figure()
    axes.set_xlim(*across)
    axes.set_ylim(*upwards)
    axes.axhline(untouched, color=INK, linestyle="--", linewidth=1.2)
    ends, shades = {}, {}
    for place, name in enumerate([*(name for name in curves if name != now), now]):
        shown = [(0, untouched), *((step, min(loss, 2 * upwards[1])) for step, loss in curves[name] if loss == loss)]
        shade, is_now = colour(0) if name == now else FAINT, name == now
        form = MARKERS[place % len(MARKERS)]
        axes.plot(*zip(*shown, strict=True), color=shade, marker=form, markersize=4, linewidth=2.5 if is_now else 1.2)
        step, loss = next((point for point in reversed(shown) if point[1] <= upwards[1]), shown[0])
        label = f"{name}: diverged at step {diverged[name]}" if name in diverged else f"{name}: {shown[-1][1]:.2f}"
        ends[label], shades[label] = (step, loss), shade
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("validation loss (nats per token)")
    ends[f"{UNTOUCHED}: {untouched:.2f}"] = (across[1], untouched)
    shades[f"{UNTOUCHED}: {untouched:.2f}"] = INK
    label_ends(axes, ends, shades)
    if now in diverged:
        headline(figure, f"The run diverged at step {diverged[now]}: its learning rate is too high")
    else:
        step, loss = curves[now][-1]
        side = "below" if loss < untouched else "above"
        finding = f"At step {step} the run is {abs(untouched - loss):.2f} nats per token {side} the untouched model"
        headline(figure, finding)
    return figure


def _validation(axes: Axes, curve: pd.Series, shade: str, untouched: float | None) -> None:
    """A curve of validation loss with a ring around its lowest point, and the untouched model as a line."""
    axes.plot(curve.index, curve, color=shade, marker="o", markersize=4, label="validation")
    axes.plot(curve.idxmin(), curve.min(), "o", **RING, markeredgecolor=shade)
    if untouched is not None:
        axes.axhline(untouched, color=FAINT, linestyle=":", label=UNTOUCHED)


def _training_end(run: TrainingResult) -> float:
    """Mean training loss of the last three steps of the weights that a run ends with."""
    step = run.history.step.max()
    if getattr(run, "stopped_early", False):
        step = run.validation.step[run.validation.validation_loss.idxmin()]
    return run.history.loss[run.history.step <= step].tail(3).mean()


RING = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 1.5, "label": "_best", "zorder": 4}


def _by_epoch(run: TrainingResult, untouched: float | None) -> pd.Series:
    """Validation loss by epoch, from epoch 0 on where it is known."""
    epochs = run.history.set_index("step").epoch
    curve = pd.Series(run.validation.validation_loss.to_numpy(), index=run.validation.step.map(epochs).to_numpy())
    return curve if untouched is None else pd.concat([pd.Series([untouched], index=[0.0]), curve])


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
    """Whether less on one axis costs more on the other, and which path forgets less at the same gain, or how much."""
    if len(paths) == 2:
        first, second = paths
        apart = _general_at_the_same_rust(paths[first], paths[second])
        for sign, name, instead in ((-1, first, second), (1, second, first)):
            if len(apart) and (sign * (apart[0] - apart[1]) > 0).all():
                return f"At the same perplexity on Rust, {name} forgets less than {instead}"
        if said := _like_for_like(paths) or _like_for_like(dict(reversed(paths.items()))):
            return said
    if all(path.sort_values("rust").general.is_monotonic_decreasing for path in paths.values()):
        return "On every path, a lower perplexity on Rust costs perplexity on general text"
    first, *others = paths.values()
    apart = [_general_at_the_same_rust(first, other) for other in others]
    if len(others) > 1 and all(map(len, apart)):
        percent = 100 * (np.concatenate([other / one for one, other in apart]) - 1)
        ends = [f"{abs(end):.0f}% {'above' if end > 0 else 'below'}" for end in (percent.min(), percent.max())]
        span = " to ".join(dict.fromkeys(ends))
        return f"At the same perplexity on Rust, the others are {span} {next(iter(paths))} on general text"
    return _path_finding(paths)


def _general_at_the_same_rust(one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Perplexity on general text along two paths, shape (2, 20), where both reach the same one on Rust; or nothing."""
    low, high = max(one.rust.min(), other.rust.min()), min(one.rust.max(), other.rust.max())
    if low >= high:
        return np.empty(0)
    at, ordered = np.linspace(low, high, 20), [path.sort_values("rust") for path in (one, other)]
    return np.array([np.interp(at, path.rust, path.general) for path in ordered])


def _like_for_like(paths: dict[str, pd.DataFrame]) -> str:
    """Whether the second path forgets less at each label that both have, such as "rate 0.001", and at its own best."""
    (first, one), (second, other) = ((name, path.set_index("label")) for name, path in paths.items())
    shared = one.index.intersection(other.index)
    kinds = {str(label).rpartition(" ")[0] for label in shared}
    if len(shared) < 2 or len(kinds) > 1 or "" in kinds or not (other.general[shared] < one.general[shared]).all():
        return ""
    kind = kinds.pop()
    said = f"At the same {kind}, {second} forgets less than {first}"
    if other.general[other.rust.idxmin()] > one.general[one.rust.idxmin()]:
        said += f", but each at its best {kind}, it forgets more"
    return said


def _overfitting_finding(lowest: dict[str, tuple[float, float, float]], untouched: float | None) -> str:
    """Where the validation loss turned, or which runs end below the untouched model."""
    if len(lowest) == 1:
        ((epoch, best, end),) = lowest.values()
        if end > best + 0.005:
            return f"Validation loss is best at epoch {epoch:.2g} ({best:.2f}) and ends at {end:.2f} nats per token"
        return f"Validation loss still falls at the end, to {end:.2f} nats per token"
    if untouched is not None:
        better = sum(end < untouched - CLEARLY for _, _, end in lowest.values())
        return (
            f"{better} of {len(lowest)} runs end more than {CLEARLY} nats per token "
            f"below the untouched model ({untouched:.2f})"
        )
    name = min(lowest, key=lambda name: lowest[name][2])
    overfitted = sum(end > best + 0.005 for _, best, end in lowest.values())
    return f"{overfitted} of {len(lowest)} runs end above their best validation loss; {name} ends lowest (one seed)"

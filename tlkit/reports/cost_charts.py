"""What a strategy costs: values trained, seconds and memory, and what is forgotten for what is gained."""

import math

import pandas as pd
from matplotlib.axes import Axes

from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    INK,
    UNTOUCHED,
    Chart,
    best_corner,
    described,
    headline,
    height_for,
    new_figure,
    panels_beside,
    strategy_legend,
    styles,
    untouched_line,
)
from tlkit.reports.findings import listed, number


@described
def parameters_chart(table: pd.DataFrame) -> Chart:
    """Trainable values (log scale) against perplexity, without the control.

    Args:
        table: a row for each strategy, with columns strategy, trainable_values, perplexity; and, where there are
            seeds, perplexity_seeds_low and perplexity_seeds_high.
    """
    before = table[table.strategy == ZERO_SHOT].perplexity
    table = table[(table.trainable_values > 0) & (table.strategy != CONTROL)].dropna(subset="perplexity")
    figure, axes = new_figure()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    axes.margins(0.12)
    if len(before):
        untouched_line(axes, before.iloc[0])
    _scatter(axes, table, "trainable_values", "perplexity", list(table.strategy))
    strategy_legend(figure, axes)
    axes.set_xlabel("values trained (log scale)")
    axes.set_ylabel("perplexity on held-out text (lower is better)")
    most, fewest = (table.loc[pick] for pick in (table.trainable_values.idxmax(), table.trainable_values.idxmin()))
    share = f"{fewest.strategy} trains {100 * fewest.trainable_values / most.trainable_values:.2g}% of the values"
    if len(table) < 2:
        headline(figure, f"{most.strategy} trains {number(most.trainable_values)} values")
    elif len(before) and before.iloc[0] > most.perplexity:
        kept = (before.iloc[0] - fewest.perplexity) / (before.iloc[0] - most.perplexity)
        headline(figure, f"{share} that {most.strategy} trains, and brings {100 * kept:.0f}% of its gain")
    else:
        headline(
            figure,
            f"{share} that {most.strategy} trains: perplexity {number(fewest.perplexity)} "
            f"against {number(most.perplexity)}",
        )
    return figure


@described
def cost_chart(table: pd.DataFrame) -> Chart:
    """Seconds of training and peak memory of tensors, side by side.

    Args:
        table: a row for each strategy, with columns strategy, seconds, peak_memory_mb.
    """
    table = table[table.seconds > 0]
    figure, (left, right) = panels_beside(2, height=height_for(len(table)))
    unit, size = ("GB", 1e3) if table.peak_memory_mb.max() >= 1e4 else ("MB", 1)
    _bars(left, table.strategy, table.seconds, "s", COLOURS[5])
    left.set_xlabel("training time (s, on one machine)")
    _bars(right, table.strategy, table.peak_memory_mb / size, unit, COLOURS[4], hatch="//")
    right.set_xlabel(f"peak memory of tensors ({unit})")
    left.invert_yaxis()
    headline(figure, _cost_finding(table))
    return figure


@described
def forgetting_chart(table: pd.DataFrame | dict[str, pd.DataFrame]) -> Chart:
    """What was gained on the new text against what was lost on general text; the best corner is at the bottom left.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, general (perplexity on general text) and,
            where there are seeds, perplexity_seeds_low and perplexity_seeds_high; or by name of a model such a table,
            for a panel each. Where a column corpus names another text than Rust, it is called the new text.
    """
    tables = table if isinstance(table, dict) else {"": table}
    on = _name_of_text(tables)
    options = {"sharey": False, "height": 4.8 if len(tables) == 1 else 4.4}
    figure, panels = panels_beside(len(tables), **options)
    for axes, (model, rows) in zip(panels, tables.items(), strict=True):
        rows = rows[rows.strategy != CONTROL].dropna(subset="perplexity").reset_index(drop=True)
        axes.set_title(model, fontsize="medium")
        axes.grid(alpha=0.3)
        axes.set_xlabel(f"perplexity on {on} (lower: gained more)")
        axes.margins(0.16)
        best_corner(axes)
        names = [_change(row, rows, brief=len(tables) > 1) for row in rows.itertuples()]
        start = rows[rows.strategy == ZERO_SHOT]
        for before in start.itertuples():
            axes.axhline(before.general, color=FAINT, linestyle=":", linewidth=1)
            axes.axvline(before.perplexity, color=FAINT, linestyle=":", linewidth=1)
        _scatter(axes, rows, "perplexity", "general", names)
    strategy_legend(figure, panels[0])
    panels[0].set_ylabel("perplexity on general text (higher: forgot more)")
    notes = [f"in brackets: change on {on}, on general text"] if len(tables) == 1 else []
    if all("perplexity_seeds_low" in rows for rows in tables.values()):
        notes.append("points: means over seeds, lines: their 95% interval")
    if notes:
        figure.supxlabel("; ".join(notes), fontsize="small", color=FAINT)
    headline(figure, _forgetting_finding(tables, on))
    return figure


def _change(row, table: pd.DataFrame, brief: bool) -> str:
    """Name of a strategy with its change on both texts, where the untouched model is in the table; or the name only."""
    start = table[table.strategy == ZERO_SHOT]
    if row.strategy == ZERO_SHOT:
        return UNTOUCHED if brief else f"{UNTOUCHED} ({ZERO_SHOT})"
    if start.empty or brief:
        return row.strategy
    start = start.iloc[0]
    gained, lost = (
        100 * (after / before - 1)
        for after, before in ((row.perplexity, start.perplexity), (row.general, start.general))
    )
    return f"{row.strategy} ({gained:+.0f}%, {lost:+.0f}%)"


def _cost_finding(table: pd.DataFrame) -> str:
    """Which strategy needs the least time and which the least memory, as a share of the one that needs most."""
    said: dict[str, list[str]] = {}
    for column, what in (("seconds", "time"), ("peak_memory_mb", "memory")):
        measured = table[table.strategy != CONTROL].dropna(subset=column).set_index("strategy")[column]
        if len(measured) > 1:
            least, most = measured.idxmin(), measured.idxmax()
            share = f"{100 * measured[least] / measured[most]:.0f}% of {most}'s"
            said.setdefault(least, []).append(f"the least {what} ({share})")
    if not said:
        return "Time and memory of a training"
    return ", ".join(f"{name} needs {' and '.join(what)}" for name, what in said.items())


def _name_of_text(tables: dict[str, pd.DataFrame]) -> str:
    names = {name for table in tables.values() if "corpus" in table for name in table.corpus}
    return "Rust" if names <= {"rust", "facts"} else "the new text"


def _forgetting_finding(tables: dict[str, pd.DataFrame], on: str) -> str:
    """Who gains, who forgets, and who forgets most and least; of one strategy on several models, with which of them."""
    changes = {}
    for model, table in tables.items():
        rows = table[table.strategy != CONTROL].dropna(subset="perplexity").set_index("strategy")
        trained = rows.drop(index=ZERO_SHOT, errors="ignore")
        if trained.empty or ZERO_SHOT not in rows.index:
            return f"What each strategy gains on {on} and forgets of general text"
        untouched = rows.loc[ZERO_SHOT]
        changes[model] = untouched.perplexity - trained.perplexity, trained.general - untouched.general
    alone = {tuple(gained.index) for gained, _ in changes.values() if len(gained) == 1}
    if len(changes) > 1 and len(alone) == 1 and all(len(gained) == 1 for gained, _ in changes.values()):
        with_gain = [model for model, (gained, _) in changes.items() if gained.iloc[0] > 0]
        with_loss = [model for model, (_, lost) in changes.items() if lost.iloc[0] > 0]
        gains, losses = (_which(models, len(changes)) for models in (with_gain, with_loss))
        return f"{alone.pop()[0]} gains on {on} with {gains}, and forgets general text with {losses}"
    told = {model: _who_gains_and_forgets(*change, on) for model, change in changes.items()}
    orders = {model: _who_forgets_most(lost) for model, (_, lost) in changes.items()}
    if len(told) == 1:
        return "; ".join(filter(None, [*told.values(), *orders.values()]))
    if len(set(told.values())) == 1:
        shared, told = next(iter(told.values())), orders
        return "; ".join([shared, *(f"{model}: {order}" for model, order in told.items() if order)])
    return "; ".join(f"{model}: {said[0].lower()}{said[1:]}" for model, said in told.items())


def _which(models: list[str], count: int) -> str:
    """Say which of so many models: "both models", "tiny only", "no model"."""
    if len(models) == count:
        return "both models" if count == 2 else "every model"
    return f"{listed(models, 'models')} only" if models else "neither model" if count == 2 else "no model"


def _who_gains_and_forgets(gained: pd.Series, lost: pd.Series, on: str) -> str:
    """For instance "Every strategy gains on Rust and forgets general text"."""
    better, worse = list(gained.index[gained > 0]), list(lost.index[lost > 0])
    if len(gained) == 1:
        gains = f"gains on {on}" if better else f"gains nothing on {on}"
        return f"{gained.index[0]} {gains} and forgets {'general text' if worse else 'nothing of general text'}"
    every, none = len(better) == len(gained), not better
    start = "Every strategy gains" if every else "No strategy gains" if none else _these(better, "gain")
    if not worse:
        return f"{start} on {on}, and none forgets general text"
    if len(worse) == len(lost):
        return f"{start} on {on}{' and forgets' if every else ', and every strategy forgets'} general text"
    return f"{start} on {on}, and {_these(worse, 'forget')} general text"


def _these(names: list[str], verb: str) -> str:
    return f"only {names[0]} {verb}s" if len(names) == 1 else f"{listed(names, 'strategies')} {verb}"


def _who_forgets_most(lost: pd.Series) -> str:
    """Empty where there is no order, or nothing is forgotten."""
    if len(lost) < 2 or lost.max() <= 0:
        return ""
    return f"{lost.idxmax()} forgets most" + (f", {lost.idxmin()} least" if lost.min() > 0 else "")


def _bars(axes: Axes, names: pd.Series, sizes: pd.Series, unit: str, shade: str, **style) -> None:
    """Bars with their values at their ends."""
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    axes.barh(names, sizes, color=shade, edgecolor=INK, **style)
    axes.set_xlim(0, 1.25 * sizes.max())
    for place, size in enumerate(sizes):
        if math.isfinite(size):
            beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
            axes.annotate(f"{number(size)} {unit}", (size, place), **beside)


def _scatter(axes: Axes, table: pd.DataFrame, x: str, y: str, names: list[str]) -> None:
    """A marker for each strategy, named in a legend, with intervals over seeds where the table has them."""
    drawn = styles(table.strategy)
    for row, name in zip(table.itertuples(), names, strict=True):
        shade, form = drawn[row.strategy]
        shade = INK if row.strategy == ZERO_SHOT else shade
        spread = {}
        for axis, column in (("xerr", x), ("yerr", y)):
            low, high = (getattr(row, f"{column}_seeds_{end}", math.nan) for end in ("low", "high"))
            value = getattr(row, column)
            if low <= value <= high:
                spread[axis] = [[value - low], [high - value]]
        style = {"color": shade, "marker": form, "markersize": 9, "linestyle": "none"}
        axes.errorbar(getattr(row, x), getattr(row, y), label=name, capsize=3, elinewidth=1, **spread, **style)

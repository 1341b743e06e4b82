"""From the tables of scores and comparisons to figures: what training gains, costs and forgets."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL
from tlkit.evidence.questions import CHANCE, QUESTION_SETS
from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    INK,
    UNTOUCHED,
    Chart,
    best_corner,
    colour,
    dark,
    described,
    headline,
    height_for,
    mark,
    marker,
    new_figure,
    panels_beside,
    plain_numbers,
    untouched_line,
)
from tlkit.reports.findings import listed, lowest_of, number
from tlkit.reports.labels import beside_rows, label_points
from tlkit.reports.training_charts import learning_curves

LOWER, HIGHER = "#BFE0F5", "#F7DDA8"  # the row's perplexity, in a matrix of pairs
FAR_OUT = 2.0  # a row this many times beyond the others' range stands at the edge, with an arrow and its value


@described
def perplexity_chart(table: pd.DataFrame) -> Chart:
    """Perplexity on held-out text, with the 95% interval over documents; rows are in the order of the table.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, perplexity_low, perplexity_high; with the
            column rank of a comparison, the title says what is separated.
    """
    table = table.dropna(subset="perplexity").reset_index(drop=True)
    figure, axes = new_figure(height_for(len(table)))
    rows = range(len(table))
    edge = _edge(table)
    inside = table[table.perplexity <= edge]
    # The interval of one document is a point, up to rounding.
    errors = [inside.perplexity - inside.perplexity_low, inside.perplexity_high - inside.perplexity]
    errors = [error.clip(lower=0) for error in errors]
    # Points, not bars: on a log scale a bar has no zero to start from.
    axes.errorbar(inside.perplexity, inside.index, xerr=errors, fmt="o", color=COLOURS[0], ecolor=INK, capsize=4)
    for row in table[table.perplexity > edge].itertuples():
        axes.plot(edge, row.Index, ">", color=COLOURS[1], markersize=9)
        behind = {"xytext": (-8, 0), "textcoords": "offset points", "ha": "right", "va": "center", "fontsize": "small"}
        axes.annotate("far beyond the scale", (edge, row.Index), color=COLOURS[1], **behind)
    axes.set_xscale("log")
    low, high = inside.perplexity_low.min(), max(inside.perplexity_high.max(), edge if len(inside) < len(table) else 0)
    axes.set_xlim(low / 1.06, high * 1.06)
    plain_numbers(axes.xaxis, low, high)
    axes.set_yticks(rows, table.strategy)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xlabel("perplexity (log scale, lower is better; lines: 95% interval over documents)")
    if (table.strategy == ZERO_SHOT).any() and len(table) > 2:
        mark(axes, table.perplexity[table.strategy == ZERO_SHOT].iloc[0], UNTOUCHED)
    beside_rows(axes, rows, [_with_interval(row, "perplexity") for row in table.itertuples()])
    headline(figure, _perplexity_finding(table))
    return figure


@described
def accuracy_chart(table: pd.DataFrame) -> Chart:
    """Share of four-option questions answered rightly, with 95% intervals; the dashed line is what guessing gives.

    Args:
        table: a row for each strategy, with column strategy and for each set of questions its accuracy (0 to 1) and
            interval: rust_accuracy, rust_accuracy_low, rust_accuracy_high; general_accuracy and so on.
    """
    table = table[table.strategy != CONTROL].iloc[::-1]
    figure, axes = new_figure(height_for(1.3 * len(table)))
    said = []
    for order, name in enumerate(QUESTION_SETS):
        values, low, high = (100 * table[f"{name}_accuracy{end}"] for end in ("", "_low", "_high"))
        errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]
        places = [place + 0.17 - 0.34 * order for place in range(len(table))]
        style = {"color": COLOURS[order], "marker": marker(order), "linestyle": "none", "capsize": 4}
        axes.errorbar(values, places, xerr=errors, label=f"{name} questions", **style)
        for value, place in zip(values, places, strict=True):
            axes.text(1.02, place, f"{name} {value:.0f}%", **_aside(axes, COLOURS[order]))
        above = int((low > 100 * CHANCE).sum())
        said.append(f"{name} questions: {above} of {len(table)}")
    mark(axes, 100 * CHANCE, "guessing")
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel("questions answered rightly (%; lines: 95% interval over questions)")
    headline(figure, f"Better than guessing (interval above {100 * CHANCE:.0f}%): {', '.join(said)}")
    return figure


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
    _scatter(axes, table, "trainable_values", "perplexity")
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
    left.set_xlabel("training time (s)")
    _bars(right, table.strategy, table.peak_memory_mb / size, unit, COLOURS[4], hatch="//")
    right.set_xlabel(f"peak memory of tensors ({unit})")
    left.invert_yaxis()
    said = []
    for column, what in (("seconds", "time"), ("peak_memory_mb", "memory")):
        measured = table[table.strategy != CONTROL].dropna(subset=column).set_index("strategy")[column]
        if len(measured) > 1:
            least, most = measured.idxmin(), measured.idxmax()
            said.append(f"{what}: {least} needs {100 * measured[least] / measured[most]:.0f}% of {most}")
    headline(figure, ("Least " + "; least ".join(said) if said else "Time and memory") + " (measured on one machine)")
    return figure


@described
def forgetting_chart(table: pd.DataFrame | dict[str, pd.DataFrame]) -> Chart:
    """What was gained on the new text against what was lost on general text; the best corner is at the bottom left.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, general (perplexity on general text) and,
            where there are seeds, perplexity_seeds_low and perplexity_seeds_high; or by name of a model such a table,
            for a panel each.
    """
    tables = table if isinstance(table, dict) else {"": table}
    options = {"sharey": False, "height": 4.8 if len(tables) == 1 else 4.4}
    figure, panels = panels_beside(len(tables), **options)
    for axes, (model, rows) in zip(panels, tables.items(), strict=True):
        rows = rows[rows.strategy != CONTROL].dropna(subset="perplexity").reset_index(drop=True)
        axes.set_title(model, fontsize="medium")
        axes.grid(alpha=0.3)
        axes.set_xlabel("perplexity on Rust (lower: gained more)")
        axes.margins(0.16)
        best_corner(axes)
        names = [_change(row, rows, brief=len(tables) > 1) for row in rows.itertuples()]
        start = rows[rows.strategy == ZERO_SHOT]
        for before in start.itertuples():
            axes.axhline(before.general, color=FAINT, linestyle=":", linewidth=1)
            axes.axvline(before.perplexity, color=FAINT, linestyle=":", linewidth=1)
        _scatter(axes, rows, "perplexity", "general", names)
    panels[0].set_ylabel("perplexity on general text (higher: forgot more)")
    notes = ["in brackets: change on Rust, on general text"] if len(tables) == 1 else []
    if all("perplexity_seeds_low" in rows for rows in tables.values()):
        notes.append("lines: 95% interval over seeds")
    if notes:
        figure.supxlabel("; ".join(notes), fontsize="small", color=FAINT)
    headline(figure, _forgetting_finding(tables))
    return figure


@described
def differences_chart(table: pd.DataFrame, against: str = "full") -> Chart:
    """Each strategy's perplexity minus that of one other; where the interval includes zero, the two are not separated.

    Args:
        table: a row for each strategy, with columns strategy, difference, difference_low, difference_high; rows
            without a difference are left out.
        against: the strategy that was subtracted.
    """
    table = table.dropna(subset="difference").sort_values("difference", ascending=False)
    figure, axes = new_figure(height_for(len(table)))
    clear = (table.difference_low > 0) | (table.difference_high < 0)
    errors = [table.difference - table.difference_low, table.difference_high - table.difference]
    axes.errorbar(table.difference, table.strategy, xerr=errors, fmt="o", color=COLOURS[0], ecolor=INK, capsize=4)
    for row, separated in enumerate(clear):
        if not separated:
            axes.plot(table.difference.iloc[row], row, "o", color="white", markeredgecolor=COLOURS[0], zorder=4)
    mark(axes, 0, against)
    axes.set_ylim(-0.5, len(table) - 0.5)
    beside_rows(axes, range(len(table)), [_with_interval(row, "difference", "+") for row in table.itertuples()])
    axes.set_xlabel(f"perplexity more than {against} (lines: interval over documents and seeds; hollow: includes zero)")
    higher, lower = table[table.difference_low > 0].strategy[::-1], table[table.difference_high < 0].strategy[::-1]
    said = [f"{listed(lower, 'strategies')} below {against}"] if len(lower) else []
    said += [f"{listed(higher, 'strategies')} above {against}"] if len(higher) else []
    said += [f"not separated from {against}: {listed(table.strategy[~clear][::-1], 'strategies')}"] * (not clear.all())
    said = "; ".join(said)
    headline(figure, said[0].upper() + said[1:] if said.startswith("not ") else said)
    return figure


@described
def pairs_chart(pairs: pd.DataFrame) -> Chart:
    """Perplexity of the row's strategy minus the column's; coloured where the two are separated.

    Args:
        pairs: what `compare_pairs` returned; without its columns low and high, intervals are not written.
    """
    names = list(dict.fromkeys([*pairs["first"], *pairs["second"]]))
    total = dict.fromkeys(names, 0.0)
    for pair in pairs.itertuples():
        total[pair.first] += pair.difference
        total[pair.second] -= pair.difference
    names.sort(key=total.get)  # the lowest perplexity first
    figure, axes = new_figure(1.6 + 0.58 * len(names))
    axes.grid(False)
    intervals = {"low", "high"} <= set(pairs)
    for pair in pairs.itertuples():
        for row, column, sign in ((pair.first, pair.second, 1), (pair.second, pair.first, -1)):
            x, y, difference = names.index(column), names.index(row), sign * pair.difference
            shade = ("white", HIGHER if difference > 0 else LOWER)[int(pair.separated)]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="grey"))
            known = intervals and not math.isnan(pair.low)
            style = {"ha": "center", "va": "center", "color": INK if pair.separated else FAINT}
            weight = "bold" if pair.separated else "normal"
            axes.text(x, y - 0.15 * known, f"{difference:+.1f}", fontweight=weight, **style)
            if known:
                low, high = sorted((sign * pair.low, sign * pair.high))
                axes.text(x, y + 0.22, f"{low:+.1f} to {high:+.1f}", fontsize="x-small", **style)
    axes.set_xticks(range(len(names)), [name.replace("_", "_\n") for name in names], fontsize="small")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    below = ", below it the interval" if intervals else ""
    axes.set_xlabel(
        f"perplexity of the row minus the column{below}\nblue: the row is lower; orange: it is higher; "
        "white: not separated"
    )
    unclear = [f"{pair.first} and {pair.second}" for pair in pairs[~pairs.separated.astype(bool)].itertuples()]
    said = f"{len(pairs) - len(unclear)} of {len(pairs)} pairs are separated"
    headline(figure, f"{said}; not separated: {', '.join(unclear)}" if 0 < len(unclear) <= 3 else said)
    return figure


def _edge(table: pd.DataFrame) -> float:
    """Where the scale ends: the control, which begins with random weights, would leave the others no room."""
    others = table[table.strategy != CONTROL]
    if others.empty or others.perplexity_high.isna().all():
        return math.inf
    edge = FAR_OUT * others.perplexity_high.max()
    return others.perplexity_high.max() * 1.25 if table.perplexity.max() > edge else math.inf


def _with_interval(row, column: str, sign: str = "") -> str:
    """A value and its interval as text; without an interval, the value."""
    value, low, high = (getattr(row, f"{column}{end}", math.nan) for end in ("", "_low", "_high"))
    digits = 1 if max(abs(value), 1) < 100 else 0
    if math.isnan(low):
        return f"{value:{sign},.{digits}f}"
    return f"{value:{sign},.{digits}f} ({low:{sign},.{digits}f} to {high:{sign},.{digits}f})"


def _perplexity_finding(table: pd.DataFrame) -> str:
    """What may be said of a table of scores: of pairs before and after, of ranks, or of intervals that overlap."""
    scores = {row.strategy: row for row in table.itertuples()}
    texts = [name.removesuffix(", before") for name in scores if name.endswith(", before")]
    if texts and len(scores) == 2 * len(texts) and all(f"{text}, after" in scores for text in texts):
        changes = [(text, scores[f"{text}, before"].perplexity, scores[f"{text}, after"].perplexity) for text in texts]
        told = ", and ".join(
            f"{'falls' if after < before else 'rises'} from {number(before)} to {number(after)} on {text}"
            for text, before, after in changes
        )
        return f"Perplexity {told}"
    if len(table) == 1:
        return f"Perplexity {_with_interval(table.iloc[0], 'perplexity')}"
    if len(table) == 2:
        lower, higher = (table.loc[pick()] for pick in (table.perplexity.idxmin, table.perplexity.idxmax))
        values = f"{number(lower.perplexity)} against {number(higher.perplexity)}"
        order = "scores lower than" if lower.perplexity_high < higher.perplexity_low else "is not separated from"
        return f"{lower.strategy} {order} {higher.strategy}: perplexity {values}"
    ranks = {row.rank: row for row in table.itertuples() if isinstance(getattr(row, "rank", None), str)}
    if "1" in ranks:
        return f"{ranks['1'].strategy} is lowest ({number(ranks['1'].perplexity)}), separated from all other strategies"
    if ranks:
        first = [row.strategy for row in table.itertuples() if str(row.rank).startswith("tied 1-")]
        return f"Lowest, and not separated from each other: {listed(first, 'strategies')}"
    return lowest_of(table.strategy, table.perplexity, table.perplexity_low, table.perplexity_high)


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


def _forgetting_finding(tables: dict[str, pd.DataFrame]) -> str:
    """Whether every strategy gains and forgets, and which forgets most; of several models, each."""
    every, most = True, []
    for model, table in tables.items():
        rows = table[table.strategy != CONTROL].dropna(subset="perplexity").set_index("strategy")
        trained = rows.drop(index=ZERO_SHOT, errors="ignore")
        if len(trained) < 2 or ZERO_SHOT not in rows.index:
            return "What each strategy gains on Rust and forgets of general text"
        gained, lost = rows.perplexity[ZERO_SHOT] - trained.perplexity, trained.general - rows.general[ZERO_SHOT]
        every &= bool((gained > 0).all() and (lost > 0).all())
        said = f"{lost.idxmax()} most, {lost.idxmin()} least"
        most.append(f"{model}: {said}" if model else said)
    start = "Every strategy gains on Rust and forgets general text" if every else "Forgotten for what is gained on Rust"
    return f"{start}: {'; '.join(most)} (means over seeds)"


def _aside(axes: Axes, shade: str) -> dict:
    return {"transform": axes.get_yaxis_transform(), "fontsize": "x-small", "va": "center", "color": shade}


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


def _scatter(axes: Axes, table: pd.DataFrame, x: str, y: str, names: list[str] | None = None) -> None:
    """A named marker for each strategy, with intervals over seeds where the table has them."""
    shades = []
    for order, row in enumerate(table.itertuples()):
        shade = colour(order, row.strategy)
        shade = INK if row.strategy == ZERO_SHOT else shade
        shades.append(shade)
        spread = {}
        for axis, column in (("xerr", x), ("yerr", y)):
            low, high = (getattr(row, f"{column}_seeds_{end}", math.nan) for end in ("low", "high"))
            value = getattr(row, column)
            if low <= value <= high:
                spread[axis] = [[value - low], [high - value]]
        style = {"color": shade, "marker": marker(order, row.strategy), "markersize": 9, "linestyle": "none"}
        axes.errorbar(getattr(row, x), getattr(row, y), label=row.strategy, capsize=3, elinewidth=1, **spread, **style)
    label_points(
        axes,
        list(zip(table[x], table[y], strict=True)),
        names or list(table.strategy),
        [dark(shade) for shade in shades],
    )


def _differences_of(comparison) -> Chart | None:
    """None where nothing is there to be compared: one strategy, or the reference failed."""
    if comparison.table.difference.isna().all():
        return None
    return differences_chart(comparison.table, comparison.provenance["against"])


def _accuracy_of(comparison) -> Chart | None:
    """None where no questions were asked."""
    return accuracy_chart(comparison.table) if len(comparison.answers) else None


def _pairs_of(comparison) -> Chart | None:
    """None where there is no pair whose spread is known."""
    pairs = comparison.pairs
    return pairs_chart(pairs) if len(pairs) and pairs.low.notna().all() else None


# Each draws a comparison, or returns None where it has nothing to draw.
CHARTS = {
    "perplexity": lambda comparison: perplexity_chart(comparison.table),
    "differences": _differences_of,
    "learning_curves": lambda comparison: learning_curves(comparison.curves),
    "parameters": lambda comparison: parameters_chart(comparison.table),
    "cost": lambda comparison: cost_chart(comparison.table),
    "forgetting": lambda comparison: forgetting_chart(comparison.table),
    "pairs": _pairs_of,
    "accuracy": _accuracy_of,
}

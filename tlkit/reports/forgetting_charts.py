"""What is gained on the new text against what is forgotten of general text."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.figure import FAINT, SIZE, UNTOUCHED, Chart, described, headline, new_figure, panels_beside, styles
from tlkit.reports.findings import listed
from tlkit.reports.labels import best_corner, draw_points, label_path, name_points, over_seeds


@described
def forgetting_chart(table: pd.DataFrame | dict[str, pd.DataFrame]) -> Chart:
    """What was gained on the new text against what was lost on general text; the best corner is at the bottom left.

    Args:
        table: a row for each strategy, with columns strategy, perplexity, general (perplexity on general text) and,
            where there are seeds, perplexity_seeds_low and perplexity_seeds_high; or by name of a model such a table,
            for a panel each. Where a column corpus names another text than Rust, it is called the new text.
    """
    tables = table if isinstance(table, dict) else {"": table}
    tables = {
        model: rows[rows.strategy != CONTROL].dropna(subset="perplexity").reset_index(drop=True)
        for model, rows in tables.items()
    }
    texts = {name for rows in tables.values() for name in rows.get("corpus", ())}
    on = "Rust" if texts <= {"rust", "facts"} else "the new text"
    figure, panels = panels_beside(len(tables), height=4.8, sharey=False)
    for axes, (model, rows) in zip(panels, tables.items(), strict=True):
        axes.set_title(model, fontsize="medium")
        axes.grid(alpha=0.3)
        axes.set_xlabel(f"perplexity on {on} (lower: gained more)")
        axes.margins(0.16)
        best_corner(axes)
        for before in rows[rows.strategy == ZERO_SHOT].itertuples():
            axes.axhline(before.general, color=FAINT, linestyle=":", linewidth=1)
            axes.axvline(before.perplexity, color=FAINT, linestyle=":", linewidth=1)
        names = _with_changes(rows) if len(tables) == 1 else rows.strategy.replace(ZERO_SHOT, UNTOUCHED)
        draw_points(axes, rows.strategy, over_seeds(rows, "perplexity"), over_seeds(rows, "general"), names)
    panels[0].set_ylabel("perplexity on general text (higher: forgot more)")
    name_points(figure, panels[0])
    notes = [f"in brackets: change on {on}, on general text"] if len(tables) == 1 else []
    if all("perplexity_seeds_low" in rows for rows in tables.values()):
        notes.append("points: means over seeds, lines: their 95% interval")
    figure.supxlabel("; ".join(notes), fontsize="small", color=FAINT)
    told = {model: _who_forgot(rows, on) for model, rows in tables.items()}
    alone = told.get("")  # one table, which has no name
    headline(figure, alone or "; ".join(f"{model}: {said[0].lower()}{said[1:]}" for model, said in told.items()))
    return figure


@described
def tradeoff_chart(paths: dict[str, pd.DataFrame]) -> Chart:
    """Gain against loss along several paths; the best corner is at the bottom left.

    Args:
        paths: by name a table with a row for each point: its label, and its perplexities rust and general.
    """
    figure, axes = new_figure(SIZE[1] + 0.4)
    drawn = styles(paths)
    for name, path in paths.items():
        shade, form = drawn[name]
        # The line is faint, so that a mark of one path that lies on the line of another is not taken for a part of it.
        axes.plot(path.rust, path.general, color=shade, linewidth=1.2, alpha=0.5, zorder=1, label="_line")
        look = {"markersize": 8, "markeredgecolor": "white", "linestyle": "none", "zorder": 3}
        axes.plot(path.rust, path.general, color=shade, marker=form, label=name, **look)
    axes.set_xlabel("perplexity on Rust (lower: gained more)")
    axes.set_ylabel("perplexity on general text (higher: forgot more)")
    axes.margins(0.1)
    best_corner(axes)
    if len(paths) > 1:
        figure.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    headline(figure, _paths_finding(paths))
    for name, path in paths.items():
        label_path(axes, list(zip(path.rust, path.general, strict=True)), list(path.label), drawn[name][0])
    return figure


def _with_changes(rows: pd.DataFrame) -> Sequence[str]:
    """Names of strategies with their changes on both texts, where the untouched model is in the table."""
    start = rows[rows.strategy == ZERO_SHOT]
    if start.empty:
        return rows.strategy
    changes = 100 * (rows[["perplexity", "general"]] / start[["perplexity", "general"]].iloc[0] - 1)
    return [
        f"{UNTOUCHED} ({ZERO_SHOT})"
        if name == ZERO_SHOT
        else f"{name} ({change.perplexity:+.0f}%, {change.general:+.0f}%)"
        for name, change in zip(rows.strategy, changes.itertuples(), strict=True)
    ]


def _who_forgot(rows: pd.DataFrame, on: str) -> str:
    """Which strategies gained, which forgot, and which of several forgot most and least."""
    rows = rows.set_index("strategy")
    trained = rows.drop(index=ZERO_SHOT, errors="ignore")
    if trained.empty or ZERO_SHOT not in rows.index:
        return f"What each strategy gained on {on} and forgot of general text"
    gained, lost = trained.perplexity < rows.perplexity[ZERO_SHOT], trained.general > rows.general[ZERO_SHOT]
    winners, losers = _who(gained), _who(lost)
    between = " and " if winners == losers else f": {winners}; "
    said = f"Gained on {on}{between}forgot general text: {losers}"
    if len(trained) > 1 and lost.any():
        said += f"; {trained.general.idxmax()} forgot most, {trained.general.idxmin()} least"
    return said


def _who(those: pd.Series) -> str:
    """Name the strategies of which something is true: "all", "none", "only full and lora", "5 of 7"."""
    names = list(those.index[those])
    if not names:
        return "none"
    if len(names) == len(those):
        return "all strategies" if len(names) > 1 else names[0]
    return f"only {listed(names)}" if len(names) <= 3 else f"{len(names)} of {len(those)} strategies"


def _paths_finding(paths: dict[str, pd.DataFrame]) -> str:
    """How far the other paths lie from the first at the same gain; of one path, where it turns."""
    first, *others = paths.values()
    apart = [_apart_at_the_same_gain(first, other) for other in others]
    if others and all(map(len, apart)):
        percent = 100 * np.concatenate(apart)
        ends = [f"{abs(end):.0f}% {'above' if end > 0 else 'below'}" for end in (percent.min(), percent.max())]
        who = next(reversed(paths)) + " is" if len(others) == 1 else "the others are"
        span = " to ".join(dict.fromkeys(ends))
        return f"At the same perplexity on Rust, {who} {span} {next(iter(paths))} on general text"
    best = [f"{name} = {path.label.loc[path.rust.idxmin()]}" for name, path in paths.items()]
    return f"Perplexity on Rust is lowest at {' and at '.join(best)}"


def _apart_at_the_same_gain(one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """How far the other path lies above the first on general text, as a share, at 20 places that both reach on Rust."""
    low, high = max(one.rust.min(), other.rust.min()), min(one.rust.max(), other.rust.max())
    if low >= high:
        return np.empty(0)
    at, ordered = np.linspace(low, high, 20), [path.sort_values("rust") for path in (one, other)]
    mine, others = (np.interp(at, path.rust, path.general) for path in ordered)
    return others / mine - 1

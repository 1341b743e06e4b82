"""What is gained on the new text against what is forgotten of general text."""

from collections.abc import Sequence

import pandas as pd

from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.figure import FAINT, UNTOUCHED, Chart, described, headline, panels_beside
from tlkit.reports.findings import listed
from tlkit.reports.labels import best_corner, draw_points, name_points, over_seeds


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
    findings = {model: _who_forgot(rows, on) for model, rows in tables.items()}
    single = findings.get("")  # one table, which has no name
    headline(
        figure,
        single or "; ".join(f"{model}: {sentence[0].lower()}{sentence[1:]}" for model, sentence in findings.items()),
    )
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
    sentence = f"Gained on {on}{between}forgot general text: {losers}"
    if len(trained) > 1 and lost.any():
        sentence += f"; {trained.general.idxmax()} forgot most, {trained.general.idxmin()} least"
    return sentence


def _who(those: pd.Series) -> str:
    """Name the strategies of which something is true: "all", "none", "only full and lora", "5 of 7"."""
    names = list(those.index[those])
    if not names:
        return "none"
    if len(names) == len(those):
        return "all strategies" if len(names) > 1 else names[0]
    return f"only {listed(names)}" if len(names) <= 3 else f"{len(names)} of {len(those)} strategies"

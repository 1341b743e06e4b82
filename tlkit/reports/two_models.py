"""What a small model says about a large one, as a picture and as a table that people read."""

import math

import matplotlib.pyplot as plt
import pandas as pd

from tlkit.evidence.carry_over import CLAIMS
from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    INK,
    SIZE,
    Chart,
    best_corner,
    described,
    headline,
    marker,
    panels_beside,
    strategy_legend,
    styles,
)


@described
def carry_over_chart(table: pd.DataFrame) -> Chart:
    """Each claim about each strategy, measured on a small and on a large model, with 95% intervals.

    Args:
        table: what `carry_over` returned.
    """
    names = models_of(table)
    claims = [claim for claim in CLAIMS if claim in set(table.claim)]
    rows = math.ceil(len(claims) / 2)
    height = 0.9 + sum(0.7 + 0.32 * _most(table, claims[row : row + 2]) for row in range(0, len(claims), 2))
    figure, panels = plt.subplots(
        rows, 2, FigureClass=Chart, figsize=(SIZE[0], height), layout="constrained", squeeze=False
    )
    plt.close(figure)
    for axes, claim in zip(panels.flat, claims, strict=False):
        part = table[table.claim == claim].iloc[::-1]
        for number, name in enumerate(names):
            values, errors = _with_errors(part, name)
            places = [place + 0.15 - 0.3 * number for place in range(len(part))]
            style = {"color": COLOURS[number], "marker": marker(number), "linestyle": "none", "capsize": 3}
            axes.errorbar(values, places, xerr=errors, label=name, **style)
        axes.axvline(0, color="black", linewidth=1)
        axes.set_yticks(range(len(part)), part.strategy)
        axes.set_ylim(-0.6, len(part) - 0.4)
        axes.grid(alpha=0.3)
        axes.set_xlabel(CLAIMS[claim], fontsize="small")
        same = int(part.verdict.str.startswith("same").sum())
        axes.set_title(f"{claim}: {same} of {len(part)} alike", fontsize="medium", loc="left")
    for axes in list(panels.flat)[len(claims) :]:
        axes.axis("off")
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    alike, opposite = table.verdict.str.startswith("same").sum(), (table.verdict == "opposite").sum()
    headline(
        figure,
        f"Of {len(table)} results, {alike} point the same way on both models and {opposite} the opposite way; "
        "the others are open on one or both",
    )
    return figure


@described
def gained_and_forgotten(table: pd.DataFrame) -> Chart:
    """What each strategy gains on the new text against what it forgets, on a small and on a large model.

    Args:
        table: what `carry_over` returned; its claims `gain` and `forgetting` are drawn, with their 95% intervals.
    """
    names = models_of(table)
    gain, forgetting = (table[table.claim == claim].set_index("strategy") for claim in ("gain", "forgetting"))
    figure, panels = panels_beside(2, height=5.2, sharex=True)
    panels[0].set_ylabel(CLAIMS["forgetting"])
    drawn = styles(gain.index)
    for axes, model in zip(panels, names, strict=True):
        axes.set_title(model, loc="left", fontsize="medium", fontweight="bold")
        axes.set_xlabel(CLAIMS["gain"])
        axes.grid(alpha=0.3)
        axes.axhline(0, color=INK, linewidth=1)
        axes.margins(0.12)
        for strategy, (shade, form) in drawn.items():
            (x, across), (y, along) = (_with_errors(part.loc[[strategy]], model) for part in (gain, forgetting))
            style = {"color": shade, "marker": form, "markersize": 9}
            axes.errorbar(x, y, xerr=across, yerr=along, label=strategy, elinewidth=1, linestyle="none", **style)
        best_corner(axes, "right")
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(low - 0.1 * (high - low))  # room for what is said of the corner
    strategy_legend(figure, panels[0])
    figure.words = tuple(
        f"{strategy} on {name}: gains {gain.loc[strategy, f'value, {name}']:.0f}%, forgets "
        f"{forgetting.loc[strategy, f'value, {name}']:.0f}%"
        for name in names
        for strategy in gain.index
    )
    figure.supxlabel("lines: 95% intervals", fontsize="small", color=FAINT)
    small, large = names
    less = int((forgetting[f"value, {large}"] < forgetting[f"value, {small}"]).sum())
    average = [f"{gain[f'value, {name}'].mean():.0f}%" for name in (large, small)]
    who = f"All {less}" if less == len(gain) else f"{less} of {len(gain)}"
    finding = f"{who} strategies forget less on {large} than on {small}, and gain {average[0]} on average against"
    headline(figure, f"{finding} {average[1]}")
    return figure


def carried_over(table: pd.DataFrame, strategy: str | None = None) -> pd.DataFrame:
    """The same in words: for each claim what both models showed, with intervals, and the verdict.

    Args:
        table: what `carry_over` returned.
        strategy: whose claims alone are wanted.

    Returns:
        A row for each claim (and strategy, where none is named), as text.

    Raises:
        ValueError: for a strategy that the table does not have.
    """
    if strategy is not None and strategy not in set(table.strategy):
        raise ValueError(f"strategy {strategy!r}: expected one of {', '.join(dict.fromkeys(table.strategy))}")
    part = table if strategy is None else table[table.strategy == strategy]
    shown = {"claim": [CLAIMS[claim] for claim in part.claim]}
    if strategy is None:
        shown["strategy"] = list(part.strategy)
    for name in models_of(table):
        columns = zip(part[f"value, {name}"], part[f"low, {name}"], part[f"high, {name}"], strict=True)
        shown[name] = [f"{value:+.0f} ({low:+.0f} to {high:+.0f})" for value, low, high in columns]
    return pd.DataFrame(shown | {"verdict": list(part.verdict)})


def models_of(table: pd.DataFrame) -> list[str]:
    """Names of the two models, from the columns of what `carry_over` returned."""
    return [column.removeprefix("value, ") for column in table if column.startswith("value, ")]


def _most(table: pd.DataFrame, claims: list[str]) -> int:
    """Rows of the longest of some panels."""
    return max(int((table.claim == claim).sum()) for claim in claims)


def _with_errors(rows: pd.DataFrame, model: str) -> tuple[pd.Series, list[pd.Series]]:
    """Values of a model, and how far their intervals reach below and above them, as matplotlib wants it."""
    value, low, high = (rows[f"{end}, {model}"] for end in ("value", "low", "high"))
    return value, [(value - low).clip(lower=0), (high - value).clip(lower=0)]

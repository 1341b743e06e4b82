"""The table of a comparison as people read it: sensible digits, few columns first, and what must be said beside it."""

import json

import pandas as pd

# Beside the strategy and its difference, the columns that a terminal and the first view of a page show.
KEY = {"perplexity": "perplexity", "rank": "rank", "general": "general text", "seconds": "seconds"}
KEY |= {"peak_memory_mb": "peak MB"}
# What a task puts in the place of one of them, in percent.
INSTEAD = {"balanced_accuracy": ("general", "accuracy %"), "stopped": ("seconds", "stop %")}
SAME_IN_ALL = ("corpus", "stride", "block_size", "batch_size", "precision", "device", "against", "command", "date")
WORDS = ("strategy", "rank", "rate_source", "reason")  # columns of text


def rows_of(table: pd.DataFrame) -> list[dict]:
    """A table as JSON has it: a dict a row, None where there is no figure."""
    return json.loads(table.to_json(orient="records", double_precision=15))


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of a comparison in which rows differ, with four digits; empty where there is no figure."""
    table = table.drop(columns=[name for name in SAME_IN_ALL if name in table]).dropna(axis=1, how="all")
    return table.map(lambda value: "" if pd.isna(value) else f"{value:.4g}" if isinstance(value, float) else str(value))


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """The few columns of a comparison that say most, as text; the difference with its interval."""

    def numbers(values: pd.Series, sign: str = "", digits: int = 2) -> list[str]:
        return [f"{value:{sign},.{digits}f}" if pd.notna(value) else "" for value in values]

    against = next((f"against {name}" for name in table.get("against", ())), "against")
    ends = zip(*(numbers(table[f"difference{end}"]) for end in ("_low", "_high")), strict=True)
    intervals = [f" ({low} to {high})" if low else "" for low, high in ends]
    differences = [one + interval for one, interval in zip(numbers(table.difference, "+"), intervals, strict=True)]
    shown = {"strategy": table.strategy, "perplexity": numbers(table.perplexity), against: differences}
    swapped = {of: (column, name) for column, (of, name) in INSTEAD.items() if column in table}
    for column, name in KEY.items():
        if column in swapped:
            column, name = swapped[column]
            shown[name] = numbers(100 * table[column], digits=1)
        elif column == "rank":
            shown[name] = table["rank"].fillna("")
        else:
            shown[name] = numbers(table[column], digits=0 if name == "peak MB" else 2)
    return pd.DataFrame(shown)


def as_markdown(table: pd.DataFrame) -> str:
    """The columns of a comparison in which rows differ, as a Markdown table."""
    shown = readable(table).replace(r"\|", r"\\|", regex=True)
    sides = ["left" if column in WORDS else "right" for column in shown]
    return shown.to_markdown(index=False, disable_numparse=True, colalign=sides)


def notes_on(table: pd.DataFrame) -> list[str]:
    """What a reader of a comparison must know: what was not possible, and what has no rank for want of a tuned rate."""
    guessed = table[table.rate_tuned.eq(False) & table.seeds.gt(0)].strategy
    notes = [f"Not possible: {reason}" for reason in table.reason.fillna("") if reason]
    if len(guessed):
        notes.append(f"Not ranked, because their learning rates are not tuned for these runs: {', '.join(guessed)}")
    return notes

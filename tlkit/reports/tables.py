"""The table of a comparison as people read it: sensible digits, few columns first, and what must be said beside it."""

import json

import pandas as pd

AGAINST = "against "  # the heading of differences from the strategy that the others are compared with
# Beside the strategy, the six columns that a terminal, a notebook and the first view of a page show; files have all.
KEY = ("perplexity", AGAINST, "rank", "general text", "seconds", "peak MB")
# What a task puts in the place of one of them.
INSTEAD = {"accuracy %": "general text", "stop %": "seconds"}
NAMED_BY_WORDS = ("strategy", "rank", "rate from", "reason")  # columns of text
# Of a task, the columns beside perplexity: how they are called in tables, and digits.
TASK_COLUMNS = {
    "balanced_accuracy": ("accuracy %", 1),
    "stopped": ("stop %", 0),
    "empty": ("empty %", 0),
    "answer_tokens": ("tokens of an answer", 0),
    "in_form": ("in form %", 0),
    "one_word_right": ("one word right %", 0),
    "refused_wrongly": ("refused wrongly %", 0),
}
SHARES = {"stopped", "empty", "in_form", "one_word_right", "refused_wrongly"}  # of 1, shown as percentages
# Answers are written twice: the likeliest tokens, and sampled ones.
TASK_COLUMNS |= {
    f"sampled_{column}": (f"sampled: {TASK_COLUMNS[column][0]}", 0) for column in (*sorted(SHARES), "answer_tokens")
}


def rows_of(table: pd.DataFrame) -> list[dict]:
    """A table as JSON has it: a dict a row, None where there is no figure."""
    return json.loads(table.to_json(orient="records", double_precision=15))


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of a comparison that people read, as text with sensible digits; empty where there is no figure."""

    def numbers(column: str, digits: int = 2) -> list[str]:
        return [f"{value:,.{digits}f}" if pd.notna(value) else "" for value in table[column]]

    def intervals(name: str, digits: int = 2) -> list[str]:
        return [
            f"{low} to {high}" if low else ""
            for low, high in zip(numbers(f"{name}_low", digits), numbers(f"{name}_high", digits), strict=True)
        ]

    shares = {
        column: 100 * table[column]
        for column in table
        if "_accuracy" in column or column.removeprefix("sampled_") in SHARES
    }
    table = table.assign(file_mb=table.file_bytes / 1e6, **shares)
    reasons = table.get("reason", pd.Series("", table.index)).fillna("")
    shown = pd.DataFrame(
        {
            "strategy": table.strategy,
            "trainable values": numbers("trainable_values", 0),
            "%": numbers("trainable_percent"),
            "perplexity": numbers("perplexity"),
            "over documents": intervals("perplexity"),
            "over seeds": intervals("perplexity_seeds"),
            "difference": numbers("difference"),
            "of the difference": intervals("difference"),
            "rank": table["rank"].fillna(""),
            "bits per byte": numbers("bits_per_byte"),
            "general text": numbers("general"),
            "improvement %": numbers("improvement_percent"),
            "Rust right %": numbers("rust_accuracy", 1),
            "gained on Rust": intervals("rust_accuracy_difference", 1),
            "general right %": numbers("general_accuracy", 1),
            "gained on general": intervals("general_accuracy_difference", 1),
            "file MB": numbers("file_mb"),
            "s for 32 tokens": numbers("generate_seconds"),
            "seconds": numbers("seconds"),
            "peak MB": numbers("peak_memory_mb", 0),
            "learning rate": [f"{rate:g}" if pd.notna(rate) else "" for rate in table.learning_rate],
            "rate from": table.rate_source.fillna(""),
        }
    )
    for column, (name, digits) in TASK_COLUMNS.items():
        if column in table:
            shown[name] = numbers(column, digits)
    if "balanced_accuracy" in table:
        shown["accuracy over texts"] = intervals("balanced_accuracy", 1)
    if "tuning_runs" in table:  # which older records lack
        shown["tuning runs"] = numbers("tuning_runs", 0)
    shown.loc[reasons.ne(""), "trainable values"] = ""
    return shown.assign(reason=reasons) if reasons.any() else shown


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """The few columns of a comparison that say most: strategy and `KEY`, as text."""
    shown = readable(table)
    against = next((f"{AGAINST}{name}" for name in table.get("against", ())), AGAINST.strip())
    shown[against] = [
        f"{'' if value.startswith('-') else '+'}{value}{f' ({interval})' if interval else ''}" if value else ""
        for value, interval in zip(shown["difference"], shown["of the difference"], strict=True)
    ]
    swapped = {old: new for new, old in INSTEAD.items() if new in shown}
    return shown[["strategy", *(against if name == AGAINST else swapped.get(name, name) for name in KEY)]]


def as_markdown(table: pd.DataFrame) -> str:
    """The columns people read, rounded, as a Markdown table."""
    shown = readable(table).astype(str).replace(r"\|", r"\\|", regex=True)
    sides = ["left" if column in NAMED_BY_WORDS else "right" for column in shown]
    return shown.to_markdown(index=False, disable_numparse=True, colalign=sides)


def notes_on(table: pd.DataFrame) -> list[str]:
    """What a reader of a comparison must know: what was not possible, and what has no rank for want of a tuned rate."""
    guessed = table[table.rate_tuned.eq(False) & table.seeds.gt(0)].strategy
    notes = [f"Not possible: {reason}" for reason in table.reason.fillna("") if reason]
    if len(guessed):
        notes.append(f"Not ranked, because their learning rates are not tuned for these runs: {', '.join(guessed)}")
    return notes

"""Sentences made from numbers: what a chart's title may say, and no more than the numbers allow."""

from collections.abc import Sequence

MOST_NAMES = 3  # that a sentence lists; beyond, it counts
WORDS, LETTERS = {" billion": 1e9, " million": 1e6}, {"B": 1e9, "M": 1e6, "k": 1e3}  # of units


def number(value: float, units: dict[str, float] = WORDS) -> str:
    """Write a number as people do, with three digits that count: 72.3, 1,240, 4.04 million."""
    for unit, size in units.items():
        if abs(value) >= 0.9995 * size:  # which is rounded to 1
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def short(value: float) -> str:
    """Write a number as `number` does, but with a letter for the unit, for a label with little room: 1.24k, 4.04M."""
    return number(value, LETTERS)


def listed(names: Sequence[str], what: str = "others") -> str:
    """Name a few things, or say how many they are: "a, b and c", "5 others"."""
    names = list(names)
    if len(names) > MOST_NAMES:
        return f"{len(names)} {what}"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""

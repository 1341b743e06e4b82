"""How much data a difference takes: what so many test items can show, and how many items or seeds it needs."""

import math
from collections.abc import Iterable

from scipy.special import ndtri, stdtrit

from tlkit.evidence.statistics import CONFIDENCE

POWER = 0.8  # how often a difference that is there should be found, as is usual in planning
MOST_SEEDS = 10_000


def detectable_difference(spread: float, items: int, *, correlation: float = 0.0, pairs: int = 1) -> float:
    """Compute the smallest difference that a test finds 80% of the time, at a level of 5%.

    Args:
        spread: the standard deviation over items, of a share p the root of p (1 - p).
        items: of the test.
        correlation: of two rows' answers over the items.
        pairs: how many are compared, for the level of the most certain of them.

    Returns:
        The difference, in units of the metric.
    """
    return reach(pairs) * spread * math.sqrt(2 * (1 - correlation) / items)


def smallest_found(parts: Iterable[tuple[float, float]], *, pairs: int = 1) -> float:
    """Compute the smallest difference that `compare_pairs` finds 80% of the time, at a level of 5%.

    Each source of chance has an error that is itself only estimated, so it counts with a quantile of Student's t, as in
    the interval of `compare_pairs`: three seeds give 4.3 errors for the level where many documents give 2.

    Args:
        parts: for each source of chance its standard error and its degrees of freedom.
        pairs: how many are compared, for the level of the most certain of them.

    Returns:
        The difference, in units of the errors.
    """
    level = 1 - (1 - CONFIDENCE) / 2 / pairs
    return math.hypot(*((stdtrit(freedom, level) + stdtrit(freedom, POWER)) * error for error, freedom in parts))


def items_needed(difference: float, spread: float, *, correlation: float = 0.0, pairs: int = 1) -> int:
    """Compute how many test items find a difference 80% of the time, at a level of 5%.

    Args:
        difference: in units of the metric.
        spread: the standard deviation over items, of a share p the root of p (1 - p).
        correlation: of two rows' answers over the items.
        pairs: how many are compared, for the level of the most certain of them.

    Raises:
        ValueError: for a difference that is not above 0.
    """
    if not difference > 0:
        raise ValueError(f"difference={difference:g}: expected a number above 0")
    return math.ceil(2 * (1 - correlation) * (reach(pairs) * spread / difference) ** 2)


def seeds_needed(difference: float, deviation: float) -> int:
    """Compute how many seeds of each of two rows find a difference 80% of the time, at a level of 5%.

    The test items are taken as they are: more seeds say more about these, and nothing about others.

    Args:
        difference: in units of the metric.
        deviation: the standard deviation between seeds, in the same units, equal for both.

    Returns:
        The number of seeds by Student's t, at least 2.

    Raises:
        ValueError: for a difference that is not above 0, or one so small that it takes more than 10,000 seeds.
    """
    if not difference > 0:
        raise ValueError(f"difference={difference:g}: expected a number above 0")
    for seeds in range(2, MOST_SEEDS):
        freedom = 2 * (seeds - 1)
        reach = stdtrit(freedom, (1 + CONFIDENCE) / 2) + stdtrit(freedom, POWER)
        if seeds >= 2 * (reach * deviation / difference) ** 2:
            return seeds
    raise ValueError(f"difference={difference:g} of deviation={deviation:g}: takes more than {MOST_SEEDS:,} seeds")


def reach(pairs: int) -> float:
    """Compute how many standard errors two rows have to be apart to be separated 80% of the time, at a level of 5%.

    Args:
        pairs: how many are compared, for the level of the most certain of them.
    """
    return float(-ndtri((1 - CONFIDENCE) / 2 / pairs) + ndtri(POWER))

"""How much data a difference takes: how many test items or seeds it needs."""

import math

from scipy.special import ndtri, stdtrit

from tlkit.evidence.statistics import CONFIDENCE

POWER = 0.8  # how often a difference that is there should be found, as is usual in planning
MOST_SEEDS = 10_000


def items_needed(difference: float, spread: float, *, correlation: float = 0.0) -> int:
    """Compute how many test items find a difference of one pair 80% of the time, at a level of 5%.

    Args:
        difference: in units of the metric, above 0.
        spread: the standard deviation over items, of a share p the root of p (1 - p).
        correlation: of two rows' answers over the items.
    """
    return math.ceil(2 * (1 - correlation) * (reach(1) * spread / difference) ** 2)


def seeds_needed(difference: float, deviation: float) -> int:
    """Compute how many seeds of each of two rows find a difference 80% of the time, at a level of 5%.

    The test items are taken as they are: more seeds say more about these, and nothing about others.

    Args:
        difference: in units of the metric, above 0.
        deviation: the standard deviation between seeds, in the same units, equal for both.

    Returns:
        The number of seeds by Student's t, at least 2.

    Raises:
        ValueError: for a difference so small that it takes more than 10,000 seeds.
    """
    for seeds in range(2, MOST_SEEDS):
        freedom = 2 * (seeds - 1)
        errors = stdtrit(freedom, (1 + CONFIDENCE) / 2) + stdtrit(freedom, POWER)
        if seeds >= 2 * (errors * deviation / difference) ** 2:
            return seeds
    raise ValueError(f"difference={difference:g} of deviation={deviation:g}: takes more than {MOST_SEEDS:,} seeds")


def reach(pairs: int) -> float:
    """Compute how many standard errors two rows have to be apart to be separated 80% of the time, at a level of 5%.

    Args:
        pairs: how many are compared, for the level of the most certain of them.
    """
    return float(-ndtri((1 - CONFIDENCE) / 2 / pairs) + ndtri(POWER))

"""Who is on a Pareto front, and how surely, where the score is a share of test items and the costs are known."""

import numpy as np
import pandas as pd

DRAWS = 2000


def on_front(value: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Find the rows that no other row beats: none is as good in everything and better in something.

    Args:
        value: higher is better, shape (..., rows); every leading index is a table of its own.
        costs: lower is better, shape (rows, costs).

    Returns:
        Whether each row is on the front, with the shape of `value`. Rows that are equal in everything are both on it.
    """
    value, costs = np.asarray(value, dtype=float), np.asarray(costs, dtype=float)
    no_dearer = (costs[:, None] <= costs[None]).all(axis=2)  # [i, j]: i costs no more than j
    cheaper = no_dearer & (costs[:, None] < costs[None]).any(axis=2)
    front = np.empty(value.shape, dtype=bool)
    for row in range(costs.shape[0]):
        mine = value[..., row, None]
        beaten = (value > mine) & no_dearer[:, row] | (value == mine) & cheaper[:, row]
        front[..., row] = ~beaten.any(axis=-1)
    return front


def front_shares(
    table: pd.DataFrame, metric: str, costs: list[str], items: int, *, draws: int = DRAWS, seed: int = 0
) -> pd.DataFrame:
    """Say how often each row is on the front, if the test had drawn other items of the same kind.

    Each draw replaces the right answers of every row by a binomial number of as many items, independent of the other
    rows. Rows that have answered the same items vary together, so in truth a front moves rather less. The costs are
    taken as they are.

    Args:
        table: a row for each method.
        metric: the column of shares of right answers.
        costs: the columns of costs, lower is better.
        items: of the test.
        draws: how many.
        seed: of the draws.

    Returns:
        By the rows of `table`: `front`, whether the published figures put it there, and `share`, of the draws.

    Raises:
        ValueError: for no costs, a column that is not there, or shares outside 0 to 1.
    """
    for column in (metric, *costs):
        if column not in table:
            raise ValueError(f"the table has no column {column!r}: expected one of {', '.join(table.columns)}")
    if not costs or not table[metric].between(0, 1).all():
        raise ValueError(f"metric={metric!r}, costs={costs}: expected shares from 0 to 1 and at least one cost")
    value, price = table[metric].to_numpy(dtype=float), table[costs].to_numpy(dtype=float)
    drawn = np.random.default_rng(seed).binomial(items, value, (draws, len(table))) / items
    found = {"front": on_front(value, price), "share": on_front(drawn, price).mean(axis=0)}
    return pd.DataFrame(found, index=table.index)

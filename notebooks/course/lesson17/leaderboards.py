"""Published leaderboards that come with the workbook; `data/README.md` names their sources."""

import numpy as np
import pandas as pd

from tlkit.evidence.fronts import on_front
from tlkit.settings import DATA

FOLDER = DATA / "leaderboards"
# What a picture has no room for: the model, which is the same for all, and details that tell no two of them apart.
SPARED = (
    r"/llama-3.2-3B|-random_seed_42|(-mlp)?-a2-b2-s[\d.]+|-relu-depth0-s[\d.]+|-all-attn-5k|-factor4|-n_frequency"
    r"|-init_prefix"
)


def leaderboard(name: str = "peft_metamathqa") -> pd.DataFrame:
    """Read a published leaderboard, as its authors published it.

    Args:
        name: `peft_metamathqa`, peft's comparison of methods on MetaMathQA; or `peft_metamathqa_reruns`, the results
            that its experiments had each time they were run with the same settings.

    Returns:
        The table, its figures unchanged, and a column `name`, short for `experiment`.
    """
    table = pd.read_csv(FOLDER / f"{name}.csv")
    return table.assign(name=table.experiment.str.replace(SPARED, "", regex=True))


def front_shares(table: pd.DataFrame, metric: str, costs: list[str], items: int, *, draws: int = 2000) -> pd.DataFrame:
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

    Returns:
        By the rows of `table`: `front`, whether the published figures put it there, and `share`, of the draws.
    """
    value, price = table[metric].to_numpy(dtype=float), table[costs].to_numpy(dtype=float)
    drawn = np.random.default_rng(0).binomial(items, value, (draws, len(table))) / items
    found = {"front": on_front(value, price), "share": on_front(drawn, price).mean(axis=0)}
    return pd.DataFrame(found, index=table.index)

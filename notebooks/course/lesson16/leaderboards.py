"""Published leaderboards that come with the workbook; `data/README.md` names their sources."""

import pandas as pd

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

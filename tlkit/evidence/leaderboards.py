"""Published leaderboards that come with the workbook; `data/README.md` names their sources."""

import pandas as pd

from tlkit.settings import DATA

FOLDER = DATA / "leaderboards"


def leaderboard(name: str = "peft_metamathqa") -> pd.DataFrame:
    """Read a published leaderboard, as its authors published it.

    Args:
        name: `peft_metamathqa`, peft's comparison of methods on MetaMathQA; or `peft_metamathqa_reruns`, the results
            that its experiments had each time they were run with the same settings.

    Returns:
        The table, its figures unchanged.

    Raises:
        ValueError: for a name that is not there.
    """
    known = sorted(path.stem for path in FOLDER.glob("*.csv"))
    if name not in known:
        raise ValueError(f"leaderboard {name!r} is unknown: expected one of {', '.join(known)}")
    return pd.read_csv(FOLDER / f"{name}.csv")

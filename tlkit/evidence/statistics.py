"""What several seeds allow to be said: intervals, paired differences, and places only where they are earned."""

import pandas as pd

CONFIDENCE = 0.95


def seed_intervals(runs: pd.DataFrame, column: str = "perplexity") -> pd.DataFrame:
    """Mean of each strategy over its seeds, with a 95% t-interval: columns mean, low, high, seeds.

    `runs` has a row for each strategy and seed. With one seed there is no interval: low and high are NaN.
    """
    rows = {name: _interval(part[column]) for name, part in runs.groupby("strategy", sort=False)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high", "seeds"]).astype({"seeds": int})


def paired_differences(runs: pd.DataFrame, against: str, column: str = "perplexity") -> pd.DataFrame:
    """Each strategy minus `against`, seed by seed: columns mean, low, high, seeds, separated.

    One seed gives all strategies the same batches in the same order, so what luck does to both falls out of their
    difference. `separated`: the 95% interval of the mean difference leaves zero out. Raises ValueError where
    `against` has no runs.
    """
    if against not in set(runs.strategy):
        raise ValueError(f"against={against!r} has no runs: expected one of {', '.join(dict.fromkeys(runs.strategy))}")
    by_seed = runs.pivot(index="seed", columns="strategy", values=column)
    names = [name for name in dict.fromkeys(runs.strategy) if name != against]
    rows = {name: _interval((by_seed[name] - by_seed[against]).dropna()) for name in names}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high", "seeds"])
    table["separated"] = (table.low > 0) | (table.high < 0)
    return table.astype({"seeds": int})


def rank_intervals(runs: pd.DataFrame, column: str = "perplexity") -> pd.Series:
    """The place of each strategy, 1 the lowest: "3" where it is separated from all others, else "tied 2-4".

    The places named are those that the paired differences leave open. With one seed nothing is separated.
    """
    names = list(dict.fromkeys(runs.strategy))
    better, worse = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for name in names:
        differences = paired_differences(runs, name, column)
        better[name] = int((differences.high < 0).sum())
        worse[name] = int((differences.low > 0).sum())
    found = {}
    for name in names:
        best, last = 1 + better[name], len(names) - worse[name]
        found[name] = str(best) if best == last else f"tied {best}-{last}"
    return pd.Series(found)


def _interval(values: pd.Series) -> tuple[float, float, float, int]:
    from scipy import stats

    if len(values) < 2:
        return float(values.mean()), float("nan"), float("nan"), len(values)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(CONFIDENCE)
    return float(values.mean()), float(low), float(high), len(values)

"""Statistics against tables with a known answer."""

import math
import runpy
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, ttest_1samp
from scipy.stats import t as student_t

from tlkit.evidence.statistics import compare_pairs, rank_intervals

SIMULATION = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "identical_strategies.py"))


def scores_of(values: dict[str, np.ndarray], tokens: int = 100) -> pd.DataFrame:
    """Nats per token of each strategy, shape (documents, seeds), as rows."""
    rows = [
        (name, seed, document, rate * tokens, tokens)
        for name, rates in values.items()
        for (document, seed), rate in np.ndenumerate(rates)
    ]
    return pd.DataFrame(rows, columns=["strategy", "seed", "document", "nats", "tokens"])


def test_with_one_source_of_chance_a_pair_is_students_t_test():
    """Where seeds do nothing, the paired test over documents; where documents do nothing, the one over seeds."""
    random = np.random.default_rng(1)
    base = random.normal(4, 0.5, (12, 1))
    of_documents, of_seeds = random.normal(0.05, 0.1, (12, 1)), random.normal(0.05, 0.1, (1, 4))
    for apart in (of_documents, of_seeds):
        scores = scores_of({"a": base + apart + np.zeros((12, 4)), "b": base + np.zeros((12, 4))})
        (pair,) = compare_pairs(scores).itertuples()
        wanted = ttest_1samp(apart.ravel(), 0.0)
        low, high = wanted.confidence_interval(0.95)
        level = np.exp(base.mean() + apart.mean() / 2)
        assert pair.low == pytest.approx(2 * level * math.sinh(low / 2), rel=1e-6)
        assert pair.high == pytest.approx(2 * level * math.sinh(high / 2), rel=1e-6)
        assert pair.difference == pytest.approx(math.exp(base.mean() + apart.mean()) - math.exp(base.mean()))


def test_with_many_documents_and_seeds_a_pair_is_the_crossed_bootstrap():
    """300 documents of unequal length and 30 seeds, both resampled 2,000 times, the same draw for both strategies."""
    random = np.random.default_rng(2)
    scores = SIMULATION["simulated"](random, 300, 30, (0.05, 0.03, 0.03), (0.0, 0.02))
    (pair,) = compare_pairs(scores).itertuples()
    nats = scores.pivot(index="document", columns=["strategy", "seed"], values="nats")
    tokens = scores.groupby("document").tokens.first().to_numpy()
    apart = (nats["strategy 0"] - nats["strategy 1"]).to_numpy()
    drawn = []
    for _ in range(2000):
        documents, seeds = random.integers(300, size=300), random.integers(30, size=30)
        drawn.append(apart[np.ix_(documents, seeds)].mean(axis=1).sum() / tokens[documents].sum())
    low, high = np.quantile(drawn, [0.025, 0.975])
    perplexities = [math.exp(nats[name].to_numpy().sum() / 30 / tokens.sum()) for name in ("strategy 0", "strategy 1")]
    assert pair.difference == pytest.approx(perplexities[0] - perplexities[1])
    # The two-way quantiles of t are at most 4% wider here, and a bootstrap's width from 2,000 draws is known to 3%.
    assert (pair.high - pair.low) / math.sqrt(math.prod(perplexities)) == pytest.approx(high - low, rel=0.1)


def test_the_seeds_of_all_strategies_say_how_much_a_seed_matters():
    """Box's degrees of freedom, from the covariances between strategies; the larger of mean and own variance."""
    random = np.random.default_rng(3)
    luck = random.normal(0, 0.02, (4, 5)) * np.array([[1.0], [1.0], [1.0], [3.0]])
    base = random.normal(4, 0.5, (20, 1))
    scores = scores_of({name: base + luck[n] + 0.01 * n for n, name in enumerate("abcd")})
    covariance = np.cov(luck)
    centring = np.eye(4) - 1 / 4
    covariance = centring @ covariance @ centring
    freedom = 4 * np.trace(covariance) ** 2 / np.trace(covariance @ covariance)
    variances = {pair: np.var(luck[pair[0]] - luck[pair[1]], ddof=1) for pair in combinations(range(4), 2)}
    mean = np.mean(list(variances.values()))
    assert min(variances.values()) < mean < max(variances.values())
    for (one, other), found in zip(variances, compare_pairs(scores).itertuples(), strict=True):
        ratio = (luck[one] - luck[other]).mean() + 0.01 * (one - other)
        half = student_t.isf(0.05 / 6 / 2, freedom) * math.sqrt(max(mean, variances[one, other]) / 5)
        level = np.exp(base.mean() + (luck[one] + luck[other]).mean() / 2 + 0.005 * (one + other))
        wanted = [2 * level * math.sinh(end / 2) for end in (ratio - half, ratio + half)]
        assert [found.low, found.high] == pytest.approx(wanted, rel=1e-6)


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(5, 12), st.integers(2, 4))
@settings(max_examples=8, deadline=None)
def test_intervals_agree_with_the_verdict_and_neither_order_nor_names_change_it(number, strategies, documents, seeds):
    random = np.random.default_rng(number)
    scores = SIMULATION["simulated"](random, documents, seeds, levels=tuple(random.normal(0, 0.1, strategies)))
    found = compare_pairs(scores)
    assert (((found.low > 0) | (found.high < 0)) == found.separated).all()
    assert found.difference.between(found.low, found.high).all()
    mixed = compare_pairs(scores.sample(frac=1, random_state=number))
    turned = mixed.rename(columns={"first": "second", "second": "first"})
    turned[["difference", "low", "high"]] = -mixed[["difference", "high", "low"]].to_numpy()
    either = pd.concat([mixed, turned]).set_index(["first", "second"])
    for pair in found.itertuples():
        other = either.loc[(pair.first, pair.second)]
        for column in ("difference", "low", "high"):
            assert other[column] == pytest.approx(getattr(pair, column), rel=1e-6, abs=1e-9)


def test_equal_strategies_are_separated_as_rarely_as_promised():
    """Tables of seven equal strategies, 21 pairs each: any separation in at most 5% of the tables.

    The record of 250 tables for each of 34 settings is `tests/benchmarks/identical_strategies.csv`. The t-interval of
    each pair over seeds, one pair at a time, is in error in more than half of the tables.
    """
    random = np.random.default_rng(5)
    tables = [
        SIMULATION["simulated"](random, documents, seeds, spreads)
        for documents, seeds in ((5, 3), (10, 5), (40, 2), (40, 3))
        for spreads in (SIMULATION["REAL"], *SIMULATION["EXTREMES"].values())
        for _ in range(4)
    ]
    wrong = sum(bool(SIMULATION["by_pairs"](table)) for table in tables)
    # So many of 64 happen once in a thousand where the rate is exactly 5%.
    assert wrong <= binom.ppf(0.999, len(tables), 0.05)
    assert np.mean([bool(SIMULATION["by_seeds_alone"](table)) for table in tables]) > 0.5


@pytest.mark.parametrize("documents", [5, 40, 200])
def test_all_intervals_of_a_table_hold_their_true_values_as_often_as_promised(documents):
    """Seven strategies as far apart as measured, three seeds: at least 95% of tables have all 21 intervals right."""
    random = np.random.default_rng(documents)
    levels = SIMULATION["MEASURED"]
    true = np.array([one - other for one, other in combinations(levels, 2)])
    wrong = 0
    for _ in range(20):
        scores = SIMULATION["simulated"](random, documents, 3, levels=levels)
        runs = scores.groupby("strategy")[["nats", "tokens"]].sum()
        nats = (runs.nats / runs.tokens).to_numpy()
        middle = np.array([np.exp((one + other) / 2) for one, other in combinations(nats, 2)])
        pairs = compare_pairs(scores)
        # Two perplexities of this geometric mean, whose logarithms are `true` apart.
        differences = 2 * middle * np.sinh(true / 2)
        wrong += not ((pairs.low <= differences) & (differences <= pairs.high)).all()
    assert wrong <= binom.ppf(0.999, 20, 0.05)


def test_a_real_difference_is_found():
    """Full fine-tuning and LoRA as measured on the bundled model, 0.101 nats apart, 40 documents and 3 seeds.

    `tests/benchmarks/real_differences.csv` has how often; two seeds never find them.
    """
    random = np.random.default_rng(6)
    measured = {"levels": SIMULATION["MEASURED"], "lengths": 0.2}
    found = [SIMULATION["by_pairs"](SIMULATION["simulated"](random, 40, 3, **measured)) for _ in range(40)]
    assert np.mean([("strategy 0", "strategy 4") in pairs for pairs in found]) > 0.5


def test_five_documents_give_no_first_rank_and_four_none_at_all():
    """Differences are as measured on the bundled model; five documents are too few for the best of seven."""
    random = np.random.default_rng(7)
    names = [f"strategy {n}" for n in range(7)]
    for _ in range(10):
        scores = SIMULATION["simulated"](random, 5, 3, levels=SIMULATION["MEASURED"])
        assert "1" not in set(rank_intervals(compare_pairs(scores), names))
    fewer = compare_pairs(scores[scores.document < 4])
    assert fewer.low.isna().all() and not fewer.separated.any() and fewer.difference.notna().all()
    assert set(rank_intervals(fewer, names)) == {""}


def planted(**levels: float) -> pd.DataFrame:
    """Levels of nats per token, with a little chance of documents and seeds around them."""
    return SIMULATION["simulated"](
        np.random.default_rng(8), 30, 3, (0.01, 0.002, 0.01), tuple(levels.values())
    ).replace({f"strategy {n}": name for n, name in enumerate(levels)})


def test_a_rank_is_named_only_where_it_is_earned():
    scores = planted(c=1.0, a=0.0, b=0.001, d=2.0)
    pairs, names = compare_pairs(scores), ["c", "a", "b", "d"]
    assert rank_intervals(pairs, names).to_dict() == {"c": "3", "a": "tied 1-2", "b": "tied 1-2", "d": "4"}
    assert rank_intervals(pairs, ["c", "a"]).to_dict() == {"c": "2", "a": "1"}
    one_seed = compare_pairs(scores[scores.seed == 0])
    assert set(rank_intervals(one_seed, names)) == {""} and one_seed[["low", "high"]].isna().all(axis=None)
    alone = compare_pairs(scores[scores.strategy == "a"])
    assert alone.empty and rank_intervals(alone, ["a", "failed"]).to_dict() == {"a": "", "failed": ""}
    assert rank_intervals(compare_pairs(scores[:0]), names).to_dict() == dict.fromkeys(names, "")


def test_runs_that_are_missing_or_diverged_cost_their_own_pairs_only():
    scores = planted(a=0.0, b=1.0, c=2.0)
    whole = compare_pairs(scores).set_index(["first", "second"])
    lacking = scores[(scores.strategy != "c") | (scores.seed == 1)]
    pairs = compare_pairs(lacking).set_index(["first", "second"])
    assert pairs.separated.to_dict() == {("a", "b"): True, ("a", "c"): False, ("b", "c"): False}
    assert pairs.difference["a", "c"] == pytest.approx(whole.difference["a", "c"], rel=0.1)
    # One seed of c is no rank for it, and it may be before or after the others.
    ranks = rank_intervals(pairs.reset_index(), ["a", "b", "c"])
    assert ranks.to_dict() == {"a": "tied 1-2", "b": "tied 2-3", "c": ""}
    diverged = scores.assign(nats=scores.nats.where((scores.strategy != "c") | (scores.seed != 1), math.inf))
    pairs = compare_pairs(diverged).set_index(["first", "second"])
    assert pairs.separated.to_dict() == {("a", "b"): True, ("a", "c"): False, ("b", "c"): False}
    same = scores[scores.strategy == "a"]
    (pair,) = compare_pairs(pd.concat([same, same.assign(strategy="b")])).itertuples()
    assert (pair.difference, pair.low, pair.high, pair.separated) == (0.0, 0.0, 0.0, False)


def test_scores_that_cannot_be_paired_are_refused():
    scores = planted(a=0.0, b=1.0)
    with pytest.raises(ValueError, match="non-unique"):
        compare_pairs(pd.concat([scores, scores[:1]]))
    other = scores.assign(tokens=scores.tokens + ((scores.strategy == "b") & (scores.document == 3)))
    with pytest.raises(ValueError, match=r"document 3 has \d+ tokens in strategy 'b', seed 0, and \d+ in 'a'"):
        compare_pairs(other)
    with pytest.raises(ValueError, match="document 3 has no score in strategy 'b', seed 2"):
        compare_pairs(scores[(scores.strategy != "b") | (scores.document != 3) | (scores.seed != 2)])

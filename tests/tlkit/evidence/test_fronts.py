"""The front of a comparison: shares of draws that agree with what can be computed by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

from tlkit.evidence.fronts import perplexity_front
from tlkit.evidence.recorded import recorded_comparison
from tlkit.reports.charts import COSTS, pareto_of


def made(levels: dict[str, float], *, documents=30, seeds=3, by_document=0.0, by_seed=0.0, costs=None, seed=0):
    """Documents and runs of strategies whose nats per token are `levels` plus normal errors of both kinds."""
    random = np.random.default_rng(seed)
    texts, rows, runs = random.normal(size=documents), [], []
    for place, (name, level) in enumerate(levels.items()):
        own = random.normal(size=documents)
        for number in range(seeds):
            nats = level + 0.5 * texts + by_document * own + by_seed * random.normal()
            rows += [(name, number, document, 100 * value, 100) for document, value in enumerate(nats)]
            runs.append((name, number, np.exp(nats.mean()), (costs or {}).get(name, place + 1.0)))
    return (
        pd.DataFrame(rows, columns=["strategy", "seed", "document", "nats", "tokens"]),
        pd.DataFrame(runs, columns=["strategy", "seed", "perplexity", "cost"]),
    )


def test_without_chance_a_strategy_is_on_the_front_always_or_never():
    """`dear` is beaten by `good`, which is better and cheaper; the others trade one for the other."""
    levels = {"cheap": 4.0, "good": 3.0, "dear": 3.5, "best": 2.5}
    found = perplexity_front(*made(levels), "cost").set_index("strategy")
    assert found.front.to_dict() == {"cheap": True, "good": True, "dear": False, "best": True}
    assert found.share.to_dict() == {"cheap": 1.0, "good": 1.0, "dear": 0.0, "best": 1.0}
    assert found.cost.tolist() == pytest.approx([1, 2, 3, 4])


def test_the_dearer_of_two_is_on_the_front_as_often_as_it_is_better():
    """By hand, with documents alone: the mean difference over 30 documents is normal. 2%: 5,000 draws, and 30 texts."""
    documents, runs = made({"a": 3.0, "b": 3.0}, by_document=0.2, seeds=3)
    share = perplexity_front(documents, runs, "cost", draws=5000).set_index("strategy").share
    nats = documents.groupby(["strategy", "document"]).nats.mean().unstack("strategy") / 100
    gaps = nats.b - nats.a
    expected = norm.cdf(-gaps.mean() / (gaps.std(ddof=0) / np.sqrt(30)))
    assert share["a"] == 1.0 and share["b"] == pytest.approx(expected, abs=0.02)


def test_the_spread_over_seeds_moves_it_by_students_t():
    """By hand, with seeds alone, 4 and 4: the difference of two means has the error of both; t of 6 for each."""
    documents, runs = made({"a": 3.0, "b": 3.0}, by_seed=0.1, seeds=4)
    share = perplexity_front(documents, runs, "cost", draws=20_000).set_index("strategy").share
    means = np.log(runs.perplexity).groupby(runs.strategy)
    pooled = np.sqrt(means.var().mean())
    random = np.random.default_rng(7)
    moved = t.rvs(6, size=(200_000, 2), random_state=random) * pooled / 2
    expected = (means.mean().b + moved[:, 1] < means.mean().a + moved[:, 0]).mean()
    assert 0.02 < expected < 0.98 and share["b"] == pytest.approx(expected, abs=0.015)


def test_a_cost_that_differs_from_seed_to_seed_moves_too():
    documents, runs = made({"a": 3.0, "b": 2.9}, costs={"a": 10.0, "b": 10.5})
    assert perplexity_front(documents, runs, "cost").share.tolist() == [1.0, 1.0]
    runs["cost"] *= np.exp(np.random.default_rng(3).normal(0, 0.2, len(runs)))
    found = perplexity_front(documents, runs, "cost").set_index("strategy")
    assert found.share["b"] == 1.0 and 0.05 < found.share["a"] < 0.95, "whether a is the cheaper is uncertain now"


def test_one_seed_has_no_shares_and_a_cost_has_to_be_there():
    documents, runs = made({"a": 3.0, "b": 2.0}, seeds=1)
    found = perplexity_front(documents, runs, "cost")
    assert found.front.all() and found.share.isna().all()
    for cost, changed in (("seconds", runs), ("cost", runs.assign(cost=0))):
        with pytest.raises(ValueError, match=f"cost='{cost}': expected a column of the runs with values above 0"):
            perplexity_front(documents, changed, cost)


def test_the_chart_names_who_is_on_a_front_more_often_than_not():
    recorded, costs = recorded_comparison("tiny"), list(COSTS)
    chart = pareto_of(recorded.documents, recorded.runs, costs)
    assert [axes.get_xlabel() for axes in chart.axes] == [COSTS[cost] for cost in costs]
    runs = recorded.runs[~recorded.runs.strategy.isin(["zero-shot", "random initialisation"])]
    for axes, cost in zip(chart.axes, costs, strict=True):
        found = perplexity_front(recorded.documents, runs.assign(file_mb=runs.file_bytes / 1e6), cost)
        named = {text.get_text().rpartition(" ")[0] for text in axes.texts if text.get_text()}
        assert named == set(found[found.share >= 0.5].strategy), cost
    assert "full" in chart.finding and "of every cost" in chart.finding

"""A learning rate belongs to a model: found by a search that ends between worse ones, and never borrowed unsaid."""

import math

import pandas as pd
import pytest

from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import load_experiment
from tlkit.evidence.learning_rates import (
    BUDGET,
    COARSE,
    TUNED_FOR,
    LearningRate,
    best_rates,
    checked_rates,
    learning_rates_for,
    next_rate,
    rate_for,
    recorded_rates,
)
from tlkit.names import CLASSIC, CONTROL
from tlkit.presets import PRESETS
from tlkit.settings import PROFILES
from tlkit.strategies import STRATEGIES


def record_of(*rows, **columns) -> pd.DataFrame:
    record = pd.DataFrame(rows, columns=["strategy", "learning_rate", "validation_perplexity"])
    return record.assign(**{"model": "tiny", "profile": "ci", "date": "2026-11-22"} | columns)


def searched(curve) -> dict[float, float]:
    """What a search tries of a model whose perplexity is `curve` of the logarithm of the rate."""
    scores = {}
    while (rate := next_rate(scores)) is not None:
        assert rate not in scores
        scores[rate] = curve(math.log10(rate))
    return scores


@pytest.mark.parametrize("best", [1e-7, 4e-5, 2e-3, 0.9])
def test_the_search_finds_the_best_rate_wherever_it_is(best):
    """1e-4 is where full fine-tuning of a pretrained model is; the grid of before began at 5e-4."""
    scores = searched(lambda x: math.inf if x > math.log10(best) + 1.2 else 40 + (x - math.log10(best)) ** 2)
    found = min(scores, key=scores.get)
    assert max(found / best, best / found) < math.sqrt(10) and min(scores) < found < max(scores)
    tried = sorted(scores)
    beside = tried[tried.index(found) - 1], tried[tried.index(found) + 1]
    assert all(max(found / rate, rate / found) < (3.5 if 1e-5 < best < 1e-2 else 11) for rate in beside)
    assert len(scores) == BUDGET and set(COARSE) < set(scores)


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been():
    def curve(x):
        return (x + 3.4) ** 2

    whole = list(searched(curve).items())
    for stopped in range(len(whole)):
        assert next_rate(dict(whole[:stopped])) == whole[stopped][0]


def test_a_search_without_an_optimum_ends_after_as_many_runs_as_any_other():
    for curve, end in ((lambda x: math.inf, 1e-8), (lambda x: -x, 10), (lambda x: x, 1e-8)):
        scores = searched(curve)
        assert len(scores) == BUDGET and end in scores
    rows = [("full", rate, math.inf) for rate in searched(lambda x: math.inf)]
    rates, reasons = best_rates(record_of(*rows))
    assert not rates and "training diverged at every rate from 1e-08 to 0.1" in reasons["full"]


def test_the_best_rate_is_the_best_of_the_means():
    rows = [("a", 1e-3, 5.0), ("a", 1e-3, 9.0), ("a", 1e-2, 6.0), ("a", 1e-2, 6.5), ("a", 1e-1, math.inf)]
    assert best_rates(record_of(*rows))[0]["a"].value == 1e-2
    one_seed_diverged = [("a", 1e-3, 1.0), ("a", 1e-3, math.nan), ("a", 1e-2, 6.0), ("a", 1e-1, 7.0)]
    assert best_rates(record_of(*one_seed_diverged))[0]["a"].value == 1e-2


def test_a_rate_at_the_edge_of_those_tried_is_not_tuned():
    rows = [("low", 1e-3, 5.0), ("low", 1e-2, 6.0), ("between", 1e-3, 6.0), ("between", 1e-2, 5.0)]
    rates, _ = best_rates(record_of(*rows, ("between", 1e-1, math.inf)))
    assert not rates["low"].tuned and "the edge of the rates that were tried" in rates["low"].source
    assert rates["between"].tuned and "edge" not in rates["between"].source


def test_every_strategy_of_the_bundled_model_has_an_equal_budget_and_none_its_best_rate_at_an_edge():
    record = recorded_rates("tiny")
    every = [name for name in STRATEGIES if name != "linear_probe"]  # only a classifier has it
    assert set(record.strategy) == {*every, CONTROL}
    assert {len(part) for _, part in record.groupby("strategy")} == {2 * BUDGET}
    assert {part.learning_rate.nunique() for _, part in record.groupby("strategy")} == {BUDGET}
    rates, reasons = best_rates(record)
    assert all(rate.tuned for rate in rates.values()) and not reasons
    assert rate_for("tiny", "full").value != rate_for("tiny", "lora").value


@pytest.fixture(scope="module")
def here() -> dict[str, object]:
    """The settings of a comparison of the bundled model as lessons make it."""
    experiment, _ = load_experiment("tiny", PROFILES["ci"], ComparisonSettings())
    return experiment.settings


def test_the_record_is_of_the_bundled_model_and_corpus(here):
    row = recorded_rates("tiny").iloc[0]
    for setting in ("weights_sha256", "corpus_sha256", "block_size", "batch_size", "context", "stride", "profile"):
        assert row[setting] == here[setting], setting


def test_recorded_rates_serve_their_model_alone(here):
    assert set(learning_rates_for("tiny", [*CLASSIC, CONTROL], here, {})) == {*CLASSIC, CONTROL}
    assert learning_rates_for("smollm2-135m", CLASSIC, here, {}) == {}
    recorded = best_rates(recorded_rates("tiny"))[0]["lora"].value
    assert rate_for(None, "lora").value == rate_for(PRESETS["tiny"].source, "lora").value == recorded
    with pytest.raises(ValueError, match="no learning rate is recorded for adapter on tiny"):
        rate_for("tiny", "adapter")
    for model in ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M", "some/folder"):
        with pytest.raises(ValueError, match=rf"no learning rates are recorded for {model}: .*compare --model"):
            rate_for(model, "full")


@pytest.mark.parametrize(
    ("setting", "tuned", "said"),
    [
        ({}, True, None),
        ({"profile": "laptop"}, True, "profile laptop"),
        ({"corpus": "notes/", "corpus_sha256": "0"}, False, "corpus notes/"),
        ({"block_size": 32, "profile": "gpu"}, False, "blocks of 32, profile gpu"),
    ],
)
def test_a_source_says_where_the_rate_was_tuned_and_what_is_different_here(here, setting, tuned, said):
    rate = learning_rates_for("tiny", ["lora"], here | setting, {})["lora"]
    whole = "recorded for tiny (ci profile, 2026-11-22)" + (f"; here: {said}" if said else "")
    assert rate == LearningRate(rate_for("tiny", "lora").value, whole, tuned, runs=16)


@pytest.mark.parametrize("task", ["classify", "answer"])
def test_the_longest_example_of_a_run_does_not_decide_whether_its_rate_is_tuned(here, task):
    record = recorded_rates("tiny", task)
    same = {name: record[name].iloc[0] for name in TUNED_FOR} | {"task": task, "profile": record.profile.iloc[0]}
    shorter = same | {"block_size": same["block_size"] - 7}
    assert learning_rates_for("tiny", ["lora"], here | shorter, {})["lora"].tuned
    other = learning_rates_for("tiny", ["lora"], here | shorter | {"batch_size": 64}, {})["lora"]
    assert not other.tuned and other.source.endswith("; here: batches of 64")


def test_given_rates_go_before_recorded_ones_and_are_not_tuned(here):
    rates = learning_rates_for("tiny", CLASSIC, here, {"lora": 3e-3})
    assert rates["lora"] == LearningRate(3e-3, "given", tuned=False)
    assert rates["full"].tuned and rates["full"].source.startswith("recorded for tiny")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"full": 0}, "learning rate of full=0: expected a number above 0"),
        ({"full": "1e-4", "lora": None}, "learning rate of lora=None: expected a number above 0"),
        ({"adapter": 1e-4}, "learning rate of 'adapter': expected one of full, "),
    ],
)
def test_rates_are_numbers_of_strategies(given, said):
    assert checked_rates({"full": "1e-4", CONTROL: 1e-3}) == {"full": 1e-4, CONTROL: 1e-3}
    with pytest.raises(ValueError, match=said):
        checked_rates(given)

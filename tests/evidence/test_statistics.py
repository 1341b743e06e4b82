"""Statistics against tables with a known answer; sweeps and remedies against what they promise."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from tlkit.cli import main
from tlkit.evidence import sweeps
from tlkit.evidence.forgetting import interpolate, mix_in
from tlkit.evidence.learning_rates import CONTROL, best_rates, default_rates
from tlkit.evidence.statistics import paired_differences, rank_intervals, seed_intervals
from tlkit.evidence.sweeps import RATES, Trial, planned, recorded, run_sweep, run_trial
from tlkit.models import load_model
from tlkit.settings import Profile
from tlkit.strategies import STRATEGIES, apply_strategy, is_tied

SMALL = Profile("test", train_passages=6, test_passages=3, epochs=1, seeds=1)


def runs_of(values: dict[str, list[float]]) -> pd.DataFrame:
    rows = [(name, seed, value) for name, column in values.items() for seed, value in enumerate(column)]
    return pd.DataFrame(rows, columns=["strategy", "seed", "perplexity"])


def test_the_interval_over_seeds_is_students():
    """Three values: t with two degrees of freedom is 4.3027 at 97.5% (any printed table)."""
    found = seed_intervals(runs_of({"a": [10.0, 11.0, 15.0]})).loc["a"]
    half = 4.3027 * math.sqrt(((10 - 12) ** 2 + (11 - 12) ** 2 + (15 - 12) ** 2) / 2) / math.sqrt(3)
    assert found["mean"] == 12 and found.seeds == 3
    assert found.low == pytest.approx(12 - half, rel=1e-4) and found.high == pytest.approx(12 + half, rel=1e-4)


def test_pairing_finds_what_the_spread_over_seeds_hides():
    seeds = [10.0, 20.0, 30.0, 40.0]
    runs = runs_of({"a": seeds, "b": [s + 1 + e for s, e in zip(seeds, (0.1, -0.1, 0.05, -0.05), strict=True)]})
    apart = seed_intervals(runs)
    assert apart.loc["b", "low"] < apart.loc["a", "mean"]
    difference = paired_differences(runs, "a").loc["b"]
    assert (
        difference.separated and difference["mean"] == pytest.approx(1) and 0.8 < difference.low < difference.high < 1.2
    )
    assert rank_intervals(runs).to_dict() == {"a": "1", "b": "2"}


def test_equal_strategies_are_separated_as_rarely_as_promised():
    """800 comparisons of two that are the same, 5 seeds each: 5% are separated by chance, here within 2.5 points."""
    random = np.random.default_rng(0)
    found = [
        bool(paired_differences(runs_of({"a": list(x), "b": list(y)}), "a").separated.iloc[0])
        for x, y in random.normal(50, 1, (800, 2, 5))
    ]
    assert abs(np.mean(found) - 0.05) < 0.025  # three standard errors


def test_a_place_is_named_only_where_it_is_earned():
    runs = runs_of({"c": [30, 31, 30.4], "a": [10, 11, 10.5], "b": [10.2, 10.8, 10.6]})
    assert rank_intervals(runs).to_dict() == {"c": "3", "a": "tied 1-2", "b": "tied 1-2"}
    one_seed = runs[runs.seed == 0]
    assert set(rank_intervals(one_seed)) == {"tied 1-3"} and seed_intervals(one_seed).low.isna().all()


def test_a_seed_that_one_strategy_lacks_is_left_out_of_its_pairs():
    runs = runs_of({"a": [1.0, 2.0, 9.0], "b": [2.0, 3.1]})
    assert paired_differences(runs, "a").loc["b", "seeds"] == 2
    with pytest.raises(ValueError, match="against='z' has no runs: expected one of a, b"):
        paired_differences(runs, "z")


def test_weights_in_between():
    base, other = load_model("tiny").model, load_model("tiny", random_init=True).model
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    start, middle, end = (interpolate(base, other, share).state_dict() for share in (0, 0.5, 1))
    for name, tensor in other.state_dict().items():
        assert torch.equal(start[name], before[name]) and torch.equal(end[name], tensor)
        assert torch.allclose(
            middle[name], (before[name] + tensor) / 2, atol=1e-6
        )  # two fp32 roundings of values near 1
        assert torch.equal(base.state_dict()[name], before[name])
    assert is_tied(interpolate(base, other, 0.5))
    with pytest.raises(ValueError, match="share=1.5"):
        interpolate(base, other, 1.5)
    with pytest.raises(ValueError, match="only two models of one architecture"):
        interpolate(base, apply_strategy(other, "lora").model, 0.5)


def test_a_share_of_other_text():
    blocks, others = torch.zeros(30, 8, dtype=torch.long), torch.ones(20, 8, dtype=torch.long)
    mixed = mix_in(blocks, others, 0.25)
    assert len(mixed) == 40 and int(mixed[:, 0].sum()) == 10
    assert torch.equal(mix_in(blocks, others, 0.0), blocks)
    with pytest.raises(ValueError, match="takes 30 others, and 20 are there"):
        mix_in(blocks, others, 0.5)
    with pytest.raises(ValueError, match="share=1"):
        mix_in(blocks, others, 1)


def test_every_strategy_is_tuned_on_the_same_grid_and_none_at_its_edge():
    grids = {name: set(part.learning_rate) for name, part in recorded("rates").groupby("strategy")}
    assert set(grids) == {*STRATEGIES, CONTROL} and all(grid == set(RATES) for grid in grids.values())
    assert len({len(part) for _, part in recorded("rates").groupby("strategy")}) == 1
    for name, rate in default_rates().items():
        assert min(RATES) < rate < max(RATES), name
    assert default_rates()["full"] != default_rates()["lora"]


def test_records_are_whole_and_say_where_they_were_made():
    for sweep in sweeps.SWEEPS:
        record = recorded(sweep)
        assert set(record.trial) == {trial.name for trial in planned(sweep)}
        assert record[["model", "profile", "device", "date", "torch", "python"]].notna().all().all()


def test_the_best_rate_is_the_best_of_the_means():
    rows = [("a", 1e-3, 5.0), ("a", 1e-3, 9.0), ("a", 1e-2, 6.0), ("a", 1e-2, 6.5), ("a", 1e-1, math.inf)]
    assert best_rates(pd.DataFrame(rows, columns=["strategy", "learning_rate", "validation_perplexity"])) == {"a": 1e-2}


def test_a_trial_never_sees_the_test_split_and_a_diverged_one_is_infinite(monkeypatch):
    class Guarded:
        def __init__(self, corpus):
            self.corpus = corpus

        def limited(self, *arguments, **options):
            return Guarded(self.corpus.limited(*arguments, **options))

        def __getattr__(self, name):
            assert name != "test", "a trial has looked at the test split"
            return getattr(self.corpus, name)

    load = sweeps.load_corpus
    monkeypatch.setattr(sweeps, "load_corpus", lambda name: Guarded(load(name)))
    found = run_trial(Trial("last_layers", 3e-3, general_share=0.5), profile=SMALL)
    assert 1 < found["validation_perplexity"] < 1000 and 1 < found["general_perplexity"] < 1000
    with pytest.raises(AssertionError, match="looked at the test split"):
        sweeps.load_corpus("rust").limited(1).test  # noqa: B018 - the guard itself, seen to work
    diverged = run_trial(Trial("full", 1e12, steps=6), profile=SMALL)
    assert diverged["validation_perplexity"] == diverged["training_loss"] == math.inf


def test_a_sweep_goes_on_where_it_stopped(monkeypatch, tmp_path, capsys):
    asked = []

    def noted(trial, **options):
        asked.append(trial.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return {"trial": trial.name, "strategy": trial.strategy, "validation_perplexity": 1.0}

    monkeypatch.setattr(sweeps, "run_trial", noted)
    monkeypatch.setitem(sweeps.SWEEPS, "general", lambda rates: [Trial("bitfit", 1e-2)])
    monkeypatch.setattr(sweeps, "default_rates", dict)
    record = tmp_path / "new" / "record.csv"
    with pytest.raises(KeyboardInterrupt):
        run_sweep("general", record, profile=SMALL)
    assert len(pd.read_csv(record)) == 1
    assert main(["sweep", "general", "--output", str(record), "--json"]) == 2
    assert "holds runs of tiny, profile test" in capsys.readouterr().err
    assert len(run_sweep("general", record, profile=SMALL)) == 2
    assert (
        asked
        == ["strategy=bitfit learning_rate=0.01 epochs=1 general_share=0.0 seed=0"]
        + ["strategy=bitfit learning_rate=0.01 epochs=1 general_share=0.0 seed=1"] * 2
    )
    assert main(["sweep", "everything", "--json"]) == 2
    assert "expected one of rates, epochs, passages, general" in capsys.readouterr().err


def test_a_comparison_takes_other_rates_and_another_reference(monkeypatch, tmp_path, capsys):
    from tlkit.settings import PROFILES

    monkeypatch.setitem(PROFILES, "test", SMALL)
    record = tmp_path / "rates.csv"
    rows = [("bitfit", 1e-9, 5.0), ("last_layers", 1e-9, 5.0)]
    pd.DataFrame(rows, columns=["strategy", "learning_rate", "validation_perplexity"]).to_csv(record)
    command = ["compare", "--profile", "test", "--strategies", "bitfit,last_layers", "--seeds", "2", "--json"]
    command += ["--output", str(tmp_path / "out")]
    assert main([*command, "--learning-rates", str(record), "--against", "last_layers"]) == 0
    table = pd.DataFrame(json.loads(capsys.readouterr().out)).set_index("strategy")
    # A rate of a billionth moves nothing: both are as before training, to the digits that a score has.
    assert table.loc["bitfit", "perplexity"] == pytest.approx(table.loc["zero-shot", "perplexity"], rel=1e-5)
    assert math.isnan(table.loc["last_layers", "difference"]) and abs(table.loc["bitfit", "difference"]) < 1e-3
    assert main([*command, "--against", "full"]) == 2
    assert "against='full': expected one of those compared, bitfit, last_layers" in capsys.readouterr().err

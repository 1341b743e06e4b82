"""Expectations of a run: each can hold and can fail, and the tiers are run files that `train` carries out."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tlkit import training
from tlkit.checkpoints import Checkpoints
from tlkit.cli import main
from tlkit.commands.evidence import TIERS, settings_of_tier
from tlkit.commands.training import train
from tlkit.evidence.expectations import EXPECTATIONS, Seen, judge
from tlkit.fitting.estimate import MemoryEstimate, estimate_memory
from tlkit.settings import DATA, PROFILES, Profile
from tlkit.strategies import apply_strategy

PLANTED = MemoryEstimate({"weights": 1000}, {"forward pass": 1000})  # the real ones are another test's


@pytest.fixture(autouse=True)
def scored_on_three_passages(monkeypatch):
    for name in ("ci", "laptop"):
        monkeypatch.setitem(PROFILES, name, Profile(name, train_passages=12, test_passages=3, epochs=1, seeds=1))


@pytest.fixture
def tier(tmp_path, shallow):
    """The settings of a tier, on three blocks of the bundled model and in few steps."""

    def settings(name: str, steps: int, config: dict | None = None, **changes) -> list:
        options, scoring, rates, *others = settings_of_tier(name, tmp_path, "tiny")
        options = replace(options, **{"max_steps": steps, "sequence_length": 32} | changes)
        return [options, scoring, replace(rates, **config or {}), *others]

    return settings


@pytest.fixture
def instead_of_training(monkeypatch):
    """Lets `validate` call something else in place of `train`."""
    return lambda action: monkeypatch.setattr("tlkit.commands.evidence.train", action)


def holding(settings: list) -> dict[str, bool]:
    return {verdict.expectation: verdict.holds for verdict in train(*settings).data["expected"]}


@pytest.mark.parametrize(
    ("name", "steps", "left_out"),
    [("convergence", 30, ()), ("extended", 6, ("smoothed_loss_decreases", "throughput_varies_percent"))],
)
def test_a_tier_holds_on_the_bundled_model(name, steps, left_out, tier):
    """In fewer steps: the sentences are learned by heart in thirty, and of six neither speed nor means say anything."""
    settings = tier(name, steps=steps, config={"learning_rate": 1e-2})
    expect = {key: value for key, value in settings[0].expect.items() if key not in left_out}
    settings[0] = replace(settings[0], expect=expect)
    assert holding(settings) == dict.fromkeys(expect, True)
    assert yaml.safe_load((settings[0].output / "run.yaml").read_text())["expect"] == expect, "it is judged again"


def test_validate_judges_each_tier_and_keeps_what_was_trained_where_it_is_told_to(
    tmp_path, capsys, shallow, instead_of_training
):
    instead_of_training(lambda options, *others: train(replace(options, max_steps=2, sequence_length=32), *others))
    assert main(["validate", "quick", "--model", "tiny", "--json", "--output", str(tmp_path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    held = {verdict["expectation"] for verdict in row["expected"] if verdict["holds"]}
    assert held == {"losses_finite", "gradients_flow", "peak_memory"}
    assert (tmp_path / "quick" / "adapter_model.safetensors").is_file()


def test_a_tier_asks_for_what_its_model_needs(tmp_path):
    """With the 15% that a card does not give; nothing is trained."""
    options, _, config, plan = settings_of_tier("quick", tmp_path)
    shape = {"dtype": options.dtype, "batch_size": config.batch_size, "sequence_length": options.sequence_length}
    needed = estimate_memory(options.model, options.strategy, **shape, plan=plan, **options.strategy_option)
    assert options.expect["peak_memory"] == "512MiB" and needed.peak < 0.85 * 512 * 2**20


def test_another_model_takes_blocks_that_it_can_read_and_its_own_rate(tmp_path):
    assert {path.stem for path in (DATA / "tiers").glob("*.yaml")} == set(TIERS)
    asked = set()
    for name in TIERS:
        (planned, _, rates, *_), (replaced, _, own, *_) = (settings_of_tier(name, tmp_path, m) for m in (None, "tiny"))
        assert replaced == replace(planned, model="tiny", sequence_length=min(256, planned.sequence_length))
        assert own == replace(rates, learning_rate=None), "as recorded"
        asked |= set(planned.expect)
    assert asked == set(EXPECTATIONS)
    other, _, rates, *_ = settings_of_tier("full", tmp_path, "qwen2-0.5b")
    assert (other.sequence_length, rates.learning_rate) == (512, 2e-4)


def test_a_leak_is_found(tier, monkeypatch):
    """A tensor kept from each step, as by a list of losses that still hang on their graphs."""
    kept, take_step = [], training.take_step

    def leaking(*arguments, **options):
        kept.append(torch.zeros(10_000))
        return take_step(*arguments, **options)

    expect = {"memory_growth_percent": 0.1}
    assert holding(tier("quick", steps=7, expect=expect)) == {"memory_growth_percent": True}
    monkeypatch.setattr("tlkit.training.take_step", leaking)
    settings = tier("quick", steps=7, expect=expect)
    settings[0] = replace(settings[0], output=settings[0].output / "leaking")
    outcome = train(*settings)
    (verdict,) = outcome.data["expected"]
    assert outcome.code == 1 and f"[FAIL] {verdict.expectation}: " in outcome.text
    # 40,000 bytes a step, 100 steps, of a peak of some megabytes.
    low = float(verdict.figures.split("%")[0])
    assert not verdict.holds and 10 < low < 200


def test_adapters_that_do_not_train_are_found(tier, monkeypatch):
    def broken(*arguments, **options):
        report = apply_strategy(*arguments, **options)
        module = next(module for module in report.model.modules() if hasattr(module, "lora_A"))
        module.forward = module.base_layer.forward
        return report

    monkeypatch.setattr("tlkit.strategies.apply_strategy", broken)
    (verdict,) = train(*tier("quick", steps=1, expect={"gradients_flow": True})).data["expected"]
    assert not verdict.holds and "no gradient reaches it" in verdict.figures


def test_a_checkpoint_that_brings_back_other_weights_is_found(tier, monkeypatch):
    restore = Checkpoints.restore

    def wrong(self, state):
        restore(self, state)
        if state.step:
            with torch.no_grad():
                state.parameters[0].view(-1)[0] += 1e-6

    monkeypatch.setattr(Checkpoints, "restore", wrong)
    assert holding(tier("quick", steps=1, expect={"checkpoint_reloads": True})) == {"checkpoint_reloads": False}


def test_a_run_that_breaks_off_is_a_verdict_and_no_traceback(instead_of_training, capsys, monkeypatch):
    monkeypatch.setattr("tlkit.commands.evidence.estimate_memory", lambda *_, **__: PLANTED)
    for error in (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"), FloatingPointError("nan")):

        def fail(*_, error=error):
            raise error

        instead_of_training(fail)
        assert main(["validate", "quick", "--model", "tiny"]) == 1
        assert f"[FAIL] completes: {type(error).__name__}: {' '.join(str(error).split())}\n" in capsys.readouterr().out


def seen(losses=(4.0, 3.0, 2.0, 1.5, 1.0), seconds=1.0, peak_memory=1000, counted=(), **more) -> Seen:
    history = pd.DataFrame({"loss": losses, "seconds": seconds, "tokens": 100, "memory_counted": False})
    history.loc[list(counted), "memory_counted"] = True
    return Seen(history, peak_memory, **more)


FALLING = [4 - 0.2 * step for step in range(15)]


@pytest.mark.parametrize(
    ("expected", "good", "bad"),
    [
        ({"losses_finite": True}, seen(), seen([1.0, math.nan])),
        ({"loss_falls_percent": 30}, seen(FALLING), seen([4.0] * 5 + [1.0] + [4.0] * 9)),
        ({"smoothed_loss_decreases": True}, seen(FALLING), seen([*FALLING[:6], *FALLING[3:12]])),
        ({"peak_memory": "2KiB"}, seen(peak_memory=2048), seen(peak_memory=2049)),
        (
            {"memory_growth_percent": 0.1},
            seen(held=[900] * 2 + [500] * 97),
            seen(held=[500 + n // 40 for n in range(99)]),
        ),
        (
            {"throughput_varies_percent": 50},
            seen([1] * 99, [9, 9, 99, *[1.0, 1.3] * 48], counted=[2]),
            seen([1] * 99, [1 + n / 40 for n in range(99)]),
        ),
        (
            {"gradients_flow": True},
            seen(flow=pd.DataFrame({"tensor": ["x"], "fault": [""]})),
            seen(flow=pd.DataFrame({"tensor": ["x"], "fault": ["its gradient is zero"]})),
        ),
        ({"checkpoint_reloads": True}, seen(), seen(reload_problem="other weights came back")),
    ],
)
def test_every_expectation_can_hold_and_can_fail(expected, good, bad):
    (name,) = expected
    verdicts = [judge(expected, run)[0] for run in (good, bad)]
    assert [verdict.holds for verdict in verdicts] == [True, False]
    assert str(verdicts[1]).startswith(f"[FAIL] {name}: ")


def test_growth_of_memory_is_a_slope_with_its_interval():
    """Against the textbook: 3 bytes a step of 1,000, without noise and with noise of a known spread."""

    def growth(held) -> str:
        return judge({"memory_growth_percent": 29}, seen(held=list(held)))[0].figures

    steps = np.arange(500)
    assert growth(3 * steps + 7).startswith("30.000% to 30.000% of the peak per 100 steps")
    noise = np.random.default_rng(0).normal(0, 200, 500)
    low, high = (float(part.strip("% ")) for part in growth(3 * steps + noise).split(" of the peak")[0].split("to"))
    # The error of a slope is sigma / sqrt(n (n^2 - 1) / 12); sigma is known to 10% from 500 draws.
    error = 200 * (498 * (498**2 - 1) / 12) ** -0.5
    assert high - low == pytest.approx(2 * 1.965 * error * 10, rel=0.1) and low < 30 < high
    assert growth([500] * 4) == "4 steps: expected at least 5"


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"loss_falls": 30}, "expect: 'loss_falls' is unknown: expected some of losses_finite, loss_falls_percent, "),
        ({"loss_falls_percent": math.nan}, "expect: loss_falls_percent=nan: expected a number above 0"),
        ({"peak_memory": "lots"}, "memory 'lots': expected a size such as 48MiB or 8GB"),
    ],
)
def test_a_wrong_expectation_is_refused_before_any_work(expected, said, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"strategy": "bitfit", "expect": expected}))
    assert main(["train", "--run-file", str(tmp_path / "run.yaml"), "--output", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_what_cannot_run_here_says_why_and_the_next_tier_is_tried(tmp_path, monkeypatch, capsys):
    """A model that is not here, and a machine that is too small."""
    planted = replace(PLANTED, categories={"weights": 1000})
    monkeypatch.setattr("tlkit.commands.evidence.estimate_memory", lambda *_, **__: planted)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("tlkit.commands.evidence.TIERS", ("quick", "convergence"))
    assert main(["validate", "all"]) == 1
    out = capsys.readouterr().out
    assert out.count("[FAIL] can run here: smollm2-135m is not on this machine") == 2
    assert "`python -m tlkit fetch smollm2-135m`" in out
    planted.categories["weights"] = 2**50
    assert main(["validate", "quick", "--model", "tiny"]) == 1
    assert "[FAIL] can run here: it needs 1048576.02 GiB" in capsys.readouterr().out
    assert main(["validate", "nightly"]) == 2
    assert "TIER='nightly': expected quick or convergence or " in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_each_tier_holds_on_a_gpu():
    """On the bundled model, so that nothing is downloaded."""
    assert main(["validate", "all", "--model", "tiny"]) == 0

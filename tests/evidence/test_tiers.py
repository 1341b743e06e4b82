"""Tiers: read strictly, run for real on the bundled model, and every criterion can fail."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tlkit.cli import main
from tlkit.devices import probe
from tlkit.evidence.learning_rates import default_rates
from tlkit.evidence.tier_files import CRITERIA, FOLDER, TIER_NAMES, load_tier
from tlkit.evidence.tiers import JUDGES, CannotRunHere, Run, estimate_tier, run_tier
from tlkit.fitting.estimate import MemoryEstimate
from tlkit.steps import StepRecord

SHORT = replace(
    load_tier("quick", model="tiny"), strategy="lora", quantization=None, dtype="fp32", steps=12, sequence_length=32
)


def test_a_tier_holds_on_the_bundled_model(capsys):
    assert main(["validate", "quick", "--model", "tiny", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [verdict["criterion"] for verdict in row["criteria"]] == list(load_tier("quick").criteria)
    assert all(verdict["holds"] for verdict in row["criteria"])


def test_convergence_holds_on_three_blocks_of_it(shallow):
    """In fewer steps than the tier has: the sentences are learned by heart in the first thirty."""
    verdicts = run_tier(replace(load_tier("convergence", model="tiny"), steps=30))
    assert [verdict.criterion for verdict in verdicts] == list(load_tier("convergence").criteria)
    assert all(verdict.holds for verdict in verdicts)


@pytest.mark.parametrize("name", ["quick", "full"])  # "memory" is below
def test_each_tier_asks_for_what_its_model_needs(name):
    """With the 15% that a card does not give."""
    tier = load_tier(name)
    assert estimate_tier(tier).peak < 0.85 * tier.required_memory


def test_another_model_takes_blocks_that_it_can_read_and_its_own_rate():
    for name in TIER_NAMES:
        planned, replaced = load_tier(name), load_tier(name, model="tiny")
        assert replaced.sequence_length == min(256, planned.sequence_length)
        assert (replaced.steps, replaced.batch_size) == (planned.steps, planned.batch_size)
    assert replaced.learning_rate == default_rates()["qlora"]
    other = load_tier("full", model="qwen2-0.5b")
    assert (other.sequence_length, other.learning_rate) == (512, load_tier("full").learning_rate)


def test_every_file_is_valid_and_every_criterion_has_its_judge():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(TIER_NAMES)
    assert set(JUDGES) == set(CRITERIA) == {name for tier in TIER_NAMES for name in load_tier(tier).criteria}


def test_a_leak_is_found():
    """A tensor kept from each step, as by a list of losses that still hang on their graphs."""
    kept = []
    tier = replace(SHORT, criteria={"memory_growth_percent": 0.1})
    (clean,) = run_tier(tier)
    (leaking,) = run_tier(tier, on_step=lambda record: kept.append(torch.zeros(10_000)))
    assert clean.holds and not leaking.holds
    # 40,000 bytes a step, 100 steps, of a peak of some 30 MB.
    low = float(leaking.found.split("%")[0])
    assert 5 < low < 30


def test_adapters_that_do_not_train_are_found(monkeypatch):
    import tlkit.evidence.tiers

    def broken(*arguments, **options):
        report = apply(*arguments, **options)
        module = next(module for module in report.model.modules() if hasattr(module, "lora_A"))
        module.forward = module.base_layer.forward
        return report

    apply = tlkit.evidence.tiers.apply_strategy
    monkeypatch.setattr(tlkit.evidence.tiers, "apply_strategy", broken)
    verdicts = run_tier(replace(SHORT, criteria={"completes": True, "gradients_flow": True}))
    assert [verdict.holds for verdict in verdicts] == [True, False]
    assert "no part of what is computed" in verdicts[1].found


def test_a_run_that_breaks_off_is_a_verdict_and_no_traceback():
    """Out of memory after step 3; then a learning rate that no weight survives."""

    def fail(record):
        if record.step == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    tier = replace(SHORT, criteria={"completes": True, "loss_falls_percent": 30})
    verdicts = run_tier(tier, on_step=fail)
    assert str(verdicts[0]) == (
        "[FAIL] completes: 3 of 12 steps: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB."
    )
    assert str(verdicts[1]) == "[FAIL] loss_falls_percent: not judged"
    diverging = run_tier(replace(tier, strategy="full", lora=None, learning_rate=1e12))
    assert not diverging[0].holds and "FloatingPointError: the loss became nan" in diverging[0].found


def a_run(losses=(4.0, 3.0, 2.0, 1.5, 1.0), held=None, seconds=None, **changes):
    seconds = seconds or [1.0] * len(losses)
    records = [StepRecord(n + 1, loss, 1e-3, 1.0, 1, 100, s) for n, (loss, s) in enumerate(zip(losses, seconds))]  # noqa: B905
    estimate = MemoryEstimate({"weights": 1000}, {"forward pass": 1000})
    usual = {"peak": 1000, "estimate": estimate, "gradient_problems": (), "reload_problem": ""}
    return Run(records, held or [500] * len(losses), **(usual | changes))


FALLING = [4 - 0.2 * step for step in range(15)]


@pytest.mark.parametrize(
    ("criterion", "wanted", "good", "bad"),
    [
        ("completes", True, a_run([1.0] * 12), a_run([1.0] * 11)),
        ("loss_falls_percent", 30, a_run(FALLING), a_run([4.0] * 5 + [1.0] + [4.0] * 9)),
        ("smoothed_loss_decreases", True, a_run(FALLING), a_run([*FALLING[:6], *FALLING[3:12]])),
        ("memory_within_limit", True, a_run(peak=2000), a_run(peak=2001)),
        ("memory_growth_percent", 0.1, a_run([1] * 99), a_run([1] * 99, held=[500 + n // 40 for n in range(99)])),
        (
            "throughput_varies_percent",
            50,
            a_run([1] * 99, seconds=[9, 9, *[1.0, 1.3] * 48, 1]),
            a_run([1] * 99, seconds=[1 + n / 40 for n in range(99)]),
        ),
        ("checkpoint_reloads", True, a_run(), a_run(reload_problem="other weights came back")),
        ("gradients_flow", True, a_run(), a_run(gradient_problems=("x: its gradient is zero",))),
    ],
)
def test_every_criterion_can_hold_and_can_fail(criterion, wanted, good, bad):
    tier = replace(SHORT, required_memory=2000)
    assert JUDGES[criterion](wanted, tier, good).holds
    verdict = JUDGES[criterion](wanted, tier, bad)
    assert not verdict.holds and str(verdict).startswith(f"[FAIL] {criterion}: ")


def test_growth_of_memory_is_a_slope_with_its_interval():
    """Against the textbook: 3 bytes a step of 1,000, without noise and with noise of a known spread."""
    tier, steps = replace(SHORT, required_memory=2000), np.arange(500)
    line = JUDGES["memory_growth_percent"](29, tier, a_run([1] * 500, held=list(3 * steps + 7)))
    assert line.found.startswith("30.000% to 30.000% of the peak per 100 steps") and not line.holds
    noise = np.random.default_rng(0).normal(0, 200, 500)
    found = JUDGES["memory_growth_percent"](29, tier, a_run([1] * 500, held=list(3 * steps + noise))).found
    low, high = (float(part.strip("% ")) for part in found.split(" of the peak")[0].split("to"))
    # The error of a slope is sigma / sqrt(n (n^2 - 1) / 12); sigma is known to 10% from 500 draws.
    error = 200 * (498 * (498**2 - 1) / 12) ** -0.5
    assert high - low == pytest.approx(2 * 1.965 * error * 10, rel=0.1) and low < 30 < high
    few = JUDGES["memory_growth_percent"](0.1, tier, a_run([1] * 4, held=[500] * 4))
    assert not few.holds and few.found == "4 steps are too few: expected at least 5"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimiser": "adamw"}, "mine.yaml: field 'optimiser' is unknown: expected model, strategy, dtype"),
        ({"steps": None}, "steps is None: expected a whole number above 0"),
        ({"steps": True}, "steps is True: expected a whole number above 0"),
        ({"steps": 10.0}, "steps is 10.0: expected a whole number above 0"),
        ({"batch_size": 0}, "batch_size is 0: expected a whole number above 0"),
        ({"learning_rate": "2e-4"}, "learning_rate is '2e-4': expected a number above 0"),
        ({"learning_rate": math.inf}, "learning_rate is inf: expected a number above 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan: expected a number above 0"),
        ({"strategy": "qalora"}, "strategy is 'qalora': expected one of full, freeze_lower"),
        ({"dtype": "int4"}, "dtype is 'int4': expected one of fp32, bf16, fp16"),
        ({"required_memory": "lots"}, "required_memory: memory 'lots': expected a size such as 48MB or 8GB"),
        ({"lora": {"rank": 8}}, "lora: field 'rank' is unknown: expected r, alpha, dropout, targets"),
        ({"lora": {"dropout": 1}}, "lora: dropout is 1: expected a number from 0 to below 1"),
        ({"lora": {"targets": "q_proj"}}, "lora: targets is 'q_proj': expected all-linear or a list of names"),
        (
            {"lora": {"targets": ["q_proj", 1]}},
            "lora: targets is ['q_proj', 1]: expected all-linear or a list of names",
        ),
        ({"lora": []}, "lora is []: expected some of r, alpha, dropout, targets"),
        ({1: 2}, "field 1 is unknown: expected model"),
        ({"quantization": {"type": "fp4"}}, "quantization: type is 'fp4': expected one of nf4"),
        ({"strategy": "lora"}, "quantization: expected with strategy qlora, and with no other"),
        ({"strategy": "full", "quantization": "absent"}, "lora: expected with strategy lora or qlora only"),
        ({"criteria": {}}, "criteria is {}: expected some of completes"),
        ({"criteria": {"loss_falls": 30}}, "criteria: field 'loss_falls' is unknown: expected completes"),
        ({"criteria": {"loss_falls_percent": True}}, "criteria: loss_falls_percent is True: expected a number above 0"),
        ({"model": "absent"}, "field 'model' is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_file_field_and_what_is_allowed(tmp_path, change, said):
    import yaml

    content = yaml.safe_load((FOLDER / "quick.yaml").read_text()) | change
    content = {field: value for field, value in content.items() if value != "absent"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError) as refused:
        load_tier("mine", folder=tmp_path)
    assert str(refused.value).startswith("mine.yaml: ") and said in str(refused.value)


def test_what_is_no_tier_is_refused(tmp_path, capsys):
    for text, said in (("a: [", "no valid YAML"), ("- 1", "expected fields with values")):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(ValueError, match=rf"mine\.yaml: {said}"):
            load_tier("mine", folder=tmp_path)
    assert main(["validate", "nightly"]) == 2
    assert "tier 'nightly' is unknown: expected one of convergence, extended" in capsys.readouterr().err


def test_a_machine_that_is_too_small_says_what_is_needed_and_found():
    small = replace(probe("cpu"), free_memory=2**20)
    with pytest.raises(CannotRunHere, match=r"quick needs [\d.]+ MiB and .* has 1\.00 MiB free"):
        run_tier(SHORT, device=small)


def test_a_model_that_is_not_here_is_named_with_its_size(tmp_path, monkeypatch, capsys):
    """And the estimate is printed all the same; --continue-on-error goes on with the next tier."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("tlkit.evidence.tier_files.TIER_NAMES", ("quick", "convergence"))
    planted = MemoryEstimate({"weights": 1000}, {"forward pass": 1000})  # the real ones are another test's
    monkeypatch.setattr("tlkit.evidence.tiers.estimate_memory", lambda *_, **__: planted)
    assert main(["validate", "all"]) == 1
    out = capsys.readouterr().out
    assert "[CANNOT RUN HERE] quick: HuggingFaceTB/SmolLM2-135M is not on this machine" in out
    assert "`python -m tlkit fetch smollm2-135m` (about 0.3 GB)" in out and "estimate: " in out
    assert "convergence" not in out
    assert main(["validate", "all", "--continue-on-error"]) == 1
    assert "[CANNOT RUN HERE] convergence: " in capsys.readouterr().out


def test_the_check_of_memory_trains_nothing(capsys, monkeypatch):
    monkeypatch.setattr("tlkit.evidence.tiers.run_tier", lambda *_, **__: pytest.fail("trained"))
    estimates = []

    def noted(tier):
        estimates.append(estimate_tier(tier))
        return estimates[-1]

    monkeypatch.setattr("tlkit.evidence.tiers.estimate_tier", noted)
    assert main(["validate", "memory", "--check-memory"]) == 0
    assert "2.00 GiB allowed" in capsys.readouterr().out
    assert estimates[0].peak < 0.85 * load_tier("memory").required_memory


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", TIER_NAMES)
def test_each_tier_that_fits_holds_on_a_gpu(name):
    """On the bundled model, so that nothing is downloaded; its memory is the card's own figure."""
    assert all(verdict.holds for verdict in run_tier(load_tier(name, model="tiny"), device=probe()))

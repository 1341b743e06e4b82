"""Does the device compute what the processor computes: products, training, checkpoints, text, by two processes?"""

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from device_bench import ROUNDINGS, STEPS, largest_gap
from small_models import generate

from tlkit.checkpoints import Checkpoints, identity_of
from tlkit.models import prompt_tokens
from tlkit.quantization import dequantized
from tlkit.settings import Plan
from tlkit.steps import TrainingState, mean_loss
from tlkit.strategies import apply_strategy, strategies_named
from tlkit.training import training_steps

pytestmark = pytest.mark.gpu
TERMS = 64  # of each sum in the product: so few that a rounding to TF32's 10 bits is larger than the bound for fp32
NEW_TOKENS = 12
PROMPTS = ("In Rust, Vec<T> is", "The Result type in Rust", "Ownership in Rust means")


def test_arithmetic(bench, record_property):
    """A product in fp32 is one of fp32, and not of TF32 or bf16.

    The bound holds whatever the order of the additions (Higham 2002, Accuracy and Stability, section 3.5).
    """
    draws = torch.Generator().manual_seed(0)
    left, right = (torch.randn(shape, generator=draws) for shape in ((256, TERMS), (TERMS, 256)))
    with bench.device.counting():
        found = (left.to(bench.device.torch) @ right.to(bench.device.torch)).cpu().double()
    exact, size = left.double() @ right.double(), left.double().abs() @ right.double().abs()
    unit = torch.finfo(torch.float32).eps / 2
    bound = TERMS * unit / (1 - TERMS * unit)
    worst = float(((found - exact).abs() / size).max())
    record_property("relative error", worst)
    record_property("tolerance", f"{bound:.1e}: rounding of {TERMS} terms in any order")
    assert worst <= bound


@pytest.mark.parametrize("strategy", strategies_named(["all"]))
def test_training(bench, record_property, strategy):
    """A strategy trains with the losses that it has on the processor."""
    if strategy == "qlora":
        pytest.importorskip("bitsandbytes", exc_type=ImportError)
    reference = bench.reference(strategy)
    run = bench.run(bench.adapted(strategy), bench.config(strategy))
    record_property("loss", run.losses[-1])
    record_property("changed by training", reference.changed_by_training)
    record_property("seconds of a step", sorted(record.seconds for record in run.records)[len(run.records) // 2])
    reference.hold(run.losses, record_property)


def test_bf16(bench, record_property):
    """Under bf16 autocast losses are about those of fp32: as near as the processor's own bf16 comes."""
    config, plan = bench.config("full"), Plan(precision="bf16")
    on_host = bench.run(bench.adapted("full"), config, plan, bench.host).losses
    spread = largest_gap(on_host, bench.reference("full").losses)
    # One after the other, and of each the losses only: a small card has no room for two.
    in_fp32, in_bf16 = (bench.run(bench.adapted("full"), config, how).losses for how in (Plan(), plan))
    gap, moved = largest_gap(in_bf16, on_host), largest_gap(in_bf16, in_fp32)
    # Each of the two lies about as far from fp32, and not to the same side; a maximum of few values varies.
    tolerance = 4 * spread
    record_property("difference", gap)
    record_property("difference from fp32", moved)
    record_property("tolerance", f"{tolerance:.1e} nats: 4 times what bf16 changes on the processor")
    assert gap <= tolerance
    assert moved > spread / 10, "bf16 was not used"


def test_four_bits(bench, record_property):
    """Weights quantised on the device are as near to the originals, and as small, as those of the processor."""
    pytest.importorskip("bitsandbytes", exc_type=ImportError)
    there = bench.adapted("full")  # plain weights, which are brought to the device and quantised there
    originals = {name: weight.detach().clone() for name, weight in there.named_parameters()}
    with bench.device.counting():
        bench.device.place(there)
        there = apply_strategy(there, "qlora").model
        error, size = _rounding_error(there, originals), _packed_bytes(there)
    here = bench.adapted("qlora")
    ratio = error / _rounding_error(here, originals)
    record_property("rounding error, as a share of the processor's", ratio)
    record_property("bytes", size)
    record_property("tolerance", "1%: weights halfway between two of the 16 levels may fall to either")
    assert abs(ratio - 1) <= 0.01 and size == _packed_bytes(here)


@pytest.mark.parametrize("way", ["device to processor", "processor to device"])
def test_checkpoints(bench, record_property, tmp_path, way):
    """A training that changes from the device to the processor, or back, goes on as if it had not."""
    first, then = (bench.device, bench.host) if way == "device to processor" else (bench.host, bench.device)
    _go_on(bench, tmp_path, first, until=STEPS - 1)
    begun, losses = _go_on(bench, tmp_path, then, until=STEPS)
    assert begun == STEPS - 1, "the steps were taken anew"
    bench.reference("full").hold(losses, record_property)


def _go_on(bench, folder, device, until):
    """Train up to a step from the newest checkpoint, and save one; the step of that checkpoint, and all losses."""
    model, config = bench.adapted("full"), bench.config("full")
    saved = Checkpoints(folder, identity_of(model, [bench.blocks], {"run": "on a device"}))
    with saved.lock(resume=True), device.counting():
        device.place(model)
        state = TrainingState(model, config)
        saved.restore(state)
        begun = state.step
        state.records += islice(training_steps(state, bench.blocks), until - begun)
        saved.save(state)
        return begun, (*(record.loss for record in state.records), mean_loss(model, bench.validation, Plan(1)))


def test_generation(bench, record_property):
    """The likeliest token each time is the one that the processor writes, and the logits behind it agree."""
    there, here, tokenizer = bench.adapted("full"), bench.adapted("full"), bench.loaded.tokenizer
    expected, gap, narrowest = [], 0.0, float("inf")
    with bench.device.counting():
        bench.device.place(there)
        texts = generate(there, tokenizer, PROMPTS, new_tokens=NEW_TOKENS)
    for prompt in PROMPTS:
        ids, margin = _written_by_hand(here, prompt_tokens(tokenizer, prompt))
        logits = _logits(here, ids)
        with bench.device.counting():
            gap = max(gap, float((_logits(there, ids) - logits).abs().max()))
        narrowest = min(narrowest, margin)
        expected.append(tokenizer.decode(ids, skip_special_tokens=True))
    # Each logit is a sum of its own: a rounding of the largest, as often as in the losses.
    tolerance = ROUNDINGS * torch.finfo(torch.float32).eps * float(logits.abs().max())
    record_property("difference of logits", gap)
    record_property("narrowest choice of a token", narrowest)
    record_property("tolerance", f"{tolerance:.1e}: {ROUNDINGS} roundings of the largest logit")
    assert gap <= tolerance
    # Two tokens may be so near to each other that either may be written.
    assert texts == expected or narrowest <= 2 * gap


def _written_by_hand(model, prompt):
    """A prompt with the likeliest tokens behind it, and the least distance of such a choice to the second best."""
    ids, narrowest = list(prompt), float("inf")
    while len(ids) < len(prompt) + NEW_TOKENS and ids[-1] != model.config.eos_token_id:
        (best, second), (chosen, _) = (values.tolist() for values in _logits(model, ids)[-1].topk(2))
        narrowest = min(narrowest, best - second)
        ids.append(chosen)
    return ids, narrowest


@torch.no_grad()
def _logits(model, ids):
    """Of each place in a text, on the processor."""
    model.eval()
    device = next(model.parameters()).device
    return model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0].float().cpu()


def _rounding_error(model, originals):
    """The root of the mean squared difference between 4-bit weights and those that they came from."""
    squares = values = 0.0
    for name, weight in model.named_parameters():
        if hasattr(weight, "quant_state"):
            plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
            difference = dequantized(weight).float().cpu() - originals[plain].cpu()
            squares, values = squares + float(difference.square().sum()), values + difference.numel()
    return (squares / values) ** 0.5


def _packed_bytes(model):
    return sum(weight.nbytes for weight in model.parameters() if hasattr(weight, "quant_state"))


def test_two_processes(bench, record_property, tmp_path):
    """Two processes take the steps of one with the same losses: two cards over NCCL, or two processors over gloo."""
    kind, file = bench.device.kind, tmp_path / "found.json"
    if bench.is_virtual:
        pytest.skip("a virtual card is played inside one process: the device cpu takes two")
    if kind not in ("cuda", "cpu"):
        pytest.skip(f"one process uses one {kind} device; several are joined for cuda (NCCL) only")
    if kind == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("this needs two cards, and there is one")
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if kind == "cpu" else {})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [Path(__file__).with_name("device_pair.py"), kind, str(bench.blocks.shape[1]), file]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    record_property("backend", found["backend"])
    assert found["processes"] == 2
    for exchange, losses in found["losses"].items():
        bench.reference("full").hold(losses, record_property, f"difference by {exchange}")

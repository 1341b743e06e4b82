"""Does the device compute what the processor computes: products, training, checkpoints, text?"""

import tempfile
from itertools import islice
from pathlib import Path

import torch

from tlkit.acceptance.bench import ROUNDINGS, STEPS, Bench, Check, apart, judged, largest_gap, skipped
from tlkit.checkpoints.folder import Checkpoints, Journal
from tlkit.checkpoints.identity import identity_of
from tlkit.devices import Device
from tlkit.fitting.placement import device_context, move_to_device
from tlkit.memory import VirtualDevice
from tlkit.models import generate
from tlkit.models.generation import PROMPTS, prompt_tokens
from tlkit.prefix import cached_prefix
from tlkit.quantization import dequantized
from tlkit.steps import Plan, mean_loss
from tlkit.training import new_state, training_steps

TERMS = 64  # of each sum in the product: so few that a rounding to TF32's 10 bits is larger than the bound for fp32
NEW_TOKENS = 12


def arithmetic(bench: Bench) -> Check:
    """A product in fp32 is one of fp32, and not of TF32 or bf16.

    The bound holds whatever the order of the additions (Higham 2002, Accuracy and Stability, section 3.5).
    """
    draws = torch.Generator().manual_seed(0)
    left, right = (torch.randn(shape, generator=draws) for shape in ((256, TERMS), (TERMS, 256)))
    with device_context(bench.device):
        found = (left.to(bench.device.torch) @ right.to(bench.device.torch)).cpu().double()
    exact, size = left.double() @ right.double(), left.double().abs() @ right.double().abs()
    unit = torch.finfo(torch.float32).eps / 2
    bound = TERMS * unit / (1 - TERMS * unit)
    worst = float(((found - exact).abs() / size).max())
    return judged(
        worst <= bound,
        f"relative error {worst:.1e}",
        "the product of fp32 numbers, in fp32",
        f"{bound:.1e}: rounding of {TERMS} terms in any order",
        relative_error=worst,
    )


def training(bench: Bench, strategy: str) -> Check:
    """A strategy trains with the losses that it has on the processor."""
    if strategy == "qlora" and (missing := _without_four_bits()):
        return skipped(missing)
    reference = bench.reference(strategy)
    run = bench.run(bench.adapted(strategy), bench.config(strategy))
    gap = largest_gap(run.losses, reference.losses)
    return judged(
        gap <= reference.tolerance,
        f"losses {apart(gap)}",
        f"those of the processor, {reference.losses[-1]:.4f} at the end (training moves it by {reference.change:.3f})",
        reference.in_words,
        difference=gap,
        allowed=reference.tolerance,
        loss=run.losses[-1],
        seconds_of_a_step=sorted(run.seconds)[len(run.seconds) // 2],
    )


def bf16(bench: Bench) -> Check:
    """Under bf16 autocast losses are about those of fp32: as near as the processor's own bf16 comes."""
    config, plan = bench.config("full"), Plan(precision="bf16")
    reference = bench.reference("full")
    on_host = bench.run(bench.adapted("full"), config, plan, bench.host).losses
    spread = largest_gap(on_host, reference.losses)
    # One after the other, and of each the losses only: a small card has no room for two.
    in_fp32, in_bf16 = (bench.run(bench.adapted("full"), config, how).losses for how in (Plan(), plan))
    gap, moved = largest_gap(in_bf16, on_host), largest_gap(in_bf16, in_fp32)
    # Each of the two lies about as far from fp32, and not to the same side; a maximum of few values varies.
    tolerance = 4 * spread
    used = moved > spread / 10
    return judged(
        gap <= tolerance and used,
        f"losses {apart(gap)}" + ("" if used else f", and by {moved:.1e} from fp32: bf16 was not used"),
        "those of the processor in bf16, and other ones than in fp32",
        f"{tolerance:.1e} nats: 4 times what bf16 changes on the processor",
        difference=gap,
        allowed=tolerance,
        difference_from_fp32=moved,
    )


def four_bits(bench: Bench) -> Check:
    """Weights quantised on the device are as near to the originals, and as small, as those of the processor."""
    if missing := _without_four_bits():
        return skipped(missing)
    from tlkit.strategies import apply_strategy

    there = bench.adapted("full")  # plain weights, which are brought to the device and quantised there
    originals = {name: weight.detach().clone() for name, weight in there.named_parameters()}
    with device_context(bench.device):
        move_to_device(there, bench.device)
        there = apply_strategy(there, "qlora").model
        errors = {"device": _rounding_error(there, originals)}
        size = _packed_bytes(there)
    on_host = bench.adapted("qlora")
    errors["host"] = _rounding_error(on_host, originals)
    ratio, expected = errors["device"] / errors["host"], _packed_bytes(on_host)
    return judged(
        abs(ratio - 1) <= 0.01 and size == expected,
        f"{ratio:.4f} of the processor's rounding error, {size:,} bytes",
        f"1, {expected:,} bytes",
        "1%: weights halfway between two of the 16 levels may fall to either, the error as a whole may not change",
        error_ratio=ratio,
        packed_bytes=size,
    )


def frozen_prefix(bench: Bench) -> Check:
    """Blocks that are computed once and then passed over leave the losses as they are."""
    options, config = {"train_norms": False}, bench.config("last_layers", epochs=2)
    plain = bench.run(bench.adapted("last_layers", **options), config).losses
    model = bench.adapted("last_layers", **options)
    with device_context(bench.device):
        move_to_device(model, bench.device)
        with cached_prefix(model) as cache:
            kept = bench.run(model, config).losses
            blocks, reused = cache.blocks, cache.rows_reused
    gap = largest_gap(kept, plain)
    reference = bench.reference("last_layers", **options)
    return judged(
        gap <= reference.tolerance and reused >= STEPS,
        f"losses {apart(gap)}; {blocks} blocks passed over for {reused} sequences",
        f"the losses without it, and each of {len(bench.blocks)} sequences passed over in the second epoch",
        reference.in_words,
        difference=gap,
        rows_reused=reused,
    )


def checkpoints(bench: Bench) -> Check:
    """A training that changes from the device to the processor, or back, goes on as if it had not."""
    reference, gaps, begun = bench.reference("full"), {}, set()
    for name, first, then in (
        ("device to processor", bench.device, bench.host),
        ("processor to device", bench.host, bench.device),
    ):
        with tempfile.TemporaryDirectory() as folder:
            _go_on(bench, Path(folder), first, until=STEPS - 1)
            after, losses = _go_on(bench, Path(folder), then, until=STEPS)
            gaps[name] = largest_gap(losses, reference.losses)
            begun.add(after)
    worst = max(gaps.values())
    return judged(
        worst <= reference.tolerance and begun == {STEPS - 1},  # else the steps were taken anew, with the right losses
        f"went on after step {', '.join(map(str, sorted(begun)))}; "
        + "; ".join(f"{name}: losses {apart(gap)}" for name, gap in gaps.items()),
        f"the losses of a run that stays on the processor, with a checkpoint after step {STEPS - 1} of {STEPS}",
        reference.in_words,
        device_to_processor=gaps["device to processor"],
        processor_to_device=gaps["processor to device"],
    )


def _go_on(bench: Bench, folder: Path, device: Device | VirtualDevice, until: int) -> tuple[int, tuple[float, ...]]:
    """Train up to a step from the newest checkpoint, and save one.

    Returns:
        The step of that checkpoint, and the losses of all steps and of validation.
    """
    model, config, journal = bench.adapted("full"), bench.config("full"), Journal()
    saved = Checkpoints(folder, 1, identity_of(model, [bench.blocks], {"run": "acceptance"}))
    with saved.hold(resume=True), device_context(device):
        move_to_device(model, device)
        state = new_state(model, config, device.host)
        saved.restore(state, journal)
        begin = state.step
        journal.records += islice(training_steps(state, bench.blocks, config), until - begin)
        saved.save(state, journal)
        return begin, (*(record.loss for record in journal.records), mean_loss(model, bench.validation, Plan(1)))


def generation(bench: Bench) -> Check:
    """The likeliest token each time is the one that the processor writes, and the logits behind it agree."""
    there, here, tokenizer = bench.adapted("full"), bench.adapted("full"), bench.loaded.tokenizer
    expected, gap, narrowest = [], 0.0, float("inf")
    with device_context(bench.device):
        move_to_device(there, bench.device)
        texts = generate(there, tokenizer, PROMPTS, new_tokens=NEW_TOKENS)
    for prompt in PROMPTS:
        begin = prompt_tokens(tokenizer, prompt)
        ids, logits, margin = _written_by_hand(here, begin)
        with device_context(bench.device):
            found = _logits(there, ids[:-1])
        gap = max(gap, float((found - logits).abs().max()))
        narrowest = min(narrowest, margin)
        expected.append(tokenizer.decode(ids, skip_special_tokens=True))
    # Each logit is a sum of its own: a rounding of the largest, as often as in the losses.
    tolerance = ROUNDINGS * torch.finfo(torch.float32).eps * float(logits.abs().max())
    same = sum(text == other for text, other in zip(texts, expected, strict=True))
    tied = narrowest <= 2 * gap  # two tokens are so near to each other that either may be written
    return judged(
        gap <= tolerance and (same == len(PROMPTS) or tied),
        f"{same} of {len(PROMPTS)} texts the same, logits differ by {gap:.1e}",
        f"the processor's {NEW_TOKENS} tokens behind each prompt",
        f"{tolerance:.1e}: {ROUNDINGS} roundings of the largest logit; the narrowest choice is one of {narrowest:.1e}",
        same_texts=same,
        difference=gap,
    )


def _written_by_hand(model: torch.nn.Module, begin: list[int]) -> tuple[list[int], torch.Tensor, float]:
    """Prompt and the likeliest tokens behind it, all logits, and the least distance of a choice to the second best."""
    ids, end, narrowest = list(begin), model.config.eos_token_id, float("inf")
    for _ in range(NEW_TOKENS):
        logits = _logits(model, ids)
        best, second = logits[-1].topk(2).values.tolist()
        narrowest = min(narrowest, best - second)
        ids.append(int(logits[-1].argmax()))
        if ids[-1] == end:
            break
    return ids, logits, narrowest


@torch.no_grad()
def _logits(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """Of each place in a text, on the processor."""
    model.eval()
    device = next(model.parameters()).device
    return model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0].float().cpu()


def _rounding_error(model: torch.nn.Module, originals: dict[str, torch.Tensor]) -> float:
    """The root of the mean squared difference between 4-bit weights and those that they came from."""
    squares = values = 0.0
    for name, weight in model.named_parameters():
        if hasattr(weight, "quant_state"):
            plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
            difference = dequantized(weight).float().cpu() - originals[plain].cpu()
            squares, values = squares + float(difference.square().sum()), values + difference.numel()
    return (squares / values) ** 0.5


def _packed_bytes(model: torch.nn.Module) -> int:
    return sum(weight.nbytes for weight in model.parameters() if hasattr(weight, "quant_state"))


def _without_four_bits() -> str:
    """Why weights in 4 bits are not possible here, or nothing."""
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        return f"bitsandbytes cannot be imported here ({error}): python -m pip install bitsandbytes"
    return ""

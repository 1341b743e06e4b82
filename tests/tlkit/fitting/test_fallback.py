"""Out of memory, planted everywhere: no step is lost or repeated, and no tensor of a failed step stays."""

import dataclasses
import gc
import subprocess
import sys
import textwrap

import pytest
import torch
from small_models import generate, weights_of
from transformers import Qwen2Config, Qwen2ForCausalLM

from tlkit import training
from tlkit.devices import Device, probe
from tlkit.evaluation import perplexity
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.fallback import (
    LADDER,
    FallbackLog,
    catch_out_of_memory,
    evaluate_with_fallback,
    is_out_of_memory,
    train_with_fallback,
)
from tlkit.memory import VirtualDevice, virtual_device
from tlkit.models import load_model
from tlkit.models.parts import base_model, find_blocks
from tlkit.quantization import tensors_of
from tlkit.steps import Plan, TrainingState, mean_loss
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train, training_steps

CONFIG = TrainingConfig(1e-3, batch_size=4, epochs=1)
BLOCKS = torch.randint(64, (16, 12), generator=torch.Generator().manual_seed(0))
SAME_NUMBERS = tuple(name for name in LADDER if name != "bf16 autocast")


def small_report(strategy="full", **options):
    """Two blocks of random weights: small enough to be interrupted a hundred times."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, tie_word_embeddings=True))
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start at zero, where rounding decides the sign of a gradient and Adam follows signs.
            parameter.add_(0.1 * torch.randn_like(parameter))
    return apply_strategy(model, strategy, **options)


def small_model(strategy="full", **options):
    return small_report(strategy, **options).model


def assert_same(model, expected):
    """1e-6 relative: sums over a batch may be added in another order."""
    assert float((weights_of(model) - expected).norm() / expected.norm()) <= 1e-6


class Failing(VirtualDevice):
    """A card with room for everything that refuses the allocations of the given numbers."""

    def __init__(self, *numbers, error=torch.OutOfMemoryError):
        super().__init__("failing card", 2**40)
        self.numbers, self.seen, self.error = numbers, 0, error

    def admit(self, size):
        self.seen += 1
        if self.seen in self.numbers:
            raise self.error("CUDA out of memory. Tried to allocate 2.00 MiB. (planted)")


def fails_once(function):
    calls = []

    def called(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("planted")
        return function(*arguments)

    return called


def allocations(strategy, **options):
    card = Failing()
    report = small_report(strategy, **options)
    train_with_fallback(report.model, BLOCKS, CONFIG, device=card, order=(), groups=report.groups)
    return card.seen


@pytest.mark.parametrize("strategy", ["full", "last_layers", "lora", "qlora", "prefix_tuning", "gradual_unfreezing"])
def test_an_allocation_that_fails_anywhere_loses_no_step(strategy):
    """Failures spread over all steps, each followed by a second one at once, against an uninterrupted run."""
    report = small_report(strategy)
    reference, how = report.model, {"groups": report.groups}
    losses = train(reference, BLOCKS, CONFIG, **how).history.loss
    expected, total, places = weights_of(reference), allocations(strategy), set()
    loading = len({tensor.untyped_storage()._cdata for tensor in tensors_of(reference)})
    points = 6 if strategy == "full" else 2
    for number in [*range(loading + 1, total, max(1, total // points)), total - 3]:
        card, model = Failing(number, number + 1), small_model(strategy)
        result, log = train_with_fallback(model, BLOCKS, CONFIG, device=card, order=SAME_NUMBERS, **how)
        assert_same(model, expected)
        assert result.history.step.tolist() == list(range(1, 5))
        assert result.history.loss.tolist() == pytest.approx(losses.tolist(), rel=1e-5)
        assert (result.history.tokens == 4 * 11).all(), "the effective batch never changes"
        failed = [a for a in log.attempts if a.failed_in]
        assert len(failed) == 2 and sum(a.steps_done for a in log.attempts) == 4
        places |= {a.failed_in for a in failed}
    if strategy == "full":
        assert {"forward pass", "backward pass"} <= places, "the points must reach both passes"


@pytest.mark.parametrize("step", [1, 3])
def test_a_failure_in_the_optimizer_step_is_undone(step, monkeypatch):
    """Fail after the counters of the bias correction went up and before the kernel ran, as far as it can get."""
    reference = small_model()
    train(reference, BLOCKS, CONFIG)
    update, calls = torch.optim.AdamW.step, []

    def failing(self, *arguments):
        calls.append(1)
        if len(calls) == step:
            for state in self.state.values():
                state["step"] += 1
            raise torch.OutOfMemoryError("CUDA out of memory. (planted)")
        update(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", failing)
    model = small_model()
    state = TrainingState(model, CONFIG)
    failure, _ = catch_out_of_memory(lambda: list(training_steps(state, BLOCKS)))
    assert failure.failed_in == "optimizer step" and state.step == step - 1
    list(training_steps(state, BLOCKS))
    assert torch.equal(weights_of(model), weights_of(reference))


def test_the_peak_is_that_of_the_attempt_that_ended_where_the_device_counts(monkeypatch):
    """Else what a failed step held would stay in it."""
    peaks = iter([0.0, 4e9, 1e9])  # before any attempt, of the one that fails, and of the last
    monkeypatch.setattr(Device, "peak", property(lambda self: next(peaks)))
    monkeypatch.setattr("tlkit.training.take_step", fails_once(training.take_step))
    result, log = train_with_fallback(small_model(), BLOCKS, CONFIG, device=probe("cpu"), order=("chunked loss",))
    assert result.peak_memory == 1e9 and log.table.peak.tolist() == [4e9, 1e9]
    assert not result.history.memory_counted.any()


def test_nothing_lies_below_the_host(monkeypatch):
    """The card takes no model, and then the host's memory runs out."""

    def fails(*_, **__):
        raise torch.OutOfMemoryError("planted")

    card, log = virtual_device(memory="1GiB"), FallbackLog()
    monkeypatch.setattr(card, "place", fails)
    monkeypatch.setattr("tlkit.training.take_step", fails)
    with pytest.raises(MemoryError, match="no rung is left after 'training on the host' at step 1"):
        train_with_fallback(small_model(), BLOCKS, CONFIG, device=card, log=log)
    assert log.table.action.tolist() == ["loading", "training"]


def refuse_in(part, state, card, monkeypatch):
    """Let the card refuse the first allocation that is made in a part of the step, wherever that begins."""

    def refuse_next(*_):
        card.numbers = (card.seen + 1,)

    def refused(function):
        def called(*arguments, **named):
            refuse_next()
            return function(*arguments, **named)

        return called

    if part == "forward":
        find_blocks(base_model(state.model))[-1].register_forward_pre_hook(refuse_next)
    elif part == "backward":

        def at_the_logits(module, inputs, logits):
            logits.register_hook(refuse_next)  # the backward pass goes on from there

        base_model(state.model).get_output_embeddings().register_forward_hook(at_the_logits)
    elif part == "clipping":
        monkeypatch.setattr(torch.nn.utils, "get_total_norm", refused(torch.nn.utils.get_total_norm))
    else:
        monkeypatch.setattr(torch, "zeros_like", refused(torch.zeros_like))


@pytest.mark.parametrize(
    ("strategy", "plan"),
    [
        ("full", Plan()),
        ("lora_plus", Plan(activation_checkpointing=True, offload_optimizer=True)),
        ("gradual_unfreezing", Plan()),
    ],
)
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("forward", "forward pass"),
        ("backward", "backward pass"),
        ("clipping", "optimizer step"),
        ("moments", "optimizer step"),
    ],
)
def test_the_step_says_which_part_of_it_ran_out_of_memory(strategy, part, expected, plan, monkeypatch):
    """AdamW with one group makes its moments in its first step, with several before it: both are the optimizer step."""
    reference = small_report(strategy)
    state = TrainingState(small_model(strategy), CONFIG, reference.groups)
    with Failing() as card:
        state.apply_plan(plan)
        refuse_in(part, state, card, monkeypatch)
        failure, _ = catch_out_of_memory(lambda: list(training_steps(state, BLOCKS)))
    assert failure.failed_in == expected and state.step == 0
    train(reference.model, BLOCKS, CONFIG, groups=reference.groups)
    list(training_steps(state, BLOCKS))
    assert_same(state.model, weights_of(reference.model))  # half made moments were dropped


def test_dropout_draws_the_same_numbers_again():
    options = {"dropout": 0.3}
    reference = small_model("lora", **options)
    train(reference, BLOCKS, CONFIG)
    undisturbed = small_model("lora")
    train(undisturbed, BLOCKS, CONFIG)
    assert not torch.equal(weights_of(reference), weights_of(undisturbed)), "dropout must matter here"
    total = allocations("lora", **options)
    order = ("chunked loss", "activation checkpointing", "activations on the host", "optimizer on the host")
    for number in (total // 3, 3 * total // 4):
        model = small_model("lora", **options)
        train_with_fallback(model, BLOCKS, CONFIG, device=Failing(number, number + 1), order=order)
        assert_same(model, weights_of(reference))


def test_an_interrupt_anywhere_leaves_whole_steps():
    """What KeyboardInterrupt leaves can be trained on, and ends where an undisturbed run ends."""
    reference = small_model()
    state = TrainingState(reference, CONFIG)
    with Failing() as card:
        list(training_steps(state, BLOCKS))
    for number in range(5, card.seen, card.seen // 8):
        model = small_model()
        state = TrainingState(model, CONFIG)
        with Failing(number, error=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            list(training_steps(state, BLOCKS))
        list(training_steps(state, BLOCKS))
        assert torch.equal(weights_of(model), weights_of(reference))


TOGETHER = Plan(2, "fp32", True, True, True, True)
PLANS = [Plan(chunked_loss=True), Plan(micro_batch_size=1), Plan(activation_checkpointing=True)]
PLANS += [Plan(offload_activations=True), Plan(offload_optimizer=True), Plan(train_on_host=True), TOGETHER]


@pytest.mark.parametrize(("strategy", "plan"), [*(("full", plan) for plan in PLANS), ("lora", TOGETHER)])
def test_a_plan_changes_how_and_not_what(strategy, plan):
    """Offloading above all must be seen to train: the weights move as they do without it."""
    start, reference, model = small_model(strategy), small_model(strategy), small_model(strategy)
    train(reference, BLOCKS, CONFIG)
    train(model, BLOCKS, CONFIG, plan=plan)
    assert_same(model, weights_of(reference))
    assert not torch.equal(weights_of(model), weights_of(start))


def test_after_recovery_memory_is_what_it_was():
    """Nothing of the failed step is kept alive, by a traceback or otherwise."""
    held = []
    for numbers in ((), (200,), (200, 201, 500)):
        card, model = Failing(*numbers), small_model()
        train_with_fallback(model, BLOCKS, CONFIG, device=card, order=("chunked loss", "smaller micro-batch"))
        held.append(card.current)
        del model
        gc.collect()
        assert card.current <= BLOCKS.nbytes
    assert held[0] == held[1] == held[2]


def test_a_model_that_a_card_cannot_hold_stays_whole_on_the_host():
    """Half of the weights would fit when training has ended there."""
    model = small_model()
    card = virtual_device(memory="1MiB")
    card.budget = sum(p.nbytes for p in model.parameters()) // 2
    train_with_fallback(model, BLOCKS, CONFIG, device=card)
    assert card.current == 0


def test_a_failed_attempt_frees_its_tensors_even_with_a_cause():
    card = virtual_device(memory="1MiB")

    def nested():
        kept = torch.zeros(2**16)
        try:
            torch.zeros(2**20)
        except torch.OutOfMemoryError as error:
            raise RuntimeError("CUDA error: out of memory") from error
        return kept

    with card:
        failure, result = catch_out_of_memory(nested)
        assert failure is not None and result is None and card.current == 0


def test_other_errors_pass_through():
    model = small_model()
    with pytest.raises(RuntimeError, match="device-side assert"):
        train_with_fallback(
            model, BLOCKS, CONFIG, device=Failing(80, error=lambda _: RuntimeError("device-side assert")), order=()
        )
    with pytest.raises(ValueError, match="rung 'magic' is unknown"):
        train_with_fallback(model, BLOCKS, CONFIG, order=("magic",))


def test_an_optimizer_without_moments_is_estimated_without_them():
    model, config = small_model(), dataclasses.replace(CONFIG, optimizer="sgd")
    need, with_moments = (
        estimate_memory(model, batch_size=4, sequence_length=12, optimizer=name).peak for name in ("sgd", "adamw")
    )
    assert need < 0.9 * with_moments
    card = VirtualDevice("between the two", (need + with_moments) // 2)
    _, log = train_with_fallback(model, BLOCKS, config, device=card)
    assert [(attempt.action, attempt.rung) for attempt in log.attempts] == [("training", "as planned")]


def test_when_no_rung_is_left_numbers_say_so():
    with pytest.raises(MemoryError, match="no rung is left after 'chunked loss' at step 1: CUDA out of memory"):
        train_with_fallback(small_model(), BLOCKS, CONFIG, device=Failing(90, 91), order=("chunked loss",))


@pytest.mark.parametrize(
    ("message", "kind", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of", RuntimeError, True),
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", RuntimeError, True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", RuntimeError, True),
        ("MPS backend out of memory (MPS allocated: 17.9 GB, other allocations: 1.2 GB)", RuntimeError, True),
        ("XPU out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of", RuntimeError, True),
        ("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
         "allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)", RuntimeError, True),
        ("[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
         "64000000000 bytes.", RuntimeError, True),
        ("", MemoryError, True),
        ("CUDA error: device-side assert triggered", RuntimeError, False),
        ("out of memory", KeyError, False),
    ],
)  # fmt: skip
def test_out_of_memory_is_told_from_everything_else(message, kind, expected):
    assert is_out_of_memory(kind(message)) is expected


def test_the_real_allocator_is_recognised_and_its_numbers_read():
    failure, _ = catch_out_of_memory(lambda: torch.empty(2**50, dtype=torch.uint8))
    assert failure.bytes_asked == 2**50


def test_an_apple_device_is_emptied_by_its_own_module(monkeypatch):
    """torch.accelerator.empty_cache fails there, up to torch 2.12: running out of memory ended the training."""

    def fails():
        raise RuntimeError("Allocator for mps is not a DeviceAllocator")

    emptied = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr(torch.accelerator, "empty_cache", fails)
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: emptied.append(1))
    failure, _ = catch_out_of_memory(lambda: torch.empty(2**50, dtype=torch.uint8))
    assert failure is not None and emptied == [1]


def test_evaluation_and_generation_survive_too():
    tiny, log = load_model("tiny"), FallbackLog()
    texts, prompts = ["One sentence about traits. " * 20] * 6, ["In Rust,", "A slice", "The borrow checker"]
    expected = perplexity(tiny.model, tiny.tokenizer, texts, context=128)
    continued = generate(tiny.model, tiny.tokenizer, prompts, new_tokens=5)
    before = weights_of(tiny.model)
    for memory, on_host in (("22MiB", False), ("16.2MiB", True)):
        card = virtual_device(memory=memory)
        with card:
            card.count([*tiny.model.parameters(), *tiny.model.buffers()])
        measured = evaluate_with_fallback(
            lambda size: perplexity(tiny.model, tiny.tokenizer, texts, context=128, batch_size=size),
            tiny.model, device=card, log=log,
        )  # fmt: skip
        assert measured.perplexity == pytest.approx(expected.perplexity, rel=1e-6)
        assert (log.attempts[-1].rung == "on the host") is on_host and log.attempts[0].failed_in == "forward pass"
        assert card.peak <= card.budget
        again = evaluate_with_fallback(
            lambda size: generate(tiny.model, tiny.tokenizer, prompts, new_tokens=5, batch_size=size),
            tiny.model, device=card, log=log, name="generation",
        )  # fmt: skip
        assert again == continued
    assert torch.equal(weights_of(tiny.model), before)


@pytest.mark.parametrize(("strategy", "failing"), [("full", (1, 2)), ("full", (3,)), ("lora", (4, 5))])
def test_memory_that_runs_out_in_a_validation_changes_nothing(strategy, failing, monkeypatch):
    """At the first, a middle and the last of four validations, some of them twice in a row."""
    config = dataclasses.replace(CONFIG, evaluate_every=1)
    reference = small_model(strategy)
    expected = train(reference, BLOCKS, config, validation=BLOCKS[:8])
    real, calls = mean_loss, []

    def sometimes(*arguments):
        calls.append(1)
        if len(calls) in failing:
            raise torch.OutOfMemoryError("CUDA out of memory. (planted)")
        return real(*arguments)

    monkeypatch.setattr("tlkit.fitting.fallback.mean_loss", sometimes)
    model = small_model(strategy)
    result, log = train_with_fallback(model, BLOCKS, config, device=Failing(), order=(), validation=BLOCKS[:8])
    assert_same(model, weights_of(reference))
    assert result.validation.validation_loss.tolist() == pytest.approx(
        expected.validation.validation_loss.tolist(), rel=1e-6
    )
    assert sum(a.failed_in != "" for a in log.attempts if a.action == "validation") == len(failing)
    calls.clear()
    plan = Plan(precision="bf16")
    log = train_with_fallback(model, BLOCKS, config, device=Failing(), plan=plan, order=(), validation=BLOCKS[:8])[1]
    assert {attempt.precision for attempt in log.attempts} == {"bf16"}  # also of validations


def test_validation_falls_back_and_the_peak_stays_below_the_budget():
    reference = small_model("last_layers")
    config = TrainingConfig(batch_size=4, evaluate_every=1)
    expected = train(reference, BLOCKS, config, validation=BLOCKS[:8])
    needed = estimate_memory(reference, batch_size=4, sequence_length=BLOCKS.shape[1]).peak / 2**20
    weights = sum(p.nbytes for p in reference.parameters()) / 2**20
    for memory, rung in ((1.01 * needed, "as planned"), (1.05 * weights, "training on the host")):
        model = small_model("last_layers")
        card = virtual_device(memory=f"{memory:.4f}MiB")
        order = ("chunked loss", "training on the host")
        result, log = train_with_fallback(model, BLOCKS, config, device=card, order=order, validation=BLOCKS[:8])
        table = log.table[log.table.action == "training"]
        assert card.peak <= card.budget
        assert card.current >= 2**20 * weights, "the weights are on the card again"
        assert rung == table.rung.iloc[-1]
        assert_same(model, weights_of(reference))
        assert result.validation.validation_loss.tolist() == pytest.approx(
            expected.validation.validation_loss.tolist(), rel=1e-5
        )


def test_what_the_host_cannot_hold_is_refused_with_numbers(monkeypatch):
    here = probe("cpu")
    for module in ("fitting.fallback", "devices"):
        little = dataclasses.replace(here, free_memory=100)
        monkeypatch.setattr(f"tlkit.{module}.probe", lambda kind=None: little)  # noqa: B023 - always the same
    frugal = Plan(1, "bf16", chunked_loss=True, activation_checkpointing=True)
    with pytest.raises(MemoryError, match=r"needs at least [\d.]+ MiB on .* which has [\d.]+ MiB"):
        train_with_fallback(small_model(), BLOCKS, CONFIG, plan=frugal)
    with pytest.raises(MemoryError, match=r"on the host needs [\d.]+ MiB and [\d.]+ MiB"):
        card, order = virtual_device(memory="10KiB"), ("training on the host",)
        train_with_fallback(small_model(), BLOCKS, CONFIG, device=card, order=order)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS bounds the address space on Linux only")
def test_a_process_that_really_runs_out_of_memory_recovers():
    """The C library's allocator refuses, in a process of its own; training ends with the same weights."""
    program = """
        import resource, torch
        from transformers import Qwen2Config, Qwen2ForCausalLM
        from tlkit.fitting.fallback import train_with_fallback
        from tlkit.strategies import apply_strategy
        from tlkit.training import TrainingConfig, train

        torch.set_num_threads(1)
        def model():
            torch.manual_seed(0)
            config = Qwen2Config(vocab_size=8192, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                 num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
            model = Qwen2ForCausalLM(config)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
            return apply_strategy(model, "full").model
        blocks = torch.randint(8192, (32, 256), generator=torch.Generator().manual_seed(0))
        config = TrainingConfig(batch_size=16)
        reference = model()
        train(reference, blocks[:4], config)  # everything torch loads lazily is loaded now
        reference, tried = model(), model()
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000, resource.RLIM_INFINITY))
        result, log = train_with_fallback(tried, blocks, config, order=("smaller micro-batch",))
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        train(reference, blocks, config)
        one, other = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (reference, tried))
        difference = float((one - other).norm() / one.norm())
        assert difference <= 1e-6, difference
        print(log.table[["rung", "failed_in", "steps_done"]].to_csv(index=False))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split(",") for line in done.stdout.split("\n")[1:] if line]
    # In which pass depends on how much of what the first training freed the library has kept.
    assert rows[0] in (["as planned", "forward pass", "0"], ["as planned", "backward pass", "0"])
    assert rows[-1][:2] == ["smaller micro-batch", ""]
    assert sum(int(done) for *_, done in rows) == 2

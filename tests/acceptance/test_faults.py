"""A device with a planted fault: the check that is there for it fails, and says what it found."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from pretended import bench_of_card, driver_of, small_bench
from torch.utils._python_dispatch import TorchDispatchMode

from tlkit import quantization, strategies
from tlkit.acceptance import bench as benches
from tlkit.acceptance import company, counters, fitting, learning
from tlkit.devices import probe
from tlkit.fitting import fallback
from tlkit.fitting.ladder import Rung
from tlkit.memory import VirtualDevice
from tlkit.prefix_cache import PrefixCache
from tlkit.steps import Plan, TrainingState

aten = torch.ops.aten


@pytest.fixture(scope="module")
def bench():
    """Of a processor, with what is expected computed before any fault is there."""
    bench = small_bench()
    for strategy, options in (("full", {}), ("lora", {}), ("last_layers", {"train_norms": False})):
        bench.reference(strategy, **options)
    return bench


@pytest.fixture
def small(bench):
    """A virtual card."""
    return replace(bench, device=VirtualDevice("small", 96 * 2**20))


@pytest.fixture(autouse=True)
def fewer(monkeypatch):
    monkeypatch.setattr(fitting, "PLANS", {name: fitting.PLANS[name] for name in ("as planned", *fitting.OFFLOADS)})
    monkeypatch.setattr(fitting, "ADAPTER_PLANS", ())


class Faulty(TorchDispatchMode):
    """A device that computes one operator wrongly."""

    def __init__(self, operator, fault) -> None:
        super().__init__()
        self.operator, self.fault = operator, fault

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is self.operator:
            return self.fault(function, *args, **kwargs or {})
        return function(*args, **kwargs or {})


def in_tf32(function, left, right):
    """10 of the 23 bits are left, as on a card with TF32."""
    if left.dtype is torch.float32:
        left, right = ((x.view(torch.int32) + 2**12 & -(2**13)).view(torch.float32) for x in (left, right))
    return function(left, right)


def in_seven_parts(function, left, right):
    """The same sums in another order, as kernels of cards add them up."""
    size = -(-left.shape[1] // 7)
    parts = zip(left.split(size, 1), right.split(size, 0), strict=True)
    return sum(function(x.contiguous(), y.contiguous()) for x, y in reversed(list(parts)))


def slightly_more(function, *args, **kwargs):
    loss, weight = function(*args, **kwargs)
    return loss * 1.0001, weight


def forgets_embeddings(function, *args, **kwargs):
    return function(*args, **kwargs) * 0


def test_a_product_in_tf32_is_found(bench):
    assert learning.arithmetic(bench).status == "passed"
    with Faulty(aten.mm.default, in_tf32):
        assert learning.arithmetic(bench).status == "failed"


@pytest.mark.parametrize("strategy", ["full", "lora"])
def test_another_order_of_additions_is_no_fault(bench, strategy):
    """With room to spare: of the tolerance, it takes a tenth at most."""
    with Faulty(aten.mm.default, in_seven_parts):
        figures = learning.training(bench, strategy).figures
        assert learning.arithmetic(bench).status == "passed"
    assert 0 < figures["difference"] <= figures["allowed"] / 10


@pytest.mark.parametrize(
    ("operator", "fault"),
    [
        (aten.nll_loss_forward.default, slightly_more),
        (aten.embedding_dense_backward.default, forgets_embeddings),
        (aten._fused_adamw_.default, lambda *_, **__: None),
        (aten.mm.default, in_tf32),
    ],
)
def test_a_device_whose_losses_are_wrong_is_found(bench, operator, fault):
    with Faulty(operator, fault):
        check = learning.training(bench, "full")
    assert check.status == "failed" and check.figures["difference"] > check.figures["allowed"], check


def test_losses_that_are_no_numbers_are_found(bench):
    lost = Faulty(aten.nll_loss_forward.default, lambda *_, **__: (torch.tensor(torch.nan), torch.tensor(1.0)))
    with lost, pytest.raises(FloatingPointError):  # a row of its own in the record
        learning.training(bench, "full")
    assert benches.largest_gap([1.0, float("nan")], [1.0, 1.0]) == float("inf")


def test_a_tolerance_is_a_small_share_of_what_training_changes(bench):
    for strategy in ("full", "lora"):
        reference = bench.reference(strategy)
        assert reference.tolerance <= 0.02 * reference.change and reference.tolerance < 1e-3


def run_as(monkeypatch, other):
    """Let `other(bench, plan, device)` choose the plan of each run."""
    run = benches.Bench.run

    def chosen(self, model, config, plan=None, device=None, host=None):
        return run(self, model, config, other(self, plan or Plan(), device), device, host)

    monkeypatch.setattr(benches.Bench, "run", chosen)


def test_a_device_that_ignores_bf16_is_found(bench, monkeypatch):
    assert learning.bf16(bench).status == "passed"
    run_as(monkeypatch, lambda bench, plan, device: plan if device is bench.host else Plan())
    check = learning.bf16(bench)
    assert check.status == "failed" and "bf16 was not used" in check.found


def test_a_coarser_quantisation_is_found(bench, monkeypatch):
    apply = strategies.apply_strategy

    def coarser(model, name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quantization, "BLOCK", 128)
            return apply(model, name)

    monkeypatch.setattr(strategies, "apply_strategy", coarser)
    check = learning.four_bits(bench)
    assert check.status == "failed" and check.figures["error_ratio"] > 1.01


@pytest.mark.parametrize("fault", ["altered", "unused"])
def test_a_prefix_that_is_altered_or_never_used_is_found(bench, monkeypatch, fault):
    keep = PrefixCache.keep
    faults = {
        "altered": lambda self, key, states: keep(self, key, states * 1.001),
        "unused": lambda self, key, states: keep(self, (*key, self._files, len(self._states)), states),
    }
    monkeypatch.setattr(PrefixCache, "keep", faults[fault])
    try:
        assert learning.frozen_prefix(bench).status == "failed"
    except KeyError:  # the states that it looks for are not there: a row of its own in the record
        assert fault == "unused"


def test_a_checkpoint_that_loses_the_optimizer_is_found(bench, monkeypatch):
    from tlkit.checkpoints import folder

    put_back = folder._put_back

    def forgetful(content, tensors, state, journal):
        put_back(content, tensors, state, journal)
        state.optimizer.state.clear()

    monkeypatch.setattr(folder, "_put_back", forgetful)
    assert learning.checkpoints(bench).status == "failed"


def test_a_checkpoint_that_is_not_found_is_one_that_failed(bench, monkeypatch):
    """Otherwise all steps would be taken again, with the right losses."""
    from tlkit.checkpoints.folder import Checkpoints

    monkeypatch.setattr(Checkpoints, "restore", lambda *_: None)
    assert learning.checkpoints(bench).status == "failed"


def test_generation_that_differs_is_found(bench, monkeypatch):
    monkeypatch.setattr(learning, "generate", lambda *_, **__: ["In Rust, something else"] * 3)
    check = learning.generation(bench)
    assert check.status == "failed" and check.found.startswith("0 of 3 texts the same, logits differ by 0.0")


def test_logits_that_differ_are_found_though_the_text_is_the_same(bench, monkeypatch):
    def altered(model, device):
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(1.0001)

    monkeypatch.setattr(learning, "move_to_device", altered)
    check = learning.generation(bench)
    assert check.status == "failed" and check.found.startswith("3 of 3 texts the same")


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_an_estimate_that_is_off_by_30_percent_is_found(bench, small, monkeypatch, factor):
    estimate = fitting.estimate_memory

    def wrong(*args, **kwargs):
        return SimpleNamespace(peak=estimate(*args, **kwargs).peak * factor)

    monkeypatch.setattr(fitting, "PLANS", {"as planned": Plan()})
    monkeypatch.setattr(fitting, "estimate_memory", wrong)
    for one in (bench, small):
        check = fitting.estimate_of_tensors(one)
        assert check.status == "failed" and f"{factor:.3f} to {factor:.3f}" in check.found


@pytest.mark.parametrize(("counts", "status"), [(1.05, "passed"), (1.3, "failed"), (0.7, "failed")])
def test_the_estimate_is_held_against_the_counter_of_the_device(bench, monkeypatch, counts, status):
    monkeypatch.setattr(fitting, "PLANS", {"as planned": Plan()})
    with driver_of(card := bench_of_card(bench), monkeypatch, counts):
        assert fitting.estimate_of_device(card).status == status


def test_offloading_that_does_not_happen_is_found(bench, small, monkeypatch):
    assert fitting.offloading(small).status == "passed"
    monkeypatch.setattr(TrainingState, "apply_plan", lambda self, plan: None)
    check = fitting.offloading(small)
    assert check.status == "failed" and "beside the weights on the card" in check.found


def test_weights_that_are_not_copied_back_are_found(small, monkeypatch):
    monkeypatch.setattr(TrainingState, "_copy_back", lambda self: None)
    assert fitting.offloading(small).status == "failed"


def skipping(descend):
    left_out = "activation checkpointing"
    return lambda *args, **kwargs: (rung for rung in descend(*args, **kwargs) if rung.name != left_out)


def repeating_a_step(take):
    """Each refusal costs a step that was done."""

    def steps(state, blocks, config, rung, rungs, device, log, progress):
        for record in take(state, blocks, config, rung, rungs, device, log, progress):
            yield replace(record, step=max(1, record.step - 1))

    return steps


def straight_to_the_host(descend):
    def only(*args, **kwargs):
        first, *others = descend(*args, **kwargs)
        yield first
        yield next(rung for rung in others if rung.plan.train_on_host)

    return only


@pytest.mark.parametrize(
    ("name", "fault", "said"),
    [
        ("descend", skipping, "the rungs were as planned, chunked loss, smaller micro-batch"),
        ("descend", straight_to_the_host, "the rungs were as planned, training on the host"),
        ("steps_with_fallback", repeating_a_step, "the steps were 1, 1, 2"),
    ],
)
def test_a_ladder_that_is_not_walked_rung_by_rung_is_found(small, monkeypatch, name, fault, said):
    monkeypatch.setattr(fitting, "SHARES", (0.25,))
    monkeypatch.setattr(fallback, name, fault(getattr(fallback, name)))
    check = fitting.out_of_memory(small)
    assert check.status == "failed" and f"with 25%, {said}" in check.found, check


def test_a_device_with_a_driver_walks_the_ladder_too(bench, monkeypatch):
    """What runs on a real device and nowhere here: its memory is limited, counted, and given back."""
    monkeypatch.setattr(fitting, "SHARES", (0.25,))
    with driver_of(card := bench_of_card(bench), monkeypatch) as driver:
        check = fitting.out_of_memory(card)
        assert check.status == "passed" and check.figures["refusals"] >= 6, check
        assert driver.budget == 2**40


@pytest.mark.parametrize("fault", ["never refuses", "keeps memory", "has no limit"])
def test_a_driver_that_does_not_do_its_part_is_found(bench, monkeypatch, fault):
    monkeypatch.setattr(fitting, "SHARES", (0.25,))
    leak, train = [], fitting.train_with_fallback

    def leaking(*args, **kwargs):
        leak.append(torch.zeros(2**19))
        return train(*args, **kwargs)

    with driver_of(card := bench_of_card(bench), monkeypatch) as driver:
        if fault == "never refuses":
            monkeypatch.setattr(driver, "admit", lambda size: None)
            said = "nothing was refused, so nothing was tested"
        elif fault == "keeps memory":
            monkeypatch.setattr(fitting, "train_with_fallback", leaking)
            said = "2.00 MiB were not given back"
        else:
            monkeypatch.setattr(counters, "can_be_limited", lambda device: False)
            check = fitting.out_of_memory(card)
            assert check.status == "skipped" and "cannot limit the memory" in check.reason
            return
        check = fitting.out_of_memory(card)
    assert check.status == "failed" and said in check.found, check


def test_a_step_that_is_lost_is_found():
    log = fitting.FallbackLog()
    log.tried("training", probe("cpu"), Rung("as planned", Plan()), steps_done=2)
    problems = fitting.problems_of(fitting.Walk([1.0, 1.0], [1, 3], log, home=False))
    assert problems == [
        "nothing was refused, so nothing was tested",
        "the steps were 1, 3",
        "the weights are not on the device afterwards",
    ]


@pytest.mark.parametrize(("processes", "more"), [(1, 0.0), (2, 0.01)])
def test_two_processes_that_are_one_or_differ_are_found(bench, monkeypatch, processes, more):
    losses = [loss + more for loss in bench.reference("full").losses[:-1]]
    found = {"processes": processes, "backend": "gloo", "losses": {"ddp": losses}}
    monkeypatch.setattr(company, "_run_two", lambda kind, tokens: found)
    assert company.two_processes(bench).status == "failed"


def test_processes_that_end_say_why(monkeypatch):
    monkeypatch.setattr(company, "LAUNCH", "raise OSError('no such address')")
    with pytest.raises(RuntimeError, match="ended with 1: OSError: no such address"):
        company._run_two("cpu", 16)


def test_other_work_than_the_trainers_is_found(bench, monkeypatch):
    losses = [3.0] * 12
    monkeypatch.setattr(company, "_by_tlkit", lambda *_: (losses, [1.0] * 12, float("nan")))
    monkeypatch.setattr(company, "_by_trainer", lambda *_: ([*losses[:-1], 3.01], [2.0] * 12, float("nan")))
    check = company.beside_trainer(bench)
    assert check.status == "failed" and "1000.0 ms a step, the Trainer 2000.0 ms" in check.found


class Module:
    """What torch has for a kind of device, with a card of 1,000 bytes."""

    def __init__(self) -> None:
        self.fraction, self.emptied, self.reset = 0.8, 0, 0

    def get_device_properties(self):
        return SimpleNamespace(total_memory=1000)

    def get_per_process_memory_fraction(self):
        return self.fraction

    def set_per_process_memory_fraction(self, fraction):
        assert isinstance(fraction, float)
        self.fraction = fraction

    def empty_cache(self):
        self.emptied += 1

    def reset_peak_memory_stats(self):
        self.reset += 1

    def memory_allocated(self):
        return 100

    def memory_reserved(self):
        return 200

    def max_memory_allocated(self):
        return 300


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_limit_is_set_by_torch_and_taken_back(monkeypatch, kind):
    module, device = Module(), replace(probe("cpu"), kind=kind)
    monkeypatch.setattr(torch, "get_device_module", lambda asked: module if asked == kind else None)
    assert counters.can_be_limited(device)
    assert (counters.held(device), counters.reserved(device)) == (100, 200)
    with counters.peak_counted(device) as peak:
        assert peak() == 300 and module.reset == 1
    with pytest.raises(RuntimeError, match="planted"), counters.limited(device, 250):
        assert module.fraction == 0.25 and module.emptied == 1
        raise RuntimeError("planted")
    assert module.fraction == 0.8
    with counters.limited(device, 5000):
        assert module.fraction == 1.0


def test_apples_limit_is_a_share_of_what_its_system_recommends(monkeypatch):
    device, fractions, held = replace(probe("cpu"), kind="mps"), [], iter([5, 9, 7, 6])
    monkeypatch.delenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", raising=False)
    for name, value in {
        "recommended_max_memory": lambda: 1000,
        "set_per_process_memory_fraction": fractions.append,
        "empty_cache": lambda: None,
        "current_allocated_memory": lambda: next(held),
        "driver_allocated_memory": lambda: 40,
    }.items():
        monkeypatch.setattr(torch.mps, name, value)
    with counters.limited(device, 250):
        assert fractions == [0.25]
    assert fractions == [0.25, 1.7], "what torch sets where nothing else is said"
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.9")
    with counters.limited(device, 250):
        pass
    assert fractions[-1] == 0.9 and counters.reserved(device) == 40
    with counters.peak_counted(device) as peak:  # 5 before, then 9 and 7 after two operations
        torch.ones(2) + 1
        assert peak() == 9


def test_an_apple_device_is_emptied_by_its_own_module(monkeypatch):
    """torch.accelerator.empty_cache fails there, up to torch 2.12: running out of memory ended the training."""
    from tlkit.fitting.out_of_memory import catch_out_of_memory

    def fails():
        raise RuntimeError("Allocator for mps is not a DeviceAllocator")

    emptied = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr(torch.accelerator, "empty_cache", fails)
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: emptied.append(1))
    failure, _ = catch_out_of_memory(lambda: torch.empty(2**50, dtype=torch.uint8))
    assert failure is not None and emptied == [1]

"""Blocks compiled by torch: the same losses and gradients, the model as it was, and said clearly where it cannot be."""

from dataclasses import replace

import pytest
import torch
from same_steps import BLOCKS, ROUNDING, as_trained, assert_same, step, with_lora
from small_models import small_model
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from tlkit.adapters import base_model
from tlkit.cli import main
from tlkit.fitting.estimate import estimate_memory
from tlkit.memory import track_memory
from tlkit.models import compilation
from tlkit.models.compilation import compiled, refuse_without_compiler
from tlkit.prefix import cached_prefix
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy, find_blocks
from tlkit.training import TrainingConfig, train

PLAIN, COMPILED, BF16 = Plan(), Plan(compiled_blocks=True), Plan(precision="bf16")
TOLERANCE = ROUNDING[torch.float32]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing compiled yet; the other tests compile nothing at all (conftest.py)."""
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def traced(monkeypatch):
    """Blocks are traced and divided as ever, but torch's own kernels carry them out: no C++ is compiled for seconds."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward, **_: whole(forward, backend="aot_eager"))


def programs() -> int:
    return counters["stats"].get("unique_graphs", 0)


def test_losses_and_gradients_are_those_of_blocks_that_are_not_compiled():
    """Also what dropout draws."""
    model = with_lora(blocks=1, dropout=0.3)
    expected = step(model, PLAIN)
    assert not programs()
    assert_same(step(model, COMPILED), expected, TOLERANCE)
    assert programs() and step(model, PLAIN, seed=4)[0].ne(expected[0]).any()


@pytest.mark.parametrize("kind", ["gpt2", "gemma2", "mixtral"])
def test_other_architectures_can_be_traced(kind, traced):
    """With matrices stored transposed, with more norms, and with experts, around which torch divides a block."""
    model = with_lora(kind, blocks=1)
    expected = step(model, PLAIN)
    assert_same(step(model, COMPILED), expected, TOLERANCE)
    assert programs()


@pytest.mark.parametrize("strategy", ["full", "prefix_tuning", "qlora"])
def test_it_goes_with_other_strategies(strategy, traced):
    torch.manual_seed(2)
    model = as_trained(apply_strategy(small_model("llama", num_hidden_layers=1), strategy).model)
    expected = step(model, PLAIN)
    assert_same(step(model, COMPILED), expected, TOLERANCE)
    assert programs()


@pytest.mark.parametrize(
    "plan",
    [
        Plan(micro_batch_size=4),  # and one of two
        Plan(chunked_loss=True, fused_lora=True, activation_checkpointing=True),
        Plan(offload_activations=True),
    ],
)
def test_it_goes_with_every_other_choice_of_a_plan(plan, traced):
    """With dropout both draw the same random numbers, also where activations are computed again."""
    model = with_lora(blocks=1, dropout=0.3)
    expected = step(model, plan)
    assert_same(step(model, replace(plan, compiled_blocks=True)), expected, TOLERANCE)
    assert programs() and step(model, plan, seed=4)[0].ne(expected[0]).any()


def test_under_autocast_it_is_as_close_to_fp32():
    """What is one pass is rounded once, at its end. How far rounding leads is chance: within a quarter."""
    model = with_lora(blocks=1)
    exact, usual, one_pass = (step(model, plan) for plan in (PLAIN, BF16, replace(BF16, compiled_blocks=True)))

    def distance(found: tuple) -> float:
        return sum(float((found[1][name] - gradient).square().sum()) for name, gradient in exact[1].items()) ** 0.5

    assert programs() and 0 < distance(one_pass) < 1.25 * distance(usual)


def test_blocks_that_are_alike_share_a_program_and_another_step_makes_no_new_one(traced):
    model = with_lora()
    step(model, COMPILED)
    # The first block's input needs no gradient, as the embedding is frozen; those of all others do.
    assert programs() == 2
    step(model, COMPILED)
    assert programs() == 2


def test_where_tensors_are_counted_blocks_are_computed_as_usual():
    model = with_lora()
    peaks = []
    for plan in (PLAIN, COMPILED):
        with track_memory(model) as track:
            found = step(model, plan)
        peaks.append(track.peak)
    assert not programs() and peaks[0] == peaks[1] and found[1]
    estimates = [estimate_memory(model, batch_size=6, sequence_length=12, plan=plan) for plan in (PLAIN, COMPILED)]
    assert not programs() and estimates[0] == estimates[1]


def test_the_model_is_as_before_afterwards_and_after_a_failure():
    model = with_lora()
    names = list(model.state_dict())
    blocks = find_blocks(base_model(model))
    with pytest.raises(RuntimeError, match="planted"), compiled(blocks):
        assert all("forward" in vars(block) for block in blocks)
        raise RuntimeError("planted")
    assert not any("forward" in vars(module) for module in model.modules()) and list(model.state_dict()) == names


def test_a_block_with_a_forward_pass_of_its_own_keeps_it(traced):
    model = with_lora(blocks=2)
    block = find_blocks(base_model(model))[1]
    usual, calls = block.forward, []

    def noted(*args, **kwargs):
        calls.append(len(args))
        return usual(*args, **kwargs)

    block.forward = noted
    expected = step(model, PLAIN)
    assert_same(step(model, COMPILED), expected, TOLERANCE)
    assert len(calls) == 2 and block.forward is noted and programs()


def test_a_run_in_phases_over_a_kept_prefix_ends_with_the_same_weights(traced):
    """Six steps of SGD, which rounding moves no further than a gradient is rounded."""
    config = TrainingConfig(1e-2, epochs=3, batch_size=3, optimizer="sgd")
    models = []
    for plan in (PLAIN, COMPILED):
        models.append(apply_strategy(small_model("llama"), "gradual_unfreezing").model)
        with cached_prefix(models[-1]):
            train(models[-1], BLOCKS, config, plan=plan)
        assert bool(programs()) == plan.compiled_blocks
    untouched = small_model("llama")
    moved = 0
    for (name, found), right, start in zip(
        models[1].named_parameters(), models[0].parameters(), untouched.parameters(), strict=True
    ):
        torch.testing.assert_close(found, right, rtol=0, atol=1e-6, msg=name)
        moved += not torch.equal(right, start)
    assert moved


def test_a_run_goes_on_from_a_checkpoint_without_it(tmp_path, traced):
    config = TrainingConfig(1e-4, epochs=3, batch_size=3)
    expected = train(with_lora(blocks=1), BLOCKS, config).history.loss
    train(with_lora(blocks=1), BLOCKS, config, plan=COMPILED, checkpoint_dir=tmp_path, every=2)
    for path in tmp_path.glob("step-00000006.*"):  # as if it had ended in the fourth step
        path.unlink()
    result = train(with_lora(blocks=1), BLOCKS, config, checkpoint_dir=tmp_path, every=2, resume=True)
    assert programs() and result.history.loss.tolist() == pytest.approx(expected.tolist(), rel=TOLERANCE)


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """A machine without a C++ compiler, on which nothing was compiled before."""
    compilation._why_not.cache_clear()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with inductor.patch({"cpp.cxx": ("no-such-compiler",), "fx_graph_cache": False}):
        yield
    compilation._why_not.cache_clear()


def test_without_a_compiler_it_is_refused_before_any_work(no_compiler):
    model = with_lora()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"^compiled_blocks: .* on cpu .*no-such-compiler.*leave compiled_blocks out$"):
        train(model, BLOCKS, TrainingConfig(), plan=COMPILED)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_command_line_says_so_in_one_line(no_compiler, tmp_path, capsys):
    line = ["train", "--strategy", "lora", "--profile", "ci", "--compiled-blocks", "--output", str(tmp_path / "out")]
    assert main(line) == 2
    assert capsys.readouterr().err.count("compiled_blocks: ") == 1


def test_a_program_that_cannot_be_made_after_all_is_one_line_and_the_model_stays(no_compiler):
    model = with_lora()
    with pytest.raises(ValueError, match=r"^compiled_blocks: torch cannot compile these blocks: .*no-such-compiler"):
        step(model, COMPILED)
    assert not any("forward" in vars(module) for module in model.modules())
    step(model, PLAIN)


def test_what_can_be_compiled_is_not_refused():
    refuse_without_compiler(torch.device("cpu"))


def test_a_model_without_blocks_of_its_own_is_refused_before_any_work():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = small_model("llama").config
            self.head = nn.Linear(2, 2)

    with pytest.raises(ValueError, match="Flat is not supported"):
        train(Flat(), BLOCKS, TrainingConfig(), plan=COMPILED)

"""The step on architectures other than the bundled one: gradients, chunked losses, random numbers, faults."""

import copy
import math
from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.fitting.estimate import estimate_memory
from tlkit.memory import MemoryTrack
from tlkit.models.parts import find_blocks
from tlkit.settings import Plan
from tlkit.steps import (
    NothingToTrain,
    TrainingState,
    accumulate_gradients,
    chunked_loss_agrees,
    mean_loss,
    summed_loss,
    take_step,
)
from tlkit.strategies import apply_strategy, strategy
from tlkit.training import TrainingConfig, train

BLOCKS = torch.randint(97, (8, 12), generator=torch.Generator().manual_seed(0))
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
LLAMA = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
GPT2 = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "image_size": 16,
}


def small(kind: str, **settings) -> torch.nn.Module:
    """A model of that architecture with two blocks and random weights."""
    config = AutoConfig.for_model(kind, **TOKENS | (GPT2 if kind == "gpt2" else LLAMA) | settings)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


# The weights of the head are multiplied by this, so that logits are as large as those of a trained model.
AS_TRAINED = 300


@pytest.mark.parametrize(
    ("kind", "settings", "agrees"),
    [
        ("gpt2", {}, True),
        ("mixtral", {"num_local_experts": 4, "output_router_logits": True}, True),
        ("gemma2", {"head_dim": 8}, False),
        ("gemma2", {"head_dim": 8, "final_logit_softcapping": None}, True),
        ("granite", {"logits_scaling": 8.0}, False),
        ("bert", {"is_decoder": True}, False),
    ],
)
def test_the_structure_says_whether_the_loss_can_be_computed_in_pieces(kind, settings, agrees):
    model = small(kind, **settings).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert chunked_loss_agrees(model) is agrees  # at weights where no cap bites yet
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module.training or "forward" in vars(module) for module in model.modules())
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(AS_TRAINED)
    losses = [mean_loss(model, BLOCKS, Plan(chunked_loss=chunked)) for chunked in (False, True)]
    # Relative 1e-5: fp32, the same sums in another order.
    assert math.isclose(*losses, rel_tol=1e-5) is agrees
    if not agrees:
        with pytest.raises(ValueError, match="chunked_loss: .* changes its logits behind the head"):
            train(model.requires_grad_(True), BLOCKS, plan=Plan(chunked_loss=True))


@pytest.mark.parametrize(("weights", "precision"), [(torch.bfloat16, "fp32"), (torch.float32, "bf16")])
def test_the_loss_in_pieces_rounds_as_the_whole_one_does_in_bf16(weights, precision):
    """Relative 1e-6: the same logits; sums in bf16 would be off by thousandths, products in fp32 by ten-thousandths.

    Gradients are rounded to 8 bits before they are added up.
    """
    model, logits = small("llama").to(weights), []
    model.get_output_embeddings().register_forward_hook(lambda *_: logits.append(1))
    plans = [Plan(precision=precision, chunked_loss=chunked) for chunked in (False, True)]
    with patch("tlkit.steps.LOSS_CHUNK_TOKENS", 10):
        whole, pieces = (summed_loss(model, BLOCKS, plan) for plan in plans)
        gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in (whole, pieces)]
    assert pieces.dtype == torch.float32 and pieces.item() == pytest.approx(whole.item(), rel=1e-6)
    assert len(logits) == 1 + math.ceil(BLOCKS[:, 1:].numel() / 10), "the backward pass computes none again"
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() <= 2**-6 * one.abs().max()


def test_adapters_are_no_obstacle_unless_they_change_the_head():
    assert chunked_loss_agrees(apply_strategy(small("llama"), "lora").model)
    assert not chunked_loss_agrees(apply_strategy(small("llama"), "lora", targets=["lm_head"]).model)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("git", {"vision_config": VISION}),  # shifts labels itself, whatever it is told
        ("mixtral", {"num_local_experts": 4, "output_router_logits": True}),  # adds a loss of its routers
        ("gpt2", {}),
    ],
)
def test_the_loss_is_that_of_the_next_token(kind, settings):
    """Relative 1e-5: float64 here, fp32 there."""
    model = small(kind, **settings).eval()
    found = mean_loss(model, BLOCKS)
    with torch.no_grad():
        scores = model(input_ids=BLOCKS).logits.double().log_softmax(-1)
    expected = -sum(scores[row, place, BLOCKS[row, place + 1]] for row in range(8) for place in range(11)) / 88
    assert found == pytest.approx(expected.item(), rel=1e-5)


def snapshot(state) -> list[torch.Tensor]:
    """All that a step may change."""
    moments = [value.clone() for kept in state.optimizer.state.values() for value in kept.values()]
    return [*(p.detach().clone() for p in state.parameters), *moments, torch.tensor(state.step)]


@pytest.mark.parametrize(("planted", "taken"), [(math.nan, 0), (-math.inf, 2)])
def test_a_gradient_that_is_not_finite_changes_nothing(planted, taken):
    """The loss is as good as ever; only the backward pass is poisoned, in one value of one tensor.

    Nor the number of updates of a weight that has had fewer than others, as an expert has that got no token.
    """
    model, undisturbed = (small("llama") for _ in range(2))
    state, other = (TrainingState(m, TrainingConfig(1e-2)) for m in (model, undisturbed))
    for number in range(taken):
        for one in (model, undisturbed):
            one.model.layers[1].mlp.up_proj.weight.requires_grad_(number > 0)
        take_step(state, BLOCKS, 1e-2)
        take_step(other, BLOCKS, 1e-2)
    before = snapshot(state)

    def poison(gradient):
        poisoned = gradient.clone()
        poisoned.view(-1)[5] = planted
        return poisoned

    hook = model.model.layers[0].mlp.up_proj.weight.register_hook(poison)
    with pytest.raises(FloatingPointError, match=f"gradient .* at step {taken + 1}.*learning rate below 0.01"):
        take_step(state, BLOCKS, 1e-2)
    after = snapshot(state)
    assert len(before) == len(after) and all(map(torch.equal, before, after))
    assert all(p.grad is None for p in model.parameters())
    hook.remove()
    take_step(state, BLOCKS, 1e-2)
    take_step(other, BLOCKS, 1e-2)
    assert all(map(torch.equal, snapshot(state), snapshot(other)))


MODEL = small("llama")


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 7), tokens=st.integers(2, 9), micro=st.integers(1, 8), chunked=st.booleans())
def test_micro_batches_of_any_size_give_the_gradients_of_the_whole_batch(rows, tokens, micro, chunked):
    """Against one plain pass over the mean loss. 1e-5 of the largest value: sums in another order, fp32."""
    batch = torch.randint(97, (rows, tokens), generator=torch.Generator().manual_seed(rows * 100 + tokens))
    MODEL.zero_grad()
    loss = functional.cross_entropy(MODEL(input_ids=batch).logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    expected = [p.grad.clone() for p in MODEL.parameters()]
    MODEL.zero_grad()
    with patch("tlkit.steps.LOSS_CHUNK_TOKENS", 5):
        losses = accumulate_gradients(MODEL, batch, Plan(micro_batch_size=micro, chunked_loss=chunked))
    assert len(losses) == math.ceil(rows / micro)
    assert sum(losses).item() == pytest.approx(loss.item(), rel=1e-5)
    for parameter, gradient in zip(MODEL.parameters(), expected, strict=True):
        assert (parameter.grad - gradient).abs().max() <= 1e-5 * max(gradient.abs().max(), 1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("strategy", ["full", "qlora"])
def test_counting_memory_changes_no_result(strategy, precision):
    """Bit for bit. The operator for 4-bit weights is made of others, and autocast reaches into it."""
    results = []
    for counting in (nullcontext(), MemoryTrack()):
        model = small("qwen2")
        state = TrainingState(apply_strategy(model, strategy).model, TrainingConfig())
        state.apply_plan(Plan(precision=precision))
        with counting:
            records = [take_step(state, BLOCKS, 1e-2) for _ in range(2)]
        results.append([*snapshot(state), torch.tensor([(r.loss, r.gradient_norm) for r in records])])
    assert all(map(torch.equal, *results))


class _NoFloat64(TorchDispatchMode):
    """Like Apple's GPUs, which have no numbers of 64 bits with a fraction."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
                raise TypeError(f"{function}: no float64 on this device")
        return result


def test_training_needs_no_float64():
    plan = Plan(2, "bf16", True, True, offload_activations=True, offload_optimizer=True)
    with pytest.raises(TypeError, match="float64"), _NoFloat64():
        torch.ones(1).double()
    with _NoFloat64():
        result = train(small("llama"), BLOCKS, TrainingConfig(batch_size=4), plan=plan, validation=BLOCKS[:2])
    assert len(result.history) == 2


def above_a_cut(model: torch.nn.Module) -> None:
    find_blocks(model)[0].requires_grad_(True)
    find_blocks(model)[1].register_forward_pre_hook(lambda module, inputs: (inputs[0].detach(), *inputs[1:]))


def test_a_weight_that_nothing_uses_is_not_trained_in_silence():
    """With checkpointing the loss requires a gradient all the same, which arrives at the embeddings alone."""
    model = small("llama").requires_grad_(False)
    model.unused = torch.nn.Parameter(torch.zeros(2))
    for plan in (Plan(), Plan(activation_checkpointing=True)):
        with pytest.raises(NothingToTrain):
            train(model, BLOCKS, TrainingConfig(batch_size=4), plan=plan)


@pytest.mark.usefixtures("registry_as_before")
@pytest.mark.parametrize("plan", [Plan(micro_batch_size=2), Plan(chunked_loss=True)], ids=str)
def test_where_no_gradient_can_arrive_the_first_step_says_so(plan):
    strategy("mine")(above_a_cut)
    model = apply_strategy(small("llama"), "mine").model
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(NothingToTrain, match="the loss depends on no trainable tensor"):
        estimate_memory(model, batch_size=4, sequence_length=12, plan=plan)
    with pytest.raises(NothingToTrain, match="the loss depends on no trainable tensor"):
        train(model, BLOCKS, TrainingConfig(batch_size=4), plan=plan)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())

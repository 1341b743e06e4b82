"""LoRA whose wide output is written once: peft's own losses and gradients, and peft itself for all else."""

from dataclasses import replace

import peft
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft.tuners.lora.layer import Linear
from safetensors.torch import load_file
from same_steps import BLOCKS, ROUNDING, as_trained, assert_same, step, with_lora
from small_models import ARCHITECTURES, small_model
from torch import nn

from tlkit import adapters
from tlkit.adapters import fused_lora
from tlkit.models import load_model, save_model
from tlkit.steps import Plan, take_step
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, new_state, train

PLAIN, FUSED = Plan(), Plan(fused_lora=True)
BF16, BF16_FUSED = Plan(precision="bf16"), Plan(precision="bf16", fused_lora=True)


@pytest.fixture
def fused(monkeypatch) -> list:
    """An entry for each product that peft did not carry out."""
    calls, real = [], adapters._adapted_linear

    def noted(*arguments):
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(adapters, "_adapted_linear", noted)
    return calls


# GPT-2 keeps its matrices transposed, and the layers of Falcon have a forward pass of their own.
OWN_LAYERS = ("gpt2", "falcon")


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_architecture_has_the_losses_and_gradients_of_peft(kind, fused):
    for dtype, tolerance in ROUNDING.items():
        model = with_lora(kind, dtype)
        expected = step(model, PLAIN)
        assert not fused
        assert_same(step(model, FUSED), expected, tolerance)
        linear = [m for m in model.modules() if type(m) is Linear and type(m.base_layer) is nn.Linear]
        assert len(fused) == len(linear) and bool(linear) == (kind not in OWN_LAYERS)
        fused.clear()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(
    "plan",
    [
        Plan(micro_batch_size=2),
        Plan(chunked_loss=True),
        Plan(activation_checkpointing=True),
        Plan(micro_batch_size=1, activation_checkpointing=True, offload_activations=True),
    ],
)
def test_it_goes_with_every_other_choice_of_a_plan(plan, dropout, fused):
    """With dropout both draw the same random numbers, also where activations are computed again."""
    model = with_lora(dtype=torch.float64, dropout=dropout)
    expected = step(model, plan)
    assert_same(step(model, replace(plan, fused_lora=True)), expected, 1e-10)
    assert fused and all((call[1] is not None) == (dropout > 0) for call in fused)
    assert step(model, plan, seed=4)[0].ne(expected[0]).any() == (dropout > 0)


def test_under_autocast_it_is_as_close_to_fp32_as_peft(fused):
    """Nothing is rounded that peft does not round too. How far that leads is chance, within a tenth for four draws."""
    model = with_lora(r=16, dropout=0.2)

    def distance(found: tuple, exact: tuple) -> float:
        parts = [(found[1][name] - gradient, gradient) for name, gradient in exact[1].items()]
        return float(sum(part.norm() ** 2 for part, _ in parts) / sum(part.norm() ** 2 for _, part in parts)) ** 0.5

    distances = []
    for seed in range(4):
        exact, plain, quick = (step(model, plan, seed) for plan in (PLAIN, BF16, BF16_FUSED))
        assert all(gradient.dtype == torch.float32 for gradient in quick[1].values())
        assert quick[0].item() == pytest.approx(exact[0].item(), rel=2**-9)  # of one rounding to bf16
        distances.append([distance(quick, exact), distance(plain, exact)])
    assert len(fused) == 4 * 3 * 7 and {call[0].dtype for call in fused} == {torch.bfloat16}
    quick, plain = torch.tensor(distances).mean(0)
    assert 1e-3 < quick < 1.1 * plain


class Alone(nn.Module):
    """One layer, and an embedding before it."""

    def __init__(self, inputs: int = 6, outputs: int = 9, bias: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, inputs)
        self.layer = nn.Linear(inputs, outputs, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x if x.is_floating_point() else self.embedding(x))
        x += 1  # as some architectures do: what comes out may be changed in place
        return x


def alone(*, base_bias: bool = True, inputs: int = 6, outputs: int = 9, dtype=torch.float32, **options) -> nn.Module:
    torch.manual_seed(5)
    config = peft.LoraConfig(**{"r": 3, "target_modules": ["layer"]} | options)
    return as_trained(peft.get_peft_model(Alone(inputs, outputs, base_bias).to(dtype), config))


def outcome(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """What comes out, the gradient of what goes in, and those of all that is trained."""
    torch.manual_seed(6)
    model.zero_grad()
    given = x.clone().requires_grad_(x.is_floating_point())
    (found := model(given)).sin().sum().backward()
    return [found.detach()] + [t.grad for t in (given, *model.parameters()) if t.grad is not None]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    sizes=st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(1, 4)),
    dropout=st.sampled_from([0.0, 0.5]),
    stored_backwards=st.booleans(),
    bias=st.booleans(),
    scaled_by_root=st.booleans(),
)
def test_any_shape_of_input_has_the_results_of_peft(shape, sizes, dropout, stored_backwards, bias, scaled_by_root):
    inputs, outputs, r = sizes
    options = {"r": r, "lora_dropout": dropout, "use_rslora": scaled_by_root, "lora_alpha": 7}
    model = alone(base_bias=bias, inputs=inputs, outputs=outputs, dtype=torch.float64, **options)
    x = torch.randn(*shape, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    if stored_backwards:
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    expected = outcome(model, x)
    with fused_lora(model):
        torch.testing.assert_close(outcome(model, x), expected, rtol=1e-10, atol=1e-12)


def test_its_gradients_are_those_of_finite_differences():
    sizes = {"x": (4, 5), "dropped": (4, 5), "weight": (6, 5), "bias": (6,), "A": (2, 5), "B": (6, 2)}
    generator = torch.Generator().manual_seed(8)
    tensors = {name: torch.randn(size, dtype=torch.float64, generator=generator) for name, size in sizes.items()}
    for trained in (("x", "A", "B"), ("x", "dropped", "A", "B"), ("A", "B"), ("x", "B")):
        given = {name: tensor.clone().requires_grad_(name in trained) for name, tensor in tensors.items()}
        if "dropped" not in trained:
            given["dropped"] = None
        assert torch.autograd.gradcheck(lambda *all_of: adapters._adapted_linear(*all_of, 1.5), (*given.values(),))


def second(model: nn.Module, active: list[str]) -> None:
    torch.manual_seed(9)
    model.add_adapter("second", peft.LoraConfig(r=2, target_modules=["layer"]))
    as_trained(model).base_model.set_adapter(active)


def trained_base(model: nn.Module) -> None:
    model.get_base_model().layer.base_layer.weight.requires_grad_(True)


def other_forward(model: nn.Module) -> None:
    layer = model.get_base_model().layer
    layer.forward = lambda x: 2 * Linear.forward(layer, x)


def watched(model: nn.Module, part: str) -> None:
    layer = model.get_base_model().layer
    module = layer.base_layer if part == "base" else layer.lora_A["default"]
    module.register_forward_hook(lambda module, inputs, output: 2 * output)


LEFT_TO_PEFT = {
    "two adapters at once": ({}, lambda model: second(model, ["default", "second"])),
    "disabled": ({}, lambda model: model.base_model.disable_adapter_layers()),
    "merged": ({}, lambda model: model.merge_adapter()),
    "DoRA": ({"use_dora": True}, None),
    "a bias of the adapter": ({"lora_bias": True}, None),
    "trained biases": ({"bias": "all"}, None),
    "a trained base": ({}, trained_base),
    "another forward pass": ({}, other_forward),
    "a hook on the base": ({}, lambda model: watched(model, "base")),
    "a hook on A": ({}, lambda model: watched(model, "A")),
    "a base in bf16, adapters in fp32": ({"dtype": torch.bfloat16}, None),
    "a parametrized base": (
        {},
        lambda model: nn.utils.parametrize.register_parametrization(
            model.get_base_model().layer.base_layer, "weight", nn.Tanh()
        ),
    ),
}


@pytest.mark.parametrize("case", LEFT_TO_PEFT)
def test_all_else_is_computed_by_peft(case, fused):
    """Equal bit by bit, because it is the same."""
    options, prepare = LEFT_TO_PEFT[case]
    model = alone(**options)
    if prepare:
        prepare(model)
    x = torch.randn(4, 6, dtype=options.get("dtype"), generator=torch.Generator().manual_seed(10))
    expected = outcome(model, x)
    with fused_lora(model):
        found = outcome(model, x)
    assert len(found) == len(expected) and all(map(torch.equal, found, expected)) and not fused


def test_one_of_two_adapters_and_one_beside_other_modules_are_fused(fused):
    ready = [(alone(modules_to_save=["embedding"]), "default"), (alone(), "second")]
    second(ready[1][0], ["second"])
    ready.append((alone(target_modules=["layer", "embedding"]), "default"))  # the embedding's is computed by peft
    tokens = torch.arange(5)
    for model, name in ready:
        expected = outcome(model, tokens)
        with fused_lora(model):
            torch.testing.assert_close(outcome(model, tokens), expected)  # to fp32's rounding
        (call,) = fused
        assert call[4] is model.get_base_model().layer.lora_A[name].weight
        fused.clear()


def test_names_of_adapters_in_a_call_are_heeded(fused):
    model = alone()
    second(model, ["default"])
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(11))
    layer, names = model.get_base_model().layer.eval(), ["default", "second"]
    expected = layer(x, adapter_names=names)
    with fused_lora(model):
        assert torch.equal(layer(x, adapter_names=names), expected) and not fused


def test_weights_in_four_bits_are_computed_by_peft(fused):
    torch.manual_seed(12)
    model = as_trained(apply_strategy(small_model("llama"), "qlora").model)
    expected = step(model, PLAIN)
    found = step(model, FUSED)
    assert torch.equal(found[0], expected[0]) and not fused
    assert all(torch.equal(found[1][name], gradient) for name, gradient in expected[1].items())


def test_the_layers_are_peft_s_own_again_after_a_step_and_after_one_that_fails(fused):
    model = with_lora()
    step(model, FUSED)
    assert fused and not any("forward" in vars(module) for module in model.modules())
    state = new_state(model, TrainingConfig())
    state.apply_plan(FUSED)
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if "lora_B" in name).fill_(torch.nan)
    with pytest.raises(FloatingPointError):
        take_step(state, BLOCKS, 1e-3)
    fused.clear()
    with pytest.raises(RuntimeError, match="planted"), fused_lora(model):
        raise RuntimeError("planted")
    assert not any("forward" in vars(module) for module in model.modules())
    model(input_ids=BLOCKS)
    assert not fused


def test_it_is_deterministic_where_torch_is_told_to_be():
    model = with_lora()
    torch.use_deterministic_algorithms(True)
    try:
        first, again = step(model, FUSED), step(model, FUSED)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first[0], again[0]) and all(torch.equal(first[1][name], again[1][name]) for name in first[1])


@pytest.mark.parametrize("after", [PLAIN, FUSED], ids=["plain", "fused"])
def test_a_run_goes_on_from_a_checkpoint_with_it_and_without_it(after, tmp_path):
    """Six steps of 1e-4; AdamW makes a visible part of a step of rounding where a gradient is near zero."""
    config, before = TrainingConfig(1e-4, epochs=3, batch_size=3), FUSED if after is PLAIN else PLAIN
    whole = with_lora()
    expected = train(whole, BLOCKS, config).history.loss
    train(with_lora(), BLOCKS, config, plan=before, checkpoint_dir=tmp_path, every=2)
    for path in tmp_path.glob("step-00000006.*"):  # as if it had ended in the fourth step
        path.unlink()
    resumed = with_lora()
    result = train(resumed, BLOCKS, config, plan=after, checkpoint_dir=tmp_path, every=2, resume=True)
    assert result.history.loss.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    for (name, found), right in zip(resumed.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=1e-5, msg=name)


def test_what_is_saved_is_an_adapter_like_any_other(tmp_path, tiny):
    model = apply_strategy(load_model("tiny").model, "lora").model
    blocks = torch.randint(4096, (4, 16), generator=torch.Generator().manual_seed(0))
    train(model, blocks, TrainingConfig(batch_size=2), plan=FUSED)
    save_model(model, tiny.tokenizer, tmp_path)
    expected = model(input_ids=blocks).logits
    assert torch.equal(load_model(tmp_path).model(input_ids=blocks).logits, expected)
    names = {name.rpartition(".lora_")[2] for name in load_file(tmp_path / "adapter_model.safetensors")}
    assert names == {"A.weight", "B.weight"}

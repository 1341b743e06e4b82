"""Strategies in time: what learns faster, what begins later, and nothing lost on the way."""

import math
from contextlib import suppress

import pytest
import torch
from interrupted import assert_goes_on_bit_for_bit
from small_models import small_model

from tlkit.checkpoints import identity_of
from tlkit.models import meta_model
from tlkit.models.parts import ParameterGroup
from tlkit.models.prefix import NoFrozenPrefix, cached_prefix
from tlkit.steps import Plan, TrainingState, take_step
from tlkit.strategies import apply_strategy, strategy
from tlkit.training import TrainingConfig, train, training_steps

BLOCKS = torch.randint(3, 64, (8, 16), generator=torch.Generator().manual_seed(1))
CONFIG = TrainingConfig(1e-2, batch_size=2, epochs=4)  # sixteen steps


def adapted(name="gradual_unfreezing", kind="llama", **options):
    """A strategy's report, and settings of `train` that go with it."""
    report = apply_strategy(small_model(kind), name, **options)
    return report.model, {"groups": report.groups}


def weights_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def moved(before, model):
    return {name for name, tensor in model.named_parameters() if not torch.equal(tensor, before[name])}


def test_unfreezing_goes_from_the_head_down_and_reaches_everything():
    """Three blocks in three phases: five levels, of which the first two begin, then two, then one."""
    model, groups = adapted(phases=3)
    assert all(parameter.requires_grad for parameter in model.parameters())
    state, before = TrainingState(model, CONFIG, **groups), weights_of(model)
    seen = []
    for record in training_steps(state, BLOCKS):
        seen.append(moved(before, model))
        if record.step == 1:
            assert all(moments["step"] == 1 for moments in state.optimizer.state.values())
    blocks = [{f"{n}" for n in seen[0] if f".{number}." in n} for number in range(3)]
    assert blocks[2] and not blocks[0] and not blocks[1], "the last block begins alone"
    sizes = [len(names) for names in seen]
    assert sizes == sorted(sizes) and sizes[4] == sizes[0] < sizes[5] <= sizes[9] < sizes[-1]
    embedding = next(n for n, p in model.named_parameters() if p is model.get_input_embeddings().weight)
    assert embedding not in seen[9] and embedding in seen[10]  # 2/3 of 16 steps are over after the tenth
    assert all(parameter.requires_grad for parameter in model.parameters()), "as apply_strategy left it"


def test_every_phase_has_a_step_however_short_the_run():
    model, groups = adapted()
    before = weights_of(model)
    train(model, BLOCKS, TrainingConfig(1e-2, batch_size=8), **groups)  # one step in all: it trains everything
    assert moved(before, model) == set(before)


def test_rates_fall_by_one_factor_from_the_head_to_the_embedding():
    model, groups = adapted("discriminative_rates", "qwen2", lowest=0.01)
    rates = {name: group.rate for group in groups["groups"] for name in group.names}
    assert rates["lm_head.weight"] == rates["model.norm.weight"] == 1.0
    assert rates["model.embed_tokens.weight"] == pytest.approx(0.01)
    heights = [rates[f"model.layers.{number}.mlp.up_proj.weight"] for number in (2, 1, 0)]
    assert heights == pytest.approx([0.01 ** (step / 4) for step in (1, 2, 3)])
    # Plain SGD moves each weight by rate times gradient, so the rates can be read off the weights.
    before = weights_of(model)
    config = TrainingConfig(optimizer="sgd", weight_decay=0.0, max_gradient_norm=math.inf)
    state = TrainingState(model, config, **groups)
    gradients = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, n=name: gradients.update({n: p.grad.clone()}))
    take_step(state, BLOCKS[:4], 0.1)
    for name, parameter in model.named_parameters():
        expected = before[name] - 0.1 * rates[name] * gradients[name]
        assert torch.allclose(parameter, expected, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("stopped", [4, 5])
def test_a_run_goes_on_in_the_phase_in_which_it_stopped(stopped, tmp_path):
    """Wherever it was cut: before, at and behind a border at 4, 8 or 12 of 16 steps."""
    assert_goes_on_bit_for_bit(lambda: adapted()[0], BLOCKS, CONFIG, stopped, tmp_path, **adapted()[1])


def test_another_schedule_is_another_run(tmp_path):
    settings = ([BLOCKS], {})
    four, three, all_at_once = (
        identity_of(model, *settings, **groups) for model, groups in (adapted(), adapted(phases=3), adapted("full"))
    )
    assert four != three != all_at_once and "parameter groups" not in all_at_once
    (model, groups), (other, other_groups) = adapted(), adapted(phases=3)
    train(model, BLOCKS, CONFIG, checkpoint_dir=tmp_path, **groups)
    with pytest.raises(ValueError, match="parameter groups was"):
        train(other, BLOCKS, CONFIG, checkpoint_dir=tmp_path, resume=True, **other_groups)


@pytest.mark.parametrize("plan", [Plan(), Plan(offload_optimizer=True)], ids=str)
def test_a_step_that_breaks_off_at_a_border_is_undone(plan):
    """The moments of what has just begun are made in that step, and must not be half made afterwards."""
    (expected, groups), (model, _) = adapted(), adapted()
    losses = train(expected, BLOCKS, CONFIG, plan=plan, **groups).history.loss.tolist()
    state = TrainingState(model, CONFIG, **groups)
    state.apply_plan(plan)
    broken, calls, optimizer_step = [], [], torch.optim.AdamW.step

    def failing(self, *arguments):
        calls.append(1)
        if len(calls) not in (5, 10):  # after a border, and in the middle of a phase
            return optimizer_step(self, *arguments)
        for tensor in (tensor for group in self.param_groups for tensor in group["params"]):
            if tensor.grad is not None:
                self.state[tensor].setdefault("step", torch.tensor(0.0)).add_(1)
                self.state[tensor].setdefault("exp_avg", torch.zeros_like(tensor))
        raise torch.OutOfMemoryError("planted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", failing)
        while state.step < 16:
            with suppress(torch.OutOfMemoryError):
                for record in training_steps(state, BLOCKS):
                    broken.append(record.loss)
    assert len(calls) == 18 and broken == losses
    assert all(map(torch.equal, model.parameters(), expected.parameters()))


def test_memory_is_counted_where_all_is_trained():
    """The peak of a run is that of its last phase, which the second step would not show."""
    peaks = {}
    for name in ("gradual_unfreezing", "full"):
        model, groups = adapted(name)
        peaks[name] = train(model, BLOCKS, CONFIG, **groups).peak_memory
    assert peaks["gradual_unfreezing"] == pytest.approx(peaks["full"], rel=1e-3)
    model, groups = adapted()
    history = train(model, BLOCKS, CONFIG, **groups).history
    assert history.step[history.memory_counted].tolist() == [14]


@pytest.mark.usefixtures("registry_as_before")
def test_groups_that_say_nonsense_are_refused():
    model = small_model("llama")
    norm, head = frozenset({"model.norm.weight"}), frozenset({"lm_head.weight"})
    for groups, said in (
        ([ParameterGroup(frozenset({"nowhere"}))], "nowhere is in a group of parameters: expected trainable weights"),
        ([ParameterGroup(norm), ParameterGroup(norm | head)], "model.norm.weight .* each in one group"),
        ([ParameterGroup(norm, begins=1.0)], "begins=1.0: expected a rate above 0"),
        ([ParameterGroup(frozenset(name for name, _ in model.named_parameters()), begins=0.5)], "begins at 0"),
    ):
        strategy("mine")(lambda model, groups=groups: (model.requires_grad_(True), groups))
        with pytest.raises(ValueError, match=said):
            apply_strategy(model, "mine")
        with pytest.raises(ValueError, match=said):
            train(model, BLOCKS, CONFIG, groups=groups)
    for name, options, said in (
        ("gradual_unfreezing", {"phases": 6}, "expected 2 to 5"),
        ("discriminative_rates", {"lowest": 1.0}, "between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=said):
            adapted(name, **options)


def test_on_paper_everything_is_counted_as_trained():
    for name in ("gradual_unfreezing", "discriminative_rates"):
        report = apply_strategy(meta_model("qwen2-0.5b"), name)
        assert report.trainable_parameters == report.total_parameters == 494_032_768
    with (
        pytest.raises(NoFrozenPrefix, match="what follows is trained"),
        cached_prefix(adapted("discriminative_rates")[0]),
    ):
        pass

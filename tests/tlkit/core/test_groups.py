"""Strategies in time: what learns faster, what begins later, and nothing lost on the way."""

import copy
import math

import pytest
import torch
from small_models import small_model

from tlkit.checkpoints.identity import identity_of
from tlkit.models import meta_model
from tlkit.models.groups import ParameterGroup, groups_of, in_phases, set_groups
from tlkit.models.parts import find_blocks
from tlkit.models.prefix import NoFrozenPrefix, cached_prefix
from tlkit.steps import Plan, TrainingState, first_step, take_step
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, new_state, train, training_steps

BLOCKS = torch.randint(3, 64, (8, 16), generator=torch.Generator().manual_seed(1))
CONFIG = TrainingConfig(1e-2, batch_size=2, epochs=4)  # sixteen steps


def adapted(name="gradual_unfreezing", kind="llama", **options):
    return apply_strategy(small_model(kind), name, **options).model


def weights_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def moved(before, model):
    return {name for name, tensor in model.named_parameters() if not torch.equal(tensor, before[name])}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "opt", "falcon"])
def test_unfreezing_goes_from_the_head_down_and_reaches_everything(kind):
    """Three blocks in three phases: five levels, of which the first two begin, then two, then one."""
    model = adapted(kind=kind, phases=3)
    assert all(parameter.requires_grad for parameter in model.parameters())
    state, before = new_state(model, CONFIG), weights_of(model)
    seen = []
    for record in training_steps(state, BLOCKS, CONFIG):
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


def test_the_first_phase_is_last_layers_to_the_bit():
    """Until the second phase begins, it trains what last_layers(blocks=1) and the final norm and head are."""
    model, reference = adapted(phases=3), small_model("llama").requires_grad_(False)
    for module in (find_blocks(reference)[-1], reference.model.norm, reference.lm_head):
        module.requires_grad_(True)
    state, other = new_state(model, CONFIG), new_state(reference, CONFIG)
    for _, _, number in zip(
        training_steps(state, BLOCKS, CONFIG), training_steps(other, BLOCKS, CONFIG), range(5), strict=False
    ):
        if number == 4:
            break
    assert all(map(torch.equal, model.parameters(), reference.parameters()))


def test_every_phase_has_a_step_however_short_the_run():
    for total in (1, 2, 5, 16):
        for begins in (0.0, 0.25, 0.99):
            assert 0 <= first_step(begins, total) < total
    model = adapted()
    before = weights_of(model)
    train(model, BLOCKS, TrainingConfig(1e-2, batch_size=8))  # one step in all: it trains everything
    assert moved(before, model) == set(before)


def test_rates_fall_by_one_factor_from_the_head_to_the_embedding():
    model = adapted("discriminative_rates", "qwen2", lowest=0.01)
    rates = {name: group.rate for group in model.parameter_groups for name in group.names}
    assert rates["lm_head.weight"] == rates["model.norm.weight"] == 1.0
    assert rates["model.embed_tokens.weight"] == pytest.approx(0.01)
    heights = [rates[f"model.layers.{number}.mlp.up_proj.weight"] for number in (2, 1, 0)]
    assert heights == pytest.approx([0.01 ** (step / 4) for step in (1, 2, 3)])
    # Plain SGD moves each weight by rate times gradient, so the rates can be read off the weights.
    before = weights_of(model)
    state = TrainingState(model, optimizer="sgd", weight_decay=0.0)
    gradients = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, n=name: gradients.update({n: p.grad.clone()}))
    take_step(state, BLOCKS[:4], 0.1, max_gradient_norm=math.inf)
    for name, parameter in model.named_parameters():
        expected = before[name] - 0.1 * rates[name] * gradients[name]
        assert torch.allclose(parameter, expected, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("stopped", [1, 3, 4, 5, 8, 12, 13])
def test_a_run_goes_on_in_the_phase_in_which_it_stopped(stopped, tmp_path):
    """Weights bit for bit, wherever it was cut: before, at and behind the borders at 4, 8 and 12 of 16 steps."""
    expected = adapted()
    reference = train(expected, BLOCKS, CONFIG)
    model, passes = adapted(), []

    def cut(*_):
        passes.append(1)
        if len(passes) > stopped:
            raise KeyboardInterrupt

    model.register_forward_pre_hook(cut)
    with pytest.raises(KeyboardInterrupt):
        train(model, BLOCKS, CONFIG, checkpoint_dir=tmp_path, every=1)
    assert all(parameter.requires_grad for parameter in model.parameters())
    again = adapted()
    result = train(again, BLOCKS, CONFIG, checkpoint_dir=tmp_path, every=1, resume=True)
    assert all(map(torch.equal, again.parameters(), expected.parameters()))
    assert result.history.loss.tolist() == reference.history.loss.tolist()


def test_another_schedule_is_another_run(tmp_path):
    settings = ([BLOCKS], {})
    four, three, all_at_once = (
        identity_of(model, *settings) for model in (adapted(), adapted(phases=3), adapted("full"))
    )
    assert four != three != all_at_once and "parameter groups" not in all_at_once
    train(adapted(), BLOCKS, CONFIG, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="parameter groups was"):
        train(adapted(phases=3), BLOCKS, CONFIG, checkpoint_dir=tmp_path, resume=True)


@pytest.mark.parametrize("plan", [Plan(), Plan(offload_optimizer=True), Plan(micro_batch_size=1)], ids=str)
def test_a_step_that_breaks_off_at_a_border_is_undone(plan):
    """The moments of what has just begun are made in that step, and must not be half made afterwards."""
    expected, model = adapted(), adapted()
    states = [new_state(each, CONFIG) for each in (expected, model)]
    for state in states:
        state.apply_plan(plan)
    whole = training_steps(states[0], BLOCKS, CONFIG)
    losses = [record.loss for record in whole]
    broken, calls = [], []
    optimizer_step = torch.optim.AdamW.step

    def failing(self, *arguments):
        calls.append(1)
        if len(calls) in (5, 10):  # after a border, and in the middle of a phase
            optimizer_step_counters(self)
            raise torch.OutOfMemoryError("planted")
        return optimizer_step(self, *arguments)

    def optimizer_step_counters(optimizer):
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    state = optimizer.state[tensor]
                    state.setdefault("step", torch.tensor(0.0)).add_(1)
                    state.setdefault("exp_avg", torch.zeros_like(tensor))
                    state.setdefault("exp_avg_sq", torch.zeros_like(tensor))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", failing)
        while states[1].step < 16:
            try:
                for record in training_steps(states[1], BLOCKS, CONFIG):
                    broken.append(record.loss)
            except torch.OutOfMemoryError:
                continue
    assert len(calls) == 18 and broken == losses
    assert all(map(torch.equal, model.parameters(), expected.parameters()))


def test_early_stopping_puts_back_the_best_weights_of_all():
    config = TrainingConfig(3e-2, batch_size=2, epochs=4, evaluate_every=1, patience=2)
    model = adapted()
    result = train(model, BLOCKS, config, validation=BLOCKS[:2] * 0 + 5)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert result.validation.validation_loss.notna().all()


def test_memory_is_counted_where_all_is_trained():
    """The peak of a run is that of its last phase, which the second step would not show."""
    peaks = {name: train(adapted(name), BLOCKS, CONFIG).peak_memory for name in ("gradual_unfreezing", "full")}
    assert peaks["gradual_unfreezing"] == pytest.approx(peaks["full"], rel=1e-3)
    history = train(adapted(), BLOCKS, CONFIG).history
    assert history.step[history.memory_counted].tolist() == [14]


def test_the_frozen_prefix_serves_every_phase():
    """Losses as without it; each sequence goes through the blocks that stay frozen once, in all phases together."""
    config = TrainingConfig(1e-2, batch_size=2, epochs=6)
    expected = train(adapted(phases=3), BLOCKS, config)
    model, depths = adapted(phases=3), []
    passes = {number: 0 for number in range(3)}
    blocks_of = {id(block): number for number, block in enumerate(find_blocks(model))}
    kind = type(find_blocks(model)[0])
    forward = kind.forward

    def counted(self, *args, **kwargs):
        passes[blocks_of[id(self)]] += 1
        return forward(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, cached_prefix(model) as cache:
        patch.setattr(kind, "forward", counted)
        state = new_state(model, config)
        losses = []
        for record in training_steps(state, BLOCKS, config):
            losses.append(record.loss)
            depths.append(cache.blocks)
    assert losses == pytest.approx(expected.history.loss.tolist(), rel=1e-6)
    assert depths == [2] * 8 + [0] * 16, depths
    assert cache.rows_computed == 8 and cache.rows_reused == 8
    assert passes == {0: 4 + 16, 1: 4 + 16, 2: 24}


def test_a_prefix_of_two_phases_is_kept_from_the_first():
    """Four blocks: three are frozen at first, then one; both are computed in one pass for each sequence."""
    model = apply_strategy(small_model("llama", num_hidden_layers=4), "gradual_unfreezing", phases=3).model
    twin = apply_strategy(small_model("llama", num_hidden_layers=4), "gradual_unfreezing", phases=3).model
    config = TrainingConfig(1e-2, batch_size=2, epochs=3)  # each phase reads every sequence once
    expected = train(twin, BLOCKS, config)
    with cached_prefix(model) as cache:
        losses, depths = [], []
        for record in training_steps(new_state(model, config), BLOCKS, config):
            losses.append(record.loss)
            depths.append((cache.blocks, cache.rows_computed))
    assert depths == [(3, 2), (3, 4), (3, 6), (3, 8), *[(1, 8)] * 4, *[(0, 8)] * 4]
    assert losses == pytest.approx(expected.history.loss.tolist(), rel=1e-6)
    assert cache.nbytes == 0, "what no phase needs any more is gone"


def test_the_optimizers_of_two_groups_are_one():
    model = adapted("discriminative_rates")
    state = new_state(model, CONFIG)
    assert len(state.optimizer.param_groups) == len(groups_of(model)) == 5
    assert sum(len(group["params"]) for group in state.optimizer.param_groups) == len(list(model.parameters()))
    state.apply_plan(Plan(offload_optimizer=True))
    assert [group["rate"] for group in state.optimizer.param_groups] == [group.rate for group in groups_of(model)]


def test_groups_that_say_nonsense_are_refused():
    model = small_model("llama")
    norm, head = frozenset({"model.norm.weight"}), frozenset({"lm_head.weight"})
    for groups, said in (
        ([ParameterGroup(frozenset({"nowhere"}))], "nowhere is in a group of parameters, and is no trainable weight"),
        ([ParameterGroup(norm), ParameterGroup(norm | head)], "model.norm.weight is in two groups"),
        ([ParameterGroup(norm, rate=0.0)], "expected a rate above 0"),
        ([ParameterGroup(norm, rate=math.nan)], "expected a rate above 0"),
        ([ParameterGroup(norm, begins=1.0)], "a beginning from 0 to below 1"),
        ([ParameterGroup(frozenset(dict(model.named_parameters())), begins=0.5)], "nothing would be trained"),
    ):
        with pytest.raises(ValueError, match=said):
            set_groups(model, groups)
    for name, options, said in (
        ("gradual_unfreezing", {"phases": 1}, "expected 2 to 5"),
        ("gradual_unfreezing", {"phases": 6}, "expected 2 to 5"),
        ("discriminative_rates", {"lowest": 1.0}, "between 0 and 1"),
        ("discriminative_rates", {"lowest": 0.0}, "between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=said):
            adapted(name, **options)


def test_a_strategy_applied_again_forgets_the_groups_of_the_one_before():
    model = adapted()
    assert in_phases(model) and not in_phases(apply_strategy(model, "full").model)
    assert in_phases(copy.deepcopy(adapted())), "a copy trains as the original does"


def test_on_paper_everything_is_counted_as_trained():
    for name in ("gradual_unfreezing", "discriminative_rates"):
        report = apply_strategy(meta_model("qwen2-0.5b"), name)
        assert report.trainable_values == report.total_values == 494_032_768
    with (
        pytest.raises(NoFrozenPrefix, match="is trained, so nothing stays"),
        cached_prefix(adapted("discriminative_rates")),
    ):
        pass


def test_what_somebody_freezes_in_the_course_of_a_run_stays_frozen():
    """Only weights whose time comes later are switched by the loop."""
    model = adapted("full")
    state = new_state(model, CONFIG)
    for record in training_steps(state, BLOCKS, CONFIG):
        if record.step == 3:
            model.lm_head.requires_grad_(False)
            before = model.lm_head.weight.detach().clone()
    assert torch.equal(model.lm_head.weight, before) and not model.lm_head.weight.requires_grad

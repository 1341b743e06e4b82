"""The ladder's pictures say what the ladder does: read from its plans, and from the tokens that count."""

import pytest
import torch
from figure_checks import collisions
from matplotlib.patches import FancyBboxPatch

from course.lesson13 import pictures as ladder_pictures
from course.lesson13.pictures import facts_of_rungs, ladder_diagram, micro_batch_picture
from tlkit.fitting.ladder import FALLBACK_TIERS, LADDER
from tlkit.losses import summed_loss
from tlkit.models import load_model
from tlkit.steps import Plan


def test_every_rung_is_drawn_once_and_in_its_tier():
    facts = facts_of_rungs()
    assert [rung.name for rung in facts] == list(LADDER)
    assert all(rung.name in FALLBACK_TIERS[rung.tier] for rung in facts)
    boxes = [patch for patch in ladder_diagram().axes[0].patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == len(LADDER) + 1  # and as planned


def test_rungs_are_numbered_from_the_top_in_the_order_of_the_ladder_and_below_their_tier():
    texts = {text.get_text(): text.get_position()[1] for text in ladder_diagram().axes[0].texts}
    numbered = [f"{number}. {name}" for number, name in enumerate(LADDER, 1)]
    heights = [texts[name] for name in ("as planned", *numbered)]  # the vertical axis grows downwards
    assert heights == sorted(heights)
    for order, (tier, names) in enumerate(FALLBACK_TIERS.items(), 1):
        below = [texts[name] for name in numbered if name.split(". ")[1] in names]
        assert texts[f"tier {order}: {tier}"] < min(below)


def test_the_prices_are_those_of_the_plan():
    """Rounding where the precision changes, host memory where something moves there."""
    for rung in facts_of_rungs():
        plan = LADDER[rung.name](Plan(), 4)
        on_host = plan.offload_activations or plan.offload_optimizer or plan.train_on_host
        assert ("host memory" in rung.prices) == on_host, rung.name
        assert ("rounding" in rung.prices) == (plan.precision != "fp32"), rung.name
    assert "bf16 autocast: linear layers and attention compute in bf16, costs rounding" in ladder_diagram().alt


def test_a_rung_without_words_is_refused(monkeypatch):
    monkeypatch.setitem(ladder_pictures.LADDER, "nothing new", lambda plan, batch: plan)
    with pytest.raises(ValueError, match="rung 'nothing new' changes nothing"):
        facts_of_rungs()


def cells(chart):
    return [text.get_text() for text in chart.axes[0].texts if "/" in text.get_text()]


def test_a_token_counts_as_much_as_its_gradient_says():
    """The mean of two means, told by autograd: the derivative by each token's loss."""
    targets = torch.zeros(4, 3, dtype=torch.long)
    targets[2, 1:] = targets[3, 1:] = -100
    losses = torch.ones(4, 3, requires_grad=True)
    counted = targets != -100
    (sum(losses[rows][counted[rows]].mean() for rows in (slice(0, 2), slice(2, 4))) / 2).backward()
    shares = losses.grad[counted].tolist()
    chart = micro_batch_picture(targets, 2)
    drawn = [int(text.split("/")[0]) / int(text.split("/")[1]) for text in cells(chart)]
    assert drawn == pytest.approx([1 / 8] * 8 + shares)
    assert "some tokens count 3 times as much as others" in chart.alt


def test_with_as_many_tokens_in_each_piece_nothing_differs():
    assert "All tokens count the same" in micro_batch_picture(torch.zeros(4, 3, dtype=torch.long), 2).alt


def test_a_micro_batch_of_nothing_is_refused():
    targets = torch.zeros(2, 3, dtype=torch.long)
    targets[1] = -100
    with pytest.raises(ValueError, match="has no mean"):
        micro_batch_picture(targets, 1)


def test_nothing_is_written_over_anything_else():
    targets = torch.zeros(4, 6, dtype=torch.long)
    targets[2, 2:] = targets[3, 1:] = -100
    for chart in (ladder_diagram(), micro_batch_picture(targets, 2)):
        assert collisions(chart) == [], chart.finding


def test_what_the_diagram_says_of_autocast_is_true():
    """Linear layers and attention compute in bf16; norms, loss and gradients do not."""
    model = load_model("tiny").model
    block, found = model.model.layers[0], {}
    for name, module in {
        "linear": block.mlp.up_proj,
        "attention": block.self_attn,
        "norm": block.input_layernorm,
    }.items():
        module.register_forward_hook(
            lambda _, __, out, name=name: found.update({name: (out[0] if isinstance(out, tuple) else out).dtype})
        )
    loss = summed_loss(model, torch.arange(16).reshape(1, 16), Plan(precision="bf16"))
    loss.backward()
    assert found == {"linear": torch.bfloat16, "attention": torch.bfloat16, "norm": torch.float32}
    assert loss.dtype == torch.float32
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}

"""The frozen prefix computed once: the same losses with less work, and a refusal where it would be wrong."""

import pytest
import torch
from small_models import ARCHITECTURES, GPT2_WITHOUT_DROPOUT, generate, small_model

from tlkit.models import load_model
from tlkit.models.parts import find_blocks
from tlkit.models.prefix import cached_prefix
from tlkit.settings import Plan
from tlkit.steps import summed_loss
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

PREFIXED = {
    "last_layers": {"train_norms": False},
    "freeze_lower": {"freeze_embeddings": True},
}
BLOCKS = torch.randint(64, (6, 16), generator=torch.Generator().manual_seed(0))
PIECES = Plan(chunked_loss=True, micro_batch_size=2)
CONFIG = TrainingConfig(1e-3, epochs=3, batch_size=4, evaluate_every=2)


@pytest.mark.parametrize(
    ("strategy", "plan"),
    [
        ("freeze_lower", Plan()),
        ("last_layers", PIECES),
        ("freeze_lower", Plan(precision="bf16")),
    ],
)
def test_losses_are_those_without_a_cache(strategy, plan, shallow):
    results, weights = [], []
    for cached in (False, True):
        model = apply_strategy(load_model("tiny").model, strategy, **PREFIXED[strategy]).model
        if cached:
            with cached_prefix(model) as cache:
                results.append(train(model, BLOCKS, CONFIG, plan=plan, validation=BLOCKS[:2]))
        else:
            results.append(train(model, BLOCKS, CONFIG, plan=plan, validation=BLOCKS[:2]))
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad]))
    plain, kept = results
    # fp32 adds in another order where a batch is cut otherwise. bf16 has 8 bits, and the head is rounded either way; a
    # processor with matrix tiles also rounds by the shape of a batch, and each step of AdamW makes more of it: 0.004
    # was seen in the sixth step, the first three agree.
    tolerance, later = (1e-6, 1e-6) if plan.precision == "fp32" else (1e-3, 1e-2)
    losses = [result.history.loss.to_numpy() for result in (kept, plain)]
    assert losses[0][:3] == pytest.approx(losses[1][:3], abs=tolerance)
    assert losses[0] == pytest.approx(losses[1], abs=later)
    assert kept.validation.validation_loss.to_numpy() == pytest.approx(
        plain.validation.validation_loss.to_numpy(), abs=later
    )
    if plan.precision == "fp32":
        assert torch.allclose(weights[0], weights[1], atol=1e-5)
    checked = int(plan.chunked_loss)  # one short sequence, read twice to see that the loss may be cut
    assert cache.rows_computed == len(BLOCKS) + checked  # each once, in three epochs and three evaluations
    assert cache.rows_reused == 2 * len(BLOCKS) + 3 * 2 + checked


ONE_BLOCK = {"blocks": 1, "train_norms": False}


def of(kind: str, **changes):
    """A tiny model of that architecture, of which the last of three blocks is trained."""
    return apply_strategy(small_model(kind, **changes), "last_layers", **ONE_BLOCK).model


def loss_and_gradients(model, blocks):
    losses = []
    for part in blocks.split(3):
        losses.append(summed_loss(model, part, Plan()) / part.numel())
        losses[-1].backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return torch.stack(losses).detach(), gradients


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_architecture_has_the_same_losses_and_gradients(kind):
    """1e-6, as promised: below the first trained block nothing but the cutting into batches may differ."""
    model, blocks = of(kind), BLOCKS
    expected, slopes = loss_and_gradients(model.train(), blocks)
    with cached_prefix(model) as cache:
        for _ in range(2):
            losses, gradients = loss_and_gradients(model, blocks)
            torch.testing.assert_close(losses, expected, rtol=0, atol=1e-6)
            torch.testing.assert_close(gradients, slopes, rtol=1e-5, atol=1e-6)
    assert (cache.blocks, cache.rows_computed, cache.rows_reused) == (2, len(blocks), len(blocks))


def test_blocks_that_hand_on_more_than_hidden_states_are_refused():
    """The upper blocks of Gemma 3n attend to keys that a lower one has made."""
    shared = {
        "num_kv_shared_layers": 1,
        "layer_types": ["full_attention"] * 3,
        "activation_sparsity_pattern": [0.0] * 3,
    }
    sizes = {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8, "laurel_rank": 4, "head_dim": 16}
    model = of("gemma3n_text", **sizes, **shared, intermediate_size=[64] * 3)
    with pytest.raises(ValueError, match="Gemma3nForCausalLM hand on more"), cached_prefix(model):
        pass
    assert all("forward" not in vars(block) for block in find_blocks(model))


def test_changed_data_is_computed_anew():
    model = of("qwen2")
    other = BLOCKS.clone()
    other[0, 3] += 1
    with cached_prefix(model) as cache:
        for blocks in (BLOCKS, other):
            logits = model(input_ids=blocks, use_cache=False).logits
    assert cache.rows_computed == len(BLOCKS) + 1
    torch.testing.assert_close(logits, model(input_ids=other, use_cache=False).logits)


def test_padding_positions_and_generation_are_computed_as_ever():
    bundled = load_model("tiny")
    model = apply_strategy(bundled.model, "last_layers", train_norms=False).model
    prompts = ["In Rust, Vec<T> is", "A"]
    mask = torch.ones_like(BLOCKS)
    mask[0, :4] = 0
    positions = torch.arange(16).flip(0)[None].expand(6, -1)
    plain = generate(model, bundled.tokenizer, prompts, new_tokens=8)
    inputs = [{"attention_mask": mask}, {"position_ids": positions}]
    expected = [model(input_ids=BLOCKS, use_cache=False, **more).logits for more in inputs]
    with cached_prefix(model) as cache:
        model(input_ids=BLOCKS, use_cache=False)
        assert generate(model, bundled.tokenizer, prompts, new_tokens=8) == plain
        for more, logits in zip(inputs, expected, strict=True):
            torch.testing.assert_close(model(input_ids=BLOCKS, use_cache=False, **more).logits, logits)
    assert cache.rows_reused == 0


@pytest.mark.parametrize(
    ("strategy", "options", "named"),
    [
        ("last_layers", {}, "layers.0.input_layernorm"),  # every norm is trained
        ("last_layers", {"train_norms": False, "train_head": True}, "embed_tokens"),  # tied
        ("lora", {}, "lora_A"),
    ],
)
def test_refuses_where_nothing_stays_the_same(strategy, options, named):
    model = apply_strategy(small_model("qwen2", tie_word_embeddings=True), strategy, **options).model
    with pytest.raises(ValueError, match=f"{named}.*what follows is trained"), cached_prefix(model):
        pass
    assert model(input_ids=BLOCKS, use_cache=False).logits.shape == (6, 16, 64)


def test_refuses_dropout_below():
    model = of("gpt2", **GPT2_WITHOUT_DROPOUT | {"attn_pdrop": 0.1})
    with pytest.raises(ValueError, match="dropout"), cached_prefix(model):
        pass

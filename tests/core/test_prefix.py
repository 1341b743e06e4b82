"""The frozen prefix computed once: the same losses with less work, and a refusal where it would be wrong."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.cli import main
from tlkit.evaluation import generate, perplexity
from tlkit.models import load_model
from tlkit.prefix import cached_prefix, frozen_blocks
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy, find_blocks
from tlkit.training import TrainingConfig, train

PREFIXED = {
    "last_layers": {"train_norms": False},
    "freeze_lower": {"freeze_embeddings": True},
}
BLOCKS = torch.randint(4096, (6, 16), generator=torch.Generator().manual_seed(0))
PLANS = {"plain": Plan(), "in pieces": Plan(chunked_loss=True, micro_batch_size=2), "bf16": Plan(precision="bf16")}
CONFIG = TrainingConfig(1e-3, epochs=3, batch_size=4, evaluate_every=2)


def small(kind: str = "qwen2", **changes):
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
    if kind == "qwen2":
        sizes["num_key_value_heads"] = 2
    if kind == "opt":
        sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "ffn_dim": 64}
        sizes |= {"word_embed_proj_dim": 32}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, vocab_size=4096, **sizes | changes))


NO_DROPOUT = {
    "qwen2": {},
    "llama": {},
    "gpt_neox": {"hidden_dropout": 0.0, "attention_dropout": 0.0},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "opt": {"dropout": 0.0},
}


@pytest.mark.parametrize("plan", list(PLANS.values()), ids=list(PLANS))
@pytest.mark.parametrize("strategy", PREFIXED)
def test_losses_are_those_without_a_cache(strategy, plan):
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
    # fp32 adds in another order where a batch is cut otherwise; bf16 has 8 bits, and the head is rounded either way
    tolerance = 1e-6 if plan.precision == "fp32" else 1e-3
    assert kept.history.loss.to_numpy() == pytest.approx(plain.history.loss.to_numpy(), abs=tolerance)
    assert kept.validation.validation_loss.to_numpy() == pytest.approx(
        plain.validation.validation_loss.to_numpy(), abs=tolerance
    )
    if plan.precision == "fp32":
        assert torch.allclose(weights[0], weights[1], atol=1e-5)
    checked = int(plan.chunked_loss)  # one short sequence, to see that the loss may be cut
    assert cache.rows_computed == len(BLOCKS) + checked  # each once, in three epochs and three evaluations
    assert cache.rows_reused == 2 * len(BLOCKS) + 3 * 2 + checked


@pytest.mark.parametrize("kind", NO_DROPOUT)
def test_other_architectures_give_the_same_logits(kind):
    model = apply_strategy(small(kind, **NO_DROPOUT[kind]), "last_layers", blocks=1, train_norms=False).model
    plain = model(input_ids=BLOCKS, use_cache=False).logits
    with cached_prefix(model) as cache:
        first = model(input_ids=BLOCKS, use_cache=False).logits
        again = model(input_ids=BLOCKS.flip(0), use_cache=False).logits.flip(0)
    assert cache.blocks == 3 and cache.rows_reused == len(BLOCKS)
    torch.testing.assert_close(first, plain)
    torch.testing.assert_close(again, plain)


def test_blocks_below_are_not_computed_twice_and_come_back_afterwards():
    model = apply_strategy(small(), "last_layers", blocks=1, train_norms=False).model
    calls = []
    lowest = find_blocks(model)[0]
    with cached_prefix(model):
        lowest.self_attn.register_forward_hook(lambda *_: calls.append("computed"))
        for _ in range(3):
            model(input_ids=BLOCKS, use_cache=False)
        assert calls.count("computed") == 1
    assert "forward" not in vars(lowest)
    model(input_ids=BLOCKS, use_cache=False)
    assert calls.count("computed") == 2


def test_changed_weights_and_changed_data_are_computed_anew():
    model = apply_strategy(small(), "last_layers", blocks=1, train_norms=False).model
    with cached_prefix(model) as cache:
        before = model(input_ids=BLOCKS, use_cache=False).logits
        with torch.no_grad():
            find_blocks(model)[0].mlp.up_proj.weight.mul_(2)
        after = model(input_ids=BLOCKS, use_cache=False).logits
        other = BLOCKS.clone()
        other[0, 3] += 1
        changed = model(input_ids=other, use_cache=False).logits
    assert cache.rows_computed == 2 * len(BLOCKS) + 1
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, model(input_ids=BLOCKS, use_cache=False).logits)
    torch.testing.assert_close(changed, model(input_ids=other, use_cache=False).logits)


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


def test_repeated_evaluation_scores_the_same():
    bundled = load_model("tiny")
    model = apply_strategy(bundled.model, "last_layers", train_norms=False).model
    texts = ["A vector owns its elements. " * 40, "Each match must be exhaustive. " * 30]
    plain = perplexity(model, bundled.tokenizer, texts, context=64)
    with cached_prefix(model) as cache:
        scores = [perplexity(model, bundled.tokenizer, texts, context=64) for _ in range(2)]
    assert cache.rows_reused == cache.rows_computed > 0
    assert [score.nats_per_token for score in scores] == pytest.approx([plain.nats_per_token] * 2, abs=1e-6)


def test_beyond_the_limit_states_lie_on_disk_until_the_end(tmp_path):
    model = apply_strategy(small(), "last_layers", blocks=1, train_norms=False).model
    row = 16 * 32 * 4
    plain = model(input_ids=BLOCKS, use_cache=False).logits
    with cached_prefix(model, limit=2 * row, folder=tmp_path) as cache:
        model(input_ids=BLOCKS, use_cache=False)
        assert cache.nbytes == 6 * row
        files = sorted(tmp_path.rglob("*.states"))
        assert [file.stat().st_size for file in files] == [row] * 4  # two rows are in memory
        torch.testing.assert_close(model(input_ids=BLOCKS, use_cache=False).logits, plain)
        with torch.no_grad():
            find_blocks(model)[0].mlp.up_proj.weight.mul_(2)  # the same files, written anew
        changed = model(input_ids=BLOCKS, use_cache=False).logits
    assert not list(tmp_path.iterdir())
    torch.testing.assert_close(changed, model(input_ids=BLOCKS, use_cache=False).logits)


@pytest.mark.parametrize(
    ("strategy", "options", "named"),
    [
        ("full", {}, "embed_tokens"),
        ("freeze_lower", {}, "embed_tokens"),  # the embeddings are trained
        ("freeze_embeddings", {}, "layers.0"),
        ("last_layers", {}, "layers.0.input_layernorm"),  # every norm is trained
        ("last_layers", {"train_norms": False, "train_head": True}, "embed_tokens"),  # tied
        ("lora", {}, "lora_A"),
        ("bitfit", {}, "bias"),
    ],
)
def test_refuses_where_nothing_stays_the_same(strategy, options, named):
    model = apply_strategy(small(tie_word_embeddings=True), strategy, **options).model
    with pytest.raises(ValueError, match=f"no frozen prefix: .*{named}.*train_norms=False"), cached_prefix(model):
        pass
    assert model(input_ids=BLOCKS, use_cache=False).logits.shape == (6, 16, 4096)


@pytest.mark.parametrize("changes", [{"resid_pdrop": 0.1}, {"embd_pdrop": 0.1}, {"attn_pdrop": 0.1}], ids=str)
def test_refuses_dropout_below(changes):
    model = apply_strategy(
        small("gpt2", **NO_DROPOUT["gpt2"] | changes), "last_layers", blocks=1, train_norms=False
    ).model
    with pytest.raises(ValueError, match="dropout"):
        frozen_blocks(model)


def test_refuses_what_becomes_trainable_inside():
    model = apply_strategy(small(), "last_layers", blocks=1, train_norms=False).model
    with cached_prefix(model):
        find_blocks(model)[1].requires_grad_(True)
        with pytest.raises(RuntimeError, match="has become trainable"):
            model(input_ids=BLOCKS, use_cache=False)
    assert "forward" not in vars(find_blocks(model)[0])


def test_the_probe_leaves_random_numbers_and_mode_alone():
    model = apply_strategy(small(), "last_layers", blocks=1, train_norms=False).model.eval()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert frozen_blocks(model) == 3
    assert torch.equal(torch.rand(2), expected) and not model.training


def test_the_command_keeps_a_prefix_and_refuses_where_there_is_none(tmp_path, capsys):
    command = ["train", "--corpus", "facts", "--sequence-length", "64", "--epochs", "2", "--strategy", "last_layers"]
    assert main([*command, "--output", str(tmp_path / "no"), "--cached-prefix"]) == 2
    assert "no frozen prefix" in capsys.readouterr().err
    for wrong, said in (("train_norms", "expected NAME=VALUE"), ("norms=false", "last_layers has no option norms")):
        assert main([*command, "--output", str(tmp_path / "no"), "--strategy-option", wrong]) == 2
        assert said in capsys.readouterr().err
    kept = ["--strategy-option", "train_norms=false", "--cached-prefix"]
    assert main([*command, "--output", str(tmp_path / "yes"), *kept]) == 0
    assert "frozen prefix: 6 blocks computed for" in capsys.readouterr().out

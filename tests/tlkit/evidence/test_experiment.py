"""A run of a comparison or a sweep: where the lowest blocks are frozen they are computed once, and nothing else is."""

from contextlib import contextmanager
from functools import cache, partial

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tlkit import strategies
from tlkit.evaluation import perplexity
from tlkit.evidence import experiment as experiments
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import load_experiment, run_strategy
from tlkit.models import load_model
from tlkit.models.prefix import cached_prefix
from tlkit.settings import Profile
from tlkit.training import TrainingConfig, batch_at, learning_rate_factor, total_steps, train

PROFILE = Profile("test", train_passages=3, test_passages=5, epochs=1, seeds=2)
FEW = Profile("few", train_passages=2, test_passages=1, epochs=1, seeds=1)
CONFIG = TrainingConfig(1e-2, epochs=3, batch_size=4)


@pytest.fixture
def caches(monkeypatch) -> list:
    """Each cache that a run has made."""
    made = []

    @contextmanager
    def noted(model, **options):
        with cached_prefix(model, **options) as cache:
            made.append(cache)
            yield cache

    monkeypatch.setattr(experiments, "cached_prefix", noted)
    return made


@pytest.fixture
def last_block_alone(monkeypatch):
    """`last_layers` without the norms of other blocks: nothing below the last block is trained."""
    one = partial(strategies.STRATEGIES["last_layers"], blocks=1, train_norms=False)
    monkeypatch.setitem(strategies.STRATEGIES, "last_layers", one)


@cache
def experiment_of(small_model: str, profile: Profile, **settings):
    return load_experiment(small_model, profile, ComparisonSettings(**settings))[0]


def run(small_model: str, strategy: str = "last_layers", config: TrainingConfig = CONFIG, profile=PROFILE, **settings):
    experiment = experiment_of(small_model, profile, **settings)
    report, result, figures, _ = run_strategy(experiment, strategy, config, "validation")
    score = experiment.score(report.model, experiment.data.used.validation)
    assert figures["perplexity"] == score.perplexity
    return experiment, report, result, score


def test_a_frozen_prefix_is_computed_once_and_changes_no_result(small_model, caches, last_block_alone):
    """1e-6: a batch of which some rows are known is cut otherwise, and fp32 adds in another order."""
    experiment, report, result, found = run(small_model)
    (cache,) = caches
    assert (cache.rows_computed, cache.rows_reused) == (len(experiment.blocks), 2 * len(experiment.blocks))
    assert not cache._states, "it is gone when the run ends"
    assert not any("forward" in vars(module) for module in report.model.modules())
    fresh = load_model(small_model)
    by_hand = strategies.apply_strategy(fresh.model, "last_layers")
    expected = train(by_hand.model, experiment.blocks, CONFIG)
    assert result.history.loss.tolist() == pytest.approx(expected.history.loss.tolist(), rel=1e-6)
    score = perplexity(by_hand.model, fresh.tokenizer, experiment.data.used.validation, context=64)
    assert found.perplexity == pytest.approx(score.perplexity, rel=1e-6)


def test_what_is_not_frozen_or_not_read_twice_is_computed_as_ever(small_model, caches):
    for strategy in ("full", "last_layers", "lora"):  # `last_layers` trains the norm of the first block
        run(small_model, strategy)
    assert not caches


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (TrainingConfig(1e-2, epochs=1, batch_size=4), {}),
        (CONFIG, {"fallback": True}),
        (CONFIG, {"device_memory": "100MiB"}),
    ],
)
def test_it_is_left_where_it_would_not_help_or_be_in_the_way(small_model, caches, last_block_alone, config, settings):
    run(small_model, config=config, **settings)
    assert not caches


def test_it_is_left_where_it_would_not_fit_in_memory(small_model, caches, last_block_alone, monkeypatch):
    experiment = experiment_of(small_model, PROFILE)
    needed = experiment.blocks.numel() * 32 * 4
    for limit, more in ((needed, 1), (needed - 1, 0)):
        caches.clear()
        monkeypatch.setattr(experiments, "LIMIT", limit)
        run(small_model)
        assert len(caches) == more


@pytest.mark.parametrize("strategy", ["prompt_tuning", "prefix_tuning"])
def test_a_learned_prompt_is_scored_in_windows_that_it_leaves_room_for(small_model, strategy):
    """The model reads 64 tokens, 16 of them learned; every token of the text is scored all the same."""
    _, report, _, score = run(small_model, strategy, TrainingConfig(1e-2), block_size=32)
    _, _, _, whole = run(small_model, "bitfit", TrainingConfig(1e-2), block_size=32)
    assert (score.context, score.stride) == (48, 48)
    assert (whole.context, whole.stride) == (64, 64)
    assert score.document_tokens == whole.document_tokens
    with pytest.raises(ValueError, match="blocks of 64 tokens: this model reads at most 48"):
        run(small_model, strategy, TrainingConfig(1e-2))


def test_lora_in_bf16_is_plain_transformers_and_peft_in_bf16(small_model):
    """Frozen weights in bf16, adapters in fp32, autocast; 1e-3: a bf16 product is rounded to 8 bits in either."""
    experiment, report, result, _ = run(small_model, "lora", precision="bf16")
    assert experiment.precision == experiment.settings["precision"] == "bf16"
    torch.manual_seed(CONFIG.seed)
    base = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.bfloat16)
    torch.manual_seed(CONFIG.seed)
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
    assert {(p.dtype, p.requires_grad) for p in report.model.parameters()} == {
        (p.dtype, p.requires_grad) for p in model.parameters()
    }
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, weight_decay=CONFIG.weight_decay)
    total, losses = total_steps(len(experiment.blocks), CONFIG), []
    for step in range(total):
        optimizer.param_groups[0]["lr"] = CONFIG.learning_rate * learning_rate_factor(step, total, CONFIG)
        batch = batch_at(step, experiment.blocks, CONFIG)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CONFIG.max_gradient_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert result.history.loss.tolist() == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("strategy", [name for name, family in strategies.FAMILIES.items() if family != "head"])
def test_in_bf16_what_is_trained_stays_in_fp32_and_the_result_is_near(small_model, strategy):
    """1% of perplexity: an epoch of a model without knowledge, rounded to 8 bits in every product."""
    config, how = TrainingConfig(3e-3, epochs=1, batch_size=4), {"profile": FEW, "block_size": 32}
    exact, rounded = (run(small_model, strategy, config, precision=name, **how) for name in ("fp32", "bf16"))
    assert {p.dtype for p in rounded[1].model.parameters() if p.requires_grad} == {torch.float32}
    frozen = {p.dtype for p in rounded[1].model.parameters() if not p.requires_grad and p.is_floating_point()}
    beside = strategies.FAMILIES[strategy] == "peft" and strategy not in ("prompt_tuning", "prefix_tuning", "ln_tuning")
    assert (torch.bfloat16 in frozen) is beside and (beside or frozen <= {torch.float32})
    assert rounded[3].perplexity == pytest.approx(exact[3].perplexity, rel=1e-2)
    assert exact[0].settings["precision"] == "fp32"

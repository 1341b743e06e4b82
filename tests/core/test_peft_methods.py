"""peft's methods through `apply_strategy`: what plain peft does, on every architecture that allows them."""

import math

import peft
import pytest
import torch
from peft.optimizers import create_loraplus_optimizer
from small_models import ARCHITECTURES, small_model

from tlkit.adapters import adapter_names
from tlkit.models import load_model, longest_input, meta_model, save_model
from tlkit.models.checks import largest_change, logits_of
from tlkit.prefix import NoFrozenPrefix, cached_prefix, frozen_blocks
from tlkit.steps import Plan, TrainingState, take_step
from tlkit.strategies import FAMILIES, STRATEGIES, apply_strategy, describe
from tlkit.training import TrainingConfig, train

METHODS = [name for name, family in FAMILIES.items() if family == "peft"]
BLOCKS = torch.randint(3, 64, (8, 16), generator=torch.Generator().manual_seed(1))
STEADILY = TrainingConfig(
    1e-2, batch_size=2, schedule="constant", warmup_fraction=0, weight_decay=0.0, max_gradient_norm=math.inf
)
LORA = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
# What the documentation of peft says for each, written out once more.
PLAIN = {
    "lora": lambda model: peft.LoraConfig(**LORA),
    "dora": lambda model: peft.LoraConfig(**LORA, use_dora=True),
    "rslora": lambda model: peft.LoraConfig(**LORA, use_rslora=True),
    "pissa": lambda model: peft.LoraConfig(**LORA | {"lora_alpha": 8}, init_lora_weights="pissa"),
    "lora_fa": lambda model: peft.LoraConfig(**LORA),
    "lora_plus": lambda model: peft.LoraConfig(**LORA),
    "ia3": lambda model: peft.IA3Config(),
    "vera": lambda model: peft.VeraConfig(r=64, target_modules="all-linear"),
    "oft": lambda model: peft.OFTConfig(r=0, oft_block_size=16, target_modules="all-linear"),
    "prompt_tuning": lambda model: peft.PromptTuningConfig(num_virtual_tokens=16, prompt_tuning_init="SAMPLE_VOCAB"),
    "prefix_tuning": lambda model: peft.PrefixTuningConfig(num_virtual_tokens=16, init_weights="zero"),
    "ln_tuning": lambda model: peft.LNTuningConfig(
        target_modules=[name for name, _ in model.named_modules() if name.endswith("norm")]
    ),
}
# By architecture, what cannot be, and a piece of the reason.
REFUSED = {
    "gpt2": {"qlora": "no linear layers", "oft": "Conv1D"},
    "falcon": {"prefix_tuning": "must match"},
    "codegen": {"ia3": "target_modules"},
    "mpt": {"ia3": "Please specify"},
    "mixtral": {"dora": "use_dora", "pissa": "peft cannot adapt"},
}


def adapted(name: str, kind: str = "qwen2", **options):
    model = small_model(kind, max_position_embeddings=64) if kind in ("qwen2", "llama") else small_model(kind)
    torch.manual_seed(1)  # an adapter's first values
    return apply_strategy(model, name, **options)


def test_the_family_is_there():
    assert set(METHODS) == {*PLAIN, "qlora"}
    for name in METHODS:
        assert "Source: " in STRATEGIES[name].__doc__, name


@pytest.mark.parametrize("name", PLAIN)
def test_losses_are_those_of_plain_peft(name):
    """1e-6 of the loss: the same sums; LoRA+ by peft's own optimizer, LoRA-FA with A frozen, as its paper has it."""
    model = small_model("qwen2", max_position_embeddings=64)
    config = PLAIN[name](model)
    config.task_type = "CAUSAL_LM"
    torch.manual_seed(1)
    theirs = peft.get_peft_model(model, config)
    if name == "lora_fa":
        for key, parameter in theirs.named_parameters():
            parameter.requires_grad_("lora_B" in key)
    trainable = [parameter for parameter in theirs.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)
    if name == "lora_plus":
        plus = {"lr": 1e-2, "loraplus_lr_ratio": 16, "weight_decay": 0.0}
        optimizer = create_loraplus_optimizer(theirs, torch.optim.AdamW, **plus)
    ours = adapted(name)
    steps = train(ours.model, BLOCKS, STEADILY, progress=False).history
    order = torch.randperm(len(BLOCKS), generator=torch.Generator().manual_seed(0))
    losses = []
    for rows in order.split(2):
        labels = BLOCKS[rows].clone()
        labels[:, 0] = -100  # which a learned prompt could predict; it is scored with no method, so that all compare
        loss = theirs(input_ids=BLOCKS[rows], labels=labels, use_cache=False).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert sum(p.numel() for p in trainable) == ours.trainable_values
    assert steps.loss.tolist() == pytest.approx(losses, rel=1e-6)
    assert max(losses) - min(losses) > 1e-3, "a run that learns nothing would agree with anything"


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_architecture_is_adapted_or_refused_in_one_line(kind):
    for name in METHODS:
        if said := REFUSED.get(kind, {}).get(name):
            for model in (small_model(kind), meta_model(small_model(kind).config)):
                with pytest.raises(ValueError, match=said) as caught:
                    apply_strategy(model, name)
                assert "\n" not in str(caught.value) and str(caught.value).startswith(name)
            continue
        report = adapted(name, kind)
        model, added = report.model, adapter_names(report.model)
        trainable = {key: p for key, p in model.named_parameters() if p.requires_grad}
        assert set(trainable) <= added, (kind, name)
        values = sum(p.numel() for p in trainable.values())
        beside = report.components["adapters"]
        assert values == report.trainable_values == beside.trainable_values, (kind, name)
        on_paper = apply_strategy(meta_model(small_model(kind).config), name)
        assert on_paper.components == report.components, (kind, name)
        before = {key: p.detach().clone() for key, p in model.named_parameters()}
        state = TrainingState(model)
        for _ in range(2):  # LoRA's A receives a gradient from the second step on
            take_step(state, BLOCKS[:4], 1e-2)
        moved = {key for key, p in model.named_parameters() if not torch.equal(p, before[key])}
        # Keys' biases have no influence, nor has what experts of no token would do.
        assert moved <= set(trainable) and len(moved) >= 0.8 * len(trainable), (kind, name)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "qlora"])
def test_beside_weights_in_four_bits(name, tmp_path, tiny):
    pytest.importorskip("bitsandbytes")
    loaded = load_model("tiny")
    if name == "pissa":
        with pytest.raises(ValueError, match="4 bits do not hold"):
            apply_strategy(loaded.model, "qlora", method=name)
        return
    report = apply_strategy(loaded.model, "qlora", method=name)
    plain = apply_strategy(load_model("tiny").model, name)
    assert (report.trainable_values, report.total_values) == (plain.trainable_values, plain.total_values)
    blocks = BLOCKS[:4].repeat(1, 2)
    losses = train(report.model, blocks, TrainingConfig(5e-3, batch_size=4, epochs=4, warmup_fraction=0)).history.loss
    assert losses.iloc[-1] < losses.iloc[0]
    save_model(report.model, tiny.tokenizer, tmp_path / name)
    ids = torch.arange(100, 140)[None]
    assert torch.equal(logits_of(load_model(tmp_path / name).model, ids), logits_of(report.model, ids))


def test_options_of_the_method_beside_four_bits_are_checked():
    for options, said in (
        ({"method": "ia3", "r": 4}, "qlora has no option r: expected method$"),
        ({"method": "full"}, "method='full'.: expected a method of peft"),
        ({"method": "nothing"}, "'nothing' is unknown"),
        ({"method": "vera", "r": "four"}, "r='four': expected a value of type int"),
    ):
        with pytest.raises(ValueError, match=said):
            apply_strategy(meta_model("tiny"), "qlora", **options)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "qlora"])
def test_a_trained_adapter_is_saved_loaded_and_merged(name, tmp_path, tiny):
    """Merged, sums are taken in another order: 1e-4 of the logits' spread."""
    loaded = load_model("tiny")
    torch.manual_seed(1)
    report = apply_strategy(loaded.model, name)
    train(report.model, BLOCKS.repeat(1, 2), TrainingConfig(1e-2, batch_size=4))
    ids = torch.arange(100, 140)[None]
    expected = logits_of(report.model, ids)
    assert largest_change(logits_of(tiny.model, ids), expected[:, -40:]) > 1e-3
    save_model(report.model, tiny.tokenizer, tmp_path / name)
    assert torch.equal(logits_of(load_model(tmp_path / name).model, ids), expected)
    if name in ("prompt_tuning", "prefix_tuning"):
        with pytest.raises(ValueError, match="or none of adapter='merge'"):
            load_model(tmp_path / name, adapter="merge")
        return
    merged = load_model(tmp_path / name, adapter="merge").model
    assert largest_change(expected, logits_of(merged, ids)) <= 1e-4 and not adapter_names(merged)


@pytest.mark.parametrize("name", ["dora", "rslora", "pissa"])
def test_an_adapter_is_continued_by_the_method_that_made_it(name, tmp_path, tiny):
    torch.manual_seed(1)
    save_model(apply_strategy(load_model("tiny").model, name).model, tiny.tokenizer, tmp_path / name)
    held = load_model(tmp_path / name, adapter="continue").model
    with pytest.raises(ValueError, match=f"lora: the adapter was trained with {name}: continue it with that"):
        apply_strategy(held, "lora")
    assert apply_strategy(held, name).trainable == adapter_names(held)


@pytest.mark.parametrize("name", ["dora", "rslora", "pissa", "lora_fa", "lora_plus", "vera", "oft"])
def test_over_a_frozen_prefix_the_losses_stay(name):
    """1e-6: another order of sums. Adapters in the last block alone, so the two below are computed once."""
    targets = [f"model.layers.2.{part}" for part in ("self_attn.q_proj", "mlp.down_proj")]
    if name == "vera":  # whose shared matrices are as large as the largest layer, so one kind of layer will do
        targets = targets[:1]
    config = TrainingConfig(1e-2, batch_size=4, epochs=2)
    expected = train(adapted(name, targets=targets).model, BLOCKS, config).history.loss
    model = adapted(name, targets=targets).model
    with cached_prefix(model) as cache:
        found = train(model, BLOCKS, config).history.loss
    assert (cache.blocks, cache.rows_computed, cache.rows_reused) == (2, 8, 8)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-6)


@pytest.mark.parametrize("name", ["prompt_tuning", "prefix_tuning"])
def test_what_is_learned_stands_before_every_text(name):
    report = adapted(name)
    assert longest_input(report.model) == 64 - 16
    with pytest.raises(NoFrozenPrefix, match="stands before the text in every block"):
        frozen_blocks(report.model)
    whole = train(adapted(name).model, BLOCKS, STEADILY).history.loss
    parts = train(adapted(name).model, BLOCKS, STEADILY, plan=Plan(micro_batch_size=1)).history.loss
    assert parts.tolist() == pytest.approx(whole.tolist(), rel=1e-5)


def test_a_learned_prefix_is_not_lost_by_activation_checkpointing():
    """transformers leaves out keys and values of earlier tokens there; so the plan is refused before a step."""
    with pytest.raises(ValueError, match="leaves out what prefix_tuning has learned"):
        train(adapted("prefix_tuning").model, BLOCKS, STEADILY, plan=Plan(activation_checkpointing=True))
    losses = [
        train(adapted("prompt_tuning").model, BLOCKS, STEADILY, plan=plan).history.loss.tolist()
        for plan in (Plan(), Plan(activation_checkpointing=True))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_impossible_options_are_refused():
    for name, options, said in (
        ("dora", {"r": 0}, "dora.r=0.: expected a rank"),
        ("vera", {"r": -1}, "vera.r=-1.: expected a rank"),
        ("oft", {"block": 1}, "at least 2 inputs"),
        ("prompt_tuning", {"tokens": 0}, "at least 1 token"),
        ("prefix_tuning", {"tokens": 0}, "at least 1 token"),
        ("lora_plus", {"ratio": 0.0}, "a ratio above 0"),
        ("rslora", {"targets": ["nowhere"]}, "rslora: peft cannot adapt Qwen2ForCausalLM by this method: .*nowhere"),
        ("ia3", {"r": 8}, "ia3 has no option r: expected none"),
    ):
        with pytest.raises(ValueError, match=said):
            adapted(name, **options)


def test_lora_fa_keeps_less_of_a_step():
    """Its point: with A frozen, no layer keeps its input, only the r values that A makes of it."""
    from tlkit.fitting.estimate import estimate_memory

    shape = {"batch_size": 4, "sequence_length": 128}
    lora, frozen = (estimate_memory("tiny", name, **shape) for name in ("lora", "lora_fa"))
    assert frozen.categories["activations"] < lora.categories["activations"]


def test_the_report_of_a_method_counts_norms_as_adapters():
    report = apply_strategy(meta_model("tiny"), "ln_tuning")
    assert report.components["adapters"].trainable_values == (2 * 8 + 1) * 192 == report.trainable_values
    assert describe(meta_model("tiny")).total_values + report.trainable_values == report.total_values

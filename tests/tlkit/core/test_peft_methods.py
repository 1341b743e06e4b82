"""peft's methods through `apply_strategy`: what plain peft does, on every architecture that allows them."""

import copy
import math
import re

import peft
import pytest
import torch
from peft.optimizers import create_loraplus_optimizer
from small_models import ARCHITECTURES, small_model
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.evidence.expectations import gradient_flow
from tlkit.models import load_model, meta_model, save_model
from tlkit.models.parts import adapter_names, largest_change, logits_of, longest_input
from tlkit.models.prefix import NoFrozenPrefix, cached_prefix
from tlkit.steps import NothingToTrain, Plan, TrainingState, take_step
from tlkit.strategies import FAMILIES, apply_strategy
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
    "mpt": {"ia3": "its table of layers has no entry for this architecture"},
    "mixtral": {"dora": "use_dora", "pissa": "peft cannot adapt"},
}


# Every method on two architectures, one method on every one, and all that is refused.
PAIRS = {(kind, name) for kind in ("qwen2", "gpt2") for name in METHODS}
PAIRS |= {(kind, "lora") for kind in ARCHITECTURES}
PAIRS |= {(kind, name) for kind, names in REFUSED.items() for name in names}


def adapted(name: str, **options):
    model = small_model("qwen2", max_position_embeddings=64)
    torch.manual_seed(1)  # an adapter's first values
    return apply_strategy(model, name, **options)


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """Two small blocks that read the tokens of the bundled model."""
    where = tmp_path_factory.mktemp("base")
    model = small_model("qwen2", vocab_size=4096, max_position_embeddings=64, num_hidden_layers=2)
    save_model(model, tiny.tokenizer, where)
    return where


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
    steps = train(ours.model, BLOCKS, STEADILY, groups=ours.groups).history
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
    assert sum(p.numel() for p in trainable) == ours.trainable_parameters
    assert steps.loss.tolist() == pytest.approx(losses, rel=1e-6)
    assert max(losses) - min(losses) > 1e-3, "a run that learns nothing would agree with anything"


@pytest.mark.parametrize(("kind", "name"), sorted(PAIRS))
def test_a_method_adapts_an_architecture_or_refuses_in_one_line(kind, name):
    two = {} if kind == "gpt_neo" else {"num_hidden_layers": 2}  # gpt_neo's three are listed one by one
    plain = small_model(kind, **two)
    on_paper = meta_model(copy.deepcopy(plain.config))
    if said := REFUSED.get(kind, {}).get(name):
        for model in (plain, on_paper):
            with pytest.raises(ValueError, match=said) as caught:
                apply_strategy(model, name)
            assert "\n" not in str(caught.value) and str(caught.value).startswith(name)
        return
    report = apply_strategy(plain, name)
    trainable = {key: p for key, p in report.model.named_parameters() if p.requires_grad}
    assert set(trainable) <= adapter_names(report.model)
    values = sum(p.numel() for p in trainable.values())
    assert values == report.trainable_parameters == report.components["adapters"].trainable_parameters
    assert apply_strategy(on_paper, name).components == report.components
    before = {key: p.detach().clone() for key, p in report.model.named_parameters()}
    state = TrainingState(report.model)
    for _ in range(2):  # LoRA's A receives a gradient from the second step on
        take_step(state, BLOCKS[:4], 1e-2)
    moved = {key for key, p in report.model.named_parameters() if not torch.equal(p, before[key])}
    # Keys' biases have no influence, nor has what experts of no token would do.
    assert moved <= set(trainable) and len(moved) >= 0.8 * len(trainable)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "qlora"])
def test_a_trained_adapter_is_saved_loaded_and_merged(name, tmp_path, tiny, folder):
    """Merged, sums are taken in another order: 1e-4 of the logits' spread."""
    loaded = load_model(folder)
    torch.manual_seed(1)
    report = apply_strategy(loaded.model, name)
    train(report.model, BLOCKS.repeat(1, 2), TrainingConfig(1e-2, batch_size=4))
    ids = torch.arange(100, 140)[None]
    expected = logits_of(report.model, ids)
    assert largest_change(logits_of(load_model(folder).model, ids), expected[:, -40:]) > 1e-3
    save_model(report.model, tiny.tokenizer, tmp_path / name)
    assert torch.equal(logits_of(load_model(tmp_path / name).model, ids), expected)
    if name in ("prompt_tuning", "prefix_tuning"):
        with pytest.raises(ValueError, match="part of no weight and cannot be merged"):
            load_model(tmp_path / name, adapter="merge")
        return
    merged = load_model(tmp_path / name, adapter="merge").model
    assert largest_change(expected, logits_of(merged, ids)) <= 1e-4 and not adapter_names(merged)


@pytest.mark.parametrize(
    ("name", "another", "said"),
    [
        ("dora", "lora", "lora: the adapter counts as trained with dora: continue it so"),
        ("lora_fa", "lora_fa", "lora_fa: the adapter counts as trained with lora"),
    ],
)
def test_an_adapter_is_continued_by_the_method_that_made_it(name, another, said, tmp_path, tiny, folder):
    """What no file tells from LoRA's is continued as that."""
    torch.manual_seed(1)
    save_model(apply_strategy(load_model(folder).model, name).model, tiny.tokenizer, tmp_path / name)
    held = load_model(tmp_path / name, adapter="continue").model
    with pytest.raises(ValueError, match=said):
        apply_strategy(held, another)
    assert apply_strategy(held, name if another == "lora" else "lora").trainable == adapter_names(held)


@pytest.mark.parametrize("name", ["prompt_tuning", "prefix_tuning"])
def test_what_is_learned_stands_before_every_text(name):
    report = adapted(name)
    assert longest_input(report.model) == 64 - 16
    with (
        pytest.raises(NoFrozenPrefix, match="stands before the text in every block"),
        cached_prefix(report.model),
    ):
        pass
    whole = train(adapted(name).model, BLOCKS, STEADILY).history.loss
    parts = train(adapted(name).model, BLOCKS, STEADILY, plan=Plan(micro_batch_size=1)).history.loss
    assert parts.tolist() == pytest.approx(whole.tolist(), rel=1e-5)


def test_a_learned_prefix_is_not_lost_by_activation_checkpointing():
    """transformers leaves out keys and values of earlier tokens there; so the plan is refused before a step."""
    for name in ("prompt_tuning", "prefix_tuning"):
        with pytest.raises(ValueError, match="chunked_loss leaves out a prompt or prefix that was learned"):
            train(adapted(name).model, BLOCKS, STEADILY, plan=Plan(chunked_loss=True))
    with pytest.raises(ValueError, match="leaves out what prefix_tuning has learned"):
        train(adapted("prefix_tuning").model, BLOCKS, STEADILY, plan=Plan(activation_checkpointing=True))
    losses = [
        train(adapted("prompt_tuning").model, BLOCKS, STEADILY, plan=plan).history.loss.tolist()
        for plan in (Plan(), Plan(activation_checkpointing=True))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_impossible_options_are_refused():
    for name, options, said in (
        ("dora", {"r": 0}, "peft cannot adapt Qwen2ForCausalLM by this method: .*r. should be a positive integer"),
        ("rslora", {"targets": ["nowhere"]}, "peft cannot adapt Qwen2ForCausalLM by this method: .*nowhere"),
        ("last_layers", {"blocks": 4}, "expected 1 to 3"),
        ("adapter", {}, "unknown: expected one of full"),
        ("ia3", {"r": 4}, "ia3 has no option r: expected none$"),
        ("qlora", {"r": "four"}, "qlora: r='four': expected a value of type int"),
        ("qlora", {"targets": math.inf}, "qlora: targets=inf: expected a value of type number"),
    ):
        with pytest.raises(ValueError, match=said):
            adapted(name, **options)


ATTENTION = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64}
# What the tests above do not meet: weights used past their layers, parts that are never used.
UNUSUAL = {
    "openai-gpt": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "jamba": ATTENTION
    | {"num_hidden_layers": 2, "num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 2}
    | {"attn_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False},
    "bart": {"d_model": 32, "decoder_layers": 2, "encoder_layers": 2, "decoder_attention_heads": 2}
    | {"encoder_attention_heads": 2, "decoder_ffn_dim": 64, "encoder_ffn_dim": 64},
}


def unusual(kind: str):
    torch.manual_seed(0)
    tokens = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **tokens | UNUSUAL[kind]))


def test_an_adapter_that_nothing_uses_is_refused_in_the_first_step():
    with pytest.raises(NothingToTrain):
        train(apply_strategy(unusual("openai-gpt"), "prefix_tuning").model, BLOCKS, STEADILY)


@pytest.mark.parametrize(("kind", "without", "part"), [("jamba", 2, "dt_proj"), ("bart", 16, "encoder_attn")])
def test_parts_of_an_adapter_that_nothing_uses_are_found_by_their_gradients(kind, without, part):
    flow = gradient_flow(apply_strategy(unusual(kind), "lora"), BLOCKS[:4])
    unused = flow[flow.fault.eq("trainable, but no gradient reaches it")]
    assert len(unused) == without and unused.tensor.str.contains(part).all()


def test_what_gets_no_adapter_is_said():
    (doubt,) = apply_strategy(small_model("mixtral"), "vera").doubts
    assert re.search("no adapter beside 74,112 of the blocks' .* values .*gate", doubt)


def test_lora_fa_keeps_less_of_a_step():
    """Its point: with A frozen, no layer keeps its input, only the r values that A makes of it."""
    from tlkit.fitting.estimate import estimate_memory

    shape = {"batch_size": 4, "sequence_length": 32}
    lora, frozen = (estimate_memory(adapted(name).model, **shape) for name in ("lora", "lora_fa"))
    assert frozen.categories["activations"] < lora.categories["activations"]

"""What may be loaded as a causal language model, what is refused, and that every architecture is scored and heard."""

import hashlib
import json
import os
import shutil

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import generate, greedy
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from tlkit.corpus import load_corpus, token_stream
from tlkit.evaluation import perplexity
from tlkit.models import load_model, meta_model, save_model
from tlkit.models.loading import refuse_sight_of_the_future
from tlkit.models.parts import evaluation_mode, largest_change, logits_of, longest_input, rounding
from tlkit.presets import BUNDLED

TEXTS = load_corpus("rust").test[:2]
PROMPTS = ["In Rust, Vec<T> is", "Ownership", "The Result", "The borrow checker refuses a program that"]
LLAMA = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2)
GPT2 = dict(n_embd=32, n_head=4, n_layer=2)
SHORT = {"max_position_embeddings": 128}
# Each family with its depth, width, and the most tokens it reads (None: no limit).
CAUSAL = {
    "gpt2": (GPT2 | {"n_positions": 128}, 128),
    "gptj": (GPT2 | {"n_positions": 128, "rotary_dim": 4}, 128),
    "gpt_neo": (
        dict(hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]) | SHORT,
        128,
    ),
    "opt": (dict(hidden_size=32, ffn_dim=48, num_attention_heads=4, word_embed_proj_dim=32) | SHORT, 128),
    "gpt_neox": (LLAMA | SHORT, 128),
    "llama": (LLAMA | SHORT, 128),
    "qwen2": (LLAMA | SHORT, 128),
    "gemma2": (LLAMA | SHORT | {"head_dim": 8}, 128),
    "mixtral": (LLAMA | SHORT | {"num_local_experts": 4}, 128),
    "bloom": (dict(hidden_size=32, n_layer=2, n_head=4), None),
    "xglm": (dict(d_model=32, num_layers=2, attention_heads=4, ffn_dim=48) | SHORT, 128),
    "falcon": (dict(hidden_size=32, num_attention_heads=4) | SHORT, 128),
    "mamba": (dict(hidden_size=32), None),
}
MASKED = {
    "bert": LLAMA | SHORT,
    "roberta": LLAMA | SHORT,
    "xlnet": dict(d_model=32, n_layer=2, n_head=4, d_inner=48),
}


def small(kind: str, sizes: dict, **more) -> torch.nn.Module:
    depth = {} if any(key.startswith("n_l") for key in sizes) or "num_layers" in sizes else {"num_hidden_layers": 2}
    tokens = dict(vocab_size=4096, pad_token_id=0, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(tokens | depth | sizes | more)))


@pytest.mark.parametrize("kind", CAUSAL)
def test_every_causal_architecture_is_loaded_scored_and_continued(kind, tiny, tmp_path):
    sizes, limit = CAUSAL[kind]
    model = small(kind, sizes)
    save_model(model, tiny.tokenizer, tmp_path)
    loaded = load_model(tmp_path)
    for mine, theirs in zip(model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert longest_input(loaded.model) == limit
    result = perplexity(loaded.model, tiny.tokenizer, TEXTS)
    assert result.context == result.stride == (limit or 256) and result.tokens == sum(result.document_tokens)
    stream, _ = token_stream([" ".join(TEXTS)], tiny.tokenizer)
    logits = logits_of(loaded.model, stream[None, : result.context])[0].double()
    expected = torch.nn.functional.cross_entropy(logits, stream[1 : result.context + 1], reduction="sum").item()
    first = perplexity(loaded.model, tiny.tokenizer, [tiny.tokenizer.decode(stream[1 : result.context + 1])])
    assert sum(first.document_nats) == pytest.approx(expected, rel=1e-4)  # fp32, in windows of other shapes
    loaded.model.generation_config.eos_token_id = 4095  # random weights are to write to the end
    written = generate(loaded.model, tiny.tokenizer, PROMPTS, new_tokens=4)
    prompts = [tiny.tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    assert written == [tiny.tokenizer.decode([*ids, *greedy(loaded.model, ids, 4)]) for ids in prompts]


@pytest.mark.parametrize("kind", MASKED)
def test_a_model_that_sees_the_future_is_refused(kind, tiny, tmp_path):
    save_model(small(kind, MASKED[kind]), tiny.tokenizer, tmp_path)
    for how in ({}, {"random_init": True}):
        with pytest.raises(ValueError, match="sees the tokens that it is to predict") as caught:
            load_model(tmp_path, **how)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("place", "seen"), [(0, 1), (20, -1)], ids=["in a short prefix", "far into a text"])
def test_a_glimpse_of_the_future_is_found_wherever_it_is(place, seen, tiny):
    model = small("qwen2", CAUSAL["qwen2"][0])

    def leak(module, inputs, embedded):
        if embedded.shape[1] > place:
            embedded[:, place] += embedded[:, seen]

    refuse_sight_of_the_future("mine", model, tiny.tokenizer)
    model.get_input_embeddings().register_forward_hook(leak)
    with pytest.raises(ValueError, match="sees the tokens that it is to predict"):
        refuse_sight_of_the_future("mine", model, tiny.tokenizer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_round_less_and_a_glimpse_of_the_future_changes_more_than_is_tolerated(dtype, tiny):
    """Experts that get one token more round by millionths; a leak moves logits by what attention is worth."""
    ids = torch.tensor([tiny.tokenizer(TEXTS[0])["input_ids"][:8]])
    other = torch.cat([ids[:, :-1], ids[:, -1:] + 1], 1)
    changes = {}
    for kind, sizes in (("mixtral", CAUSAL["mixtral"][0]), ("bert", MASKED["bert"])):
        model = small(kind, sizes).to(dtype)
        with torch.no_grad():  # as large as in a trained model
            for name, parameter in model.named_parameters():
                parameter.mul_(10 if "attn" in name or "attention" in name else 1)
        changes[kind] = largest_change(logits_of(model, ids)[:, :-1], logits_of(model, other)[:, :-1])
    assert changes["mixtral"] <= rounding(model) / 10 and changes["bert"] > 3 * rounding(model)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("model/model.safetensors", "is model.safetensors: expected a folder"),
        ("other.gguf", "is other.gguf: .*llama.cpp"),
        ("gguf", "is other.gguf: .*llama.cpp"),
        ("pickle", "is pytorch_model.bin: .*pickle"),
    ],
)
def test_weights_in_another_format_are_called_by_their_name(path, said, tmp_path):
    for name, weights in (("model", "model.safetensors"), ("gguf", "other.gguf"), ("pickle", "pytorch_model.bin")):
        folder = shutil.copytree(BUNDLED, tmp_path / name)
        (folder / "model.safetensors").rename(folder / weights)
    shutil.copy(tmp_path / "gguf" / "other.gguf", tmp_path)
    with pytest.raises(ValueError, match=said):
        load_model(tmp_path / path)


def change_config(folder, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def change_weights(folder, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


UP = "model.layers.3.mlp.up_proj.weight"
FAULTS = {
    "24 weights of the file have no place": lambda folder: change_config(
        folder, num_hidden_layers=6, layer_types=["full_attention"] * 6
    ),
    "24 weights are not in the file": lambda folder: change_config(folder, intermediate_size=510),
    r"would stay random \(model.layers.3": lambda folder: change_weights(folder, lambda found: found.pop(UP)),
    r"would be left out \(v_head.weight": lambda folder: change_weights(
        folder, lambda found: found.update({"v_head.weight": torch.ones(3)})
    ),
    "not numbers": lambda folder: change_weights(folder, lambda found: found[UP].fill_(torch.nan)),
    "bundled model needs no network": lambda folder: os.truncate(folder / "model.safetensors", 10_000),
    "needs no network": lambda folder: change_config(folder, model_type="none such"),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_partial_or_damaged_model_is_refused_in_one_line(said, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    FAULTS[said](folder)
    with pytest.raises((ValueError, RuntimeError), match=said) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama"])
def test_masks_and_tables_in_old_files_do_no_harm(kind, tiny, tmp_path):
    """The files of EleutherAI and OpenAI on the hub have them; and some repeat the tied head."""
    model = small(kind, CAUSAL[kind][0], tie_word_embeddings=True)
    save_model(model, tiny.tokenizer, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    block, layer = {
        "gpt2": ("transformer.h.0", "attn"),
        "gpt_neox": ("gpt_neox.layers.0", "attention"),
        "llama": ("model.layers.0", "self_attn"),
    }[kind]
    weights |= {
        f"{block}.{layer}.bias": torch.ones(1, 1, 128, 128).tril().bool(),
        f"{block}.{layer}.masked_bias": torch.tensor(-1e9),
        f"{block}.{layer}.rotary_emb.inv_freq": torch.ones(4),
        "lm_head.weight": model.get_input_embeddings().weight.detach().clone(),
    }
    if kind == "llama":
        del weights[f"{block}.{layer}.bias"], weights[f"{block}.{layer}.masked_bias"]
    if kind == "gpt_neox":
        weights["embed_out.weight"] = weights.pop("lm_head.weight")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert load_model(tmp_path).tensors_loaded == len(list(model.parameters()))


def words(*known: str) -> PreTrainedTokenizerFast:
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(["<end>", "<unk>", *known])}, "<unk>"))
    made.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="<unk>")


@pytest.mark.parametrize("fault", ["no tokenizer.json", "all unknown"])
def test_a_tokenizer_that_reads_nothing_is_refused(fault, tmp_path):
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    if fault == "all unknown":
        words("let", "mut").save_pretrained(folder)
    for how in ({}, {"random_init": True}):
        with pytest.raises(ValueError, match="its tokenizer, of . tokens, makes '' of") as caught:
            load_model(folder, **how)
        assert "\n" not in str(caught.value)


def test_the_longest_input_of_an_architecture_on_paper():
    assert longest_input(meta_model("llama2-7b")) == 4096
    assert longest_input(small("falcon", CAUSAL["falcon"][0], alibi=True)) is None
    assert longest_input(small("bloom", CAUSAL["bloom"][0], seq_length=64)) is None


@pytest.mark.parametrize("shift", [0, 1])
def test_a_head_of_its_own_is_counted_where_it_is_loaded(shift, tiny, tmp_path):
    """The configuration ties head and embedding; the file decides."""
    folder = tmp_path / "model"
    save_model(tiny.model, tiny.tokenizer, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + shift
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    loaded, counted = load_model(str(folder)).model, meta_model(str(folder))
    sizes = [sum(p.numel() for p in model.parameters()) for model in (loaded, counted)]
    assert sizes[0] == sizes[1]
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == (shift == 0)


def test_a_tied_encoder_without_a_language_model_is_still_counted(tiny, tmp_path):
    """DistilBERT continues no text, so nobody asks for its language head."""
    config = AutoConfig.for_model("distilbert", dim=32, hidden_dim=64, n_layers=1, n_heads=2, vocab_size=4096)
    config.tie_word_embeddings = True
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    assert meta_model(str(tmp_path), classes=3).config.num_labels == 3


def test_more_than_a_model_reads_is_refused_before_it_fails(tiny):
    model = small("gpt2", CAUSAL["gpt2"][0])
    with pytest.raises(ValueError, match="context=129: expected 2 to 128"):
        perplexity(model, tiny.tokenizer, TEXTS, context=129)
    with pytest.raises(ValueError, match="reads at most 128"):
        generate(model, tiny.tokenizer, PROMPTS, new_tokens=127)
    with pytest.raises(ValueError, match="stride=0"):
        perplexity(model, tiny.tokenizer, TEXTS, stride=0)


def test_evaluation_leaves_modes_and_random_numbers_as_they_were(tiny):
    model = small("gpt2", CAUSAL["gpt2"][0]).train()
    model.transformer.h[0].eval()
    before = [module.training for module in model.modules()]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    generate(model, tiny.tokenizer, PROMPTS, new_tokens=2, temperature=1.0)
    perplexity(model, tiny.tokenizer, TEXTS)
    assert torch.equal(torch.rand(3), expected)
    with pytest.raises(ZeroDivisionError), evaluation_mode(model):
        assert not any(module.training for module in model.modules())
        raise ZeroDivisionError
    assert [module.training for module in model.modules()] == before


def test_the_bundled_model_comes_wholly_from_its_file(tiny):
    assert tiny.tensors_loaded == tiny.tensors_total == 98
    record = json.loads((BUNDLED / "training_record.json").read_text())
    assert record["sha256"] == hashlib.sha256((BUNDLED / "model.safetensors").read_bytes()).hexdigest()
    one, two = (load_model("tiny", random_init=True, seed=seed).model.lm_head.weight for seed in (0, 1))
    assert not torch.equal(one, two)

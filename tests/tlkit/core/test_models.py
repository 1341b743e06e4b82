"""What may be loaded as a causal language model, what is refused, and that every architecture is scored and heard."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from tlkit import evaluation
from tlkit.corpus import load_corpus, token_stream
from tlkit.evaluation import perplexity
from tlkit.models import BUNDLED, generate, load_model, meta_model, save_model
from tlkit.models.parts import longest_input
from tlkit.models.passes import evaluation_mode, largest_change, logits_of, rounding

TEXTS = load_corpus("rust").test[:2]
PROMPTS = ["In Rust, Vec<T> is", "Ownership", "The Result", "The borrow checker refuses a program that"]
LLAMA = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2)
GPT2 = dict(n_embd=32, n_head=4, n_layer=2)
SHORT = {"max_position_embeddings": 128}
# Each family with its depth, width, and the most tokens it reads (None: no limit).
CAUSAL = {
    "gpt2": (GPT2 | {"n_positions": 128}, 128),
    "gpt_bigcode": (GPT2 | {"n_positions": 128}, 128),
    "gptj": (GPT2 | {"n_positions": 128, "rotary_dim": 4}, 128),
    "codegen": (GPT2 | {"n_positions": 128, "rotary_dim": 4}, 128),
    "ctrl": (GPT2 | {"n_positions": 128, "dff": 48}, 128),
    "openai-gpt": (GPT2 | {"n_positions": 128}, 128),
    "gpt_neo": (
        dict(hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]) | SHORT,
        128,
    ),
    "opt": (dict(hidden_size=32, ffn_dim=48, num_attention_heads=4, word_embed_proj_dim=32) | SHORT, 128),
    "gpt_neox": (LLAMA | SHORT, 128),
    "phi": (LLAMA | SHORT, 128),
    "llama": (LLAMA | SHORT, 128),
    "qwen2": (LLAMA | SHORT, 128),
    "gemma2": (LLAMA | SHORT | {"head_dim": 8}, 128),
    "cohere": (LLAMA | SHORT, 128),
    "mixtral": (LLAMA | SHORT | {"num_local_experts": 4}, 128),
    "bloom": (dict(hidden_size=32, n_layer=2, n_head=4), None),
    "xglm": (dict(d_model=32, num_layers=2, attention_heads=4, ffn_dim=48) | SHORT, 128),
    "mpt": (dict(d_model=32, n_layers=2, n_heads=4, max_seq_len=128), 128),
    "falcon": (dict(hidden_size=32, num_attention_heads=4) | SHORT, 128),
    "mamba": (dict(hidden_size=32), None),
}
MASKED = {
    "bert": LLAMA | SHORT,
    "roberta": LLAMA | SHORT,
    "electra": LLAMA | SHORT | {"embedding_size": 32},
    "xlnet": dict(d_model=32, n_layer=2, n_head=4, d_inner=48),
}


def small(kind: str, sizes: dict, **more) -> torch.nn.Module:
    depth = {} if any(key.startswith("n_l") for key in sizes) or "num_layers" in sizes else {"num_hidden_layers": 2}
    tokens = dict(vocab_size=4096, pad_token_id=0, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(tokens | depth | sizes | more)))


def greedy(model: torch.nn.Module, tokenizer, prompt: str, new_tokens: int) -> str:
    """One token after the other, each the likeliest after all before it: nothing padded, nothing cached."""
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
    for _ in range(new_tokens):
        ids = torch.cat([ids, logits_of(model, ids)[:, -1:].argmax(-1)], 1)
    return tokenizer.decode(ids[0])


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
    stream, _ = token_stream(TEXTS, tiny.tokenizer)
    logits = logits_of(loaded.model, stream[None, : result.context])[0].double()
    expected = torch.nn.functional.cross_entropy(logits, stream[1 : result.context + 1], reduction="sum").item()
    first = perplexity(loaded.model, tiny.tokenizer, [tiny.tokenizer.decode(stream[1 : result.context + 1])])
    assert sum(first.document_nats) == pytest.approx(expected, rel=1e-4)  # fp32, in windows of other shapes
    loaded.model.generation_config.eos_token_id = 4095  # random weights are to write to the end
    written = generate(loaded.model, tiny.tokenizer, PROMPTS, new_tokens=4)
    assert written == [greedy(loaded.model, tiny.tokenizer, prompt, 4) for prompt in PROMPTS]


@pytest.mark.parametrize("kind", MASKED)
def test_a_model_that_sees_the_future_is_refused(kind, tiny, tmp_path):
    save_model(small(kind, MASKED[kind]), tiny.tokenizer, tmp_path)
    for how in ({}, {"random_init": True}):
        with pytest.raises(ValueError, match="sees the tokens that it is to predict") as caught:
            load_model(tmp_path, **how)
        assert "\n" not in str(caught.value)


def test_a_masked_architecture_that_is_made_a_decoder_is_causal(tiny, tmp_path):
    save_model(small("roberta", MASKED["roberta"], is_decoder=True), tiny.tokenizer, tmp_path)
    loaded = load_model(tmp_path)
    assert longest_input(loaded.model) == 127  # its positions begin behind the padding's, here number 0
    assert logits_of(loaded.model, torch.ones(1, 127, dtype=torch.long)).shape == (1, 127, 4096)


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


@pytest.mark.parametrize("fault", ["fewer blocks", "another width", "a head for values"])
def test_weights_that_the_model_leaves_out_are_refused(fault, tiny, tmp_path):
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    if fault == "fewer blocks":
        config |= {"num_hidden_layers": 6, "layer_types": config["layer_types"][:6]}
        said = "24 weights of the file have no place"
    elif fault == "another width":
        config |= {"intermediate_size": 510}
        said = "24 weights are not in the file"
    else:
        weights = load_file(folder / "model.safetensors")
        save_file(weights | {"v_head.weight": torch.ones(3)}, folder / "model.safetensors", {"format": "pt"})
        said = r"1 weights of the file have no place in the model and would be left out \(v_head.weight"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RuntimeError, match=said) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["gpt2", "gptj", "gpt_neo", "gpt_neox", "llama"])
def test_masks_and_tables_in_old_files_do_no_harm(kind, tiny, tmp_path):
    """The files of EleutherAI and OpenAI on the hub have them; and some repeat the tied head."""
    model = small(kind, CAUSAL[kind][0], tie_word_embeddings=True)
    save_model(model, tiny.tokenizer, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    block, layer = {
        "gpt2": ("transformer.h.0", "attn"),
        "gptj": ("transformer.h.0", "attn"),
        "gpt_neo": ("transformer.h.0", "attn.attention"),
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


@pytest.mark.parametrize("fault", ["no tokenizer.json", "no tokenizer files", "all unknown"])
def test_a_tokenizer_that_reads_nothing_is_refused(fault, tmp_path):
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    if fault == "no tokenizer files":
        (folder / "tokenizer_config.json").unlink()
    elif fault == "all unknown":
        words("let", "mut").save_pretrained(folder)
    for how in ({}, {"random_init": True}):
        with pytest.raises(ValueError, match="its tokenizer, of . tokens, makes '' of") as caught:
            load_model(folder, **how)
        assert "\n" not in str(caught.value)


def test_text_that_the_tokenizer_does_not_know_is_a_doubt(tiny):
    """Half of these words are one and the same token, which is soon learnt."""
    text = ["The quick brown fox jumps over the lazy dog ." * 60]
    half = words("The", "quick", "brown", "fox", "jumps")
    assert any("50% of the tokens are unknown" in said for said in perplexity(tiny.model, half, text).warnings)
    everything = words(*text[0].split(), ".The")
    assert not any("unknown" in said for said in perplexity(tiny.model, everything, text).warnings)


def test_damaged_weights_are_refused_when_the_model_is_loaded(tmp_path):
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.2.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="not numbers"):
        load_model(folder)


@pytest.mark.parametrize(
    "change", [{"num_hidden_layers": "eight"}, {"hidden_act": "none such"}, {"model_type": "none such"}]
)
def test_an_impossible_configuration_is_one_clear_line(change, tmp_path):
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match="bundled model needs no network") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_the_longest_input_of_an_architecture_on_paper():
    assert longest_input(meta_model("llama2-7b")) == 4096
    assert longest_input(small("falcon", CAUSAL["falcon"][0], alibi=True)) is None
    assert longest_input(small("bloom", CAUSAL["bloom"][0], seq_length=64)) is None


@pytest.mark.parametrize(("kind", "longest"), [("gpt2", 128), ("mpt", 128)])
def test_more_than_a_model_reads_is_refused_before_it_fails(kind, longest, tiny):
    model = small(kind, CAUSAL[kind][0])
    with pytest.raises(ValueError, match=f"context=129: expected 2 to {longest}"):
        perplexity(model, tiny.tokenizer, TEXTS, context=129)
    with pytest.raises(ValueError, match=f"reads at most {longest}"):
        generate(model, tiny.tokenizer, PROMPTS, new_tokens=127)
    with pytest.raises(ValueError, match="stride=0"):
        perplexity(model, tiny.tokenizer, TEXTS, stride=0)


def test_generation_needs_no_token_for_padding_or_for_the_end():
    """GPT-2's positions are learned one by one: a prompt that padding moved would be continued otherwise."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    tokenizer.pad_token = tokenizer.eos_token = None
    model = small("gpt2", CAUSAL["gpt2"][0], eos_token_id=None, pad_token_id=None)
    model.generation_config.eos_token_id = None
    together = generate(model, tokenizer, PROMPTS, new_tokens=6)
    assert together == [greedy(model, tokenizer, prompt, 6) for prompt in PROMPTS]
    assert together == generate(model, tokenizer, PROMPTS, new_tokens=6, batch_size=1)
    assert tokenizer.pad_token is None and tokenizer.eos_token is None
    with pytest.raises(ValueError, match="no end-of-text token"):
        perplexity(model, tokenizer, TEXTS)


def test_a_row_that_has_ended_is_not_filled_up_while_others_go_on():
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    tokenizer.pad_token = tokenizer.eos_token = None  # else the filling would be left out as a special token
    model, prompts = small("gpt2", CAUSAL["gpt2"][0]), [" own", " list", " the", " type"]
    freely = [generate(model, tokenizer, [prompt], new_tokens=1)[0] for prompt in prompts]
    assert len({len(tokenizer(prompt)["input_ids"]) for prompt in prompts}) == 1
    model.generation_config.eos_token_id = tokenizer(freely[0])["input_ids"][-1]
    written = generate(model, tokenizer, prompts, new_tokens=5)
    assert written[0] == freely[0] and len(written[1]) > len(freely[1])


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


def test_no_float64_is_made_on_a_device(tiny, monkeypatch):
    """Apple's GPUs have none. Losses are handed out by a stand-in that has no `double` before it is fetched."""
    losses = evaluation._losses

    class OnDevice:
        def __init__(self, tensor):
            self.tensor = tensor

        def cpu(self):
            return self.tensor

    expected = perplexity(tiny.model, tiny.tokenizer, TEXTS)
    monkeypatch.setattr(evaluation, "_losses", lambda *given: OnDevice(losses(*given)))
    assert perplexity(tiny.model, tiny.tokenizer, TEXTS) == expected

"""Load a model by preset, hub id or folder, and refuse one that did not really load."""

import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from peft import PeftConfig, PeftType, get_peft_model
from safetensors import safe_open
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tlkit.corpus import padding_token
from tlkit.models.parts import base_model, class_head, find_blocks, largest_change, logits_of, longest_input, rounding
from tlkit.models.saving import BASE, stored_classes, weights_sha256
from tlkit.presets import PRESETS, chosen_model, one_line_errors, with_bases
from tlkit.quantization import four_bit_config, logical_size, quantize_linear_layers, restore_linear_layers

# How architectures call what makes logits of tokens; a classifier has no place for it.
LANGUAGE_HEADS = ("lm_head", "embed_out", "output_projection", "cls.predictions")
CONFIGURATIONS = {"allow_patterns": ["config.json", "adapter_config.json", "classes.json"]}
# Masks and position tables that earlier transformers kept in the file.
NEVER_LEARNED = re.compile(r"(^|\.)(attn|attention)\.(masked_)?bias$|(^|\.)(inv_freq|causal_mask|position_ids)$")
SENTENCE = "The quick brown fox jumps over the lazy dog."
PROBE = 40  # tokens in which the future is looked for
OFFLINE = {"trust_remote_code": False, "local_files_only": True}


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, and how many of its tensors came from the file."""

    model: nn.Module  # of transformers; with an adapter, peft's wrapper
    tokenizer: PreTrainedTokenizerBase
    name: str
    tensors_loaded: int
    tensors_total: int

    def __str__(self) -> str:
        count = sum(map(logical_size, self.model.parameters()))
        return f"{self.name}: {count:,} parameters in {self.tensors_total} tensors, {self.tensors_loaded} from the file"


def load_model(
    name: str | None = None,
    *,
    adapter: str | None = None,
    dtype: torch.dtype = torch.float32,
    random_init: bool = False,
    classes: int | None = None,
    seed: int = 0,
) -> LoadedModel:
    """Load a model and its tokenizer; refuse what is not wholly there or is no causal language model.

    Args:
        name: a preset, a hub id or a folder, also one of an adapter; None for `TLKIT_MODEL`, else the bundled model.
        adapter: "merge" makes a trained adapter part of plain weights, for any strategy; "continue" keeps it apart,
            to be trained on by the strategy that made it; None loads it frozen.
        dtype: of the weights in memory.
        random_init: draw fresh weights, and no adapter.
        classes: None for a causal language model. A number for a classifier: a new head maps the last token's hidden
            state to so many classes.
        seed: for fresh weights, those of a new head among them.
    """
    name = chosen_model(name)
    if adapter not in (None, "merge", "continue"):
        raise ValueError(f"adapter={adapter!r}: expected 'merge', 'continue' or None")
    if classes is not None and classes < 2:
        raise ValueError(f"classes={classes}: expected at least 2")
    *adapters, (reference, plain) = with_bases(name)
    if adapter and not adapters:
        raise ValueError(f"model {name!r} is a whole model, with no adapter to {adapter}: load it without `adapter`")
    if random_init or classes is not None:
        torch.manual_seed(seed)
    with one_line_errors(name):
        with_tokenizer = (folder for _, folder in adapters if (folder / "tokenizer_config.json").is_file())
        tokenizer = transformers.AutoTokenizer.from_pretrained(next(with_tokenizer, plain), **OFFLINE)
        model = _model_of(name, plain, dtype, random_init, classes)
    # What an adapter's folder writes down as the name of its base.
    model.name_or_path = model.config.name_or_path = reference
    base = plain
    for reference, folder in reversed([] if random_init else adapters):
        way = adapter if folder == adapters[0][1] else "merge"  # its base was merged before it was adapted
        model, base = with_adapter(name, model, folder, base, way), folder
        if way == "merge":
            model.name_or_path = model.config.name_or_path = reference

    refuse_unusable_tokenizer(name, tokenizer, model)
    if classes is None:
        refuse_sight_of_the_future(name, model, tokenizer)
    else:  # the class is read off the last token that is text
        model.config.get_text_config().pad_token_id = padding_token(tokenizer)
    total = len(list(model.parameters()))
    return LoadedModel(model, tokenizer, name, 0 if random_init else total - len(class_head(model)), total)


def _model_of(name: str, folder: Path, dtype: torch.dtype, random_init: bool, classes: int | None) -> PreTrainedModel:
    kind = _auto_class(classes)
    size = {} if classes is None else {"num_labels": classes}
    if random_init:
        return kind.from_config(transformers.AutoConfig.from_pretrained(folder, **OFFLINE, **size), dtype=dtype)
    options = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True} | OFFLINE
    model, loading = kind.from_pretrained(folder, dtype=dtype, device_map="cpu", **options, **size)  # 4 bits, too
    if classes is not None:  # its head is new
        new = set(map(id, class_head(model)))
        head = {key for key, parameter in model.named_parameters() if id(parameter) in new}
        loading["missing_keys"] = set(loading["missing_keys"]) - head
        loading["unexpected_keys"] = [k for k in loading["unexpected_keys"] if not k.startswith(LANGUAGE_HEADS)]
    refuse_partial_load(name, loading, model)
    return model


def _auto_class(classes: int | None) -> type:
    return transformers.AutoModelForCausalLM if classes is None else transformers.AutoModelForSequenceClassification


def with_adapter(name: str, model: PreTrainedModel, folder: Path, base: Path, way: str | None) -> nn.Module:
    """Put a folder's adapter into its base model, loaded from `base`; `way` is `adapter` of `load_model`."""
    with one_line_errors(name):
        # An adapter fits any weights of its shape, and computes nonsense with others than its own.
        notes = folder / BASE
        if notes.is_file() and json.loads(notes.read_text(encoding="utf-8"))["weights_sha256"] != weights_sha256(base):
            raise ValueError(f"its adapter was trained on other weights than those that {base} holds now")
        settings = PeftConfig.from_json_file(str(folder / "adapter_config.json"))
        quantized = settings.pop("base_quantization", None)
        config = PeftConfig.from_peft_type(**settings)
        kind = PeftType(config.peft_type).value
        if way == "continue" and kind != "LORA":
            raise ValueError(f"its adapter is of the kind {kind}, and only LoRA can be trained on")
        if way == "merge" and config.is_prompt_learning:
            raise ValueError(f"its adapter ({kind}) is part of no weight and cannot be merged")
        if quantized:
            quantize_linear_layers(find_blocks(model))
            if way == "merge":
                restore_linear_layers(find_blocks(model))
            else:
                model.is_loaded_in_4bit = True
                config = four_bit_config(type(config))(**config.to_dict())
        config.inference_mode, config.base_model_name_or_path = way != "continue", None
        adapted = get_peft_model(model, config)
        try:
            loading = adapted.load_adapter(folder, "default", is_trainable=way == "continue", torch_device="cpu")
        except RuntimeError as error:
            raise ValueError("its adapter does not fit its base model") from error
    # A prompt has another name in the file than in the model.
    unexpected = [key for key in loading.unexpected_keys if key != "prompt_embeddings"]
    # Of shared tensors, one name is in the file.
    tensors, absent = dict(adapted.named_parameters(remove_duplicate=False)), set(loading.missing_keys)
    there = {id(tensor) for key, tensor in tensors.items() if key not in absent}
    missing = [key for key in absent if id(tensors.get(key)) not in there]
    refuse_partial_load(name, {"missing_keys": missing, "unexpected_keys": unexpected, "mismatched_keys": []}, adapted)
    return _merged(name, adapted) if way == "merge" else adapted


def _merged(name: str, adapted: nn.Module) -> PreTrainedModel:
    ids = torch.arange(8)[None] % len(adapted.get_input_embeddings().weight)
    before = logits_of(adapted, ids)
    with one_line_errors(name):
        model = adapted.merge_and_unload(safe_merge=True)
    change = largest_change(before, logits_of(model, ids))
    if not change <= rounding(model):
        raise RuntimeError(f"model {name!r}: merged, it computes something else: logits move by {change:.1e} std")
    return model.requires_grad_(True)


def refuse_partial_load(name: str, loading: dict, model: nn.Module) -> None:
    """Refuse weights that are missing or left over, by transformers' `output_loading_info`."""
    random = sorted(loading["missing_keys"]) + sorted(str(key[0]) for key in loading["mismatched_keys"])
    buffers = {key for key, _ in model.named_buffers()}
    left_out = sorted(k for k in loading["unexpected_keys"] if k not in buffers and not NEVER_LEARNED.search(k))
    for keys, fault in (
        (random, "are not in the file, or not in this shape, and would stay random"),
        (left_out, "of the file have no place in the model and would be left out"),
    ):
        if keys:
            raise RuntimeError(f"model {name!r}: {len(keys)} weights {fault} ({', '.join(keys[:3])}, …)")


def refuse_unusable_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase, model: nn.Module) -> None:
    """Refuse one that loses a plain sentence, or has more tokens than the model has rows."""
    ids = tokenizer(SENTENCE, add_special_tokens=False)["input_ids"]
    read = tokenizer.decode([number for number in ids if number not in tokenizer.all_special_ids])
    if sum(map(str.isalpha, read)) < 0.1 * sum(map(str.isalpha, SENTENCE)):
        raise ValueError(f"model {name!r}: its tokenizer, of {len(tokenizer)} tokens, makes {read!r} of {SENTENCE!r}")
    rows = len(model.get_input_embeddings().weight)
    if len(tokenizer) > rows:
        raise ValueError(f"model {name!r}: the tokenizer has {len(tokenizer)} tokens, the model only {rows}")


def refuse_sight_of_the_future(name: str, model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> None:
    """Change the second token of a text, then its last, and refuse a model whose earlier logits move.

    A masked language model loads as a causal one, and has a perplexity near 1. Some models see all of a prefix, others
    what lies in the same window, so both ends are changed. Experts that get more or fewer tokens round differently.
    """
    text = tokenizer(SENTENCE, add_special_tokens=False)["input_ids"] * PROBE
    ids = torch.tensor(text[: min(PROBE, longest_input(model) or PROBE)], device=model.device)
    places = (1, len(ids) - 1)
    rows = ids.repeat(1 + len(places), 1)
    for changed, place in zip(rows[1:], places, strict=True):
        changed[place] = (ids[place] + 1) % len(tokenizer)
    logits, *changed_logits = logits_of(model, rows)
    if logits.isnan().any():
        raise ValueError(f"model {name!r}: its logits are not numbers (NaN): the weights are damaged")
    for changed, place in zip(changed_logits, places, strict=True):
        if largest_change(logits[:place], changed[:place]) > rounding(model):
            raise ValueError(
                f"model {name!r}: {type(base_model(model)).__name__} sees the tokens that it is to predict (token "
                f"{place + 1} moves logits before it): expected a causal language model"
            )


def agreed_classes(name: str | None, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The classes of a text, in the model's order where it names its own."""
    if classes is None:
        return None
    name = chosen_model(name)
    stored = stored_classes(with_bases(name, CONFIGURATIONS)[0][1]) or classes
    if set(stored) != set(classes):
        raise ValueError(f"model {name!r} tells apart {', '.join(stored)}, and the text has {', '.join(classes)}")
    return stored


def architecture(name: str) -> PretrainedConfig:
    """The configuration of a preset (no network), a folder or a hub id; of an adapter that of its base."""
    if name in PRESETS:
        return transformers.AutoConfig.for_model(**PRESETS[name].architecture)
    _, folder = with_bases(name, CONFIGURATIONS)[-1]
    with one_line_errors(name):
        config = transformers.AutoConfig.from_pretrained(folder, **OFFLINE)
        if getattr(config.get_text_config(), "tie_word_embeddings", False) and _has_own_head(folder, config):
            config.tie_word_embeddings = config.get_text_config().tie_word_embeddings = False
    return config


def meta_model(source: str | PretrainedConfig, classes: int | None = None) -> PreTrainedModel:
    """An architecture without weights (torch's meta device); names and classes as for `load_model`."""
    config = architecture(source) if isinstance(source, str) else copy.deepcopy(source)
    if classes is not None:
        config.num_labels, config.get_text_config().pad_token_id = classes, 0
    with torch.device("meta"):
        model = _auto_class(classes).from_config(config, trust_remote_code=False)
        model.tie_weights()
    return model


def _has_own_head(folder: Path, config: PretrainedConfig) -> bool:
    """Whether a head differs from the embedding that it is said to be tied to; transformers loads it so."""
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return False
    with torch.device("meta"):
        tied = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False).all_tied_weights_keys
    tensors = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            there = {*tied, *tied.values()} & set(weights.keys())
            tensors |= {key: weights.get_tensor(key) for key in there}
    pairs = [pair for pair in tied.items() if tensors.keys() >= set(pair)]
    return any(not torch.equal(tensors[one], tensors[other]) for one, other in pairs)

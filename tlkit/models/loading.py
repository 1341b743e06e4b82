"""Load a causal language model by preset, hub id or folder, and refuse one that did not really load."""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tlkit.examples import padding_token
from tlkit.models.adapters import class_head
from tlkit.models.checks import refuse_partial_load, refuse_sight_of_the_future, refuse_unusable_tokenizer
from tlkit.models.presets import PRESETS, chosen_model, one_line_errors, refuse_other_formats, with_bases
from tlkit.models.saving import stored_classes, with_adapter
from tlkit.quantization import logical_size

# How architectures call what turns hidden states into logits of tokens; a classifier has no place for it.
LANGUAGE_HEADS = ("lm_head", "embed_out", "output_projection", "cls.predictions")
CONFIGURATIONS = {"allow_patterns": ["config.json", "adapter_config.json", "classes.json"]}  # wanted from the hub
OFFLINE = {"trust_remote_code": False, "local_files_only": True}


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, and how many of its tensors came out of the file."""

    model: nn.Module  # a transformers model; with an adapter, peft's wrapper around one
    tokenizer: PreTrainedTokenizerBase
    name: str
    tensors_loaded: int
    tensors_total: int

    def __str__(self) -> str:
        values = sum(map(logical_size, self.model.parameters()))
        return f"{self.name}: {values:,} values in {self.tensors_total} tensors, {self.tensors_loaded} from the file"


def load_model(
    name: str | None = None,
    *,
    adapter: str | None = None,
    dtype: torch.dtype = torch.float32,
    random_init: bool = False,
    classes: int | None = None,
    seed: int = 0,
) -> LoadedModel:
    """Load a model and its tokenizer, and refuse what is not wholly there or cannot be a causal language model.

    Args:
        name: a preset, a hub id or a folder, also one of an adapter; None for `TLKIT_MODEL`, else the bundled model.
        adapter: "merge" makes a trained adapter part of plain weights, for any strategy; "continue" keeps it apart,
            to be trained on by `apply_strategy(model, "lora")` (or "qlora"); None loads it frozen.
        dtype: of the weights in memory.
        random_init: draw fresh weights (and no adapter): the control that says what pretraining is worth.
        classes: None for a causal language model. A number for a classifier: the same weights below a new head, which
            maps the last token's hidden state to so many classes.
        seed: for the fresh weights, those of a new head among them.

    Raises:
        ValueError: where the name leads nowhere, a file is no model, the tokenizer cannot read, logits depend on later
            tokens, or there is no adapter to merge or to continue.
        RuntimeError: where weights are missing from the file, or the file has weights that the model leaves out.
    """
    name = chosen_model(name)
    if adapter not in (None, "merge", "continue"):
        raise ValueError(f"adapter={adapter!r}: expected 'merge', 'continue' or None")
    if classes is not None and classes < 2:
        raise ValueError(f"classes={classes}: expected at least 2")
    *adapters, (reference, plain) = with_bases(name)
    if adapter and not adapters:
        raise ValueError(f"model {name!r} has no adapter to {adapter}: it is a whole model, load it without `adapter`")
    refuse_other_formats(name, plain)
    if random_init or classes is not None:
        torch.manual_seed(seed)
    with one_line_errors(name):
        places = [folder for _, folder in adapters if (folder / "tokenizer_config.json").is_file()]
        tokenizer = AutoTokenizer.from_pretrained(places[0] if places else plain, **OFFLINE)
        model = _model_of(name, plain, dtype, random_init, classes)
    # What an adapter's folder writes down as the name of its base.
    model.name_or_path = model.config.name_or_path = reference
    base = plain
    for reference, folder in reversed([] if random_init else adapters):
        way = adapter if folder == adapters[0][1] else "merge"  # an adapter's base was merged before it was adapted
        model, base = with_adapter(name, model, folder, base, way), folder
        if way == "merge":
            model.name_or_path = model.config.name_or_path = reference

    refuse_unusable_tokenizer(name, tokenizer, model)
    if classes is None:
        refuse_sight_of_the_future(name, model, tokenizer)
    else:  # behind the last token that is no padding, the model reads off the class
        model.config.get_text_config().pad_token_id = padding_token(tokenizer)
    total = len(list(model.parameters()))
    return LoadedModel(model, tokenizer, name, 0 if random_init else total - len(class_head(model)), total)


def _model_of(name: str, folder: Path, dtype: torch.dtype, random_init: bool, classes: int | None) -> PreTrainedModel:
    """The whole model of a folder, with fresh weights or with those of its file."""
    kind = _auto_class(classes)
    size = {} if classes is None else {"num_labels": classes}
    if random_init:
        return kind.from_config(AutoConfig.from_pretrained(folder, **OFFLINE, **size), dtype=dtype)
    options = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True} | OFFLINE
    model, loading = kind.from_pretrained(folder, dtype=dtype, **options, **size)
    if classes is not None:  # its head is new, and the one that goes on with texts is left out
        new = {id(parameter) for parameter in class_head(model)}
        head = {key for key, parameter in model.named_parameters() if id(parameter) in new}
        loading["missing_keys"] = set(loading["missing_keys"]) - head
        loading["unexpected_keys"] = [k for k in loading["unexpected_keys"] if not k.startswith(LANGUAGE_HEADS)]
    refuse_partial_load(name, loading, model)
    return model


def _auto_class(classes: int | None) -> type:
    return AutoModelForCausalLM if classes is None else AutoModelForSequenceClassification


def agreed_classes(name: str | None, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The classes of a text, if it has some: in the model's order, where it names its own; ValueError for others."""
    stored = None if classes is None else stored_classes(with_bases(chosen_model(name), CONFIGURATIONS)[0][1])
    if stored is None:
        return classes
    if set(stored) != set(classes):
        raise ValueError(
            f"model {chosen_model(name)!r} tells apart {', '.join(stored)}, and the text has {', '.join(classes)}: "
            "expected the same classes"
        )
    return stored


def architecture(name: str) -> PretrainedConfig:
    """The configuration of a preset (no network), a folder, or a hub id; of an adapter, that of its base model."""
    if name in PRESETS:
        settings = dict(PRESETS[name].architecture)
        return AutoConfig.for_model(settings.pop("model_type"), **settings)
    _, folder = with_bases(name, CONFIGURATIONS)[-1]
    with one_line_errors(name):
        config = AutoConfig.from_pretrained(folder, **OFFLINE)
        if getattr(config.get_text_config(), "tie_word_embeddings", False) and _has_own_head(folder, config):
            config.tie_word_embeddings = config.get_text_config().tie_word_embeddings = False
    return config


def meta_model(source: str | PretrainedConfig, classes: int | None = None) -> PreTrainedModel:
    """An architecture without weights (torch's meta device), for counting; names and classes as for `load_model`."""
    config = architecture(source) if isinstance(source, str) else source
    with torch.device("meta"):
        if classes is not None:
            config = copy.deepcopy(config)
            config.num_labels, config.get_text_config().pad_token_id = classes, 0
        model = _auto_class(classes).from_config(config, trust_remote_code=False)
        model.tie_weights()
    return model


def _has_own_head(folder: Path, config: PretrainedConfig) -> bool:
    """Whether a head differs from the embedding that it is said to be tied to; transformers loads it as it is."""
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return False
    with torch.device("meta"):
        tied = AutoModelForCausalLM.from_config(config, trust_remote_code=False).all_tied_weights_keys
    tensors = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            there = {*tied, *tied.values()} & set(weights.keys())
            tensors |= {key: weights.get_tensor(key) for key in there}
    pairs = [pair for pair in tied.items() if tensors.keys() >= set(pair)]
    return any(not torch.equal(tensors[one], tensors[other]) for one, other in pairs)

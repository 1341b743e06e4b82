"""Load a causal language model by preset, hub id or folder, and refuse one that did not really load."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tlkit.settings import DATA

BUNDLED = DATA / "tiny-qwen2"
# Weights without pickle, and the small files beside them.
WEIGHTS_AND_TOKENIZER = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
WAY_ON = "The bundled model needs no network: load_model('tiny')."


@dataclass(frozen=True)
class Preset:
    """A known model: where it is, and the architecture, so that counting needs no weights."""

    source: str
    architecture: dict


def _architecture(
    kind: str, vocabulary: int, width: int, mlp: int, depth: int, heads: int, kv: int, tied: bool, context: int
) -> dict:
    return {
        "model_type": kind,
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "tie_word_embeddings": tied,
        "max_position_embeddings": context,
    }


PRESETS = {
    "tiny": Preset(str(BUNDLED), _architecture("qwen2", 4096, 192, 512, 8, 4, 2, True, 256)),
    "smollm2-135m": Preset(
        "HuggingFaceTB/SmolLM2-135M", _architecture("llama", 49152, 576, 1536, 30, 9, 3, True, 8192)
    ),
    "qwen2-0.5b": Preset("Qwen/Qwen2-0.5B", _architecture("qwen2", 151936, 896, 4864, 24, 14, 2, True, 131072)),
    "tinyllama-1.1b": Preset(
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0", _architecture("llama", 32000, 2048, 5632, 22, 32, 4, False, 2048)
    ),
    "llama2-7b": Preset(
        "meta-llama/Llama-2-7b-hf", _architecture("llama", 32000, 4096, 11008, 32, 32, 32, False, 4096)
    ),
}


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, and how many of its tensors came out of the file."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    tensors_loaded: int
    tensors_total: int

    def __str__(self) -> str:
        values = sum(p.numel() for p in self.model.parameters())
        return f"{self.name}: {values:,} values in {self.tensors_total} tensors, {self.tensors_loaded} from the file"


def chosen_model(name: str | None) -> str:
    """The name as given, else `TLKIT_MODEL`, else the bundled model."""
    return str(name or os.environ.get("TLKIT_MODEL") or "tiny")


def load_model(
    name: str | None = None,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    random_init: bool = False,
    seed: int = 0,
) -> LoadedModel:
    """Load a preset (`tiny` by default), a hub id or a folder; `TLKIT_MODEL` changes the default.

    `random_init=True` keeps architecture and tokenizer but draws fresh weights: the control that says what
    pretraining is worth. Raises ValueError when the name leads nowhere or the file is not a model, and
    RuntimeError when any weight would have stayed random.
    """
    name = chosen_model(name)
    source = PRESETS[name].source if name in PRESETS else name
    folder = source if Path(source).is_dir() else download(source)
    options = {"trust_remote_code": False, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        if random_init:
            torch.manual_seed(seed)
            config = AutoConfig.from_pretrained(folder, **options)
            model, loading = AutoModelForCausalLM.from_config(config, dtype=dtype), None
        else:
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
            )
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"model {name!r} could not be loaded: {_first_line(error)} {WAY_ON}") from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError":  # not importable under one name in every version
            raise
        raise ValueError(f"model {name!r}: the weight file is damaged ({_first_line(error)}). {WAY_ON}") from error

    total = len(list(model.parameters()))
    if loading is not None:
        refuse_partial_load(name, loading)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise ValueError(
            f"model {name!r}: the tokenizer has {len(tokenizer)} tokens, the model only "
            f"{model.get_input_embeddings().num_embeddings}. They do not belong together."
        )
    return LoadedModel(model.to(device), tokenizer, name, 0 if random_init else total, total)


def download(hub_id: str, files: tuple[str, ...] = WEIGHTS_AND_TOKENIZER) -> str:
    """Fetch a model of the hub into the local cache, with progress bars, and return its folder there.

    Where the hub cannot be reached, what was downloaded before is used. Raises ValueError, one line with the
    cause and the way on: unknown or private model, gated model, refusal, failing hub, no connection.
    """
    from huggingface_hub import errors, snapshot_download

    try:
        # Nothing in subfolders: other formats live there.
        return snapshot_download(hub_id, allow_patterns=list(files), ignore_patterns=["*/*", "consolidated*"])
    except errors.HFValidationError as error:
        reason, caught = f"it is neither a preset nor a folder here, and no hub id: {_first_line(error)}", error
    except errors.GatedRepoError as error:
        reason, caught = "it is gated: accept its terms on its page, then log in with `hf auth login`.", error
    except errors.RepositoryNotFoundError as error:
        reason, caught = "it is neither a preset nor a folder here, and the hub knows no such public model.", error
    except Exception as error:
        # A connection that breaks off raises what the client's transport raises: no class of the hub's library.
        transport = type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "requests")
        if not transport and not isinstance(error, errors.HfHubHTTPError | OSError):
            raise
        reason, caught = f"{_refusal(error)}, and no earlier download is complete.", error
    raise ValueError(f"model {hub_id!r} could not be loaded: {reason} {WAY_ON}") from caught


def download_needed(name: str) -> str:
    """Empty where the model is on this machine; otherwise how to get it, and how big it is. Asks no network."""
    from huggingface_hub import errors, snapshot_download

    source = PRESETS[name].source if name in PRESETS else name
    if Path(source).is_dir():
        return ""
    try:
        snapshot_download(source, allow_patterns=["config.json", "*.safetensors"], local_files_only=True)
    except errors.LocalEntryNotFoundError:
        size = ""
        if name in PRESETS:  # files of the hub hold two bytes a value
            size = f" (about {2 * sum(p.numel() for p in meta_model(name).parameters()) / 1e9:.1f} GB)"
        return f"{source} is not on this machine: fetch it with `hf download {source}`{size}"
    except errors.HFValidationError as error:
        return f"{name!r} is neither a preset nor a folder here, and no hub id: {_first_line(error)}"
    return ""


def _refusal(error: BaseException) -> str:
    """What the hub answered, or that it did not: the answer is in the chain of causes, not in the last error."""
    link: BaseException | None = error
    while link is not None:
        if getattr(link, "response", None) is not None:
            return f"the hub answered with status {link.response.status_code}"
        link = link.__cause__ or link.__context__
    return "the hub could not be reached or stopped answering"


def refuse_partial_load(name: str, loading: dict) -> None:
    """Raise RuntimeError when the file left any weight at its random start (the reports' worst mistake)."""
    missing, mismatched = sorted(loading["missing_keys"]), sorted(map(str, loading["mismatched_keys"]))
    if missing or mismatched:
        shown = ", ".join((missing + mismatched)[:3])
        raise RuntimeError(
            f"model {name!r}: {len(missing) + len(mismatched)} weights are not in the file and would stay random "
            f"({shown}, …). Expected every weight to come from the file. {WAY_ON}"
        )


def architecture(name: str) -> PretrainedConfig:
    """The configuration of a preset (no network), a folder, or a hub id. Raises ValueError as `load_model` does."""
    if name in PRESETS:
        known = dict(PRESETS[name].architecture)
        return AutoConfig.for_model(known.pop("model_type"), **known)
    folder = name if Path(name).is_dir() else download(name, ("config.json",))
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"model {name!r} could not be read: {_first_line(error)} {WAY_ON}") from error


def meta_model(source: str | PretrainedConfig) -> PreTrainedModel:
    """An architecture without weights (torch's meta device), for counting; no network for a preset."""
    config = architecture(source) if isinstance(source, str) else source
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        model.tie_weights()
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."

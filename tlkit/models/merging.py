"""From an adapter to a model of its own: merged, written, read back, and only then put in its place."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from tlkit.adapters import base_model, in_four_bits
from tlkit.checkpoints import flush_file, hold_folder
from tlkit.corpus import load_corpus
from tlkit.models.adapter_folders import save_model
from tlkit.models.checks import SENTENCE, logits_of, longest_input
from tlkit.models.loading import load_model
from tlkit.models.sources import refuse_name_of_preset, with_bases
from tlkit.quantization import restore_linear_layers
from tlkit.strategies import find_blocks

AGREES_TO = 1e-4  # of a logit: what the rounding of the merged weights to fp32 may change
LONGEST_TEXT = 64  # tokens of each text that the two models are compared on


@dataclass(frozen=True)
class Merged:
    """A merged model that was read back and computes what its base model and the adapter compute."""

    folder: Path
    base: str  # by preset, hub id or folder
    kind: str  # of the adapter, in peft's words
    four_bit_base: bool
    values: int
    difference: float  # the largest of any logit
    texts: int
    tokens: int

    def __str__(self) -> str:
        text = (
            f"{self.kind} adapter and {self.base} merged into {self.folder}: {self.values:,} values in fp32\n"
            f"read back, no logit differs by more than {self.difference:.1e} from base model and adapter, over "
            f"{self.tokens} tokens of {self.texts} texts (allowed: {AGREES_TO:g})"
        )
        if self.four_bit_base:
            text += (
                "\nthe base model was in 4 bits: the weights keep that rounding, now in 32 bits each. They agree with "
                "the 4-bit model that was trained, not with the adapter beside the unrounded base model"
            )
        return text


def merge_adapter(adapter: str | Path, output: str | Path) -> Merged:
    """Put an adapter into its base model's weights and write a model that needs neither peft nor the base model.

    The model is written to a folder beside `output`, read back from there, and compared with base model and adapter on
    texts of two corpora. Only if the logits agree does it get its name, so a wrong or incomplete model is never there.

    The weights are compared as they are, in fp32, but the sums are taken in float64: in fp32, two orders of the same
    sums differ by nearly as much in a model of 135 million values as is allowed here. This takes 8 bytes a value. Sums
    are in fp32 only where an architecture computes nothing in float64.

    Args:
        adapter: a folder or a hub id, of an adapter by this package or by peft.
        output: a folder that does not exist yet, or is empty.

    Returns:
        What was written, and how closely it agrees.

    Raises:
        ValueError: where `adapter` is a whole model or cannot be loaded, or where there is something at `output`.
        RuntimeError: where logits differ by more than `AGREES_TO`; nothing is left behind then.
        CheckpointError: where another merge writes to the same place, or nothing can be written there.
    """
    adapter, output = str(adapter), Path(output)
    refuse_name_of_preset(output)
    _refuse_to_replace(output)
    if len(with_bases(adapter)) == 1:
        raise ValueError(f"model {adapter!r} has no adapter to merge: expected a folder with adapter_config.json")
    adapted = load_model(adapter)
    sequences = _sequences(adapted.model, adapted.tokenizer)
    facts = {
        "base": base_model(adapted.model).name_or_path,
        "kind": adapted.model.peft_config["default"].peft_type.value,
        "four_bit_base": in_four_bits(adapted.model),
    }
    sums, expected = _logits(adapted.model, sequences)
    del adapted  # one model at a time in memory
    with _put_in_place(output) as folder:
        merged = load_model(adapter, adapter="merge")
        save_model(merged.model, merged.tokenizer, folder)
        del merged
        written = load_model(str(folder))
        values = sum(parameter.numel() for parameter in written.model.parameters())
        difference = _largest_difference(expected, _logits(written.model, sequences, sums)[1])
        if not difference <= AGREES_TO:
            raise RuntimeError(
                f"the merged model does not compute what base model and adapter compute: read back, a logit differs "
                f"by {difference:.1e} (allowed: {AGREES_TO:g}). Nothing was left at {output}; use the adapter as it is"
            )
    tokens = sum(len(ids) for ids in sequences)
    return Merged(output, **facts, values=values, difference=difference, texts=len(sequences), tokens=tokens)


@contextmanager
def _put_in_place(output: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `output` at the end, and is removed where the work fails.

    What a killed run leaves is beside `output`, in `<name>.part`, and is removed by the next.
    """
    part = output.with_name(output.name + ".part")
    new = part / "model"
    try:
        with hold_folder(part):
            try:
                shutil.rmtree(new, ignore_errors=True)
                yield new
                for path in new.iterdir():
                    flush_file(path)
                _refuse_to_replace(output)
                if output.exists():
                    output.rmdir()  # Windows renames nothing to the name of a folder, even an empty one
                os.replace(new, output)
            finally:
                shutil.rmtree(new, ignore_errors=True)
    finally:
        with suppress(OSError):  # another merge holds it, or somebody keeps files there
            part.rmdir()


def _refuse_to_replace(output: Path) -> None:
    if output.is_symlink() or output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output} is there already and would be replaced: name a new folder")


def _sequences(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> list[torch.Tensor]:
    """Text to compare two models on: about Rust, about Python, and a plain sentence."""
    texts = [*load_corpus("rust").test[:3], *load_corpus("general").test[:2], SENTENCE]
    most = min(LONGEST_TEXT, longest_input(model) or LONGEST_TEXT)
    encoded = [tokenizer(text, add_special_tokens=False)["input_ids"][:most] for text in texts]
    return [torch.tensor(ids) for ids in encoded if ids]


def _logits(
    model: nn.Module, sequences: list[torch.Tensor], sums: torch.dtype = torch.float64
) -> tuple[torch.dtype, list[torch.Tensor]]:
    """The type of the sums, and logits of weights in 4 bits or fp32; the model is changed and of no other use."""
    if in_four_bits(model):
        restore_linear_layers(find_blocks(base_model(model)))
    if hasattr(base_model(model), "set_experts_implementation"):
        base_model(model).set_experts_implementation("eager")  # the grouped product of experts knows no float64
    try:
        return sums, [logits_of(model.to(sums), ids[None])[0] for ids in sequences]
    except RuntimeError:
        if sums == torch.float32:
            raise
        return _logits(model, sequences, torch.float32)  # such as XGLM, which masks with the lowest number of fp32


def _largest_difference(expected: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    """NaN where a logit is NaN; the same infinity in both is no difference."""
    pairs = zip(expected, found, strict=True)
    return float(torch.stack([torch.where(a == b, 0.0, a - b).abs().max() for a, b in pairs]).max())

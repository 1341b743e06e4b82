"""What makes two runs the same run, and two models the same model."""

import hashlib
import json
from collections.abc import Iterable, Iterator

import torch

from tlkit.models.adapters import adapter_names


def identity_of(model: torch.nn.Module, data: Iterable[torch.Tensor], settings: dict) -> dict:
    """What makes two runs the same run: the weights they begin with, what is trained, the data, the settings.

    Ask before training: weights are hashed as they are now. Only an adapter's trainable weights are left out, because
    the checkpoint holds all of them.

    Args:
        model: the model, with what is trainable in it.
        data: token ids, training blocks first.
        settings: all else that decides what a step computes; plain values.

    Returns:
        A dictionary that JSON can hold.
    """
    added = adapter_names(model)
    drawn = [p for name, p in model.named_parameters() if name in added and not p.requires_grad]
    identity = {
        "base model": hash_of(p for name, p in model.named_parameters() if name not in added),
        "trainable tensors": {name: p.shape for name, p in model.named_parameters() if p.requires_grad},
        "adapter": {name: _what_it_does(config) for name, config in getattr(model, "peft_config", {}).items()},
        "data": hash_of(data),
        "settings": settings,
    }
    if drawn:  # of lora_fa; no checkpoint holds them, so they have to be drawn by the same seed
        identity["what the adapter has drawn and does not train (set the seed before)"] = hash_of(drawn)
    if groups := getattr(model, "parameter_groups", ()):  # most models have none, as those had of older checkpoints
        identity["parameter groups"] = [[sorted(group.names), group.rate, group.begins] for group in groups]
    return json.loads(
        json.dumps(identity, default=lambda value: sorted(value) if isinstance(value, set) else str(value))
    )


def hash_of(tensors: Iterable[torch.Tensor]) -> str:
    """The SHA-256 of tensors in their order, with type and shape, in hexadecimal.

    Args:
        tensors: on any device.
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def differences(saved: dict, now: dict, where: str = "") -> Iterator[str]:
    """Say in words where two identities differ; nothing where they are equal."""
    for key in sorted({*saved, *now}):
        name, old, new = f"{where}{key}", saved.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new, f"{name}: ")
        elif old != new:
            short = [str(value)[:12] if isinstance(value, str) and len(value) == 64 else value for value in (old, new)]
            yield f"{name} was {short[0]} and is now {short[1]}"


def _what_it_does(config) -> dict:
    """An adapter's settings without its origin. What is off or empty is left out: a later peft has more of that."""
    about = ("base_model_name_or_path", "revision", "peft_version", "auto_mapping", "inference_mode")
    return {key: value for key, value in config.to_dict().items() if value and key not in about}

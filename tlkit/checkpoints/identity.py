"""What makes two runs the same run, and two models the same model."""

import hashlib
import json
from collections.abc import Iterable, Iterator

import torch

from tlkit.models.adapters import adapter_names


def identity_of(model: torch.nn.Module, data: Iterable[torch.Tensor], settings: dict) -> dict:
    """What makes two runs the same run: the weights they begin with, what is trained, the data, the settings.

    Ask before training: weights are hashed as they are now. Only a new adapter is left out, because it starts at
    random and the checkpoint holds all of it.

    Args:
        model: the model, with what is trainable in it.
        data: token ids, training blocks first.
        settings: all else that decides what a step computes; plain values.

    Returns:
        A dictionary that JSON can hold.
    """
    new = {id(parameter) for parameter in _new_adapters(model)}
    added = adapter_names(model)
    drawn = {id(p): p for name, p in model.named_parameters() if name in added and not p.requires_grad}
    identity = {
        "base model": hash_of(p for p in model.parameters() if id(p) not in new and id(p) not in drawn),
        "trainable tensors": {name: p.shape for name, p in model.named_parameters() if p.requires_grad},
        "adapter": {name: _what_it_does(config) for name, config in getattr(model, "peft_config", {}).items()},
        "data": hash_of(data),
        "settings": settings,
    }
    if drawn:  # of lora_fa; no checkpoint holds them, so they have to be drawn by the same seed
        identity["what the adapter has drawn and does not train (set the seed before)"] = hash_of(drawn.values())
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


def _new_adapters(model: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Trainable weights of adapters that have not been trained, or that cannot be told from such.

    Beside its random tensors a new adapter has one with a single value, so that it changes nothing yet (LoRA's B is
    zero). After training it has none.
    """
    if not hasattr(model, "peft_config"):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in model.named_modules():
        prompt = name.endswith("prompt_encoder")  # a prompt that is learned has random tensors alone
        if not prompt and not isinstance(module, BaseTunerLayer):
            continue
        parts = [module] if prompt else [getattr(module, part, None) for part in module.adapter_layer_names]
        found = [p for part in parts if isinstance(part, torch.nn.Module) for p in part.parameters() if p.requires_grad]
        if prompt or len(found) == 1 or any(bool((p == p.flatten()[0]).all()) for p in found):
            yield from found


def _what_it_does(config) -> dict:
    """An adapter's settings without its origin. What is off or empty is left out: a later peft has more of that."""
    about = ("base_model_name_or_path", "revision", "peft_version", "auto_mapping", "inference_mode")
    return {key: value for key, value in config.to_dict().items() if value and key not in about}

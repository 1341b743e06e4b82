"""Save what training changes, so that a run killed at any moment can go on."""

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tlkit.files import CheckpointError, lock_folder, reason_of, write_atomically
from tlkit.models.parts import ParameterGroup, adapter_names
from tlkit.steps import StepRecord, TrainingState

KEPT = 2  # the newest may be damaged
NAME = "step-{:08d}.safetensors"
OURS = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,})\.safetensors(\.part)?")


@dataclass(frozen=True)
class Checkpoints:
    """A folder of one run's checkpoints, safetensors; files with other names are never touched.

    Tensors: those of `TrainingState.tensors`, of what is trained. Metadata: `run` (JSON: step, identity,
    records, scores) and `sha256`.
    """

    folder: Path
    identity: dict  # from `identity_of`

    @contextmanager
    def lock(self, resume: bool) -> Iterator[None]:
        """Keep other runs out of the folder; refuse an earlier one's checkpoints."""
        with lock_folder(self.folder):
            if not resume and (earlier := _saved(self.folder)):
                raise CheckpointError(
                    f"{self.folder} holds {earlier[-1][1].stem} of an earlier run: resume it, or name another folder"
                )
            yield

    def save(self, state: TrainingState, *, last: bool = False) -> None:
        """Write a checkpoint, and remove all but it and the one before."""
        step, whole = state.step, {name: tensor.cpu().contiguous() for name, tensor in state.tensors().items()}
        notes = {"records": [asdict(record) for record in state.records], "scores": state.scores}
        text = json.dumps({"step": step, "identity": self.identity, "notes": notes})
        metadata = {"run": text, "sha256": _hash(text, whole)}
        try:
            write_atomically(self.folder / NAME.format(step), lambda part: save_file(whole, part, metadata))
        except (OSError, SafetensorError) as error:
            message = f"the checkpoint of step {step} could not be written to {self.folder} ({reason_of(error)})"
            if not last:
                raise CheckpointError(f"{message}; those before it are untouched") from error
            warnings.warn(f"{message}. Training is complete and the model is in memory: save it", stacklevel=2)
            return
        try:
            kept = [path for at, path in _saved(self.folder) if at <= step][-KEPT:]  # later ones are damaged
            for _, path in _ours(self.folder):
                if path not in kept:
                    path.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(f"older checkpoints are still in {self.folder}: {reason_of(error)}", stacklevel=2)

    def restore(self, state: TrainingState) -> None:
        """Bring a state to the newest checkpoint that is whole, if there are any.

        An OSError in reading one is raised: it may pass, so no older one is taken.
        """
        damaged = []
        for _, path in reversed(_saved(self.folder)):
            if (content := _read(path)) is None:
                damaged.append(f"{path} is damaged")
                continue
            if damaged:
                warnings.warn(f"{'; '.join(damaged)}: {path.stem} is used", stacklevel=2)
            run, tensors = content
            if differing := list(_differences(run["identity"], self.identity)):
                raise ValueError(f"{path.stem} in {self.folder} cannot be resumed: {'; '.join(differing)}")
            state.load_tensors(run["step"], tensors)
            state.records = [StepRecord(**record) for record in run["notes"]["records"]]
            state.scores = run["notes"]["scores"]
            return
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is whole ({'; '.join(damaged)}): name another folder to begin anew"
            )


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint, whole or damaged; 0 without any."""
    return max((step for step, _ in _saved(folder)), default=0)


def _saved(folder: Path) -> list[tuple[int, Path]]:
    """Steps and paths, oldest first."""
    return sorted((step, path) for step, path in _ours(folder) if path.suffix != ".part")


def _ours(folder: Path) -> list[tuple[int, Path]]:
    """Steps and paths, also of unfinished files."""
    files = [path for path in folder.iterdir() if not path.is_dir()] if folder.is_dir() else []
    return [(int(match[1]), path) for path in files if (match := OURS.fullmatch(path.name))]


def _read(path: Path) -> tuple[dict, dict[str, torch.Tensor]] | None:
    """What it says of its run, and the tensors; None where it is damaged."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dictionary
    except SafetensorError:
        return None
    text = metadata.get("run", "")
    return (json.loads(text), tensors) if metadata.get("sha256") == _hash(text, tensors) else None


def _hash(text: str, tensors: dict[str, torch.Tensor]) -> str:
    names = sorted(tensors)
    content = f"{text} {names} {hash_of(tensors[name] for name in names)}"
    return hashlib.sha256(content.encode()).hexdigest()


def identity_of(
    model: torch.nn.Module, data: Iterable[torch.Tensor], settings: dict, groups: Sequence[ParameterGroup] = ()
) -> dict:
    """What makes two runs the same; without the trainable weights of an adapter, which the checkpoint holds."""
    added = adapter_names(model)
    drawn = [p for name, p in model.named_parameters() if name in added and not p.requires_grad]
    identity = {
        "base model": hash_of(p for name, p in model.named_parameters() if name not in added),
        "trainable tensors": {name: p.shape for name, p in model.named_parameters() if p.requires_grad},
        "adapter": {name: _what_it_does(config) for name, config in getattr(model, "peft_config", {}).items()},
        "data": hash_of(data),
        "settings": settings,
    }
    if drawn:  # of lora_fa; no checkpoint holds them
        identity["what the adapter has drawn and does not train (set the seed before)"] = hash_of(drawn)
    if groups:
        identity["parameter groups"] = [[sorted(group.names), group.rate, group.begins] for group in groups]
    return json.loads(
        json.dumps(identity, default=lambda value: sorted(value) if isinstance(value, set) else str(value))
    )


def hash_of(tensors: Iterable[torch.Tensor]) -> str:
    """SHA-256, with types and shapes."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _differences(saved: dict, now: dict, where: str = "") -> Iterator[str]:
    for key in sorted({*saved, *now}):
        name, old, new = f"{where}{key}", saved.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{name}: ")
        elif old != new:
            short = [str(value)[:12] if isinstance(value, str) and len(value) == 64 else value for value in (old, new)]
            yield f"{name} was {short[0]} and is now {short[1]}"


def _what_it_does(config) -> dict:
    """An adapter's settings, without its origin and what is off: a later peft has more of that."""
    about = ("base_model_name_or_path", "revision", "peft_version", "auto_mapping", "inference_mode")
    return {key: value for key, value in config.to_dict().items() if value and key not in about}

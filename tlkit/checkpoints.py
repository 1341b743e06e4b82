"""Save what training changes, so that a run killed at any moment goes on as if nothing had happened."""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tlkit.adapters import adapter_names, continues_adapter
from tlkit.steps import StepRecord, TrainingState
from tlkit.team import gather_full, shard_like

KEPT = 2  # the newest, and the one before it in case the newest is damaged
NAME = "step-{:08d}"


class CheckpointError(OSError):
    """A checkpoint cannot be written or read; the message says which, why, and what is still there."""


@dataclass
class Journal:
    """What a run has seen so far. With the training state, it is all that a run must remember."""

    records: list[StepRecord] = field(default_factory=list)
    scores: list[dict] = field(default_factory=list)
    best_loss: float = math.inf
    best_weights: list[torch.Tensor] | None = None
    evaluations_without_gain: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints of one run; `identity` is what a run that goes on must have in common with it."""

    folder: Path
    every: int  # optimizer steps
    identity: dict

    def prepare(self, resume: bool) -> None:
        """Make the folder, before any work. Raises CheckpointError where it cannot be used, or holds another run's."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise CheckpointError(f"no checkpoints can be kept in {self.folder}: {error.strerror}") from error
        if not resume and (found := _committed(self.folder)):
            raise CheckpointError(
                f"{self.folder} holds {found[-1].stem} of an earlier run: resume it, or name another folder"
            )

    def save(self, state: TrainingState, journal: Journal) -> None:
        """Write a checkpoint, then remove all but the newest two.

        Two files: tensors, and a JSON file that names their hash. The JSON file comes last: without it there is no
        checkpoint. In a team, every process calls this and the first one writes: what it writes does not depend on
        how many there are. Raises CheckpointError where writing fails; earlier checkpoints are untouched then.
        """
        first = state.team.rank == 0
        found = _tensors(state, journal) if first or state.team.in_parts else {}  # parts are gathered from all
        if not first:
            return
        stem = NAME.format(state.step)
        tensors, notes = self.folder / f"{stem}.safetensors", self.folder / f"{stem}.json"
        try:
            notes.unlink(missing_ok=True)  # of a damaged checkpoint of this step: never an old note on new tensors
            digest = _write(tensors, lambda path: save_file(found, path))
            content = {
                "step": state.step,
                "sha256": digest,
                "identity": self.identity,
                "records": [asdict(record) for record in journal.records],
                "scores": journal.scores,
                "evaluations_without_gain": journal.evaluations_without_gain,
            }
            _write(notes, lambda path: path.write_text(json.dumps(_sealed(content), indent=1), encoding="utf-8"))
        except (OSError, SafetensorError) as error:
            for path in self.folder.glob("*.part"):
                path.unlink(missing_ok=True)
            kept = _committed(self.folder)
            raise CheckpointError(
                f"the checkpoint of step {state.step} could not be written to {self.folder} ({_reason(error)}); "
                + (f"{kept[-1].stem} is there and whole" if kept else "there is none yet")
            ) from error
        _remove_all_but(_committed(self.folder)[-KEPT:], self.folder)

    def restore(self, state: TrainingState, journal: Journal) -> None:
        """Bring state and journal to the newest checkpoint that is whole; they stay as they are where there is none.

        One that is damaged is passed over with a warning. Raises CheckpointError where all are, and ValueError,
        naming the difference, where the checkpoint belongs to another model, other data or other settings.
        """
        notes = _committed(self.folder)
        for path in reversed(notes):
            try:
                content, tensors = _read(path)
            except (CheckpointError, OSError) as error:
                warnings.warn(f"{error}: the checkpoint before it is used", stacklevel=2)
                if state.team.rank == 0:
                    path.rename(path.with_suffix(".json.damaged"))
                continue
            differences = list(_differences(content["identity"], self.identity))
            if differences:
                raise ValueError(f"{path.stem} in {self.folder} cannot be gone on with: {'; '.join(differences)}")
            _put_back(content, tensors, state, journal)
            return
        if notes:
            raise CheckpointError(f"no checkpoint in {self.folder} is whole: {len(notes)} were found, all damaged")


def identity_of(model: torch.nn.Module, data: Iterable[torch.Tensor], settings: dict) -> dict:
    """What makes two runs the same run: the base model's weights, what is trained, the data, the settings.

    Ask before training: the base model's weights are hashed as they are now. New adapters start at random and are no
    part of it; one that is continued is.
    """
    adapter = getattr(model, "peft_config", {}).get("default")
    fresh = frozenset() if continues_adapter(model) else adapter_names(model)
    return {
        "base model": _hash(p for name, p in model.named_parameters() if name not in fresh),
        "trainable tensors": {name: list(p.shape) for name, p in model.named_parameters() if p.requires_grad},
        "adapter": {key: getattr(adapter, key) for key in ("r", "lora_alpha", "lora_dropout")} if adapter else {},
        "data": _hash(data),
        "settings": settings,
    }


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint in a folder, whole or not; 0 where there is none."""
    return max((int(path.stem.removeprefix("step-")) for path in _committed(folder)), default=0)


def _committed(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"))


def _tensors(state: TrainingState, journal: Journal) -> dict[str, torch.Tensor]:
    found = {f"weights.{number}": tensor for number, tensor in enumerate(state.parameters)}
    for number, moments in state.optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{number}.{key}": tensor for key, tensor in moments.items()}
    found |= {f"best.{number}": tensor for number, tensor in enumerate(journal.best_weights or ())}
    return {name: gather_full(tensor.detach()).cpu().contiguous() for name, tensor in found.items()}


def _put_back(content: dict, tensors: dict[str, torch.Tensor], state: TrainingState, journal: Journal) -> None:
    optimizer = state.optimizer.state_dict()
    optimizer["state"] = {}
    best = {}
    with torch.no_grad():
        for name, tensor in tensors.items():
            kind, number, *key = name.split(".")
            if kind == "weights":
                parameter = state.parameters[int(number)]
                parameter.copy_(shard_like(tensor, parameter))
            elif kind == "best":
                best[int(number)] = tensor
            else:
                moment = tensor if key[0] == "step" else shard_like(tensor, state.parameters[int(number)])
                optimizer["state"].setdefault(int(number), {})[key[0]] = moment
    state.optimizer.load_state_dict(optimizer)
    state.step = content["step"]
    journal.records = [StepRecord(**record) for record in content["records"]]
    journal.scores = content["scores"]
    losses = (score["validation_loss"] for score in journal.scores)
    journal.best_loss = min(filter(math.isfinite, losses), default=math.inf)
    journal.best_weights = [best[number] for number in sorted(best)] or None
    journal.evaluations_without_gain = content["evaluations_without_gain"]


def _write(path: Path, fill: Callable[[Path], object]) -> str:
    """Under a temporary name, safe on the disk, then renamed: a reader sees all of it or nothing. Returns its hash."""
    part = path.with_name(path.name + ".part")
    fill(part)
    with open(part, "rb+") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    os.replace(part, path)
    if os.name == "posix":  # elsewhere a folder cannot be opened, and need not be
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return digest


def _read(notes: Path) -> tuple[dict, dict[str, torch.Tensor]]:
    """Content and tensors. Raises CheckpointError where either is not what was written."""
    try:
        content = json.loads(notes.read_text(encoding="utf-8"))
        whole = content == _sealed({key: value for key, value in content.items() if key != "seal"})
    except (ValueError, AttributeError):
        whole = False
    if not whole:
        raise CheckpointError(f"{notes} is damaged")
    path = notes.with_suffix(".safetensors")
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != content["sha256"]:
            raise CheckpointError(f"{path} is damaged")
    return content, load_file(path)


def _sealed(content: dict) -> dict:
    """With a hash of itself, so that an altered JSON file is noticed too."""
    return content | {"seal": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def _remove_all_but(kept: list[Path], folder: Path) -> None:
    """Notes before tensors: there is never a checkpoint without its tensors."""
    stems = {path.stem for path in kept}
    for pattern in ("step-*.json", "step-*.safetensors", "*.part"):
        for path in folder.glob(pattern):
            if path.name.split(".")[0] not in stems or path.suffix == ".part":
                path.unlink(missing_ok=True)


def _hash(tensors: Iterable[torch.Tensor]) -> str:
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


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)

"""Save what training changes, so that a run killed at any moment goes on as if nothing had happened."""

import hashlib
import json
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tlkit.checkpoints.files import (
    CheckpointError,
    hold_folder,
    reason_of,
    sha256_of,
    write_atomically,
    write_text_atomically,
)
from tlkit.checkpoints.identity import differences
from tlkit.steps import StepRecord, TrainingState
from tlkit.team import gather_full, shard_like

KEPT = 2  # the newest, and the one before it in case the newest is damaged
NAME = "step-{:08d}.{}"
OURS = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,})\.(json|safetensors)(\.part)?")


class _Damaged(Exception):
    """What was read is not what was written."""


@dataclass
class RunLog:
    """What a run has seen so far. With the training state, it is all that a run must remember."""

    records: list[StepRecord] = field(default_factory=list)
    scores: list[dict] = field(default_factory=list)
    best_loss: float = math.inf
    best_weights: list[torch.Tensor] | None = None
    evaluations_without_gain: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints of one run. Files whose names are not exactly ours are never touched.

    Args:
        folder: where the checkpoints are; other files may be there too.
        every: optimizer steps from one checkpoint to the next.
        identity: what a run that goes on must have in common with this one, from `identity_of`.
    """

    folder: Path
    every: int
    identity: dict

    @contextmanager
    def hold(self, resume: bool) -> Iterator[None]:
        """Keep other runs out of the folder, from before any work until the run ends.

        Args:
            resume: whether the run goes on with the checkpoints that are there.

        Raises:
            CheckpointError: where the folder cannot be used or is in use, or holds another run's checkpoints.
        """
        with hold_folder(self.folder):
            if not resume and (earlier := _committed(self.folder)):
                raise CheckpointError(
                    f"{self.folder} holds {earlier[-1].stem} of an earlier run: resume it, or name another folder"
                )
            yield

    def save(self, state: TrainingState, run_log: RunLog) -> None:
        """Write a checkpoint, then remove all but this one and the one before it.

        Two files: tensors, and a JSON file that names their hash. The JSON file comes last: without it there is no
        checkpoint. In a team, every process calls this and the first one writes: what it writes does not depend on
        how many there are.

        Args:
            state: the training state, between two steps.
            run_log: what the run has seen up to this step.

        Raises:
            CheckpointError: where writing fails; earlier checkpoints are untouched then.
        """
        first = state.team.rank == 0
        tensors = _tensors(state, run_log) if first or state.team.in_parts else {}  # parts are gathered from all
        if not first:
            return
        notes = self.folder / NAME.format(state.step, "json")
        try:
            notes.unlink(missing_ok=True)  # of a damaged checkpoint of this step: never an old note on new tensors
            content = {
                "step": state.step,
                "sha256": write_atomically(notes.with_suffix(".safetensors"), lambda path: save_file(tensors, path)),
                "identity": self.identity,
                "records": [asdict(record) for record in run_log.records],
                "scores": run_log.scores,
                "evaluations_without_gain": run_log.evaluations_without_gain,
            }
            text = json.dumps(_sealed(content), indent=1)
            write_text_atomically(notes, text)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"the checkpoint of step {state.step} could not be written to {self.folder} ({reason_of(error)}); "
                "those before it are untouched"
            ) from error
        try:
            _remove_all_but_newest(state.step, self.folder)
        except OSError as error:
            warnings.warn(f"older checkpoints are still in {self.folder}: {reason_of(error)}", stacklevel=2)

    def restore(self, state: TrainingState, run_log: RunLog) -> None:
        """Bring state and log to the newest checkpoint that is whole; they stay as they are where there is none.

        A damaged checkpoint is passed over with a warning, and left as it is.

        Args:
            state: the training state, as it was before the first step; changed in place.
            run_log: an empty one; changed in place.

        Raises:
            CheckpointError: where there are checkpoints but none is whole.
            OSError: where one cannot be read: that may pass, so no older one is taken in its place.
            ValueError: where the checkpoint belongs to another model, other data or other settings; says which.
        """
        damaged = []
        for path in reversed(_committed(self.folder)):
            try:
                content, tensors = _read(path)
            except _Damaged as damage:
                damaged.append(str(damage))
                continue
            if damaged:
                warnings.warn(f"{'; '.join(damaged)}: {path.stem} is used", stacklevel=2)
            if differing := list(differences(content["identity"], self.identity)):
                raise ValueError(f"{path.stem} in {self.folder} cannot be gone on with: {'; '.join(differing)}")
            _put_back(content, tensors, state, run_log)
            return
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is whole ({'; '.join(damaged)}): "
                "bring them back from a copy, or name another folder to begin anew"
            )


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint in a folder, whole or not; 0 where there is none.

    Args:
        folder: of checkpoints; it need not be there.
    """
    return max(map(_step_of, _committed(folder)), default=0)


def _committed(folder: Path) -> list[Path]:
    """The JSON files of our checkpoints, oldest first. A folder of that name is not ours."""
    files = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in files if _is_ours(path) and path.suffix == ".json"), key=_step_of)


def _is_ours(path: Path) -> bool:
    return OURS.fullmatch(path.name) is not None and (path.is_symlink() or not path.is_dir())


def _step_of(path: Path) -> int:
    return int(OURS.fullmatch(path.name)[1])


def _tensors(state: TrainingState, run_log: RunLog) -> dict[str, torch.Tensor]:
    tensors = {f"weights.{number}": tensor for number, tensor in enumerate(state.parameters)}
    for number, moments in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{key}": tensor for key, tensor in moments.items()}
    tensors |= {f"best.{number}": tensor for number, tensor in enumerate(run_log.best_weights or ())}
    return {name: gather_full(tensor.detach()).cpu().contiguous() for name, tensor in tensors.items()}


def _put_back(content: dict, tensors: dict[str, torch.Tensor], state: TrainingState, run_log: RunLog) -> None:
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
    run_log.records = [StepRecord(**record) for record in content["records"]]
    run_log.scores = content["scores"]
    losses = (score["validation_loss"] for score in run_log.scores)
    run_log.best_loss = min(filter(math.isfinite, losses), default=math.inf)
    run_log.best_weights = [best[number] for number in sorted(best)] or None
    run_log.evaluations_without_gain = content["evaluations_without_gain"]


def _read(notes: Path) -> tuple[dict, dict[str, torch.Tensor]]:
    """Content and tensors. Raises _Damaged where either is not what was written, OSError where it cannot be read."""
    raw = notes.read_bytes()
    try:
        content = json.loads(raw)
        whole = content == _sealed({key: value for key, value in content.items() if key != "seal"})
        whole = whole and content["step"] == _step_of(notes)
    except (ValueError, AttributeError, KeyError, RecursionError):
        whole = False
    if not whole:
        raise _Damaged(f"{notes} is damaged")
    path = notes.with_suffix(".safetensors")
    try:
        digest = sha256_of(path)
    except FileNotFoundError:
        raise _Damaged(f"{path} is missing") from None
    if digest != content["sha256"]:
        raise _Damaged(f"{path} is damaged")
    return content, load_file(path)


def _sealed(content: dict) -> dict:
    """With a hash of itself, so that an altered JSON file is noticed too."""
    return content | {"seal": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def _remove_all_but_newest(step: int, folder: Path) -> None:
    """Up to a step, beyond which all are damaged. Notes before tensors: no checkpoint is ever without its tensors."""
    kept = {notes.stem for notes in [path for path in _committed(folder) if _step_of(path) <= step][-KEPT:]}
    for path in sorted(filter(_is_ours, folder.iterdir()), key=lambda path: path.suffix == ".safetensors"):
        if path.suffix == ".part" or path.stem not in kept:
            path.unlink(missing_ok=True)

"""What a training leaves beside its model, so that a card can be written, also after the adapter was merged."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tlkit.checkpoints import write_text_atomically
from tlkit.models.adapter_folders import weights_sha256

RECORD = "training.json"


@dataclass(frozen=True)
class TrainingRecord:
    """One training: on what, how, and what came of it."""

    strategy: str
    strategy_options: dict[str, object]
    settings: dict[str, object]  # of the training, by name
    learning_rate_from: str
    trainable_values: int
    total_values: int
    corpus_name: str  # of a path, its last part: what lies above it concerns nobody else
    corpus_sha256: str
    training_documents: int
    training_tokens: int  # in one epoch
    block_size: int
    before: dict[str, object]  # scores as `evaluate --json` prints them
    after: dict[str, object]
    steps: int
    seconds: float
    stopped_early: bool
    date: str
    device: str
    versions: str
    command: str


def save_training_record(folder: Path, record: TrainingRecord) -> None:
    """Write a record beside the model that it is about.

    Args:
        folder: of the trained model.
        record: of its training.

    Raises:
        OSError: where the folder cannot be written.
    """
    text = json.dumps({"weights_sha256": weights_sha256(folder), **asdict(record)}, indent=1, default=str)
    write_text_atomically(folder / RECORD, text + "\n")


def training_record(folder: Path) -> TrainingRecord | None:
    """The record of the training that made the weights in a folder.

    Args:
        folder: of a model.

    Returns:
        The record; None where there is none, or where it is about other weights than those that are there now.

    Raises:
        ValueError: where the file is no such record.
    """
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        weights = found["weights_sha256"]
        record = TrainingRecord(**{field.name: found[field.name] for field in fields(TrainingRecord)})
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is no record of a training ({reason}): remove it, or train anew") from error
    return record if weights == weights_sha256(folder) else None

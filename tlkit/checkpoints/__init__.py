"""Checkpoints: what a run saves, what makes two runs the same, and files that are whole or not there."""

from tlkit.checkpoints.files import (
    CheckpointError,
    flush_file,
    flush_folder,
    hold_folder,
    reason_of,
    sha256_of,
    write_atomically,
    write_text_atomically,
)
from tlkit.checkpoints.folder import Checkpoints, Journal, newest_step
from tlkit.checkpoints.identity import hash_of, identity_of

__all__ = [
    "CheckpointError",
    "Checkpoints",
    "Journal",
    "flush_file",
    "flush_folder",
    "hash_of",
    "hold_folder",
    "identity_of",
    "newest_step",
    "reason_of",
    "sha256_of",
    "write_atomically",
    "write_text_atomically",
]

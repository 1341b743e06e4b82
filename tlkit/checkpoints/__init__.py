"""Checkpoints: what a run saves, what makes two runs the same, and files that are whole or not there.

Here are the files alone, which need no torch: `folder` and `identity` are imported by their names.
"""

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

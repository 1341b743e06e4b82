"""What is running and how long it will take: one line of tqdm on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

LINE = "{percentage:3.0f}%|{bar:10}| {desc} [{remaining} left]{postfix}"
ON_TERMINAL, IN_LOG = 0.2, 30.0  # seconds between two states of the line; a log keeps them all


class Job:
    """A job in parts, such as the runs of a comparison; a log is told nothing of one that is over at once."""

    def __init__(self, total: int = 1, *, shown: bool = True) -> None:
        self.total, self.done = total, 0
        pause = ON_TERMINAL if sys.stderr.isatty() else IN_LOG
        how = {"bar_format": LINE, "dynamic_ncols": True, "leave": False, "smoothing": 0, "miniters": 0}
        self.bar = tqdm(total=total, disable=not shown, file=sys.stderr, mininterval=pause, delay=pause, **how)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    @contextmanager
    def stage(self, name: str) -> Iterator["Job"]:
        """Begin a stage, and count it when it has ended."""
        several = self.total > 1
        self.bar.set_description_str(f"run {self.done + 1} of {self.total}, {name}" if several else name, refresh=False)
        self.bar.set_postfix_str("", refresh=several)
        try:
            yield self
        finally:
            self.done += 1

    def step(self, done: int, total: int, doing: str) -> None:
        """Say how far the stage is, also in words, such as "step 3 of 60, loss 2.413"."""
        self.bar.set_postfix_str(doing, refresh=False)
        # What was trained is scored: that is no step back.
        self.bar.update(max(0, self.done + done / max(1, total) - self.bar.n))


SILENT = Job(shown=False)


@contextmanager
def reported(progress: bool | Job, name: str) -> Iterator[Job]:
    """What a loop reports to: the larger job, or one of its own, shown or not."""
    if isinstance(progress, Job):
        yield progress
        return
    with Job(shown=progress) as job, job.stage(name):
        yield job

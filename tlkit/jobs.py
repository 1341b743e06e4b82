"""What is running, which of how many, and how long the rest will take, by tqdm: on a terminal, and in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from tqdm import tqdm

LINE = "{desc} [{remaining} left]{postfix}"
ON_TERMINAL = {"bar_format": "{percentage:3.0f}%|{bar:10}| " + LINE, "mininterval": 0.2, "dynamic_ncols": True}
IN_LOG = {"bar_format": LINE, "mininterval": 30.0, "delay": 30.0, "position": 0}
WORTH_A_LINE = 5.0  # seconds; what is over sooner, and is one part alone, leaves no line in a log


def _print(text: str) -> None:
    """A line of a log, where what tqdm writes stays."""
    if line := text.strip():
        print(line, file=sys.stderr, flush=True)


class Job:
    """A job in parts, one after the other, such as the runs of a comparison, shown on stderr.

    On a terminal one line changes in place. In a log (a pipe, a file, a notebook) there is a line where one of several
    parts begins, and one every half minute. At the end one line says what was done and how long it took.
    """

    def __init__(self, total: int = 1, *, shown: bool = True) -> None:
        self.total, self.shown, self.done, self.begun = total, shown, 0, time.monotonic()
        self.name = self.way = self.doing = ""  # of the part that is running
        log = SimpleNamespace(write=_print, flush=lambda: None)
        form = {"file": sys.stderr} | ON_TERMINAL if sys.stderr.isatty() else {"file": log} | IN_LOG
        self.bar = tqdm(total=total, disable=not shown, leave=False, smoothing=0, miniters=0, **form)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.close()
        seconds = time.monotonic() - self.begun
        if kind is None and self.shown and (self.total > 1 or seconds >= WORTH_A_LINE):
            done = f"{self.done} runs" if self.total > 1 else f"{self.name}: {self.doing};"
            _print(f"{done} took {tqdm.format_interval(seconds)}")

    @contextmanager
    def part(self, name: str) -> Iterator["Job"]:
        """Say that a part begins, and count it when it has ended."""
        self.name, self.way, self.doing = name, "", ""
        self._show(news=self.total > 1)
        try:
            yield self
        finally:
            self.done += 1

    def step(self, done: int, total: int, doing: str) -> None:
        """Say how far the part is, in numbers and in words, such as "step 3 of 60, loss 2.413"."""
        self.doing = doing
        self._show(done / total if total else 0.0)

    def ended(self, words: str) -> None:
        """Say in words what came of the part, for the line that stays."""
        self.doing = words

    def go_on(self, way: str) -> None:
        """Say that it goes on in another way, such as with less memory; empty for the way in which it began."""
        if way != self.way:
            self.way = way
            self._show(news=True)

    def _show(self, share: float = 0.0, *, news: bool = False) -> None:
        """Show where the job is, unless that was done a moment ago and is no news."""
        several = self.total > 1
        # What is most important stands first: a narrow terminal cuts off the rest.
        head, name = (f"run {self.done + 1} of {self.total}", self.name) if several else (self.name, "")
        self.bar.set_description_str(head, refresh=False)
        self.bar.set_postfix_str(": ".join(filter(None, (name, self.way, self.doing))), refresh=False)
        # A part that was trained is scored: that is no step back.
        self.bar.update(max(0, self.done + share - self.bar.n))
        if news:
            self.bar.refresh()


SILENT = Job(shown=False)


@contextmanager
def reported(progress: bool | Job, name: str) -> Iterator[Job]:
    """What a loop reports its steps to: the larger job of which it is a part, or one of its own, shown or not."""
    if isinstance(progress, Job):
        yield progress
        return
    with Job(shown=progress) as job, job.part(name):
        yield job

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


class Part:
    """One part of a job, which says how far it is. A part of no job says it to nobody."""

    def __init__(self, name: str = "", job: "Job | None" = None) -> None:
        self.name, self.job, self.way, self.doing = name, job, "", ""
        self.share = 0.0  # of it that is done

    def step(self, done: int, total: int, doing: str) -> None:
        """Say how far this part is, in numbers and in words, such as "step 3 of 60, loss 2.413"."""
        if self.job:
            self.share, self.doing = done / total if total else 0.0, doing
            self.job.show()

    def ended(self, words: str) -> None:
        """Say in words what came of this part, for the line that stays."""
        if self.job:
            self.doing = words

    def go_on(self, way: str) -> None:
        """Say that it goes on in another way, such as with less memory; empty for the way in which it began."""
        if self.job and way != self.way:
            self.way = way
            self.job.show(news=True)

    def in_words(self, *, named: bool = True) -> str:
        """Its name, the way in which it goes on, where that has changed, and how far it is."""
        return ": ".join(filter(None, (self.name if named else "", self.way, self.doing)))


SILENT = Part()


class Job:
    """A job in parts, such as the runs of a comparison, shown on stderr; several parts may run side by side.

    On a terminal one line changes in place. In a log (a pipe, a file, a notebook) there is a line where one of several
    parts begins, and one every half minute. At the end one line says what was done and how long it took.
    """

    def __init__(self, total: int = 1, unit: str = "run", *, shown: bool = True) -> None:
        self.total, self.unit, self.shown = total, unit, shown  # where there are more parts, the total grows
        self.parts: list[Part] = []  # running now
        self.ended, self.last, self.bar, self.begun = 0, "", None, time.monotonic()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.bar is None:
            return
        self.bar.close()
        seconds = time.monotonic() - self.begun
        done = f"{self.last};" if self.total == 1 else f"{self.ended} {self.unit}{'s' * (self.ended != 1)}"
        if kind is None and (self.total > 1 or seconds >= WORTH_A_LINE):
            _print(f"{done} took {tqdm.format_interval(seconds)}")

    @contextmanager
    def part(self, name: str) -> Iterator[Part]:
        """Say that a part begins, and count it when it has ended."""
        self.parts.append(part := Part(name, self))
        self.total = max(self.total, self.ended + len(self.parts))
        self.show(news=self.total > 1)
        try:
            yield part
        finally:
            self.parts.remove(part)
            self.ended, self.last = self.ended + 1, part.in_words()

    def show(self, *, news: bool = False) -> None:
        """Show where the job is, unless that was done a moment ago and is no news."""
        if not self.shown:
            return
        several, reached = self.total > 1, self.ended + sum(part.share for part in self.parts)
        # What is most important stands first: a narrow terminal cuts off the rest.
        head = f"{self.unit} {self.ended + len(self.parts)} of {self.total}" if several else self.parts[0].name
        if self.bar is None:
            log = SimpleNamespace(write=_print, flush=lambda: None)
            form = {"file": sys.stderr} | ON_TERMINAL if sys.stderr.isatty() else {"file": log} | IN_LOG
            self.bar = tqdm(desc=head, total=self.total, initial=reached, leave=False, smoothing=0, miniters=0, **form)
        self.bar.set_description_str(head, refresh=False)
        self.bar.set_postfix_str("; ".join(part.in_words(named=several) for part in self.parts), refresh=False)
        self.bar.total = self.total
        self.bar.update(max(0, reached - self.bar.n))  # a part that was trained is scored: that is no step back
        if news:
            self.bar.refresh()


@contextmanager
def reported(progress: bool | Part, name: str) -> Iterator[Part]:
    """What a loop reports its steps to: the part of a larger job that it is, or one of its own that is shown or not."""
    if isinstance(progress, Part):
        yield progress
        return
    with Job(shown=progress) as job, job.part(name) as part:
        yield part


def _print(text: str) -> None:
    """A line of a log, where what tqdm writes stays."""
    if line := text.strip():
        print(line, file=sys.stderr, flush=True)

"""What is running, which of how many, and how long the rest will take, by tqdm: on a terminal, and in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

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
        if self.job is not None:
            self.share, self.doing = done / total if total else 0.0, doing
            self.job.show()

    def ended(self, words: str) -> None:
        """Say in words what came of this part, for the line that stays."""
        if self.job is not None:
            self.doing = words

    def go_on(self, way: str) -> None:
        """Say that it goes on in another way, such as with less memory; empty for the way in which it began."""
        news, self.way = way != self.way, way
        if self.job is not None and news:
            self.job.show(news=True)

    @property
    def detail(self) -> str:
        """How it is carried out, where that has changed, and how far it is."""
        return ": ".join(words for words in (self.way, self.doing) if words)

    def __str__(self) -> str:
        return ": ".join(words for words in (self.name, self.detail) if words)


SILENT = Part()


class Job:
    """A job in parts, such as the runs of a comparison, shown on stderr.

    On a terminal one line changes in place. In a log (a pipe, a file, a notebook) there is a line where one of several
    parts begins, and one every half minute. At the end one line says what was done and how long it took.
    """

    def __init__(self, total: int = 1, unit: str = "run", *, shown: bool = True) -> None:
        """Begin; nothing is shown before the first part.

        Args:
            total: how many parts there will be; where there are more, it grows.
            unit: what a part is called, where there are several.
            shown: False for a job that says nothing.
        """
        self.total, self.unit = total, unit
        self.parts: list[Part] = []  # running now: several where threads share the job
        self.ended, self.last = 0, ""
        self._start, self._shown, self._bar = time.monotonic(), shown, None

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is None:
            return
        self._bar.close()
        seconds = time.monotonic() - self._start
        done = f"{self.last};" if self.total == 1 else f"{self.ended} {self.unit}{'s' * (self.ended != 1)}"
        if kind is None and (self.total > 1 or seconds >= WORTH_A_LINE):
            print(f"{done} took {tqdm.format_interval(seconds)}", file=sys.stderr, flush=True)

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
            self.ended += 1
            self.last = str(part)

    def show(self, *, news: bool = False) -> None:
        """Show where the job is, unless that was done a moment ago and is no news."""
        if not self._shown:
            return
        several, begun = self.total > 1, self.ended + len(self.parts)
        # What is most important stands first: a narrow terminal cuts off the rest.
        head = f"{self.unit} {begun} of {self.total}" if several else self.parts[0].name
        reached = self.ended + sum(part.share for part in self.parts)
        if self._bar is None:
            form = {"file": sys.stderr} | ON_TERMINAL if sys.stderr.isatty() else {"file": _Log()} | IN_LOG
            self._bar = tqdm(desc=head, total=self.total, initial=reached, leave=False, smoothing=0, miniters=0, **form)
        self._bar.set_description_str(head, refresh=False)
        details = (str(part) if several else part.detail for part in self.parts)
        self._bar.set_postfix_str("; ".join(details), refresh=False)
        self._bar.total = self.total
        self._bar.update(max(0, reached - self._bar.n))  # a part that was trained is scored: that is no step back
        if news:
            self._bar.refresh()


@contextmanager
def reported(progress: bool | Part, name: str) -> Iterator[Part]:
    """Give what a loop can report its steps to.

    Args:
        progress: the part of a larger job that the loop is; True for a job of its own, False for silence.
    """
    if isinstance(progress, Part):
        yield progress
        return
    with Job(shown=progress) as job, job.part(name) as part:
        yield part


class _Log:
    """What tqdm writes to where lines stay."""

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Each line was flushed."""

"""What is running, which of how many, and how long the rest will take: in a terminal, a log and a notebook, by tqdm."""

import html
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

BETWEEN_LINES = 30.0  # seconds, in a log
LINE = "{desc} [{remaining} left]{postfix}"
IN_PLACE = {"bar_format": "{percentage:3.0f}%|{bar:10}| " + LINE, "mininterval": 0.2}
ON_TERMINAL = IN_PLACE | {"dynamic_ncols": True}
WORTH_A_LINE = 5.0  # seconds; what is over sooner, and is one part alone, leaves no line in a log


class Part:
    """One part of a job, which says how far it is. A part of no job says it to nobody."""

    def __init__(self, name: str = "", job: "Job | None" = None) -> None:
        self.name, self.job, self.way, self.doing = name, job, "", ""
        self.done = self.total = 0

    def step(self, done: int, total: int, doing: str) -> None:
        """Say how far this part is; a part may have several stages, such as training and scoring."""
        if self.job is None:
            return
        new_stage = total != self.total or done < self.done
        self.done, self.total, self.doing = done, total, doing
        self.job.show(new_stage=new_stage)

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
    def share(self) -> float:
        """How much of this stage is done, from 0 to 1."""
        return self.done / self.total if self.total else 0.0

    @property
    def detail(self) -> str:
        """How it is carried out, where that has changed, and how far it is."""
        return ": ".join(words for words in (self.way, self.doing) if words)

    def __str__(self) -> str:
        return ": ".join(words for words in (self.name, self.detail) if words)


SILENT = Part()


class Job:
    """A job in parts, such as the runs of a comparison, shown on stderr or in a notebook.

    On a terminal and in a notebook one line changes in place. In a log (a pipe, a file, CI) there is a line where one
    of several parts begins, and one every half minute. At the end one line says what was done and how long it took.
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
        self.ended = 0
        self._start, self._shown, self._said = time.monotonic(), shown, ""
        self._bar = self._file = None

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._bar is None:
            return
        self._bar.close()
        seconds, on_page = time.monotonic() - self._start, isinstance(self._file, _Page)
        if error is not None:
            line = f"{self._said}; stopped by {error!r} after {tqdm.format_interval(seconds)}"
        else:
            done = f"{self._said};" if self.total == 1 else f"{self.ended} {self.unit}{'s' * (self.ended != 1)}"
            line = f"{done} took {tqdm.format_interval(seconds)}"
        if on_page or error is None and (self.total > 1 or seconds >= WORTH_A_LINE):
            self._file.write(f"{line}\n")

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
            self._said = str(part)

    def show(self, *, news: bool = False, new_stage: bool = False) -> None:
        """Show where the job is, unless that was done a moment ago."""
        if not self._shown:
            return
        if self._bar is None:
            self._file = _file()
            form = {"leave": False, "smoothing": 0, "miniters": 0} | getattr(self._file, "form", ON_TERMINAL)
            self._bar = tqdm(desc=self._head, total=self.total, file=self._file, **form)
        bar, several = self._bar, self.total > 1
        bar.set_description_str(self._head, refresh=False)
        bar.set_postfix_str("; ".join(str(part) if several else part.detail for part in self.parts), refresh=False)
        bar.total, reached = self.total, self.ended + sum(part.share for part in self.parts)
        if new_stage and not several:
            bar.initial = bar.n = bar.last_print_n = reached
            bar.start_t = time.time()
        bar.update(max(0, reached - bar.n))  # a part that was trained is scored: that is no step back
        if news:
            bar.refresh()

    @property
    def _head(self) -> str:
        """What is most important stands first: a narrow terminal cuts off the rest."""
        begun = self.ended + len(self.parts)
        return f"{self.unit} {begun} of {self.total}" if self.total > 1 else self.parts[0].name


@contextmanager
def reported(progress: bool | Part, name: str) -> Iterator[Part]:
    """Give what a loop can report its steps to.

    Args:
        progress: the part of a larger job that the loop is; True for a job of its own, False for silence.
        name: of the job of its own.
    """
    if isinstance(progress, Part):
        yield progress
        return
    with Job(shown=progress) as job, job.part(name) as part:
        yield part


class _Log:
    """A pipe, a file or CI, as a file that tqdm writes to: lines that stay."""

    form = {"bar_format": LINE, "mininterval": BETWEEN_LINES, "delay": BETWEEN_LINES, "position": 0}

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Each line was flushed."""


class _Page(_Log):
    """An output of a notebook, which its last line takes the place of: plain HTML, so that it is there afterwards.

    What it says differs from run to run: `tests/nbval_sanitize.cfg` knows it by its class and by its first word.
    """

    form = IN_PLACE | {"position": 0}
    encoding = "utf-8"  # of the bar
    place = None

    def write(self, text: str) -> None:
        from IPython.display import display

        if not (line := text.strip()):
            return
        data = {"text/plain": f"[run] {line}", "text/html": f'<div class="tlkit-run">{html.escape(line)}</div>'}
        if self.place is None:
            self.place = display(data, raw=True, display_id=True)
        else:
            self.place.update(data, raw=True)


def _file() -> object:
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return _Page()
    return sys.stderr if sys.stderr.isatty() else _Log()

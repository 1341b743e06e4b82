"""What is running, which of how many, and how long the rest will take: in a terminal, a log and a notebook."""

import html
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

BETWEEN_LINES = 30.0  # seconds; in a log every line stays
WORTH_A_LINE = 5.0  # seconds; what is over sooner, and is one part alone, leaves no line in a log
BETWEEN_FRAMES = 0.2  # seconds; on a terminal and in a notebook each takes the place of the one before

Clock = Callable[[], float]


class Part:
    """One part of a job, which says how far it is. A part of no job says it to nobody."""

    def __init__(self, name: str = "", job: "Job | None" = None) -> None:
        self.name, self.job, self.way, self.doing = name, job, "", ""
        self.begun = job.clock() if job else 0.0
        self._stage = self._now = (0.0, 0, 0)  # moment, done, total: when this stage began, and now

    def step(self, done: int, total: int, doing: str) -> None:
        """Say how far this part is; a part may have several stages, such as training and scoring.

        Args:
            done: how much of this stage is done; that it begins is said by the first call of a stage.
            total: how much there is to do in it.
            doing: in words, such as "step 3 of 60, loss 2.413".
        """
        if self.job is None:
            return
        _, before, of = self._now
        self._now, self.doing = (self.job.clock(), done, total), doing
        if total != of or done <= before:
            self._stage = self._now
        self.job.show()

    def ended(self, words: str) -> None:
        """Say in words what came of this part, for the line that stays.

        Args:
            words: such as "60 steps, loss from 4.91 to 3.87".
        """
        if self.job is not None:
            self.doing = words

    def go_on(self, way: str) -> None:
        """Say that it goes on in another way, such as with less memory.

        Args:
            way: in words; empty for the way in which it began.
        """
        news, self.way = way != self.way, way
        if self.job is not None and news:
            self.job.show(news=True)

    @property
    def seconds(self) -> float:
        """How long this part has been running."""
        return self.job.clock() - self.begun if self.job else 0.0

    @property
    def stage_left(self) -> float | None:
        """About how many seconds this stage will still take; None before its first step has ended."""
        (began, first, _), (moment, done, total) = self._stage, self._now
        return (moment - began) / (done - first) * (total - done) if done > first else None

    @property
    def detail(self) -> str:
        """How it is carried out, where that has changed, and how far it is."""
        return ": ".join(words for words in (self.way, self.doing) if words)

    def __str__(self) -> str:
        return ": ".join(words for words in (self.name, self.detail) if words)


SILENT = Part()


class Job:
    """A job in parts, such as the runs of a comparison, shown on stderr or in a notebook's bar.

    On a terminal and in a notebook one line changes in place. In a log (a pipe, a file, CI) there is a line where one
    of several parts begins, and one every half minute. At the end one line says what was done and how long it took.
    """

    def __init__(self, total: int = 1, unit: str = "run", *, shown: bool = True, clock: Clock = time.monotonic) -> None:
        """Begin; nothing is shown before the first part.

        Args:
            total: how many parts there will be; where there are more, it grows.
            unit: what a part is called, where there are several.
            shown: False for a job that says nothing.
            clock: seconds from any moment on.
        """
        self.total, self.unit, self.clock, self._start = total, unit, clock, clock()
        self.begun = 0
        self.took: list[float] = []  # seconds of each part that has ended
        self.parts: list[Part] = []  # running now: several where threads share the job
        self._lock = threading.RLock()
        self._screen = _screen(clock) if shown else None
        self._said = ""

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._screen:
            self._screen.close(self.summary() if kind is None and self.took else "", self._broken_off(error))

    @contextmanager
    def part(self, name: str) -> Iterator[Part]:
        """Say that a part begins, and time it.

        Args:
            name: what is running, such as "lora, seed 0".
        """
        with self._lock:
            self.begun += 1
            self.total = max(self.total, self.begun)
            self.parts.append(part := Part(name, self))
            self.show(news=self.total > 1)
        try:
            yield part
        finally:
            with self._lock:
                self.parts.remove(part)
                self.took.append(part.seconds)
                self._said = str(part)

    def show(self, news: bool = False) -> None:
        """Show where the job is, unless that was done a moment ago.

        Args:
            news: show it in any case.
        """
        if self._screen is None:
            return
        with self._lock:
            if news or self.clock() - self._screen.shown_at >= self._screen.between:
                self._screen.shown_at = self.clock()
                self._screen.show(str(self), self.share_done)

    def say(self, line: str) -> None:
        """Print a line that stays, without breaking the one that changes.

        Args:
            line: for stdout.
        """
        with self._lock:
            tqdm.write(line)
            sys.stdout.flush()

    @property
    def seconds_left(self) -> float | None:
        """About how long the rest will take, if it goes on as it did so far; None while nothing is known."""
        stages = [(part.seconds, part.stage_left) for part in self.parts]
        known = self.took or [spent + left for spent, left in stages if left is not None]
        if not known:
            return None
        mean = sum(known) / len(known)
        running = sum(max(mean - spent, left or 0.0) for spent, left in stages)
        return (running + mean * (self.total - self.begun)) / max(1, len(self.parts))

    @property
    def share_done(self) -> float:
        """How much of its time the job has behind it, from 0 to 1; 0 while that is not known."""
        spent, left = self.clock() - self._start, self.seconds_left
        return spent / (spent + left) if left is not None and spent else 0.0

    def summary(self) -> str:
        """The whole job in one line, after its end."""
        done = f"{self._said};" if self.total == 1 else f"{len(self.took)} {self.unit}{'s' * (len(self.took) != 1)}"
        return f"{done} took {duration(self.clock() - self._start)}"

    def _broken_off(self, error: BaseException | None) -> str:
        """The line that stays of a job that did not reach its end; nothing where it did."""
        if error is None:
            return ""
        how = {KeyboardInterrupt: "interrupted", FloatingPointError: "diverged"}.get(type(error), "stopped by an error")
        why = f": {error}" if isinstance(error, FloatingPointError) else ""
        return f"{self._said}; {how} after {duration(self.clock() - self._start)}{why}"

    def __str__(self) -> str:
        """What is most important stands first: a narrow terminal cuts off the rest."""
        left, several = self.seconds_left, self.total > 1
        head = f"{self.unit} {self.begun} of {self.total}" if several else "; ".join(part.name for part in self.parts)
        running = "; ".join(str(part) if several else part.detail for part in self.parts)
        time_left = f" (about {duration(left)} left)" if left is not None else ""
        return f"{head}{time_left}" + (f": {running}" if running else "")


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


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class _Log:
    """Lines that stay."""

    between = BETWEEN_LINES

    def __init__(self, clock: Clock) -> None:
        self.shown_at = self._start = clock()
        self._clock, self._spoke = clock, False

    def show(self, text: str, share_done: float) -> None:
        self._spoke = True
        print(text, file=sys.stderr, flush=True)

    def close(self, summary: str, broken_off: str) -> None:
        if summary and (self._spoke or self._clock() - self._start >= WORTH_A_LINE):
            self.show(summary, 1.0)


class _Bar:
    """A line that changes in place, by tqdm."""

    between = BETWEEN_FRAMES

    def __init__(self, tqdm: type) -> None:
        self.shown_at, self._tqdm, self._bar = -math.inf, tqdm, None

    def show(self, text: str, share_done: float) -> None:
        if self._bar is None:
            form = "{percentage:3.0f}%|{bar:10}| {desc}"
            self._bar = self._tqdm(total=1.0, desc=text, bar_format=form, leave=False, dynamic_ncols=True)
        self._bar.n = share_done
        self._bar.set_description_str(text)

    def close(self, summary: str, broken_off: str) -> None:
        if self._bar is None:
            return
        self._bar.close()
        if summary:
            print(summary, file=sys.stderr, flush=True)


class _Output:
    """A bar in a notebook, which its last line takes the place of: plain HTML, and so it is still there afterwards.

    What it says differs from run to run: `tests/nbval_sanitize.cfg` knows it by its class and by its first word.
    """

    between = BETWEEN_FRAMES

    def __init__(self) -> None:
        self.shown_at, self._place = -math.inf, None

    def show(self, text: str, share_done: float) -> None:
        self._draw(text, f'<progress value="{share_done:.3f}" max="1" style="width:12em"></progress> ')

    def close(self, summary: str, broken_off: str) -> None:
        if self._place is not None and (summary or broken_off):
            self._draw(summary or broken_off, "✓ " if summary else "✗ ")

    def _draw(self, text: str, before: str) -> None:
        from IPython.display import display

        data = {"text/plain": f"[run] {text}", "text/html": f'<div class="tlkit-run">{before}{html.escape(text)}</div>'}
        if self._place is None:
            self._place = display(data, raw=True, display_id=True)
        else:
            self._place.update(data, raw=True)


def _screen(clock: Clock) -> _Log | _Bar | _Output:
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return _Output()
    if not sys.stderr.isatty():
        return _Log(clock)

    return _Bar(tqdm)

"""Train the bundled model while people watch: one run, or two that take turns on the same text and the same axes."""

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from course.panels.views import Panel, View, button, choice, new_figure, row
from tlkit.corpus import load_corpus, pack
from tlkit.models import LoadedModel, load_model
from tlkit.names import CLASSIC
from tlkit.reports.figure import COLOURS, FAINT, INK
from tlkit.settings import Profile, TrainingConfig, setup
from tlkit.steps import TrainingState, mean_loss
from tlkit.strategies import apply_strategy
from tlkit.training import total_steps, training_steps

TOO_HIGH = 1.0  # nats per token above the untouched model: a run that gets there has diverged
ROOM_BELOW = 1.2  # nats per token below it, where runs are expected
LAID_OVER = 6  # earlier runs in one chart: more could not be told apart
RATES = (1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 1e-1)
LANES = (("full", 1e-3), ("lora", 1e-2))  # strategies and the rates that were recorded as best for each


@dataclass
class Run:
    """One training, as far as it has come.

    Attributes:
        strategy: what is trained.
        rate: the highest learning rate.
        points: step and validation loss (nats per token).
        total_steps: of the whole run.
        diverged_at: the step at which it was given up; None where it was not.
        model: as trained so far.
    """

    strategy: str
    rate: float
    points: list[tuple[int, float]] = field(default_factory=list)
    total_steps: int = 0
    diverged_at: int | None = None
    model: torch.nn.Module | None = None

    @property
    def name(self) -> str:
        """Strategy and rate."""
        return f"{self.strategy}, rate {self.rate:g}"

    @property
    def done(self) -> bool:
        """Whether the last step has been taken."""
        return bool(self.points) and self.points[-1][0] == self.total_steps


def untouched_loss(profile: Profile | None = None) -> float:
    """Score the bundled model on the validation text of all runs, before any training.

    Args:
        profile: how much text is read (None: as `setup` says).

    Returns:
        Nats per token.
    """
    loaded, _, unseen = _text(profile)
    return mean_loss(loaded.model, unseen)


def trained(run: Run, epochs: float = 1, *, profile: Profile | None = None, every: int = 4) -> Iterator[Run]:
    """Train the bundled model on Rust. To stop, stop asking: what was reached is in the run.

    Args:
        run: that has not begun; changed in place.
        epochs: how often the text is read; may be a fraction.
        profile: how much text is read (None: as `setup` says).
        every: steps between two points; the first and the last step always have one.

    Yields:
        The run, whenever it has one more point.

    Raises:
        ValueError: for what cannot train, before any work.
    """
    loaded, blocks, unseen = _text(profile)
    config = TrainingConfig(run.rate, epochs=epochs, batch_size=4)
    report = apply_strategy(loaded.model, run.strategy)
    run.model, run.total_steps = report.model, total_steps(len(blocks), config)
    for record in training_steps(TrainingState(run.model, config, report.groups), blocks):
        if record.step == 1 or record.step % every == 0 or record.step == run.total_steps:
            run.points.append((record.step, mean_loss(run.model, unseen)))
            yield run


def race(runs: Sequence[Run], untouched: float, epochs: float = 1, **options) -> Iterator[None]:
    """Train several runs in turns; one that diverges takes no further part.

    Args:
        runs: that have not begun; changed in place.
        untouched: as of `untouched_loss`.
        epochs: how often the text is read.
        options: of `trained`.

    Yields:
        After each turn, which adds a point to every run that still trains.
    """
    still = {place: trained(run, epochs, **options) for place, run in enumerate(runs)}
    while still:
        for place, training in list(still.items()):
            run = next(training, None)
            if run is not None and has_diverged(run.points[-1][1], untouched):
                run.diverged_at = run.points[-1][0]
            if run is None or run.diverged_at is not None or run.done:
                del still[place]
        yield


def has_diverged(loss: float, untouched: float) -> bool:
    """Whether a validation loss is so far above the untouched model's that the run is given up.

    Args:
        loss: in nats per token.
        untouched: that of the model before any training.
    """
    return not math.isfinite(loss) or loss > untouched + TOO_HIGH


def outcome(runs: Sequence[Run], untouched: float) -> str:
    """Say how far runs have come, and of two whether one is ahead.

    Args:
        runs: one or two, with a point each.
        untouched: as of `untouched_loss`.
    """
    said, whole = [], [run for run in runs if run.diverged_at is None]
    for run in runs:
        step, loss = run.points[-1]
        if run.diverged_at is not None:
            said.append(f"{run.name} diverged at step {step}: its learning rate is too high, so it was given up.")
        else:
            gain = f"{abs(untouched - loss):.2f} {'less' if loss <= untouched else 'more'} than untouched"
            said.append(f"{run.name}: step {step} of {run.total_steps}, {loss:.2f} nats per token, {gain}.")
    if len(whole) == 2:
        better, other = sorted(whole, key=lambda run: run.points[-1][1])
        apart = other.points[-1][1] - better.points[-1][1]
        said.append(f"{better.name} is {apart:.2f} below {other.name}; that is one seed each.")
    return " ".join(said)


def training_view(runs: Sequence[Run], earlier: Sequence[Run], untouched: float) -> View:
    """Draw validation loss by step: these runs in colour, those before them pale, the untouched model as a line.

    Args:
        runs: one or two, with a point each.
        earlier: runs of this panel before them.
        untouched: as of `untouched_loss`.
    """
    figure, (axes,) = new_figure(2.5)
    top = untouched + TOO_HIGH
    lowest = [loss for run in [*runs, *earlier] for _, loss in run.points if math.isfinite(loss)]
    axes.set_xlim(0, 1.02 * max(run.total_steps for run in [*runs, *earlier]))
    axes.set_ylim(min([untouched - ROOM_BELOW, *(loss - 0.1 for loss in lowest)]), top)
    axes.axhline(untouched, color=INK, linestyle="--", linewidth=1.2, label=f"untouched: {untouched:.2f}")
    for run in earlier[-LAID_OVER:]:
        axes.plot(*_line(run, untouched, top), color=FAINT, alpha=0.4)
    for run, colour, marker in zip(runs, COLOURS, "oD", strict=False):
        ended = f": diverged at step {run.diverged_at}" if run.diverged_at is not None else ""
        label = f"{run.name}{ended or f': {run.points[-1][1]:.2f}'}"
        axes.plot(*_line(run, untouched, top), color=colour, marker=marker, markersize=4, linewidth=2, label=label)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("validation loss\n(nats per token)")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize="small")
    return View(outcome(runs, untouched), figure)


class TrainingLab(Panel):
    """Train while you watch. Start and Stop work meanwhile; what was reached stays in `state` (and in `runs`).

    Args:
        lanes: how many runs take turns, 1 or 2.
    """

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = [
            (choice("Strategy", list(CLASSIC), name), choice("Learning rate", RATES, rate))
            for name, rate in LANES[:lanes]
        ]
        self.epochs = choice("Epochs", (0.5, 1, 2, 4), 1)
        self.start_button = button("Start", "Train from the pretrained weights", self.start, space=True)
        self.stop_button = button("Stop", "Stop, and keep what was reached", self.stop)
        self.stop_button.disabled = True
        self.runs: list[Run] = []
        self.earlier: list[Run] = []
        self._untouched: float | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        *first, last = [row(*lane) for lane in self.lanes]
        last.children = [*last.children, self.epochs, self.start_button, self.stop_button]
        super().__init__(*first, last)

    @property
    def state(self) -> Run | None:
        """The first run as far as it has come; None before any."""
        return self.runs[0] if self.runs and self.runs[0].points else None

    def start(self) -> None:
        """Begin in the background, so that the Stop button works meanwhile."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._stopping.clear()
        self._running(True)
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is being taken."""
        self._stopping.set()

    def wait(self) -> None:
        """Wait until training has ended."""
        if self._thread is not None:
            self._thread.join()

    def _train(self) -> None:
        with self.working("loading the model"):
            if self._untouched is None:
                self._untouched = untouched_loss()
            self.earlier += [run for run in self.runs if run.points]
            self.runs = [Run(strategy.value, rate.value) for strategy, rate in self.lanes]
            for _ in race(self.runs, self._untouched, self.epochs.value):
                view = training_view(self.runs, self.earlier, self._untouched)
                self.show(view)
                if self._stopping.is_set() and not all(run.done for run in self.runs):
                    self.say(f"Stopped, and kept. {view.text}")
                    break
        self._running(False)

    def _running(self, running: bool) -> None:
        self.stop_button.disabled = not running
        for control in (self.start_button, self.epochs, *(one for lane in self.lanes for one in lane)):
            control.disabled = running


def _text(profile: Profile | None) -> tuple[LoadedModel, torch.Tensor, torch.Tensor]:
    """The bundled model, the blocks that runs train on, and eight blocks of validation text."""
    loaded = load_model("tiny")
    rust = load_corpus("rust").limited((profile or setup()).train_passages)
    blocks, unseen = (pack(texts, loaded.tokenizer, 128) for texts in (rust.train, rust.validation))
    return loaded, blocks, unseen[:8]


def _line(run: Run, untouched: float, top: float) -> tuple[list[int], list[float]]:
    """The points of a run from the untouched model on; one that diverges leaves at the top."""
    points = [(0, untouched), *((step, loss if math.isfinite(loss) else top) for step, loss in run.points)]
    return [step for step, _ in points], [min(loss, top) for _, loss in points]

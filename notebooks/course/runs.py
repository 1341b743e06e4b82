"""Trainings as a live chart keeps them: their points, whether they have diverged, and axes that stay where they are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

TOO_HIGH = 1.0  # nats per token above the untouched model: a run that gets there has diverged
ROOM_BELOW = 1.2  # nats per token below the untouched model, where runs are expected


@dataclass
class Run:
    """One training, as far as it has come.

    Attributes:
        strategy: what is trained.
        rate: the highest learning rate.
        points: step and validation loss (nats per token).
        steps: of the whole run.
        diverged_at: the step at which it was found to have diverged; None where it has not.
    """

    strategy: str
    rate: float
    points: list[tuple[int, float]] = field(default_factory=list)
    steps: int = 0
    diverged_at: int | None = None

    @property
    def name(self) -> str:
        """Strategy and rate."""
        return f"{self.strategy}, rate {self.rate:g}"


def has_diverged(loss: float, untouched: float) -> bool:
    """Whether a validation loss is so far above the untouched model's that the run is given up.

    Args:
        loss: in nats per token.
        untouched: that of the model before any training.
    """
    return not math.isfinite(loss) or loss > untouched + TOO_HIGH


def axes_for(runs: Iterable[Run], untouched: float, steps: int) -> tuple[list[float], list[float]]:
    """The ranges of both axes: the same for all runs, unless one needs more; a diverged one leaves at the top.

    Args:
        runs: that are drawn.
        untouched: validation loss before any training.
        steps: of the longest run that is expected.
    """
    runs = list(runs)
    lowest = [loss for run in runs for _, loss in run.points if math.isfinite(loss)]
    longest = max([steps, *(run.steps for run in runs)])
    bottom = min([untouched - ROOM_BELOW, *(loss - 0.1 for loss in lowest)])
    return [0, 1.02 * longest], [bottom, untouched + TOO_HIGH]

"""The parts of an optimizer step, and on an error that leaves it the part in which it arose."""

from collections.abc import Iterator
from contextlib import contextmanager

FORWARD, BACKWARD, UPDATE = PHASES = ("forward pass", "backward pass", "optimizer step")
OTHER_PROCESS = "other process"  # of a team, where it was not this one that failed


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Around a part of a step, or as a decorator: an error that leaves it says so to `phase_of`.

    Args:
        name: one of `PHASES`, or `OTHER_PROCESS`.
    """
    try:
        yield
    except Exception as error:
        error.phase = phase_of(error, name)
        raise


def phase_of(error: BaseException, otherwise: str = FORWARD) -> str:
    """The part of a step in which an error arose.

    Args:
        error: that was caught.
        otherwise: the answer where no step was under way: an evaluation is a forward pass.
    """
    return getattr(error, "phase", otherwise)

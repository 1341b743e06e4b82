"""Names and figures that many parts of the package share."""

from collections.abc import Iterator
from contextlib import contextmanager

# The published experiment, in the order of the lessons.
CLASSIC = ("full", "freeze_lower", "freeze_embeddings", "last_layers", "lora", "qlora", "bitfit")
ZERO_SHOT = "zero-shot"  # the model as it was loaded
CONTROL = "random initialisation"  # full training of it from random weights: what pretraining is worth

FORWARD, BACKWARD, UPDATE = PHASES = ("forward pass", "backward pass", "optimizer step")


@contextmanager
def phase(name: str) -> Iterator[None]:
    """An error that leaves this part of a step carries its name."""
    try:
        yield
    except Exception as error:
        error.phase = getattr(error, "phase", name)
        raise


def phase_of(error: BaseException) -> str:
    """The part of a step in which an error arose; an evaluation is a forward pass."""
    return getattr(error, "phase", FORWARD)

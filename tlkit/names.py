"""Names and figures that many parts of the package share, so that a chart of an experiment needs no experiment."""

from collections.abc import Iterator
from contextlib import contextmanager

# The experiment that this workbook teaches again, in the order of its lessons.
CLASSIC = ("full", "freeze_lower", "freeze_embeddings", "last_layers", "lora", "qlora", "bitfit")
ZERO_SHOT = "zero-shot"  # the model as it was loaded
CONTROL = "random initialisation"  # full training of it from random weights: what pretraining is worth

# A card is never all ours: the driver's context, library workspaces, the screen, and the allocator's rounding.
CARD_SHARE = 0.85

FORWARD, BACKWARD, UPDATE = PHASES = ("forward pass", "backward pass", "optimizer step")


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Around a part of a step: an error that leaves it carries the name."""
    try:
        yield
    except Exception as error:
        error.phase = getattr(error, "phase", name)
        raise


def phase_of(error: BaseException) -> str:
    """The part of a step in which an error arose; where no step was under way, an evaluation is a forward pass."""
    return getattr(error, "phase", FORWARD)

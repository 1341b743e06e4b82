"""Runs that break off, and what must hold when they are gone on with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tlkit import training
from tlkit.training import TrainingConfig, TrainingResult, train


@contextmanager
def stopped_after(steps: int) -> Iterator[None]:
    """Whatever trains in here is interrupted when it has taken that many steps."""
    take_step = training.take_step

    def until_then(state, *arguments, **options):
        if state.step == steps:
            raise KeyboardInterrupt
        return take_step(state, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "take_step", until_then)
        yield


def assert_goes_on_bit_for_bit(
    make: Callable[[], torch.nn.Module], rows, config: TrainingConfig, stopped: int, folder: Path, **options
) -> TrainingResult:
    """Interrupted and resumed, a run ends with the weights, records and scores of the undisturbed one.

    Args:
        make: the model before training, the same each time.
        rows: what is trained on.
        config: settings of the run.
        stopped: steps after which it is interrupted.
        folder: for its checkpoints, one a step.
        options: more of `train`.

    Returns:
        The result of the undisturbed run.
    """
    whole, again, kept = make(), make(), {"checkpoint_dir": folder, "every": 1}
    expected = train(whole, rows, config, **options)
    with stopped_after(stopped):
        train(make(), rows, config, **kept, **options)
    found = train(again, rows, config, **kept, **options, resume=True)
    assert all(map(torch.equal, whole.parameters(), again.parameters()))
    same = [name for name in expected.history.columns if name not in ("seconds", "memory_counted")]
    assert found.history[same].equals(expected.history[same])
    assert found.validation.equals(expected.validation) and found.stopped_early == expected.stopped_early
    return expected

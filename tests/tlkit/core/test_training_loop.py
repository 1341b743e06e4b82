"""The loop around the steps: early stopping, scores that are no numbers, honest seconds, the peak of a resumed run."""

import math
import warnings
from functools import partial

import pandas as pd
import pytest
import small_models
import torch
from interrupted import assert_goes_on_bit_for_bit
from small_models import weights_of

from tlkit import training
from tlkit.checkpoints import newest_step
from tlkit.memory import MemoryTrack
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, TrainingResult, train

BLOCKS = torch.randint(64, (12, 16), generator=torch.Generator().manual_seed(0))
small_model = partial(small_models.small_model, "llama", num_hidden_layers=2)


@pytest.fixture
def scripted(monkeypatch):
    """Validation losses that the test chooses; `weights` are those that each was given for."""
    losses, weights = [], []

    def pretended(model, *_):
        weights.append(weights_of(model).clone())
        loss = losses[len(weights) - 1]
        if loss is None:
            raise KeyboardInterrupt
        return loss

    monkeypatch.setattr(training, "mean_loss", pretended)
    return losses, weights


def run(patience, model=None, **options):
    """Six steps, with an evaluation after each."""
    config = TrainingConfig(1e-2, batch_size=2, evaluate_every=1, patience=patience)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(model or small_model(), BLOCKS, config, validation=BLOCKS, **options)


def expected_end(losses: list[float], patience: int) -> tuple[int, int]:
    """Evaluations made and the place of the best, as Keras and transformers count; a bad first score counts too."""
    best, best_epoch, wait = math.inf, 0, 0
    for epoch, current in enumerate(losses):
        wait += 1
        if current < best:
            best, best_epoch, wait = current, epoch, 0
            continue
        if wait >= patience:
            return epoch + 1, best_epoch
    return len(losses), best_epoch


@pytest.mark.parametrize(
    ("losses", "patience", "made"),
    [
        ([5.0, 4.0, 4.1, 4.2, 2.0, 1.0], 2, 4),
        ([5.0, 4.0, 4.1, 3.9, 4.0, 4.0], 2, 6),
        ([5.0, 4.0, 4.0, 3.0, 2.0, 1.0], 1, 3),
        ([math.nan, 4.0, math.nan, math.nan, 2.0, 1.0], 2, 4),
        ([math.inf, 4.0, 3.0, 2.0, 1.0, 0.5], 1, 1),
    ],
)
def test_patience_counts_evaluations_in_a_row_without_improvement(scripted, losses, patience, made, tmp_path):
    assert expected_end(losses, patience)[0] == made
    scripted[0][:] = losses
    model = small_model()
    result = run(patience, model, checkpoint_dir=tmp_path, every=100)
    assert len(result.validation) == made == newest_step(tmp_path) and result.stopped_early is (made < 6)
    if math.isfinite(losses[0]) or made > 1:
        assert torch.equal(weights_of(model), scripted[1][expected_end(losses, patience)[1]])


def test_a_resumed_run_knows_that_such_a_score_was_not_the_best(scripted, tmp_path):
    losses, given_for = scripted
    losses[:] = [math.nan, 3.0, None]
    with pytest.raises(KeyboardInterrupt):
        run(3, checkpoint_dir=tmp_path, every=1)
    losses[:] = [None, None, None, 2.0, 3.5, 3.2, 3.1]  # of steps 3 to 6
    model = small_model()
    result = run(3, model, checkpoint_dir=tmp_path, every=1, resume=True)
    assert len(result.history) == 6 and torch.equal(weights_of(model), given_for[3])


def test_seconds_go_by_tokens_where_steps_are_of_different_size():
    history = pd.DataFrame(
        {"seconds": [1.0, 9.0, 1.0], "tokens": [100, 100, 50], "samples": [4, 4, 2], "memory_counted": [0, 1, 0]}
    ).astype({"memory_counted": bool})
    result = TrainingResult(history, pd.DataFrame(), 0, False)
    assert result.seconds == pytest.approx(2.0 * 250 / 150)
    assert result.tokens == 250
    alone = TrainingResult(history[1:2], pd.DataFrame(), 0, False)
    assert alone.seconds == 9.0  # there is nothing else to go by


def test_the_peak_is_that_of_a_step_with_the_optimizers_state(tmp_path):
    """Whether a run is new or resumed; 1%: what is kept from the first step, such as tables of positions."""
    config = TrainingConfig(batch_size=2)
    with MemoryTrack() as track:
        model = small_model()
        train(model, BLOCKS, config)
    new = train(small_model(), BLOCKS, config, checkpoint_dir=tmp_path, every=5)
    (tmp_path / "step-00000006.safetensors").unlink()
    resumed = train(small_model(), BLOCKS, config, checkpoint_dir=tmp_path, every=5, resume=True)
    assert list(resumed.history.step[resumed.history.memory_counted]) == [2, 6]
    assert resumed.peak_memory == pytest.approx(new.peak_memory, rel=0.01)
    # Counted from before the model was made, with the inner counting switched on in the second step too.
    assert new.peak_memory == pytest.approx(track.peak, rel=0.05)
    finished = train(small_model(), BLOCKS, config, checkpoint_dir=tmp_path, every=5, resume=True)
    assert math.isnan(finished.peak_memory) and len(finished.history) == 6


def test_the_peak_is_of_tensors_on_the_models_device():
    """The meta device stands for the host of a card."""
    peaks, elsewhere = [], []
    for size in (0, 10**9):
        model = small_model()
        model.register_forward_pre_hook(lambda *_, n=size: elsewhere.append(torch.empty(n, device="meta")))
        peaks.append(train(model, BLOCKS, TrainingConfig(batch_size=2)).peak_memory)
    assert peaks[0] == peaks[1]


def test_a_resumed_run_in_bf16_over_4_bits_is_the_undisturbed_one(tmp_path):
    """Though memory is counted in other steps: that must not change what they compute."""

    def quantized():
        model = small_model()
        torch.manual_seed(0)
        return apply_strategy(model, "qlora").model

    config = TrainingConfig(1e-2, batch_size=2, schedule="constant", warmup_fraction=0)
    assert_goes_on_bit_for_bit(quantized, BLOCKS, config, 3, tmp_path, plan=Plan(precision="bf16"))

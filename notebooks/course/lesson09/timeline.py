"""A training step from its first tensor to its last: which bytes are there at every moment, kind by kind."""

import copy

import pandas as pd
import torch
from torch import nn
from transformers import PretrainedConfig

from tlkit.fitting.estimate import CATEGORIES, StepTrace, as_if_real, fake_copy_of, train_one_step
from tlkit.models import meta_model
from tlkit.quantization import tensors_of
from tlkit.settings import Plan
from tlkit.strategies import apply_strategy


class _Recorder(StepTrace):
    """Notes what is there each time a tensor is made, freed, or found to be a gradient."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__(vocabulary)
        self.moments: list[dict[str, int | str]] = []

    def _classify(self, key: int, category: str | None) -> None:
        super()._classify(key, category)
        if self.phase:
            # What is freed last in the backward pass is freed when autograd has ended: it belongs to what came before.
            freed = category is None and self.moments
            phase = self.moments[-1]["phase"] if freed else self.phase_now()
            self.moments.append({"phase": phase} | self.by_category)


def step_timeline(
    model: str | PretrainedConfig | nn.Module,
    *,
    batch_size: int = 1,
    sequence_length: int = 512,
    plan: Plan | None = None,
) -> pd.DataFrame:
    """Count the bytes of live tensors, kind by kind, through a training step that is not the first.

    A model that has weights really takes the step, on a copy; a preset or configuration takes it by full fine-tuning,
    on tensors that have shapes and no contents. Both are counted by what counts for `estimate_memory`.

    Returns:
        A row for each moment at which a tensor is made or freed, in their order: its `phase` (of `PHASES`) and the
        bytes of each of the categories of `estimate_memory`.
    """
    if not isinstance(model, nn.Module):
        model = apply_strategy(meta_model(model), "full").model
    shape, plan = (batch_size, sequence_length), plan or Plan()
    if any(parameter.is_meta for parameter in model.parameters()):
        with as_if_real():
            moments = _moments_of(fake_copy_of(model), shape, plan)
    else:
        with torch.random.fork_rng(devices=[]):  # dropout draws; the caller's random numbers stay as they were
            moments = _moments_of(copy.deepcopy(model), shape, plan)
    table = pd.DataFrame(moments).reindex(columns=["phase", *CATEGORIES])
    return table.fillna(dict.fromkeys(CATEGORIES, 0)).astype(dict.fromkeys(CATEGORIES, "int64"))


def _moments_of(model: nn.Module, shape: tuple[int, int], plan: Plan) -> list[dict[str, int | str]]:
    with _Recorder(model.config.get_text_config().vocab_size) as trace:
        trace.count(tensors_of(model))
        train_one_step(model, shape, plan, "adamw", trace)
        return trace.moments

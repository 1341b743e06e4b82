"""The training loop."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd
import torch

from tlkit.checkpoints import Checkpoints, identity_of
from tlkit.examples import Batch, Examples, as_examples, check_labels, tensors_in
from tlkit.jobs import Job, reported
from tlkit.memory import MemoryTrack, freed_memory_kept, on_host
from tlkit.models.parts import ParameterGroup, base_model, longest_input, refuse_plan
from tlkit.quantization import tensors_of
from tlkit.settings import Plan, TrainingConfig, check_settings_alone
from tlkit.steps import StepRecord, TrainingState, chunked_loss_agrees, first_step, mean_loss, take_step


@dataclass(frozen=True)
class TrainingResult:
    """What a training run leaves behind, beside the trained model."""

    history: pd.DataFrame  # a row for each step
    validation: pd.DataFrame  # a row for each evaluation
    peak_memory: float  # bytes in the step marked `memory_counted`; with fallback, on a card, in any. NaN: unknown
    stopped_early: bool

    @property
    def seconds(self) -> float:
        """As if the step in which memory was counted were as fast as the others."""
        timed = self.history[~self.history.memory_counted]
        timed = self.history if timed.empty else timed
        return float(timed.seconds.sum()) * self.tokens / int(timed.tokens.sum())

    @property
    def tokens(self) -> int:
        """Labels scored: the first token of a block is only read; of a classifier, texts."""
        return int(self.history.tokens.sum())


@freed_memory_kept()
def train(
    model: torch.nn.Module,
    blocks: Batch,
    config: TrainingConfig | None = None,
    *,
    plan: Plan | None = None,
    groups: Sequence[ParameterGroup] = (),
    validation: Batch | None = None,
    checkpoint_dir: str | Path | None = None,
    every: int = 100,
    resume: bool = False,
    progress: bool | Job = False,
) -> TrainingResult:
    """Train what is trainable in `model` on `blocks`; where memory may run out, `train_with_fallback` does it.

    Args:
        model: with a strategy applied; changed in place. To resume: as before its first step.
        blocks: token ids, shape (blocks, tokens), or examples.
        groups: `groups` of the strategy's report: weights that learn faster than others or begin later.
        validation: of the same kind, scored every `evaluate_every` steps and at the end.
        checkpoint_dir: for all that training changes, saved every `every` steps and at the end.
        resume: go on from the newest checkpoint there, if there is one.
        progress: True to show step, loss and time left; or the larger job to report to.

    Raises:
        FloatingPointError: loss or gradient are not finite; the model is as the last good step left it.
    """
    config, plan = config or TrainingConfig(), plan or Plan()
    check_settings(model, blocks, config, plan, validation)
    checkpoints = checkpoints_of(checkpoint_dir, every, resume, model, (blocks, validation), config, plan, groups)
    state, scoring = TrainingState(model, config, groups), plan_of_scoring(plan, config)
    with checkpoints.lock(resume) if checkpoints else nullcontext(), reported(progress, "training") as progress:
        if checkpoints:
            checkpoints.restore(state)
        state.apply_plan(plan)
        total = total_steps(len(blocks), config)
        for _ in recorded(training_steps(state, blocks), state, total, progress):
            if validation is not None and is_due(state, config.evaluate_every, total):
                note_score(mean_loss(model, validation, scoring), state)
            if checkpoints and is_due(state, every, total):
                checkpoints.save(state, last=has_ended(state, total))
    return finish_run(state, len(blocks))


def training_steps(state: TrainingState, blocks: Batch) -> Iterator[StepRecord]:
    """Take the steps that are left, one for each record asked for."""
    config, total = state.config, total_steps(len(blocks), state.config)
    while not has_ended(state, total):
        rate = config.learning_rate * learning_rate_factor(state.step, total, config)
        with state.frozen_until_due(total):
            record = take_step(state, batch_at(state.step, blocks, config), rate)
        yield record


def recorded(
    steps: Iterator[StepRecord], state: TrainingState, total: int, progress: Job, *, count_memory: bool = True
) -> Iterator[StepRecord]:
    """Keep, show and hand on records; live tensors are counted in one step."""
    # The first step that finds moments and trains all groups.
    fullest = max(first_step(group["begins"], total) for group in state.groups)
    counted = min(max(state.step + 1, fullest + 2), total) if count_memory else None
    progress.step(state.step, total, f"step {state.step} of {total}")
    while True:
        track = MemoryTrack(on=next(state.model.parameters()).device.type) if state.step + 1 == counted else None
        with track or nullcontext():
            if track:
                track.count(tensors_of(state.model))
                track.count(moment for moments in state.optimizer.state.values() for moment in moments.values())
            record = next(steps, None)
        if record is None:
            break
        if track:
            record, state.peak_memory = replace(record, memory_counted=True), track.peak
        state.records.append(record)
        progress.step(state.step, total, f"step {state.step} of {total}, loss {record.loss:.3f}")
        yield record


def has_ended(state: TrainingState, total: int) -> bool:
    """Whether no step is left, or too many evaluations in a row brought no gain."""
    patience = state.config.patience
    return state.step >= total or patience is not None and _without_gain(state) >= patience


def is_due(state: TrainingState, every: int | None, total: int) -> bool:
    """Whether what is done every `every` steps (None: never), and at the end, is due now."""
    return has_ended(state, total) or every is not None and state.step % every == 0


def finish_run(state: TrainingState, rows: int) -> TrainingResult:
    """Put the best weights back, if kept, and sum up the run."""
    if state.best_weights is not None:
        with torch.no_grad():
            for parameter, weights in zip(state.parameters, state.best_weights, strict=True):
                parameter.copy_(weights)
    validation = pd.DataFrame(state.scores, columns=["step", "validation_loss"])
    stopped_early = state.step < total_steps(rows, state.config)
    return TrainingResult(pd.DataFrame(state.records), validation, state.peak_memory, stopped_early)


def _without_gain(state: TrainingState) -> int:
    """Evaluations since the best one."""
    losses = [math.inf, *(score["validation_loss"] for score in state.scores)]
    return len(losses) - 1 - losses.index(min(losses))


def note_score(loss: float, state: TrainingState) -> None:
    """Keep a validation loss and, where training may stop early, the best weights."""
    state.scores.append({"step": state.step, "validation_loss": loss})
    if not math.isfinite(loss):
        warnings.warn(f"the validation loss after step {state.step} is {loss}", stacklevel=3)
    if state.config.patience is not None and _without_gain(state) == 0:
        with on_host():
            state.best_weights = [p.detach().to("cpu", copy=True) for p in state.parameters]


def plan_of_scoring(plan: Plan, config: TrainingConfig) -> Plan:
    """At most 8 blocks at a time, and no more than in training: it needs less memory than a step."""
    return replace(plan, micro_batch_size=min(8, plan.micro_batch_size or config.batch_size))


def checkpoints_of(
    folder: str | Path | None,
    every: int,
    resume: bool,
    model: torch.nn.Module,
    data: tuple[Batch | None, ...],
    config: TrainingConfig,
    plan: Plan,
    groups: Sequence[ParameterGroup],
) -> Checkpoints | None:
    """The checkpoints of a run that begins with `model` as it is now; None without a folder."""
    if folder is None and resume:
        raise ValueError("resume=True: expected checkpoint_dir, the folder of the run")
    if every < 1:
        raise ValueError(f"every={every}: expected at least 1 step")
    if folder is None:
        return None
    tensors = [tensor for batch in data if batch is not None for tensor in tensors_in(batch)]
    identity = identity_of(model, tensors, asdict(config) | {"precision": plan.precision}, groups)
    return Checkpoints(Path(folder), identity)


def steps_per_epoch(rows: int, config: TrainingConfig) -> int:
    """Optimizer steps in one pass over the rows; the last batch may be smaller."""
    return math.ceil(rows / config.batch_size)


def total_steps(rows: int, config: TrainingConfig) -> int:
    """Optimizer steps in the whole run, at least one."""
    return max(1, round(config.epochs * steps_per_epoch(rows, config)))


def batch_at(step: int, blocks: Batch, config: TrainingConfig) -> Batch:
    """By seed and step alone, so that any step can be repeated."""
    epoch, place = divmod(step, steps_per_epoch(len(blocks), config))
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(config.seed * 1_000_003 + epoch))
    batch = blocks[order[place * config.batch_size : (place + 1) * config.batch_size]]
    return batch.trimmed() if isinstance(batch, Examples) else batch


def learning_rate_factor(step: int, total: int, config: TrainingConfig) -> float:
    """Between 0 and 1: linear warm-up, then the schedule."""
    warmup = round(config.warmup_fraction * total)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[config.schedule]


def check_settings(
    model: torch.nn.Module, blocks: Batch, config: TrainingConfig, plan: Plan, validation: Batch | None = None
) -> None:
    """Raise ValueError for settings or data that cannot train."""
    check_settings_alone(config, plan)
    refuse_plan(model, plan)
    vocabulary = model.config.get_text_config().vocab_size
    if len(blocks.shape) != 2 or len(blocks) == 0:
        raise ValueError(f"blocks of shape {tuple(blocks.shape)}: expected (blocks, tokens)")
    if validation is None and (config.patience is not None or config.evaluate_every is not None):
        raise ValueError("patience and evaluate_every need validation")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("nothing in this model is trainable: apply a strategy first")
    limit = longest_input(model)
    for name, rows in (("blocks", blocks), ("validation", validation)):
        if rows is None:
            continue
        if limit is not None and rows.shape[1] > limit:
            raise ValueError(f"{name} of {rows.shape[1]} tokens: this model reads at most {limit}")
        highest = int(as_examples(rows).tokens.max())
        if highest >= vocabulary:
            raise ValueError(f"token {highest} in {name}: the vocabulary has {vocabulary}; another tokenizer?")
        if isinstance(rows, Examples) and not rows.classifies:
            check_labels(rows)
        elif not isinstance(rows, Examples) and rows.shape[1] < 2:
            raise ValueError(f"{name} of {rows.shape[1]} token: expected at least 2: the first is only read")
    if plan.chunked_loss and not chunked_loss_agrees(model):
        raise ValueError(f"chunked_loss: {type(base_model(model)).__name__} changes its logits behind the head")

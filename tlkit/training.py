"""The training loop, to be read: batches in a fixed order, one step, one record, nothing hidden."""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pandas as pd
import torch

from tlkit.checkpoints import CheckpointError
from tlkit.checkpoints.folder import Checkpoints, RunLog
from tlkit.checkpoints.identity import identity_of
from tlkit.examples import Batch, Examples, as_examples, tensors_in
from tlkit.jobs import Part, reported
from tlkit.losses import chunked_loss_agrees
from tlkit.memory import Host, MemoryTrack, freed_memory_kept
from tlkit.models.adapters import base_model, refuse_plan
from tlkit.models.example_checks import refuse_examples
from tlkit.models.groups import in_phases
from tlkit.models.parts import longest_input, trainable_parameters
from tlkit.quantization import tensors_of
from tlkit.settings import Plan, TrainingConfig, check_settings_alone
from tlkit.steps import StepRecord, TrainingState, first_step, mean_loss, take_step
from tlkit.team import ONE_PROCESS, Team, module_to_shard, restore_full_weights

DIVERGED = 1.0  # nats per token above the first step: the noise of batches is smaller
LAST_STEPS = 5  # whose mean loss is where a run ends


@dataclass(frozen=True)
class TrainingResult:
    """What a training run leaves behind.

    `history` has one row per step, `validation` one per evaluation. `peak_memory` is in bytes of tensors; NaN where
    FSDP keeps them in parts, and where no step was left to take. To find it, live tensors are counted in one step,
    the first that has the optimizer's state (in a team, from its first step on); it is marked `memory_counted`.
    """

    history: pd.DataFrame
    validation: pd.DataFrame
    peak_memory: float
    stopped_early: bool
    config: TrainingConfig = field(repr=False)

    @property
    def seconds(self) -> float:
        """Seconds of all steps, evaluations and checkpoints not included.

        A step in which memory was counted takes longer for it; it is taken to need as long per token as the others
        did. Where there are no others, as in a run of one step, its own time is all there is, and is too long.
        """
        timed = self.history[~self.history.memory_counted]
        timed = self.history if timed.empty else timed
        return float(timed.seconds.sum()) * self.tokens / int(timed.tokens.sum())

    @property
    def tokens(self) -> int:
        """Tokens scored in all steps; the first of each block is only read."""
        return int(self.history.tokens.sum())

    @property
    def tokens_per_second(self) -> float:
        """By `seconds`."""
        return self.tokens / self.seconds

    @property
    def samples_per_second(self) -> float:
        """Blocks, by `seconds`."""
        return int(self.history.samples.sum()) / self.seconds


def train(
    model: torch.nn.Module,
    blocks: Batch,
    config: TrainingConfig | None = None,
    *,
    plan: Plan | None = None,
    validation: Batch | None = None,
    checkpoint_dir: str | Path | None = None,
    every: int = 100,
    resume: bool = False,
    progress: bool | Part = False,
    team: Team = ONE_PROCESS,
) -> TrainingResult:
    """Train what is trainable in `model` on `blocks`.

    In a team every process calls this with the same arguments, and takes its share of each batch.

    Args:
        model: with a strategy applied; changed in place. To resume, as it was before its first step.
        blocks: token ids, shape (blocks, tokens), or examples.
        config: what to train towards.
        plan: how to carry out a step.
        validation: of the same kind, scored every `evaluate_every` steps and at the end.
        checkpoint_dir: where all that training changes is saved, after `every` steps and at the end.
        every: optimizer steps between checkpoints.
        resume: go on from the newest checkpoint there.
        progress: True to show step, loss and time left; or the part of a larger job to report the steps to.
        team: of processes that train together.

    Raises:
        ValueError: before any work, for settings or data that cannot train, or that are not those of the checkpoint.
        CheckpointError: where a checkpoint cannot be written or read.
        FloatingPointError: where loss or gradient are not finite; the model is then as the last good step left it
            (with FSDP, what it left is in the newest checkpoint).
    """
    config, plan = config or TrainingConfig(), plan or Plan()
    check_settings(model, blocks, config, plan, validation)
    if team.in_parts and config.patience is not None:
        raise ValueError("early stopping (patience) keeps the best weights whole: expected the exchange ddp with it")
    if team.in_parts and in_phases(model):
        raise ValueError("what is trained changes between the phases, and fsdp settles it: expected the exchange ddp")
    if checkpoint_dir is None and resume:
        raise ValueError("resume=True: expected checkpoint_dir, the folder of the run to go on with")
    if every < 1:
        raise ValueError(f"every={every}: expected at least 1 step between checkpoints")
    run_log, checkpoints = RunLog(), None
    if checkpoint_dir is not None:
        settings = asdict(config) | {"precision": plan.precision}
        data = [tensor for part in (blocks, validation) if part is not None for tensor in tensors_in(part)]
        identity = identity_of(model, data, settings)
        checkpoints = Checkpoints(Path(checkpoint_dir), every, identity)
    with checkpoints.hold(resume) if checkpoints and team.rank == 0 else nullcontext():
        trained = module_to_shard(model) if team.in_parts else model
        state = new_state(trained, config, team=team)
        if checkpoints is not None:
            checkpoints.restore(state, run_log)
            if team.sum(state.step) != team.size * state.step:
                raise ValueError(
                    f"process {team.rank} would go on after step {state.step}, another after a different one: expected "
                    f"{checkpoint_dir} to be the same folder on all machines"
                )
        state.apply_plan(plan)
        # As many blocks at a time as in training: a pass without gradients then needs less memory than a step did.
        rows = plan.micro_batch_size or config.batch_size
        scoring = replace(plan, micro_batch_size=min(8, rows))
        score = None if validation is None else lambda: mean_loss(trained, validation, scoring, state.team)
        steps = training_steps(state, blocks, config)
        with closing(steps), reported(progress, "training") as part:
            result = run_steps(steps, state, len(blocks), config, score, part, run_log=run_log, checkpoints=checkpoints)
    if team.in_parts:
        restore_full_weights(model, trained)
    return result


def new_state(
    model: torch.nn.Module, config: TrainingConfig, host: Host = nullcontext, team: Team = ONE_PROCESS
) -> TrainingState:
    """The state before the first step.

    Args:
        model: with a strategy applied.
        config: names the optimizer, its weight decay and the seed.
        host: as in `TrainingState`.
        team: as in `TrainingState`.
    """
    return TrainingState(
        model, optimizer=config.optimizer, weight_decay=config.weight_decay, seed=config.seed, host=host, team=team
    )


def training_steps(state: TrainingState, blocks: Batch, config: TrainingConfig) -> Iterator[StepRecord]:
    """Take the steps that are left, one each time the next record is asked for; to stop, stop asking.

    Args:
        state: changed in place; its number of steps done says where to begin.
        blocks: token ids, shape (blocks, tokens), or examples.
        config: what to train towards.
    """
    total = total_steps(len(blocks), config)
    try:
        while state.step < total:
            state.begin_step(total)
            batch = batch_at(state.step, blocks, config)
            rate = config.learning_rate * learning_rate_factor(state.step, total, config)
            yield take_step(state, batch, rate, max_gradient_norm=config.max_gradient_norm)
    finally:
        state.end_steps()


@freed_memory_kept()
def run_steps(
    steps: Iterator[StepRecord],
    state: TrainingState,
    blocks: int,
    config: TrainingConfig,
    score: Callable[[], float] | None,
    progress: Part,
    *,
    run_log: RunLog | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainingResult:
    """Take the steps one by one: keep their records, score and save now and then, stop early where asked to.

    Args:
        steps: takes a step each time it is asked for the next record.
        state: that these steps change.
        blocks: how many blocks there are.
        config: what to train towards.
        score: the validation loss now, in nats per token; None where there is nothing to score on.
        progress: what to report each step to.
        run_log: what the run has seen before; written to.
        checkpoints: where to save; None: nowhere.
    """
    total, run_log = total_steps(blocks, config), run_log or RunLog()
    every = config.evaluate_every or total
    first = state.step + 1
    progress.step(state.step, total, f"step {state.step} of {total}")
    counted = _steps_to_count_in(state, total)
    track = MemoryTrack()
    for number in range(first, total + 1):
        if config.patience is not None and run_log.evaluations_without_gain >= config.patience:
            break
        if number in counted:
            track.hold(tensors_of(state.model))
            track.hold(moment for moments in state.optimizer.state.values() for moment in moments.values())
            with track:
                record = replace(next(steps), memory_counted=True)
        else:
            record = next(steps)
        run_log.records.append(record)
        progress.step(number, total, f"step {number} of {total}, loss {record.loss:.3f}")
        if score is not None and (number % every == 0 or number == total):
            _note_score(score(), number, state, run_log, keep_best=config.patience is not None)
        if checkpoints is not None and (number % checkpoints.every == 0 or number == total):
            try:
                checkpoints.save(state, run_log)
            except CheckpointError as error:
                if number < total:
                    raise
                # Nothing is left to protect: the model is trained, and the caller can still save it elsewhere.
                warnings.warn(f"{error}. Training is complete and the model is in memory: save it", stacklevel=2)
    if run_log.records:
        progress.ended(_in_one_line(run_log.records, state))
    if run_log.best_weights is not None:
        with torch.no_grad():
            for parameter, weights in zip(state.parameters, run_log.best_weights, strict=True):
                parameter.copy_(weights)
    history = pd.DataFrame([vars(record) for record in run_log.records])
    history.insert(1, "epoch", history.step / steps_per_epoch(blocks, config))
    validation = pd.DataFrame(run_log.scores, columns=["step", "validation_loss", "validation_perplexity"])
    peak = track.peak or math.nan
    return TrainingResult(history, validation, peak, len(run_log.records) < total, config)


def _in_one_line(records: list[StepRecord], state: TrainingState) -> str:
    """What a run trained, for how long, and what came of the loss."""
    steps, trained = len(records), sum(parameter.numel() for parameter in state.parameters)
    first, last = records[0].loss, [record.loss for record in records[-LAST_STEPS:]]
    mean = sum(last) / len(last)
    loss = f"loss from {first:.2f} to {mean:.2f}" + (f" (mean of the last {LAST_STEPS})" if steps > LAST_STEPS else "")
    worse = "; it diverged, so try a lower learning rate" if mean > first + DIVERGED else ""
    return f"{steps} step{'s' * (steps != 1)}, {trained:,} values trained, {loss}{worse}"


def _steps_to_count_in(state: TrainingState, total: int) -> range:
    """The first step that has the optimizer's state from the beginning, which the very first has not."""
    if state.team.in_parts:
        return range(0)
    first = state.step + 1
    fullest = max(first_step(group.begins, total) for group in state.groups)  # in which all is trained
    last = min(max(first, fullest + 2), total)
    # What DDP makes in the first step, and keeps, is seen only there.
    return range(first if state.team.size > 1 else last, last + 1)


def _note_score(loss: float, step: int, state: TrainingState, run_log: RunLog, keep_best: bool) -> None:
    perplexity = math.exp(min(loss, 700))
    run_log.scores.append({"step": step, "validation_loss": loss, "validation_perplexity": perplexity})
    if not math.isfinite(loss):
        warnings.warn(f"the validation loss after step {step} is {loss}: it counts as no improvement", stacklevel=3)
    if not loss < run_log.best_loss:  # nor where it is no number
        run_log.evaluations_without_gain += 1
        return
    run_log.best_loss, run_log.evaluations_without_gain = loss, 0
    if keep_best:
        with state.host():
            run_log.best_weights = [p.detach().to("cpu", copy=True) for p in state.parameters]


def steps_per_epoch(blocks: int, config: TrainingConfig) -> int:
    """Optimizer steps in one pass over the data; the last batch of a pass may be smaller.

    Args:
        blocks: how many there are.
        config: has the batch size.
    """
    return math.ceil(blocks / config.batch_size)


def total_steps(blocks: int, config: TrainingConfig) -> int:
    """Optimizer steps in the whole run, at least one.

    Args:
        blocks: how many there are.
        config: has the batch size and the epochs.
    """
    return max(1, round(config.epochs * steps_per_epoch(blocks, config)))


def batch_at(step: int, blocks: Batch, config: TrainingConfig) -> Batch:
    """The batch of one step, from the seed and the step number alone, so that any step can be repeated.

    Args:
        step: from 0.
        blocks: token ids, shape (blocks, tokens), or examples.
        config: has the batch size and the seed.

    Returns:
        Token ids, shape (batch, tokens), or examples as long as the longest of them; each row comes once in an epoch.
    """
    epoch, place = divmod(step, steps_per_epoch(len(blocks), config))
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(config.seed * 1_000_003 + epoch))
    batch = blocks[order[place * config.batch_size : (place + 1) * config.batch_size]]
    return batch.trimmed() if isinstance(batch, Examples) else batch


def learning_rate_factor(step: int, total: int, config: TrainingConfig) -> float:
    """Linear warm-up, then the schedule down towards zero.

    Args:
        step: from 0.
        total: steps in the run.
        config: has the warm-up and the schedule.

    Returns:
        Between 0 and 1, to be multiplied by the learning rate.
    """
    warmup = round(config.warmup_fraction * total)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[config.schedule]


def check_settings(
    model: torch.nn.Module,
    blocks: Batch,
    config: TrainingConfig,
    plan: Plan,
    validation: Batch | None = None,
) -> None:
    """Refuse settings or data that cannot train, before any work.

    Args:
        model: with a strategy applied.
        blocks: token ids, shape (blocks, tokens), or examples.
        config: what to train towards.
        plan: how to carry out a step.
        validation: of the same kind.

    Raises:
        ValueError: one line, with what was given and what was expected.
    """
    check_settings_alone(config, plan)
    refuse_plan(model, plan)
    if len(blocks.shape) != 2 or len(blocks) == 0:
        raise ValueError(f"blocks of shape {tuple(blocks.shape)}: expected (blocks, tokens)")
    if config.patience is not None and validation is None:
        raise ValueError("early stopping (patience) needs validation blocks")
    if not trainable_parameters(model):
        raise ValueError("nothing in this model is trainable: apply a strategy first")
    limit = longest_input(model)
    for name, part in (("blocks", blocks), ("validation", validation)):
        if part is None:
            continue
        if limit is not None and part.shape[1] > limit:
            raise ValueError(f"{name} of {part.shape[1]} tokens: this model reads at most {limit}")
        highest = int(as_examples(part).tokens.max())
        if highest >= model.config.vocab_size:
            raise ValueError(
                f"token {highest} in {name}, but the model's vocabulary has {model.config.vocab_size}: "
                "was another tokenizer used?"
            )
        if isinstance(part, Examples):
            refuse_examples(model, part, name)

    if plan.chunked_loss and not chunked_loss_agrees(model):
        raise ValueError(
            f"chunked_loss: {type(base_model(model)).__name__} changes its logits behind the head, so it cannot be cut"
        )

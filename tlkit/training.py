"""The training loop, to be read: batches in a fixed order, one step, one record, nothing hidden."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pandas as pd
import torch

from tlkit.memory import track_memory
from tlkit.strategies import trainable_parameters


@dataclass(frozen=True)
class TrainingConfig:
    """How to train. Lengths are in blocks, rates per optimizer step."""

    learning_rate: float = 1e-3
    epochs: float = 1
    batch_size: int = 8  # the effective batch: blocks in one optimizer step
    micro_batch_size: int | None = None  # blocks in one forward pass; None: the whole batch
    warmup_fraction: float = 0.1
    schedule: str = "cosine"  # or "linear", "constant"
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    precision: str = "fp32"  # or "bf16": autocast, weights stay in fp32
    evaluate_every: int | None = None  # steps between validation losses; None: once at the end
    patience: int | None = None  # evaluations without improvement before stopping; the best weights come back
    seed: int = 0


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step: loss in nats per token, gradient norm before clipping, tokens scored, seconds."""

    step: int
    epoch: float
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    seconds: float


@dataclass(frozen=True)
class TrainingResult:
    """What a training run leaves behind; `peak_memory` is in bytes of tensors, over the first two steps."""

    history: pd.DataFrame
    validation: pd.DataFrame
    seconds: float
    tokens: int
    samples: int
    peak_memory: int
    stopped_early: bool
    config: TrainingConfig = field(repr=False)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds


def train(
    model: torch.nn.Module,
    blocks: torch.Tensor,
    config: TrainingConfig | None = None,
    *,
    validation: torch.Tensor | None = None,
    progress: bool = False,
) -> TrainingResult:
    """Train what is trainable in `model` on `blocks`, shape (blocks, tokens); `model` is changed in place.

    `validation` (same shape) is scored every `evaluate_every` steps and at the end. Raises ValueError for
    settings or data that cannot train, before any work.
    """
    config = config or TrainingConfig()
    check_settings(model, blocks, config, validation)
    total = total_steps(len(blocks), config)
    every = config.evaluate_every or total
    records, scores, best, best_weights, waited, peak = [], [], math.inf, None, 0, 0
    steps = training_steps(model, blocks, config)
    bar = _progress_bar(total, progress)
    for number in range(1, total + 1):
        if number <= 2:  # the optimizer's state appears in step 1, so that step 2 is the first whole one
            with track_memory(model) as track:
                record = next(steps)
            peak = max(peak, track.peak)
        else:
            record = next(steps)
        records.append(record)
        bar.update()
        bar.set_postfix(loss=f"{record.loss:.3f}")
        if validation is None or (number % every and number != total):
            continue
        loss = mean_loss(model, validation, config.batch_size)
        scores.append({"step": number, "validation_loss": loss, "validation_perplexity": math.exp(min(loss, 700))})
        waited = 0 if loss < best else waited + 1
        if loss < best:
            best = loss
            if config.patience is not None:
                best_weights = [p.detach().clone() for p in trainable_parameters(model)]
        if config.patience is not None and waited > config.patience:
            break
    bar.close()
    if best_weights is not None:
        with torch.no_grad():
            for parameter, weights in zip(trainable_parameters(model), best_weights, strict=True):
                parameter.copy_(weights)
    history = pd.DataFrame([vars(record) for record in records])
    tokens, seconds = int(history.tokens.sum()), float(history.seconds.sum())
    columns = ["step", "validation_loss", "validation_perplexity"]
    done = len(records)
    return TrainingResult(
        history,
        pd.DataFrame(scores, columns=columns),
        seconds,
        tokens,
        sum(len(batch_at(step, blocks, config)) for step in range(done)),
        peak,
        done < total,
        config,
    )


def training_steps(model: torch.nn.Module, blocks: torch.Tensor, config: TrainingConfig) -> Iterator[StepRecord]:
    """Yield one StepRecord after each optimizer step; to stop, stop asking."""
    torch.manual_seed(config.seed)
    parameters = trainable_parameters(model)
    device = parameters[0].device
    optimizer = torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=device.type in ("cpu", "cuda")
    )
    total = total_steps(len(blocks), config)
    model.train()
    for step in range(total):
        started = time.perf_counter()
        rate = config.learning_rate * learning_rate_factor(step, total, config)
        for group in optimizer.param_groups:
            group["lr"] = rate

        batch = batch_at(step, blocks, config).to(device)
        # Divide by the tokens of the whole batch, not by the number of micro-batches: each token counts the same.
        tokens = batch[:, 1:].numel()
        loss = 0.0
        for micro_batch in batch.split(config.micro_batch_size or len(batch)):
            with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                # The model shifts the labels itself: they are given as they are.
                part = model(input_ids=micro_batch, labels=micro_batch, num_items_in_batch=tokens, use_cache=False).loss
            part.backward()
            loss += part.item()
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss became {loss} at step {step + 1}: try a learning rate below {rate:g}")
        norm = torch.nn.utils.clip_grad_norm_(parameters, config.max_gradient_norm).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        epoch = (step + 1) / steps_per_epoch(len(blocks), config)
        yield StepRecord(step + 1, epoch, loss, rate, norm, tokens, time.perf_counter() - started)


def steps_per_epoch(blocks: int, config: TrainingConfig) -> int:
    """Optimizer steps in one pass over the data; the last batch of a pass may be smaller."""
    return math.ceil(blocks / config.batch_size)


def total_steps(blocks: int, config: TrainingConfig) -> int:
    """Optimizer steps in the whole run, at least one."""
    return max(1, round(config.epochs * steps_per_epoch(blocks, config)))


def batch_at(step: int, blocks: torch.Tensor, config: TrainingConfig) -> torch.Tensor:
    """The batch of one step, from the seed and the step number alone, so that any step can be repeated."""
    epoch, place = divmod(step, steps_per_epoch(len(blocks), config))
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(config.seed * 1_000_003 + epoch))
    return blocks[order[place * config.batch_size : (place + 1) * config.batch_size]]


def learning_rate_factor(step: int, total: int, config: TrainingConfig) -> float:
    """Linear warm-up, then the schedule down towards zero; between 0 and 1."""
    warmup = round(config.warmup_fraction * total)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[config.schedule]


@torch.no_grad()
def mean_loss(model: torch.nn.Module, blocks: torch.Tensor, batch_size: int = 8) -> float:
    """Token-weighted loss in nats over blocks of equal length."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    total = 0.0
    for batch in blocks.split(batch_size):
        batch = batch.to(device)
        total += model(input_ids=batch, labels=batch, use_cache=False).loss.item() * len(batch)
    model.train(was_training)
    return total / len(blocks)


def check_settings(
    model: torch.nn.Module, blocks: torch.Tensor, config: TrainingConfig, validation: torch.Tensor | None = None
) -> None:
    """Raise ValueError, one line, for settings or data that cannot train."""
    limit = getattr(model.config, "max_position_embeddings", None)
    problems = [
        (blocks.ndim != 2 or len(blocks) == 0, f"blocks of shape {tuple(blocks.shape)}: expected (blocks, tokens)"),
        (not math.isfinite(config.learning_rate) or config.learning_rate <= 0, f"learning_rate={config.learning_rate}"),
        (not config.epochs > 0, f"epochs={config.epochs}: expected more than 0"),
        (config.batch_size < 1, f"batch_size={config.batch_size}: expected at least 1"),
        (
            config.micro_batch_size is not None and not 1 <= config.micro_batch_size <= config.batch_size,
            f"micro_batch_size={config.micro_batch_size}: expected 1 to batch_size={config.batch_size}",
        ),
        (not 0 <= config.warmup_fraction <= 1, f"warmup_fraction={config.warmup_fraction}: expected 0 to 1"),
        (not config.weight_decay >= 0, f"weight_decay={config.weight_decay}: expected 0 or more"),
        (not config.max_gradient_norm > 0, f"max_gradient_norm={config.max_gradient_norm}: expected more than 0"),
        (
            config.evaluate_every is not None and config.evaluate_every < 1,
            f"evaluate_every={config.evaluate_every}: expected at least 1 step",
        ),
        (config.schedule not in ("cosine", "linear", "constant"), f"schedule={config.schedule!r} is unknown"),
        (config.precision not in ("fp32", "bf16"), f"precision={config.precision!r}: expected fp32 or bf16"),
        (config.patience is not None and validation is None, "early stopping (patience) needs validation blocks"),
        (not trainable_parameters(model), "nothing in this model is trainable: apply a strategy first"),
    ]
    for wrong, message in problems:
        if wrong:
            raise ValueError(message)
    for name, part in (("blocks", blocks), ("validation", validation)):
        if part is None:
            continue
        if limit is not None and part.shape[1] > limit:
            raise ValueError(f"{name} of {part.shape[1]} tokens: this model reads at most {limit}")
        if int(part.max()) >= model.config.vocab_size:
            raise ValueError(
                f"token {int(part.max())} in {name}, but the model's vocabulary has {model.config.vocab_size}: "
                "was another tokenizer used?"
            )


def _progress_bar(total: int, shown: bool):
    from tqdm.auto import tqdm

    return tqdm(total=total, disable=not shown, unit="step", leave=False)

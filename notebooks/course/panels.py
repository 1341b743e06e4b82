"""What each panel shows, as plain functions: the same answers from code, with no widget in sight."""

import html
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from course.runs import Run, axes_for
from tlkit.corpus import load_corpus, pack
from tlkit.fitting.attempts import Attempt
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.fallback import FallbackLog, train_with_fallback
from tlkit.fitting.ladder import LADDER
from tlkit.fitting.timeline import step_timeline
from tlkit.memory import in_units, virtual_device
from tlkit.models import LoadedModel, generate, load_model, meta_model
from tlkit.names import CARD_SHARE
from tlkit.reports.figure import Chart
from tlkit.reports.memory_charts import attempts_chart, memory_chart
from tlkit.reports.training_charts import live_curves, overfitting_chart
from tlkit.settings import Plan, Profile, TrainingConfig, setup
from tlkit.steps import StepRecord, mean_loss
from tlkit.strategies import StrategyReport, apply_strategy
from tlkit.training import TrainingResult, new_state, steps_per_epoch, total_steps, training_steps

PROMPT = "Ownership in Rust means"
FALLBACK_SHAPE = (4, 64)  # rows of a batch and tokens of a row, of the training that runs out of memory
LAID_OVER = 6  # runs in one live chart: more could not be told apart
LONGEST_PROMPT = 400  # characters; the bundled model reads 256 tokens


@dataclass(frozen=True)
class View:
    """A picture, and in words what it shows."""

    figure: Chart
    text: str

    def picture(self) -> str:
        """The figure for a page, with its words as alternative text."""
        return f'<img alt="{html.escape(self.text)}" src="data:image/png;base64,{self.figure.png(dpi=90)}">'


def memory_view(
    model: str = "qwen2-0.5b",
    strategy: str = "full",
    dtype: str = "fp32",
    batch_size: int = 1,
    sequence_length: int = 512,
    card: str = "RTX 4060 8GB",
    *,
    activation_checkpointing: bool = False,
) -> View:
    """Compare the bytes of a training step with the memory of a card.

    Args:
        model: a preset.
        strategy: what is trained.
        dtype: of the weights: fp32, bf16 or fp16.
        batch_size: rows in a step.
        sequence_length: tokens in a row.
        card: one of `tlkit.memory.CARDS`.
        activation_checkpointing: whether activations are computed again in the backward pass.

    Returns:
        The chart, and whether the step fits with 15% of the card left to the driver.

    Raises:
        ValueError: for an unknown card, and as `estimate_memory` does.
    """
    budget = virtual_device(card).budget
    plan = Plan(activation_checkpointing=activation_checkpointing)
    shape = {"batch_size": batch_size, "sequence_length": sequence_length}
    estimate = estimate_memory(model, strategy, dtype=dtype, plan=plan, **shape)
    usable = int(CARD_SHARE * budget)
    largest = max(estimate.categories, key=estimate.categories.get)
    needs = f"{strategy} on {model} needs {in_units(estimate.peak)}, most of it {largest}."
    if estimate.peak <= usable:
        verdict = f"Fits {card}: {in_units(usable - estimate.peak)} are left of the {in_units(usable)} it can give."
    else:
        over = in_units(estimate.peak - usable)
        verdict = f"Does not fit {card}: {over} more than the {in_units(usable)} it can give."
    figure = memory_chart({strategy: estimate}, {card: budget})
    figure.set_figheight(2.6)  # one bar; the controls stay in sight on a projector
    return View(figure, f"{verdict} {needs}")


def strategy_boxes(report: StrategyReport) -> str:
    """Draw the parts of a model as boxes on a page.

    Each box is as high as its part is large, is filled by the share that is trained, and says its counts when the
    mouse is over it or the keyboard has come to it.

    Args:
        report: what `apply_strategy` returned.

    Returns:
        A fragment of HTML.
    """
    largest = max(part.total_values for part in report.components.values())
    tallest, rows = (560 / len(report.components), [])  # all of it in sight on a projector, where it has few parts
    for name, part in reversed(report.components.items()):
        share = part.trainable_values / part.total_values
        words = f"{name}: {part.trainable_values:,} of {part.total_values:,} values trained"
        height = 17 + round(tallest * part.total_values / largest)
        fill = f"linear-gradient(to right, #56B4E9 {share:.0%}, #eeeeee {share:.0%})"
        mark = "trained" if share == 1 else "frozen" if share == 0 else f"{share:.1%} trained"
        rows.append(
            f'<div tabindex="0" role="img" title="{words}" aria-label="{words}" style="height:{height}px;'
            f"line-height:{height}px;margin:2px;padding:0 8px;width:420px;border:1px solid #333;color:#000;"
            f'background:{fill}">{name}<span style="float:right">{mark}</span></div>'
        )
    return "".join(rows)


def strategy_report(model: str, strategy: str) -> StrategyReport:
    """Count what a strategy trains in a preset, without weights.

    Raises:
        ValueError: for an unknown preset or strategy.
    """
    return apply_strategy(meta_model(model), strategy)


@dataclass(frozen=True)
class LabState:
    """A training run so far.

    Args:
        model: as it is now.
        history: a row for each step.
        validation: the validation loss, in nats per token, by step.
        total_steps: of the whole run.
        config: of the run.
    """

    model: object
    history: pd.DataFrame
    validation: pd.DataFrame
    total_steps: int
    config: TrainingConfig

    @property
    def done(self) -> bool:
        """Whether the last step has been taken."""
        return len(self.history) == self.total_steps

    def view(self) -> View:
        """Show training and validation loss, and say how far the run has come."""
        result = TrainingResult(self.history, self.validation, 0, not self.done, self.config)
        loss, held_out = (self.history.loss.iloc[-1], self.validation.validation_loss.iloc[-1])
        first = self.validation.validation_loss.iloc[0]
        text = (
            f"Step {len(self.history)} of {self.total_steps}: training loss {loss:.2f}, validation loss {held_out:.2f} "
            f"nats per token, {first - held_out:.2f} less than after the first step."
        )
        return View(overfitting_chart({"this run": result}), text)


def lab_view(runs: list[Run], untouched: float) -> View:
    """Show a training while it runs, laid over those before it, on axes that stay.

    Args:
        runs: at least one, in their order; the last is the one that trains, or trained last.
        untouched: as of `untouched_loss`.
    """
    names = {f"{number}. {run.name}": run for number, run in enumerate(runs, 1)}
    names = dict(list(names.items())[-LAID_OVER:])
    now, run = list(names.items())[-1]
    across, upwards = axes_for(runs, untouched, max(one.steps for one in runs))
    chart = live_curves(
        {name: one.points for name, one in names.items()},
        now,
        untouched=untouched,
        across=tuple(across),
        upwards=tuple(upwards),
        diverged={name: one.diverged_at for name, one in names.items() if one.diverged_at is not None},
    )
    step, loss = run.points[-1]
    if run.diverged_at is not None:
        how = f"{run.name} diverged at step {step} of {run.steps}: validation loss {loss:.2f} nats per token. "
        return View(chart, f"{how}Its learning rate is too high, so it was given up.")
    gain = untouched - loss
    text = f"{run.name}: step {step} of {run.steps}, validation loss from {untouched:.2f} to {loss:.2f} nats per token"
    return View(chart, f"{text}, {abs(gain):.2f} {'less' if gain >= 0 else 'more'} than untouched.")


def _lab_text(profile: Profile) -> tuple[LoadedModel, torch.Tensor, torch.Tensor]:
    """The bundled model, the blocks that a lab trains on, and eight blocks of validation text."""
    loaded = load_model("tiny")
    rust = load_corpus("rust").limited(profile.train_passages)
    blocks, unseen = (pack(texts, loaded.tokenizer, 128) for texts in (rust.train, rust.validation))
    return loaded, blocks, unseen[:8]


def _lab_config(learning_rate: float, epochs: float) -> TrainingConfig:
    return TrainingConfig(learning_rate, epochs=epochs, batch_size=4)


def untouched_loss(profile: Profile | None = None) -> float:
    """Score the bundled model on the validation text of `training_lab`, before any training.

    Args:
        profile: as for `training_lab`.

    Returns:
        Nats per token.
    """
    loaded, _, unseen = _lab_text(profile or setup())
    return mean_loss(loaded.model, unseen)


def lab_steps(epochs: float, profile: Profile | None = None) -> int:
    """Count the optimizer steps of `training_lab`.

    Args:
        epochs: how often the text is read.
        profile: as for `training_lab`.
    """
    _, blocks, _ = _lab_text(profile or setup())
    return total_steps(len(blocks), _lab_config(1e-3, epochs))


def training_lab(
    strategy: str = "full",
    learning_rate: float = 1e-3,
    epochs: float = 1,
    *,
    profile: Profile | None = None,
    every: int = 4,
) -> Iterator[LabState]:
    """Train the bundled model on Rust, and yield the run's state on the way.

    To stop, stop asking; what was reached is kept in the last state.

    Args:
        strategy: what is trained.
        learning_rate: of AdamW.
        epochs: how often the text is read; may be a fraction.
        profile: how much text is read (None: as `setup` says).
        every: steps between two states; the first and the last step always yield one.

    Yields:
        The state after a step.

    Raises:
        ValueError: for what cannot train, before any work.
    """
    loaded, blocks, unseen = _lab_text(profile or setup())
    config = _lab_config(learning_rate, epochs)
    model = apply_strategy(loaded.model, strategy).model
    total = total_steps(len(blocks), config)
    records: list[StepRecord] = []
    scores: list[dict[str, float]] = []
    for record in training_steps(new_state(model, config), blocks, config):
        records.append(record)
        if record.step == 1 or record.step % every == 0 or record.step == total:
            scores.append({"step": record.step, "validation_loss": mean_loss(model, unseen)})
            history = pd.DataFrame([vars(record) for record in records])
            history.insert(1, "epoch", history.step / steps_per_epoch(len(blocks), config))
            yield LabState(model, history, pd.DataFrame(scores), total, config)


def continuations(
    models: dict[str, object], tokenizer, prompt: str = PROMPT, *, temperature: float = 0.0, seed: int = 0
) -> dict[str, str]:
    """Let several models continue the same prompt.

    Args:
        models: by name.
        tokenizer: of all of them.
        prompt: at most `LONGEST_PROMPT` characters.
        temperature: 0 takes the most likely token each time.
        seed: of the draws, where the temperature is not 0.

    Returns:
        From each model's name to what it wrote.

    Raises:
        ValueError: for a prompt that is empty or too long.
    """
    if not prompt.strip():
        raise ValueError("the prompt is empty: type a few words to go on from")
    if len(prompt) > LONGEST_PROMPT:
        raise ValueError(f"the prompt has {len(prompt)} characters: at most {LONGEST_PROMPT}")
    return {
        name: generate(model, tokenizer, [prompt], temperature=temperature, seed=seed)[0]
        for name, model in models.items()
    }


def fallback_run(memory: str = "48MB", strategy: str = "full") -> FallbackLog:
    """Train the bundled model for a few steps on a small virtual card, trying each rung after a real failure.

    Args:
        memory: of the card, such as "48MB".
        strategy: what is trained.

    Returns:
        The attempts.

    Raises:
        ValueError: for a size that cannot be read, or an unknown strategy.
    """
    loaded = load_model("tiny")
    rows, length = FALLBACK_SHAPE
    blocks = pack(load_corpus("rust").train[:20], loaded.tokenizer, length)[: 2 * rows]
    model = apply_strategy(loaded.model, strategy).model
    order = ("chunked loss", "smaller micro-batch", "activation checkpointing", "optimizer on the host")
    order += ("training on the host",)
    config = TrainingConfig(batch_size=rows)
    _, log = train_with_fallback(model, blocks, config, device=virtual_device(memory=memory), order=order)
    return log


@dataclass(frozen=True)
class LadderStep:
    """One attempt of a fallback.

    Attributes:
        attempt: as it was logged.
        text: how it ended, in words.
        plan: how its steps were to be carried out.
    """

    attempt: Attempt
    text: str
    plan: Plan

    def timeline(self) -> pd.DataFrame:
        """Count the bytes of each moment of such a step, see `step_timeline`; a second for many micro-batches."""
        rows, length = FALLBACK_SHAPE
        return step_timeline("tiny", "full", batch_size=rows, sequence_length=length, plan=self.plan)


def ladder_steps(log: FallbackLog) -> list[LadderStep]:
    """Say of each attempt of a fallback what it was and how it ended.

    Args:
        log: what `fallback_run` returned.
    """
    tries = [attempt for attempt in log.attempts if attempt.action == "training"]
    steps, plan = [], Plan()
    for number, attempt in enumerate(tries, 1):
        if attempt.rung in LADDER:
            plan = LADDER[attempt.rung](plan, FALLBACK_SHAPE[0])
        said = f"Attempt {number} of {len(tries)}, {attempt.rung}: "
        if attempt.failed_in:
            asked, free = (in_units(attempt.bytes_asked), in_units(attempt.bytes_available))
            said += f"failed in the {attempt.failed_in}, at step {attempt.first_step}. Asked for {asked}, free {free}."
        else:
            said += f"it holds, and does {attempt.steps_done} steps from step {attempt.first_step} on."
        steps.append(LadderStep(attempt, said, plan))
    return steps


def ladder_views(log: FallbackLog) -> list[View]:
    """Show a fallback attempt by attempt.

    Args:
        log: what `train_with_fallback` returned.

    Returns:
        A view for each attempt, in which all attempts before it are drawn, too.
    """
    steps = ladder_steps(log)
    tries = [step.attempt for step in steps]
    return [View(attempts_chart(tries[:number]), step.text) for number, step in enumerate(steps, 1)]

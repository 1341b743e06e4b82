"""The command that trains one model and saves it, with all that is needed to do so again."""

import datetime
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tlkit.commands.models import MODEL, STRATEGY, EstimateOptions, Scoring, documents
from tlkit.commands.outcome import Outcome
from tlkit.commands.run_files import refuse_to_replace, write_run_file
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.files import hold_folder, reason_of
from tlkit.jobs import Job
from tlkit.options import option, options_of, same_option
from tlkit.settings import Plan, TrainingConfig, check_settings_alone

if TYPE_CHECKING:
    from accelerate import Accelerator

    from tlkit.corpus import Corpus
    from tlkit.devices import Device
    from tlkit.evaluation import PerplexityResult
    from tlkit.evidence.tasks import Account, Task
    from tlkit.examples import Batch
    from tlkit.strategies import StrategyReport

RUN_FILE = "run.yaml"
LONGEST_BLOCK = 128  # tokens, where nothing else is said
OF_THIS_CALL = {"output", "resume", "run_file"}  # and not of the run: no part of its run file


@dataclass(frozen=True)
class TrainOptions:
    """What to train, and where to save it"""

    strategy: str = option(help=STRATEGY)
    output: Path = option(help="the folder for the trained model, its checkpoints and run.yaml", path="new folder")
    run_file: Path | None = option(
        None, "YAML with these same settings by name; what is given on the command line wins", path="file"
    )
    model: str | None = option(None, MODEL)
    adapter: str | None = option(
        None,
        "for a model that is an adapter: train it further, or put it into the weights",
        choices=("continue", "merge"),
    )
    strategy_option: dict = same_option(EstimateOptions, "strategy_option", {})
    plugin: Path | None = same_option(EstimateOptions, "plugin", None)
    sequence_length: int | None = option(
        None, f"tokens in a block; default: {LONGEST_BLOCK}, or fewer if the model reads fewer", at_least=2
    )
    dtype: str = option(
        "fp32",
        "of the weights; bf16 for frozen ones, as small steps are lost in its rounding",
        choices=("fp32", "bf16"),
    )
    max_steps: int | None = option(None, "optimizer steps, in place of the epochs", at_least=1)
    checkpoint_every: int = option(100, "steps between two checkpoints", at_least=1)
    expect: dict = option(
        {}, "of the run, such as loss_falls_percent=30 or peak_memory=2GB; exit 1 where one of them does not hold"
    )
    resume: bool = option(False, "go on with the run whose checkpoints are in OUTPUT")


@dataclass(frozen=True)
class TrainSettings(TrainingConfig):
    """What to train towards"""

    learning_rate: float | None = option(
        None, "the highest, after the warm-up; default: as recorded for the model and the strategy", above=0
    )
    batch_size: int = same_option(TrainingConfig, "batch_size", 4)  # for which the recorded rates were found


@dataclass(frozen=True)
class TrainPlan(Plan):
    """How a step is carried out"""

    precision: str = same_option(ComparisonSettings, "precision", "fp32")


@dataclass(frozen=True)
class Processes:
    """Several processes, started by torchrun"""

    sharding: str | None = option(
        None, "with ddp, the default, each process holds the whole model, with fsdp a part", choices=("ddp", "fsdp")
    )


class _Ready(NamedTuple):
    """What is trained, and on what."""

    task: "Task"
    report: "StrategyReport"
    base: str  # of the model, by preset, hub id or folder
    tokenizer: object
    blocks: "Batch"
    account: "Account"
    validation: "Batch | None"
    classes: tuple[str, ...] | None  # their names, for a classifier


def train(
    options: TrainOptions, scoring: Scoring, config: TrainSettings, plan: TrainPlan, processes: Processes
) -> Outcome:
    """Adapt a model by one strategy and save it.

    All settings may stand in a run file (--run-file). What was used is saved as run.yaml beside the model, so that
    `train --run-file OUTPUT/run.yaml --output OTHER` repeats the run. Under torchrun, several processes train together.
    With --expect the run is judged at its end.
    """
    from tlkit.devices import probe, settled_precision
    from tlkit.distributed import joined
    from tlkit.evidence.expectations import expectations_of
    from tlkit.evidence.learning_rates import rate_for
    from tlkit.fitting.estimate import DTYPES
    from tlkit.models import chosen_model
    from tlkit.strategies import check_strategy, dtype_of_weights, load_plugin
    from tlkit.training import steps_per_epoch

    if options.plugin:
        load_plugin(options.plugin)
    # What can be refused without a model comes first.
    check_strategy(options.strategy, options.strategy_option)
    expectations_of(options.expect)
    rate_from = "as given"
    if config.learning_rate is None:
        rate = rate_for(options.model, options.strategy, scoring.task)
        config, rate_from = replace(config, learning_rate=rate.value), rate.source
    check_settings_alone(config, plan)
    refuse_to_replace(options.output / RUN_FILE)
    device, (profile, whole, corpus, classes) = probe(), documents(scoring)
    scoring = replace(scoring, profile=profile.name, corpus=corpus.name)
    precision = settled_precision(plan.precision, device)
    if plan.precision == "auto" and DTYPES["bf16"] == dtype_of_weights(options.strategy, precision):
        options = replace(options, dtype="bf16")
    plan = Plan(**asdict(plan) | {"precision": precision})
    with joined(processes.sharding, on_cpu=device.kind == "cpu") as accelerator:
        if options.expect and accelerator:
            raise ValueError("--expect: a run of several processes is not judged; expected one process, or no --expect")
        ready = _prepare(options, scoring.task, config, whole, corpus, classes)
        if options.max_steps is not None:
            config = replace(config, epochs=options.max_steps / steps_per_epoch(len(ready.blocks), config))
        options = replace(options, model=chosen_model(options.model), sequence_length=ready.blocks.shape[1])
        used = (options, scoring, config, plan)
        with hold_folder(options.output) if _writes(accelerator) else nullcontext():
            return _train(ready, used, rate_from, corpus, device, accelerator, processes.sharding)


def _writes(accelerator: "Accelerator | None") -> bool:
    """Whether this process is the one that scores, writes and speaks."""
    return accelerator is None or accelerator.is_main_process


def _prepare(
    options: TrainOptions,
    task_name: str,
    config: TrainSettings,
    whole: "Corpus",
    corpus: "Corpus",
    classes: tuple[str, ...] | None,
) -> _Ready:
    import torch

    from tlkit.evidence.tasks import LONGEST_ROW, TASKS, account
    from tlkit.examples.conversations import template_of
    from tlkit.fitting.estimate import DTYPES
    from tlkit.models import agreed_classes, check_save, load_model
    from tlkit.models.adapters import base_model
    from tlkit.models.parts import longest_input
    from tlkit.strategies import apply_strategy

    task, classes = TASKS[task_name], agreed_classes(options.model, classes)
    head = {"classes": classes and len(classes), "seed": config.seed}
    loaded = load_model(options.model, adapter=options.adapter, dtype=DTYPES[options.dtype], **head)
    if classes is not None:
        loaded.model.config.id2label = dict(enumerate(classes))
        loaded.model.config.label2id = {name: number for number, name in enumerate(classes)}
    if task.in_chat:
        loaded.tokenizer.chat_template = template_of(loaded.tokenizer)  # saved, for the model to be used with
    usual = task.row or LONGEST_ROW
    length = options.sequence_length or min(usual, longest_input(loaded.model) or usual)
    torch.manual_seed(config.seed)  # an adapter's first values
    report = apply_strategy(loaded.model, options.strategy, **options.strategy_option)
    check_save(report.model, options.output)
    blocks, validation = task.batch(corpus.train, loaded.tokenizer, length, classes), None
    if config.patience is not None or config.evaluate_every is not None:
        validation = task.batch(corpus.validation, loaded.tokenizer, length, classes)
    counted = account(task, whole, corpus, loaded.tokenizer, length)
    base = base_model(report.model).name_or_path
    return _Ready(task, report, base, loaded.tokenizer, blocks, counted, validation, classes)


def _train(
    ready: _Ready,
    used: tuple,
    rate_from: str,
    corpus: "Corpus",
    device: "Device",
    accelerator: "Accelerator | None",
    sharding: str | None,
) -> Outcome:
    from tlkit.checkpoints import newest_step
    from tlkit.distributed import train_together
    from tlkit.evidence.expectations import Seen, expectations_of, judge, memory_watched
    from tlkit.evidence.gradient_flow import check_gradient_flow
    from tlkit.reports.model_card import write_card
    from tlkit.training import total_steps, train

    options, scoring, config, plan = used
    expected, problems = expectations_of(options.expect), ()
    model, first, checkpoints = ready.report.model, _writes(accelerator), options.output / "checkpoints"
    if sharding != "fsdp":  # which brings its parts there, for the whole may be too large
        device.place(model)
    before = _score("before training", ready, corpus, scoring) if first else None
    if first and not newest_step(checkpoints):  # else that run's file stays until this one has been accepted
        write_run_file(options.output / RUN_FILE, _settings(used), _circumstances(device, ready))
    if expected.gradients_flow:
        problems = check_gradient_flow(ready.report, ready.blocks[:1]).problems
    watched = memory_watched(model, device) if expected.memory_growth_percent else nullcontext(())
    with watched as held:
        how = {"plan": plan, "validation": ready.validation, "progress": first}
        how |= {"checkpoint_dir": checkpoints, "every": options.checkpoint_every, "resume": options.resume}
        if accelerator is None:
            result = train(model, ready.blocks, config, **how)
        else:
            result = train_together(accelerator, model, ready.blocks, config, sharding=sharding, **how)
    if not first:
        return Outcome()
    reload_problem = _reload_problem(ready, used, corpus, device) if expected.checkpoint_reloads else ""
    verdicts = judge(expected, Seen(result.history, result.peak_memory, held, problems, reload_problem))
    _save_model(model, ready.tokenizer, options.output, total_steps(len(ready.blocks), config))
    write_run_file(options.output / RUN_FILE, _settings(used), _circumstances(device, ready))
    after = _score("after training", ready, corpus, scoring)
    text = _card(ready, used, rate_from, corpus, device, (before, after), result)
    card = "README.md describes it" if write_card(options.output, text) else "README.md there was kept"
    figures = {"before": before, "after": after, "output": options.output, "doubts": ready.report.doubts}
    figures |= {
        "corpus": ready.account,
        "precision": plan.precision,
        "seconds": result.seconds,
        "stopped_early": result.stopped_early,
        "expected": verdicts,
    }
    weights = ", with weights in bf16 that stay frozen" if options.dtype == "bf16" else ""
    lines = [
        str(ready.account),
        str(ready.report),
        f"computed in {plan.precision}{weights}",
        *(f"DOUBT: {doubt}" for doubt in ready.report.doubts),
    ]
    lines += [f"before: {before}", f"after:  {after}"]
    lines += [f"saved in {options.output}; run.yaml there repeats this run, {card}", *map(str, verdicts)]
    return Outcome(figures, "\n".join(lines), 0 if all(verdict.holds for verdict in verdicts) else 1)


def _reload_problem(trained: _Ready, used: tuple, corpus: "Corpus", device: "Device") -> str:
    """How a fresh model with the newest checkpoint differs from the trained one; empty where it does not."""
    import torch

    from tlkit.steps import mean_loss
    from tlkit.training import train

    options, scoring, config, plan = used
    fresh = _prepare(options, scoring.task, config, corpus, corpus, trained.classes)
    models = [ready.report.model for ready in (trained, fresh)]
    device.place(models[1])
    saved = {"checkpoint_dir": options.output / "checkpoints", "resume": True}
    train(models[1], fresh.blocks, config, plan=plan, validation=fresh.validation, **saved)
    weights = ([p for p in model.parameters() if p.requires_grad] for model in models)
    if not all(map(torch.equal, *weights)):
        return "other weights came back"
    before, after = (mean_loss(model, trained.blocks[:4], plan) for model in models)
    return "" if before == after else f"the loss was {before} and is {after}"


def _score(when: str, ready: _Ready, corpus: "Corpus", scoring: Scoring) -> "PerplexityResult":
    from tlkit.evidence.tasks import TASKS

    task, model = TASKS[scoring.task], ready.report.model
    window = task.window(model, scoring.context, scoring.stride)
    with Job() as job, job.part(when) as part:
        return task.score(model, ready.tokenizer, corpus.test, window, ready.classes, part)


def _settings(used: tuple) -> dict[str, object]:
    """Every setting of a run, by name."""
    return {
        setting.name: getattr(part, setting.name)
        for part in used
        for setting in options_of(type(part))
        if setting.name not in OF_THIS_CALL
    }


def _circumstances(device: "Device", ready: _Ready) -> dict[str, str]:
    """What a run depends on besides its settings."""
    from tlkit.evidence.tasks import opening_of

    doubts = {"doubts": "; ".join(ready.report.doubts)} if ready.report.doubts else {}
    return {
        "documents": str(ready.account),
        **opening_of(ready.task, ready.tokenizer),
        **doubts,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": f"{device.kind}: {device.name}",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft")),
    }


def _card(ready: _Ready, used: tuple, rate_from: str, corpus: "Corpus", device: "Device", scores: tuple, result) -> str:
    """The model card of a run."""
    from tlkit.examples import as_examples
    from tlkit.reports.model_card import OF_TEXT, model_card

    options, scoring, config, _ = used
    told_elsewhere = {"model", "corpus", "context", "stride", "plugin"}
    name, stopped = Path(scoring.corpus).name, ", stopped early" if result.stopped_early else ""
    return model_card(
        options.output.resolve().name,
        ready.base,
        ready.report,
        data={
            "corpus": name,
            "licence of the text": OF_TEXT.get(name, "not recorded"),
            "documents trained on": f"{len(corpus.train):,}",
            "tokens trained on": f"{as_examples(ready.blocks).tokens.numel():,}, in blocks of {ready.blocks.shape[1]}",
            "SHA-256 of all documents": f"`{corpus.sha256}`",
        },
        settings={key: value for key, value in _settings(used).items() if key not in told_elsewhere}
        | {"learning_rate": f"{config.learning_rate:g} ({rate_from})"},
        before=scores[0],
        after=scores[1],
        provenance={
            "command": f"`python -m tlkit train --run-file {RUN_FILE} --output OTHER`, in this folder",
            "steps": f"{len(result.history):,}{stopped}, {result.seconds:,.0f} seconds",
            **_circumstances(device, ready),
        },
    )


def _save_model(model, tokenizer, folder: Path, total: int) -> None:
    """Save what was trained; where that fails, say what is left of it."""
    from safetensors import SafetensorError

    from tlkit.checkpoints import newest_step
    from tlkit.models import save_model

    try:
        save_model(model, tokenizer, folder)
    except (OSError, SafetensorError) as error:
        raise RuntimeError(
            f"the trained model could not be saved in {folder} ({reason_of(error)}): make "
            "room, then give the same command with --resume, which goes on from the newest checkpoint, "
            f"of step {newest_step(folder / 'checkpoints')} of {total}"
        ) from error

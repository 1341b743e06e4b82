"""The command that trains one model and saves it, with all that is needed to do so again."""

import copy
import datetime
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tlkit.commands import Outcome
from tlkit.commands.models import MODEL, STRATEGY, DataOptions, EstimateOptions
from tlkit.commands.parsing import refuse_to_replace, write_run_file
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.files import lock_folder, reason_of
from tlkit.jobs import Job
from tlkit.options import option, option_fields, same_option
from tlkit.settings import Plan, TrainingConfig, check_settings_alone, setup

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn

    from tlkit import devices, evaluation, examples, strategies, training
    from tlkit.evidence import expectations, tasks

RUN_FILE, CHECKPOINTS = "run.yaml", "checkpoints"
LONGEST_BLOCK = 128  # tokens, where nothing else is said
OF_THIS_CALL = {"output", "resume", "run_file", "sharding"}  # and not of the run: no part of its run file


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
    dtype: str | None = option(
        None,
        "of the weights; bf16 for frozen ones, as small steps are lost in its rounding; default: fp32, or by precision",
        choices=("fp32", "bf16"),
    )
    max_steps: int | None = option(None, "optimizer steps, in place of the epochs", at_least=1)
    checkpoint_every: int = option(100, "steps between two checkpoints", at_least=1)
    expect: dict = option(
        {}, "of the run, such as loss_falls_percent=30 or peak_memory=2GB; exit 1 where one of them does not hold"
    )
    resume: bool = option(False, "go on with the run whose checkpoints are in OUTPUT")
    sharding: str | None = option(
        None,
        "of processes that torchrun starts: with ddp, the default, each holds the whole model, with fsdp a part",
        choices=("ddp", "fsdp"),
    )


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


@dataclass
class _Run:
    """One training: its settings, in which nothing is left open, and from `_load` on what is trained on what."""

    options: TrainOptions
    data: DataOptions
    config: TrainSettings
    plan: Plan
    rate_from: str
    expected: "expectations.Expectations"
    device: "devices.Device"
    documents: "tasks.TaskData"
    report: "strategies.StrategyReport | None" = None
    tokenizer: object = None
    blocks: "examples.Batch | None" = None
    validation: "examples.Batch | None" = None
    settings: dict[str, object] = field(default_factory=dict)  # all of them by name, for run.yaml and the card
    notes: dict[str, object] = field(default_factory=dict)  # what the result depends on besides
    before: "evaluation.PerplexityResult | None" = None
    after: "evaluation.PerplexityResult | None" = None
    result: "training.TrainingResult | None" = None
    verdicts: list["expectations.Verdict"] = field(default_factory=list)


def train(options: TrainOptions, data: DataOptions, config: TrainSettings, plan: TrainPlan) -> Outcome:
    """Adapt a model by one strategy and save it.

    All settings may stand in a run file (--run-file). What was used is saved as run.yaml beside the model, so that
    `train --run-file OUTPUT/run.yaml --output OTHER` repeats the run. Under torchrun, several processes train together.
    With --expect the run is judged at its end.
    """
    from tlkit.checkpoints import newest_step
    from tlkit.distributed import joined

    run = _settled(options, data, config, plan)
    with ExitStack() as stack:
        accelerator = stack.enter_context(joined(options.sharding, on_cpu=run.device.kind == "cpu"))
        if options.expect and accelerator:
            raise ValueError("--expect: a run of several processes is not judged; expected one process, or no --expect")
        _load(run)
        if accelerator and not accelerator.is_main_process:  # which scores, writes and speaks
            _train(run, accelerator)
            return Outcome()
        stack.enter_context(lock_folder(options.output))
        untrained = copy.deepcopy(run.report.model) if run.expected.checkpoint_reloads else None
        if options.sharding != "fsdp":  # which brings its parts there, for the whole may be too large
            run.device.place(run.report.model)
        run.before = _score(run, "before training")
        if not newest_step(options.output / CHECKPOINTS):  # else that run's file stays until this one is accepted
            write_run_file(options.output / RUN_FILE, run.settings, run.notes)
        _train(run, accelerator, untrained)
        _save(run)
        write_run_file(options.output / RUN_FILE, run.settings, run.notes)
        run.after = _score(run, "after training")
    return _outcome(run)


def _settled(options: TrainOptions, data: DataOptions, config: TrainSettings, plan: TrainPlan) -> _Run:
    """Settings in which nothing is left open; whatever can be refused without a model is refused here."""
    from tlkit.devices import probe, settled_precision
    from tlkit.evidence.expectations import expectations_of
    from tlkit.evidence.learning_rates import rate_for
    from tlkit.evidence.tasks import load_documents
    from tlkit.strategies import check_strategy, dtype_of_weights, load_plugin

    load_plugin(options.plugin)
    check_strategy(options.strategy, options.strategy_option)
    expected, rate_from = expectations_of(options.expect), "as given"
    if config.learning_rate is None:
        rate = rate_for(options.model, options.strategy, data.task, config.optimizer)
        config, rate_from = replace(config, learning_rate=rate.value), rate.source
    check_settings_alone(config, plan)
    refuse_to_replace(options.output / RUN_FILE)
    profile, device = setup(data.profile), probe()
    documents = load_documents(data, profile, options.model)
    precision = settled_precision(plan.precision, device)
    if options.dtype is None:
        kept = dtype_of_weights(options.strategy, precision if plan.precision == "auto" else "fp32")
        options = replace(options, dtype="bf16" if kept.itemsize == 2 else "fp32")
    plan = Plan(**asdict(plan) | {"precision": precision})
    data = replace(data, profile=profile.name, corpus=documents.used.name)
    return _Run(options, data, config, plan, rate_from, expected, device, documents)


def _load(run: _Run) -> None:
    """The model with the strategy applied, and the documents as its tokenizer has them."""
    import torch

    from tlkit import models, strategies
    from tlkit.examples.answers import template_of
    from tlkit.fitting.estimate import DTYPES
    from tlkit.models.parts import longest_input
    from tlkit.training import steps_per_epoch

    options, config, documents, task = run.options, run.config, run.documents, run.documents.task
    classes, head = documents.classes, {"classes": documents.class_count, "seed": config.seed}
    loaded = models.load_model(options.model, adapter=options.adapter, dtype=DTYPES[options.dtype], **head)
    if classes is not None:
        loaded.model.config.id2label = dict(enumerate(classes))
        loaded.model.config.label2id = {name: number for number, name in enumerate(classes)}
    if task.in_chat:
        loaded.tokenizer.chat_template = template_of(loaded.tokenizer)  # saved, for the model to be used with
    torch.manual_seed(config.seed)  # an adapter's first values
    run.report = strategies.apply_strategy(loaded.model, options.strategy, **options.strategy_option)
    models.check_save(run.report.model, options.output)
    run.tokenizer = loaded.tokenizer

    length = options.sequence_length or min(task.row, longest_input(run.report.model) or task.row)
    run.blocks = task.batch(documents.used.train, run.tokenizer, length, classes)
    if config.patience is not None or config.evaluate_every is not None:
        run.validation = task.batch(documents.used.validation, run.tokenizer, length, classes)
    if options.max_steps is not None:
        run.config = replace(config, epochs=options.max_steps / steps_per_epoch(len(run.blocks), config))
    run.options = replace(options, model=models.chosen_model(options.model), sequence_length=run.blocks.shape[1])
    _describe(run, length)


def _describe(run: _Run, length: int) -> None:
    """Every setting of a run by name, and what its result depends on besides."""
    for group in (run.options, run.data, run.config, run.plan):
        names = [setting.name for setting in option_fields(type(group)) if setting.name not in OF_THIS_CALL]
        run.settings |= {name: getattr(group, name) for name in names}
    run.notes = run.documents.notes(run.tokenizer, length)
    if run.report.doubts:
        run.notes["doubts"] = "; ".join(run.report.doubts)
    run.notes |= {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": f"{run.device.kind}: {run.device.name}",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft")),
    }


def _score(run: _Run, when: str) -> "evaluation.PerplexityResult":
    task, classes, model = run.documents.task, run.documents.classes, run.report.model
    window = task.window(model, run.data.context, run.data.stride)
    with Job() as job, job.part(when) as part:
        return task.score(model, run.tokenizer, run.documents.used.test, window, classes, part)


def _train(run: _Run, accelerator: "Accelerator | None", untrained: "nn.Module | None" = None) -> None:
    """Train, alone or with other processes, and judge what is expected; a checkpoint is read back into `untrained`."""
    from tlkit import distributed, training
    from tlkit.evidence.expectations import Seen, judge, memory_watched
    from tlkit.evidence.gradient_flow import check_gradient_flow

    options, model, expected = run.options, run.report.model, run.expected
    problems = check_gradient_flow(run.report, run.blocks[:1]).problems if expected.gradients_flow else ()
    how = {"plan": run.plan, "groups": run.report.groups, "validation": run.validation}
    how |= {"checkpoint_dir": options.output / CHECKPOINTS}
    how |= {"every": options.checkpoint_every, "resume": options.resume, "progress": True}
    with memory_watched(model, run.device) if expected.memory_growth_percent else nullcontext(()) as held:
        if accelerator is None:
            run.result = training.train(model, run.blocks, run.config, **how)
        else:
            how |= {"sharding": options.sharding, "progress": accelerator.is_main_process}
            run.result = distributed.train_together(accelerator, model, run.blocks, run.config, **how)
    reload_problem = ""
    if untrained is not None:
        run.device.place(untrained)
        training.train(untrained, run.blocks, run.config, **how | {"resume": True, "progress": False})
        reload_problem = _difference(model, untrained, run.blocks[:4], run.plan)
    run.verdicts = judge(expected, Seen(run.result.history, run.result.peak_memory, held, problems, reload_problem))


def _difference(trained: "nn.Module", reloaded: "nn.Module", blocks: "examples.Batch", plan: Plan) -> str:
    """How a model with the newest checkpoint differs from the trained one; empty where it does not."""
    import torch

    from tlkit.steps import mean_loss

    if not all(map(torch.equal, trained.parameters(), reloaded.parameters())):
        return "other weights came back"
    before, after = (mean_loss(model, blocks, plan) for model in (trained, reloaded))
    return "" if before == after else f"the loss was {before} and is {after}"


def _save(run: _Run) -> None:
    """Save what was trained; where that fails, say what is left of it."""
    from safetensors import SafetensorError

    from tlkit.checkpoints import newest_step
    from tlkit.models import save_model
    from tlkit.training import total_steps

    folder = run.options.output
    try:
        save_model(run.report.model, run.tokenizer, folder)
    except (OSError, SafetensorError) as error:
        reached, total = newest_step(folder / CHECKPOINTS), total_steps(len(run.blocks), run.config)
        raise RuntimeError(
            f"the trained model could not be saved in {folder} ({reason_of(error)}): make room, then give the same "
            f"command with --resume, which goes on from the newest checkpoint, of step {reached} of {total}"
        ) from error


def _outcome(run: _Run) -> Outcome:
    """Write the card, and say what came of a run."""
    from tlkit.reports.model_card import write_card

    options, doubts, precision = run.options, run.report.doubts, run.plan.precision
    written = write_card(options.output, _card(run))
    card = "README.md describes it" if written else "README.md there was kept"
    lines = [
        str(run.notes["documents"]),
        str(run.report),
        f"computed in {precision}{', with weights in bf16 that stay frozen' if options.dtype == 'bf16' else ''}",
        *(f"DOUBT: {doubt}" for doubt in doubts),
        f"before: {run.before}",
        f"after:  {run.after}",
        f"saved in {options.output}; run.yaml there repeats this run, {card}",
        *map(str, run.verdicts),
    ]
    figures = {"before": run.before, "after": run.after, "output": options.output, "doubts": doubts}
    figures |= {"corpus": run.notes["documents"], "precision": precision, "expected": run.verdicts}
    figures |= {"seconds": run.result.seconds, "stopped_early": run.result.stopped_early}
    return Outcome(figures, "\n".join(lines), 0 if all(verdict.holds for verdict in run.verdicts) else 1)


def _card(run: _Run) -> str:
    """The model card of a run, without what names a place on this machine."""
    from tlkit.examples import as_examples
    from tlkit.models.parts import base_model
    from tlkit.reports.model_card import OF_TEXT, model_card

    corpus, elsewhere = run.documents.used, {"model", "corpus", "context", "stride", "plugin"}
    name, stopped = Path(corpus.name).name, ", stopped early" if run.result.stopped_early else ""
    settings = run.settings | {"learning_rate": f"{run.config.learning_rate:g} ({run.rate_from})"}
    return model_card(
        run.options.output.resolve().name,
        base_model(run.report.model).name_or_path,
        run.report,
        data={
            "corpus": name,
            "licence of the text": OF_TEXT.get(name, "not recorded"),
            "documents trained on": f"{len(corpus.train):,}",
            "tokens trained on": f"{as_examples(run.blocks).tokens.numel():,}, in blocks of {run.blocks.shape[1]}",
            "SHA-256 of all documents": f"`{corpus.sha256}`",
        },
        settings={key: value for key, value in settings.items() if key not in elsewhere},
        before=run.before,
        after=run.after,
        provenance={
            "command": f"`python -m tlkit train --run-file {RUN_FILE} --output OTHER`, in this folder",
            "steps": f"{len(run.result.history):,}{stopped}, {run.result.seconds:,.0f} seconds",
            **run.notes,
        },
    )

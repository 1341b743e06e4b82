"""The command that trains one model and saves it, with all that is needed to do so again."""

import copy
import datetime
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tlkit.commands import Outcome
from tlkit.commands.models import MODEL, STRATEGY, DataOptions, EstimateOptions, load_documents
from tlkit.commands.run_files import refuse_to_replace, write_run_file
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.files import lock_folder, reason_of
from tlkit.jobs import Job
from tlkit.options import option, option_fields, same_option
from tlkit.settings import Plan, TrainingConfig, check_settings_alone, setup

if TYPE_CHECKING:
    import torch

    from tlkit.corpus import Corpus
    from tlkit.devices import Device
    from tlkit.evaluation import PerplexityResult
    from tlkit.evidence.tasks import Task
    from tlkit.examples import Batch
    from tlkit.strategies import StrategyReport

RUN_FILE = "run.yaml"
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


def train(options: TrainOptions, data: DataOptions, config: TrainSettings, plan: TrainPlan) -> Outcome:
    """Adapt a model by one strategy and save it.

    All settings may stand in a run file (--run-file). What was used is saved as run.yaml beside the model, so that
    `train --run-file OUTPUT/run.yaml --output OTHER` repeats the run. Under torchrun, several processes train together.
    With --expect the run is judged at its end.
    """
    from tlkit.checkpoints import newest_step
    from tlkit.devices import probe
    from tlkit.distributed import joined, train_together
    from tlkit.evidence.expectations import Seen, expectations_of, judge, memory_watched
    from tlkit.evidence.gradient_flow import check_gradient_flow
    from tlkit.evidence.tasks import LONGEST_ROW, TASKS, account, opening_of
    from tlkit.models import chosen_model
    from tlkit.models.parts import longest_input
    from tlkit.reports.model_card import write_card
    from tlkit.strategies import check_strategy, load_plugin
    from tlkit.training import steps_per_epoch, total_steps
    from tlkit.training import train as train_model

    # What can be refused without a model comes first.
    if options.plugin:
        load_plugin(options.plugin)
    check_strategy(options.strategy, options.strategy_option)
    expected = expectations_of(options.expect)
    config, rate_from = _with_rate(config, options, data.task)
    check_settings_alone(config, plan)
    run_file, checkpoints = options.output / RUN_FILE, options.output / "checkpoints"
    refuse_to_replace(run_file)

    profile, device, task = setup(data.profile), probe(), TASKS[data.task]
    whole, corpus, classes = load_documents(data, profile)
    plan, options = _with_precision(plan, options, device)
    data = replace(data, profile=profile.name, corpus=corpus.name)
    with ExitStack() as stack:
        accelerator = stack.enter_context(joined(options.sharding, on_cpu=device.kind == "cpu"))
        is_main = accelerator is None or accelerator.is_main_process  # which scores, writes and speaks
        if options.expect and accelerator:
            raise ValueError("--expect: a run of several processes is not judged; expected one process, or no --expect")
        report, tokenizer, classes = _adapted(options, config.seed, task, classes)
        model = report.model
        usual = task.row or LONGEST_ROW
        length = options.sequence_length or min(usual, longest_input(model) or usual)
        blocks, validation = task.batch(corpus.train, tokenizer, length, classes), None
        if config.patience is not None or config.evaluate_every is not None:
            validation = task.batch(corpus.validation, tokenizer, length, classes)
        if options.max_steps is not None:
            config = replace(config, epochs=options.max_steps / steps_per_epoch(len(blocks), config))
        options = replace(options, model=chosen_model(options.model), sequence_length=blocks.shape[1])
        documents_used = account(task, whole, corpus, tokenizer, length)
        settings = _settings(options, data, config, plan)
        notes = {
            "documents": str(documents_used),
            **opening_of(task, tokenizer),
            **({"doubts": "; ".join(report.doubts)} if report.doubts else {}),
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "device": f"{device.kind}: {device.name}",
            "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft")),
        }

        def score(when: str) -> "PerplexityResult":
            window = task.window(model, data.context, data.stride)
            with Job() as job, job.part(when) as part:
                return task.score(model, tokenizer, corpus.test, window, classes, part)

        if is_main:
            stack.enter_context(lock_folder(options.output))
        untrained = copy.deepcopy(model) if expected.checkpoint_reloads else None
        if options.sharding != "fsdp":  # which brings its parts there, for the whole may be too large
            device.place(model)
        before = score("before training") if is_main else None
        if is_main and not newest_step(checkpoints):  # else that run's file stays until this one has been accepted
            write_run_file(run_file, settings, notes)
        problems = check_gradient_flow(report, blocks[:1]).problems if expected.gradients_flow else ()
        held = stack.enter_context(memory_watched(model, device)) if expected.memory_growth_percent else ()
        how = {"plan": plan, "validation": validation, "progress": is_main}
        how |= {"checkpoint_dir": checkpoints, "every": options.checkpoint_every, "resume": options.resume}
        if accelerator is None:
            result = train_model(model, blocks, config, **how)
        else:
            result = train_together(accelerator, model, blocks, config, sharding=options.sharding, **how)
        if not is_main:
            return Outcome()
        reload_problem = ""
        if untrained is not None:
            device.place(untrained)
            train_model(untrained, blocks, config, **how | {"resume": True, "progress": False})
            reload_problem = _difference(model, untrained, blocks[:4], plan)
        verdicts = judge(expected, Seen(result.history, result.peak_memory, held, problems, reload_problem))
        _save_model(model, tokenizer, options.output, total_steps(len(blocks), config))
        write_run_file(run_file, settings, notes)
        after = score("after training")

    steps = f"{len(result.history):,}{', stopped early' if result.stopped_early else ''}, {result.seconds:,.0f} seconds"
    text = _card(
        report,
        options.output,
        corpus,
        blocks,
        settings | {"learning_rate": f"{config.learning_rate:g} ({rate_from})"},
        (before, after),
        {"steps": steps, **notes},
    )
    card = "README.md describes it" if write_card(options.output, text) else "README.md there was kept"
    weights = ", with weights in bf16 that stay frozen" if options.dtype == "bf16" else ""
    lines = [
        str(documents_used),
        str(report),
        f"computed in {plan.precision}{weights}",
        *(f"DOUBT: {doubt}" for doubt in report.doubts),
        f"before: {before}",
        f"after:  {after}",
        f"saved in {options.output}; run.yaml there repeats this run, {card}",
        *map(str, verdicts),
    ]
    figures = {
        "before": before,
        "after": after,
        "output": options.output,
        "doubts": report.doubts,
        "corpus": documents_used,
        "precision": plan.precision,
        "seconds": result.seconds,
        "stopped_early": result.stopped_early,
        "expected": verdicts,
    }
    return Outcome(figures, "\n".join(lines), 0 if all(verdict.holds for verdict in verdicts) else 1)


def _with_rate(config: TrainSettings, options: TrainOptions, task: str) -> tuple[TrainSettings, str]:
    """The settings with a learning rate, and where that is from."""
    from tlkit.evidence.learning_rates import rate_for

    if config.learning_rate is not None:
        return config, "as given"
    rate = rate_for(options.model, options.strategy, task, config.optimizer)
    return replace(config, learning_rate=rate.value), rate.source


def _with_precision(plan: TrainPlan, options: TrainOptions, device: "Device") -> tuple[Plan, TrainOptions]:
    """A plan and options in which "auto" is settled, and the type of the weights that follows from it."""
    from tlkit.devices import settled_precision
    from tlkit.fitting.estimate import DTYPES
    from tlkit.strategies import dtype_of_weights

    precision = settled_precision(plan.precision, device)
    in_bf16 = plan.precision == "auto" and DTYPES["bf16"] == dtype_of_weights(options.strategy, precision)
    dtype = options.dtype or ("bf16" if in_bf16 else "fp32")
    return Plan(**asdict(plan) | {"precision": precision}), replace(options, dtype=dtype)


def _adapted(options: TrainOptions, seed: int, task: "Task", classes: tuple[str, ...] | None) -> tuple:
    """The model with the strategy applied, its tokenizer, and the names of a classifier's classes in its own order."""
    import torch

    from tlkit.examples.answers import template_of
    from tlkit.fitting.estimate import DTYPES
    from tlkit.models import agreed_classes, check_save, load_model
    from tlkit.strategies import apply_strategy

    classes = agreed_classes(options.model, classes)
    head = {"classes": classes and len(classes), "seed": seed}
    loaded = load_model(options.model, adapter=options.adapter, dtype=DTYPES[options.dtype], **head)
    if classes is not None:
        loaded.model.config.id2label = dict(enumerate(classes))
        loaded.model.config.label2id = {name: number for number, name in enumerate(classes)}
    if task.in_chat:
        loaded.tokenizer.chat_template = template_of(loaded.tokenizer)  # saved, for the model to be used with
    torch.manual_seed(seed)  # an adapter's first values
    report = apply_strategy(loaded.model, options.strategy, **options.strategy_option)
    check_save(report.model, options.output)
    return report, loaded.tokenizer, classes


def _settings(*used: object) -> dict[str, object]:
    """Every setting of a run, by name."""
    return {
        setting.name: getattr(group, setting.name)
        for group in used
        for setting in option_fields(type(group))
        if setting.name not in OF_THIS_CALL
    }


def _difference(trained: "torch.nn.Module", reloaded: "torch.nn.Module", blocks: "Batch", plan: Plan) -> str:
    """How a model with the newest checkpoint differs from the trained one; empty where it does not."""
    import torch

    from tlkit.models.parts import trainable_parameters
    from tlkit.steps import mean_loss

    if not all(map(torch.equal, trainable_parameters(trained), trainable_parameters(reloaded))):
        return "other weights came back"
    before, after = (mean_loss(model, blocks, plan) for model in (trained, reloaded))
    return "" if before == after else f"the loss was {before} and is {after}"


def _save_model(model: "torch.nn.Module", tokenizer, folder: Path, total: int) -> None:
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


def _card(
    report: "StrategyReport",
    folder: Path,
    corpus: "Corpus",
    blocks: "Batch",
    settings: dict[str, object],
    scores: tuple["PerplexityResult", "PerplexityResult"],
    notes: dict[str, str],
) -> str:
    """The model card of a run."""
    from tlkit.examples import as_examples
    from tlkit.models.adapters import base_model
    from tlkit.reports.model_card import OF_TEXT, model_card

    name, elsewhere = Path(corpus.name).name, {"model", "corpus", "context", "stride", "plugin"}
    command = f"`python -m tlkit train --run-file {RUN_FILE} --output OTHER`, in this folder"
    return model_card(
        folder.resolve().name,
        base_model(report.model).name_or_path,
        report,
        data={
            "corpus": name,
            "licence of the text": OF_TEXT.get(name, "not recorded"),
            "documents trained on": f"{len(corpus.train):,}",
            "tokens trained on": f"{as_examples(blocks).tokens.numel():,}, in blocks of {blocks.shape[1]}",
            "SHA-256 of all documents": f"`{corpus.sha256}`",
        },
        settings={key: value for key, value in settings.items() if key not in elsewhere},
        before=scores[0],
        after=scores[1],
        provenance={"command": command, **notes},
    )

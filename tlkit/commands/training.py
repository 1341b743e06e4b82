"""The command that trains a model and saves it with all that repeats the run."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import version

import pandas as pd
import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from tlkit import distributed, models, presets, strategies, training
from tlkit.checkpoints import newest_step
from tlkit.commands import Outcome
from tlkit.commands.options import DataOptions, TrainOptions, TrainPlan, TrainSettings
from tlkit.commands.parsing import refuse_to_replace, write_run_file
from tlkit.devices import probe, settled_precision
from tlkit.evaluation import PerplexityResult
from tlkit.evidence.expectations import Seen, Verdict, check_expectations, gradient_flow, judge, memory_watched
from tlkit.evidence.experiment import now
from tlkit.evidence.learning_rates import rate_for
from tlkit.evidence.tasks import TaskData, load_documents
from tlkit.examples import Batch
from tlkit.examples.conversations import template_of
from tlkit.files import lock_folder, reason_of
from tlkit.fitting.estimate import DTYPES
from tlkit.jobs import Job
from tlkit.models.parts import longest_input
from tlkit.reports.model_card import model_card, write_card
from tlkit.settings import check_settings_alone, setup

RUN_FILE, CHECKPOINTS = "run.yaml", "checkpoints"
OF_THIS_CALL = {"output", "resume", "run_file", "sharding", "train_on_host"}  # and not of the run file


def train(options: TrainOptions, data: DataOptions, config: TrainSettings, plan: TrainPlan) -> Outcome:
    strategies.load_plugin(options.plugin)
    strategies.check_strategy(options.strategy, options.strategy_option)
    check_expectations(options.expect)
    rate_from = "as given"
    if config.learning_rate is None:
        rate = rate_for(options.model, options.strategy, data.task, config.optimizer)
        config, rate_from = replace(config, learning_rate=rate.value), rate.source
    check_settings_alone(config, plan)
    profile, device, folder = setup(data.profile), probe(), options.output
    refuse_to_replace(folder / RUN_FILE)
    documents = load_documents(data, profile, options.model)
    task, corpus, classes = documents.task, documents.used, documents.classes
    data = replace(data, profile=profile.name, corpus=corpus.name)
    precision = settled_precision(plan.precision, device)
    kept = strategies.dtype_of_weights(options.strategy, precision if plan.precision == "auto" else "fp32")
    options = replace(options, dtype=options.dtype or ("bf16" if kept == torch.bfloat16 else "fp32"))
    plan = replace(plan, precision=precision)
    with distributed.joined(options.sharding, on_cpu=device.kind == "cpu") as accelerator:
        if options.expect and accelerator:
            raise ValueError("--expect: a run of several processes is not judged; expected one process")
        report, tokenizer = _adapted(options, config.seed, documents)
        length = options.sequence_length or min(task.row, longest_input(report.model) or task.row)
        blocks, validation = task.batch(corpus.train, tokenizer, length, classes), None
        if config.patience or config.evaluate_every:
            validation = task.batch(corpus.validation, tokenizer, length, classes)
        if options.max_steps:
            config = replace(config, epochs=options.max_steps / training.steps_per_epoch(len(blocks), config))
        options = replace(options, model=presets.chosen_model(options.model), sequence_length=blocks.shape[1])
        run = partial(_train, report, blocks, validation, options, config, plan, accelerator)
        if accelerator and not accelerator.is_main_process:  # which scores, writes and speaks
            run()
            return Outcome()

        notes = documents.notes(tokenizer, length) | {
            "blocks": f"{len(blocks):,} of {blocks.shape[1]} tokens",
            "SHA-256 of all documents": corpus.sha256,
            "learning rate": rate_from,
            "doubts": "; ".join(report.doubts) or "none",
            "date": now(),
            "device": f"{device.kind}: {device.name}",
            "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft")),
        }
        named = vars(options) | vars(data) | vars(config) | vars(plan)
        settings = {name: value for name, value in named.items() if name not in OF_THIS_CALL}
        window = task.window(report.model, data.context, data.stride)

        def score(when: str) -> PerplexityResult:
            with Job() as job, job.stage(when):
                return task.score(report.model, tokenizer, corpus.test, window, classes, job)

        with lock_folder(folder):
            if options.sharding != "fsdp":  # which places its parts itself
                device.place(report.model)
            before = score("before training")
            if not newest_step(folder / CHECKPOINTS):  # whose run wrote the same
                write_run_file(folder / RUN_FILE, settings, notes)
            result, verdicts = run()
            try:
                models.save_model(report.model, tokenizer, folder)
            except (OSError, SafetensorError) as error:  # which names no file
                raise RuntimeError(f"{folder}: not saved ({reason_of(error)}): make room, then --resume") from error
            after = score("after training")
            doubts = [*report.doubts, *_divergence(result.history.loss)]
            early = " (stopped early)" if result.stopped_early else ""
            notes["steps"] = f"{len(result.history):,} in {result.seconds:,.0f} seconds{early}"
            notes["doubts"] = "; ".join(doubts) or "none"
            written = write_card(folder, model_card(folder.resolve().name, report, settings, notes, before, after))
    figures = {"before": before, "after": after, "output": folder, "doubts": doubts, "expected": verdicts}
    figures |= {"corpus": notes["documents"], "precision": precision, "seconds": result.seconds}
    figures["stopped_early"] = result.stopped_early
    card = "describes it" if written else "there was kept"
    lines = [
        str(notes["documents"]),
        str(report),
        f"computed in {precision}; weights in {options.dtype}",
        *(f"DOUBT: {doubt}" for doubt in doubts),
        f"before: {before}",
        f"after:  {after}",
        f"saved in {folder}; run.yaml there repeats this run, README.md {card}",
        *map(str, verdicts),
    ]
    return Outcome(figures, "\n".join(lines), 0 if all(verdict.holds for verdict in verdicts) else 1)


def _divergence(losses: pd.Series) -> list[str]:
    first, last = losses.iloc[0], losses.tail(5).mean()
    rose = last > first + 1  # nats per token: the noise of batches is smaller
    return [f"the loss rose from {first:.2f} to {last:.2f}: try a lower learning rate"] if rose else []


def _adapted(
    options: TrainOptions, seed: int, documents: TaskData
) -> tuple[strategies.StrategyReport, PreTrainedTokenizerBase]:
    """Load the model and apply the strategy; refuse what could not be saved."""
    classes, head = documents.classes, {"classes": documents.class_count, "seed": seed}
    loaded = models.load_model(options.model, adapter=options.adapter, dtype=DTYPES[options.dtype], **head)
    if classes is not None:
        loaded.model.config.id2label = dict(enumerate(classes))
        loaded.model.config.label2id = {name: number for number, name in enumerate(classes)}
    if documents.task.in_chat:
        loaded.tokenizer.chat_template = template_of(loaded.tokenizer)  # to be saved
    torch.manual_seed(seed)  # an adapter's first values
    report = strategies.apply_strategy(loaded.model, options.strategy, **options.strategy_option)
    models.check_save(report.model, options.output)
    return report, loaded.tokenizer


def _train(
    report: strategies.StrategyReport,
    blocks: Batch,
    validation: Batch | None,
    options: TrainOptions,
    config: TrainSettings,
    plan: TrainPlan,
    accelerator: Accelerator | None,
) -> tuple[training.TrainingResult, list[Verdict]]:
    model, expected = report.model, options.expect
    flow = gradient_flow(report, blocks[:1]) if expected.get("gradients_flow") else None
    trained = [p for p in model.parameters() if p.requires_grad and expected.get("checkpoint_reloads")]
    first = [p.detach().clone() for p in trained]
    how = {"plan": plan, "groups": report.groups, "validation": validation, "resume": options.resume}
    how |= {"checkpoint_dir": options.output / CHECKPOINTS, "every": options.checkpoint_every}
    how |= {"progress": accelerator is None or accelerator.is_main_process}
    with memory_watched(model) if expected.get("memory_growth_percent") else nullcontext(()) as held:
        if accelerator is None:
            result = training.train(model, blocks, config, **how)
        else:
            how |= {"sharding": options.sharding}
            result = distributed.train_together(accelerator, model, blocks, config, **how)
    reload_problem = ""
    if trained:
        last = [p.detach().clone() for p in trained]
        with torch.no_grad():
            for p, start in zip(trained, first, strict=True):
                p.copy_(start)
        training.train(model, blocks, config, **how | {"resume": True, "progress": False})
        if not all(map(torch.equal, last, trained)):
            reload_problem = "other weights came back"
    return result, judge(expected, Seen(result.history, result.peak_memory, held, flow, reload_problem))

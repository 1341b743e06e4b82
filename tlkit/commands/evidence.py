"""Commands that measure or judge."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tlkit import models, presets
from tlkit.commands import Outcome, as_columns
from tlkit.commands.options import TIERS, AuditOptions, CompareOptions, DataOptions, EvaluateOptions, ValidateOptions
from tlkit.commands.parsing import settings_of
from tlkit.commands.training import train
from tlkit.devices import probe
from tlkit.evidence.audit import ASSUMED, read_table
from tlkit.evidence.audit import audit as audit_table
from tlkit.evidence.comparison import compare as compare_strategies
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.expectations import Verdict
from tlkit.evidence.tasks import answer, exact_match, load_documents, refuse_references
from tlkit.fitting.estimate import estimate_memory
from tlkit.jobs import Job
from tlkit.memory import in_units
from tlkit.models.parts import longest_input
from tlkit.reports.export import brief, export, notes_on, rows_of
from tlkit.settings import DATA, setup


def evaluate(options: EvaluateOptions, data: DataOptions) -> Outcome:
    profile, device = setup(data.profile), probe()
    documents = load_documents(data, profile, options.model)
    task, corpus, classes = documents.task, documents.used, documents.classes
    fields = tuple(filter(None, (options.fields or "").split(",")))
    if options.metric and not task.in_chat or fields and not options.metric:
        raise ValueError("--metric exact is for --task answer, and --fields for --metric exact")
    refuse_references(corpus.test, fields)
    loaded = models.load_model(options.model, classes=documents.class_count)
    model, tokenizer = loaded.model, loaded.tokenizer
    window = task.window(model, data.context, data.stride)
    device.place(model)
    with Job() as job, job.stage(f"{loaded.name} on {corpus.name}"):
        result = task.score(model, tokenizer, corpus.test, window, classes, job)
        measured = task.measure(model, tokenizer, corpus.test, classes, job)
        if options.metric:
            job.step(0, 0, f"answering {len(corpus.test)} questions")
            measured |= exact_match(answer(model, tokenizer, corpus.test), fields)
    notes = documents.notes(tokenizer, window["context"])
    lines = [str(loaded), str(notes["documents"]), f"{corpus.name}: {result}"]
    lines += [f"{name}: {value:.3g}" for name, value in measured.items()]
    figures = vars(result) | measured | {"corpus": notes.pop("documents")} | notes
    return Outcome(figures, "\n".join(lines))


def compare(options: CompareOptions, settings: ComparisonSettings) -> Outcome:
    strategies = options.strategies.split(",") if options.strategies else None
    profile = setup(options.profile)
    comparison = compare_strategies(
        options.model, strategies, profile=profile, settings=settings, output=options.output, progress=True
    )
    export(comparison, options.output)
    for name, reason in comparison.failures.items():
        print(f"FAILED {name}: {reason.splitlines()[-1]}", file=sys.stderr)
    table, where = comparison.table, f"All columns, runs and charts are in {options.output}"
    used = "{documents}\ncomputed in {precision}".format_map(comparison.provenance)
    doubts = [f"DOUBT: {name}: {doubt}" for name, doubt in comparison.provenance.get("doubts", {}).items()]
    lines = [as_columns(brief(table)), used, *notes_on(table), *doubts, "", where]
    return Outcome(rows_of(table), "\n".join(lines), 1 if comparison.failures else 0)


def validate(options: ValidateOptions) -> Outcome:
    setup()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in TIERS if options.tier == "all" else [options.tier]:
            settings = settings_of_tier(name, options.output or Path(folder), options.model)
            model = settings[0].model
            print(f"{name}: {model}, {settings[0].strategy}", flush=True)
            verdicts = _verdicts(settings)
            print(*verdicts, sep="\n", flush=True)  # the next tier may take hours
            rows.append({"tier": name, "model": model, "expected": verdicts})
    return Outcome(rows, "", 0 if all(verdict.holds for row in rows for verdict in row["expected"]) else 1)


def settings_of_tier(name: str, folder: Path, model: str | None = None) -> list:
    """What `train` takes for a tier; another model has blocks that it can read, and the bundled one its own rate."""
    given = {"run_file": DATA / "tiers" / f"{name}.yaml", "output": folder / name}
    options, scoring, config, *others = settings_of("train", given | ({"model": model} if model else {}))
    if model:
        limit = longest_input(models.meta_model(model)) or options.sequence_length
        options = replace(options, sequence_length=min(options.sequence_length, limit))
    if model == "tiny":
        config = replace(config, learning_rate=None)
    return [options, scoring, config, *others]


def _verdicts(settings: list) -> list[Verdict]:
    """Train by the settings of a tier, if this machine can, and judge what was expected."""
    options, _, config, plan = settings
    shape = {"batch_size": config.batch_size, "sequence_length": options.sequence_length}
    how = shape | {"dtype": options.dtype or "fp32", "plan": plan, "optimizer": config.optimizer}
    needed, device = estimate_memory(options.model, options.strategy, **how, **options.strategy_option), probe()
    missing = ""
    if needed.resident > device.free_memory:  # the system would end the process, without a verdict
        missing = f"it needs {in_units(needed.resident)}, {in_units(device.free_memory)} are free on {device.name}"
    elif not presets.fetched_folder(options.model):
        missing = f"{options.model} is not on this machine: `python -m tlkit fetch {options.model}`"
    if missing:
        return [Verdict("can run here", False, f"{missing}; or try the tier with --model tiny")]
    try:
        return train(*settings).data["expected"]
    except (RuntimeError, MemoryError, ArithmeticError) as error:  # the next tier is tried all the same
        return [Verdict("completes", False, " ".join(f"{type(error).__name__}: {error}".split()))]


def audit(options: AuditOptions) -> Outcome:
    table = read_table(options.table)
    result = audit_table(table, options.metric, options.items, name=options.name, percent=options.percent)
    plan, separated = result.plan(), int(result.pairs.separated.sum())
    shown = result.table[["name", "value", "error", "low", "high", "rank"]]
    texts = {column: shown[column].map("{:.6g}".format) for column in ("value", "error", "low", "high")}
    lines = [
        as_columns(shown.assign(**texts)),
        f"\n{separated:,} of {len(result.pairs):,} pairs can be told apart by test sampling alone (5% for all).",
        "A difference of one point in one pair would need:",
        *(f"- {row.needed:,} {row.of} ({row.assumed})" for row in plan.itertuples()),
        "Assumed:",
        *(f"- {line}" for line in ASSUMED),
    ]
    data = {"rows": rows_of(result.table), "pairs": rows_of(result.pairs), "separated": separated}
    return Outcome(data | {"plan": rows_of(plan), "assumptions": ASSUMED}, "\n".join(lines))

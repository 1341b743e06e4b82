"""Commands that measure or judge: compare strategies, validate, audit a published table."""

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tlkit.commands import Outcome, as_columns
from tlkit.commands.models import MODEL
from tlkit.commands.parsing import settings_of
from tlkit.commands.training import train
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.options import option
from tlkit.settings import DATA, setup

if TYPE_CHECKING:
    from tlkit.evidence.expectations import Verdict

TIERS = ("quick", "convergence", "memory", "extended", "full")


@dataclass(frozen=True)
class CompareOptions:
    """What to compare"""

    model: str | None = option(None, MODEL)
    strategies: str | None = option(None, "comma-separated, or classic, peft or all; default: classic")
    profile: str | None = option(None, "ci, real, laptop or gpu: how much data, how many epochs and seeds")
    output: Path = option(
        Path("results"), "the folder for runs, tables and charts; what is finished there is kept", path="new folder"
    )


@dataclass(frozen=True)
class AuditOptions:
    """What to audit"""

    table: Path = option(help="a CSV file with a row for each model or method", positional=True, path="file")
    metric: str = option(help="the column that is compared: shares from 0 to 1")
    items: str = option(help="how many items each row was tested on, such as 1000, or the column that says it")
    name: str | None = option(None, "the column of the rows' names; default: the first")
    percent: bool = option(False, "the shares are percentages, from 0 to 100")
    lower_is_better: bool = option(False, "of the metric")


@dataclass(frozen=True)
class ValidateOptions:
    """Which tiers, and how"""

    tier: str = option(help="quick, convergence, memory, extended, full, or all", positional=True)
    model: str | None = option(None, "in place of the tier's model: tiny runs its logic anywhere")
    output: Path | None = option(
        None, "a folder that keeps what each tier has trained; default: nothing is kept", path="new folder"
    )


def compare(options: CompareOptions, settings: ComparisonSettings) -> Outcome:
    """Train by every strategy with several seeds, and put what each gained and lost into one table.

    Every run is written to OUTPUT as it ends, and the same command goes on from there. Where it is given several times
    at once, also on several machines, they share the runs. Exit 1 when a run failed; the others are in the table all
    the same. A strategy that the model's architecture does not allow is a row with a reason; if named, it is refused.
    """
    from tlkit.evidence.comparison import compare as compare_strategies
    from tlkit.reports.export import brief, export, notes_on, rows_of

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
    """Train by the run file of a validation tier (data/tiers) and judge what the file expects.

    Exit 1 where an expectation does not hold, or where the tier cannot run on this machine.
    """
    setup()
    if options.tier not in (*TIERS, "all"):
        raise ValueError(f"tier {options.tier!r} is unknown: expected one of {', '.join(TIERS)}, or all")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in TIERS if options.tier == "all" else [options.tier]:
            settings = settings_of_tier(name, options.output or Path(folder), options.model)
            verdicts, lines = _validated(name, settings)
            print("\n".join(lines), flush=True)  # as soon as it is known: the next tier may take hours
            rows.append({"tier": name, "model": settings[0].model, "expected": verdicts, "said": lines})
    holds = all(row["expected"] and all(verdict.holds for verdict in row["expected"]) for row in rows)
    return Outcome(rows, "", 0 if holds else 1)


def settings_of_tier(name: str, folder: Path, model: str | None = None) -> list:
    """What `train` is given for a tier.

    Args:
        folder: where a folder for what is trained is made.
        model: in place of the tier's own. Blocks are then no longer than it can read, and for the bundled model the
            learning rate is the one that is recorded for it.
    """
    from tlkit.models import meta_model
    from tlkit.models.parts import longest_input

    given = {"run_file": DATA / "tiers" / f"{name}.yaml", "output": folder / name}
    options, scoring, config, *others = settings_of(train, given | ({"model": model} if model else {}))
    if model:
        length = min(options.sequence_length, longest_input(meta_model(model)) or options.sequence_length)
        options = replace(options, sequence_length=length)
    if model == "tiny":
        config = replace(config, learning_rate=None)
    return [options, scoring, config, *others]


def _validated(name: str, settings: list) -> tuple[list["Verdict"], list[str]]:
    """The verdicts on a tier, none where it cannot run here, and all that is to be said of it."""
    from tlkit.devices import probe
    from tlkit.evidence.expectations import Verdict
    from tlkit.fitting.estimate import estimate_memory
    from tlkit.memory import in_units
    from tlkit.models import fetched_folder

    options, _, config, plan = settings
    shape = {"batch_size": config.batch_size, "sequence_length": options.sequence_length}
    how = shape | {"dtype": options.dtype or "fp32", "plan": plan, "optimizer": config.optimizer}
    estimate = estimate_memory(options.model, options.strategy, **how, **options.strategy_option)
    device = probe()
    lines = [f"{name}: {options.model}, {options.strategy}, on {device.name}", f"estimate: {estimate}"]
    missing = ""
    if estimate.resident > device.free_memory:
        missing = f"it needs {in_units(estimate.resident)} and {in_units(device.free_memory)} are free: a larger device"
    elif not fetched_folder(options.model):
        missing = f"{options.model} is not on this machine: fetch it with `python -m tlkit fetch {options.model}`"
    if missing:
        return [], [*lines, f"[CANNOT RUN HERE] {missing}, or try the tier's logic with --model tiny"]
    try:
        verdicts = train(*settings).data["expected"]
    except (RuntimeError, MemoryError, ArithmeticError) as error:  # the verdict says what happened
        verdicts = [Verdict("completes", False, " ".join(f"{type(error).__name__}: {error}".split()))]
    return verdicts, [*lines, *map(str, verdicts)]


def audit(options: AuditOptions) -> Outcome:
    """Say which rows of a published table can be told apart by the sampling of its test items alone.

    All pairs are compared, with Bonferroni's correction. What is assumed is said; seeds are not in a table.
    """
    from tlkit.evidence.audit import audit as audit_table
    from tlkit.evidence.audit import read_table
    from tlkit.reports.export import rows_of

    result = audit_table(
        read_table(options.table),
        options.metric,
        float(options.items) if options.items.replace(".", "", 1).isdigit() else options.items,
        name=options.name,
        percent=options.percent,
        lower_is_better=options.lower_is_better,
    )
    plan, pairs, separated = result.plan(), len(result.pairs), int(result.pairs.separated.sum())
    shown = result.table[["name", "value", "error", "low", "high", "rank"]]
    texts = {column: shown[column].map("{:.6g}".format) for column in ("value", "error", "low", "high")}
    lines = [as_columns(shown.assign(**texts)), ""]
    lines += [f"{separated:,} of {pairs:,} pairs can be told apart by test sampling alone (5% for all of them)."]
    lines += [
        f"A difference of {plan.difference[0]:.3g} in one pair would need {row.needed:,} {row.of} ({row.assumed})."
        for row in plan.itertuples()
    ]
    lines += ["Assumed:", *(f"- {line}" for line in result.assumptions)]
    data = {"rows": rows_of(result.table), "pairs": rows_of(result.pairs), "separated": separated}
    return Outcome(data | {"plan": rows_of(plan), "assumptions": list(result.assumptions)}, "\n".join(lines))

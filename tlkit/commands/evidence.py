"""Commands that measure or judge: compare strategies, sweep settings, validate, audit a published table."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tlkit.commands.models import MODEL
from tlkit.commands.outcome import Outcome, as_columns, fitted
from tlkit.commands.training import Processes, team_of
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.options import option, same_option

if TYPE_CHECKING:
    import pandas as pd

    from tlkit.evidence.tier_files import Tier
    from tlkit.jobs import Part

MOST_DIGITS = 6  # before or behind a decimal point; beyond, a power of ten is easier to read


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
class SweepOptions:
    """What to sweep"""

    sweep: str = option(help="rates, epochs, passages or general", positional=True)
    model: str | None = option(None, MODEL)
    task: str = same_option(ComparisonSettings, "task", "text")
    corpus: str | None = same_option(ComparisonSettings, "corpus", None)
    learning_rates: str | None = option(None, "of the sweeps that are not about them: as for compare")
    profile: str | None = option(None, "ci, real, laptop or gpu: how much data")
    strategies: str | None = option(
        None, "comma-separated, or classic, peft or all; default: those that the sweep is about"
    )
    plugin: Path | None = same_option(ComparisonSettings, "plugin", None)
    seeds: int = option(2, "runs of each setting", at_least=1, at_most=1000)
    values: str | None = option(
        None, "comma-separated: epochs, numbers of passages, or shares of general text; default: as recorded for tiny"
    )
    steps: int = option(120, "optimizer steps of each run of passages", at_least=1)
    output: Path | None = option(None, "CSV file; a record that is there is gone on with", path="new file")


@dataclass(frozen=True)
class AuditOptions:
    """What to audit"""

    table: Path = option(help="a CSV file with a row for each model or method", positional=True, path="file")
    metric: str = option(help="the column that is compared: shares from 0 to 1, or means")
    items: str = option(help="how many items each row was tested on, such as 1000, or the column that says it")
    name: str | None = option(None, "the column of the rows' names; default: the first")
    deviation: str | None = option(None, "the column of standard deviations over items, where the metric is a mean")
    percent: bool = option(False, "the shares are percentages, from 0 to 100, and so is the difference")
    lower_is_better: bool = option(False, "of the metric")
    difference: float | None = option(
        None,
        "to plan for, in the metric's unit: with --percent 2 is two points, else 0.02; default: one point of shares, "
        "a tenth of the largest deviation of means",
        above=0,
    )
    correlation: float = option(0.0, "of two rows' answers over the items; 0 is cautious", at_least=0, at_most=0.99)


@dataclass(frozen=True)
class ValidateOptions:
    """Which tiers, and how"""

    tier: str = option(help="quick, convergence, memory, extended, full, or all", positional=True)
    model: str | None = option(None, "in the place of the tier's model: tiny runs its logic anywhere")
    check_memory: bool = option(False, "estimate and compare, without training")
    verbose: bool = option(False, "show the loss on the way")
    continue_on_error: bool = option(False, "with all: go on after a tier that fails")


def compare(options: CompareOptions, settings: ComparisonSettings, processes: Processes) -> Outcome:
    """Train by every strategy with several seeds, and put what each gained and lost into one table.

    Every run is written to OUTPUT as it ends, and the same command goes on from there. Exit 1 when a run failed; the
    others are in the table all the same. A strategy that the model's architecture does not allow is a row with a
    reason; where it was named, it is refused.
    """
    from tlkit.evidence.comparison import compare as compare_strategies
    from tlkit.reports.conclusions import conclusions
    from tlkit.reports.export import export
    from tlkit.reports.tables import brief, notes_on, rows_of
    from tlkit.settings import setup

    strategies = options.strategies.split(",") if options.strategies else None
    with team_of(processes) as team:
        first = team.rank == 0
        comparison = compare_strategies(
            options.model,
            strategies,
            profile=setup(options.profile),
            settings=settings,
            output=options.output,
            progress=first,
            team=team,
        )
    code = 1 if comparison.failures else 0
    if team.rank != 0:
        return Outcome(code=code)
    export(comparison, options.output)
    for name, reason in comparison.failures.items():
        print(f"FAILED {name}: {reason.splitlines()[-1]}", file=sys.stderr)
    table, where = comparison.table, f"All columns, runs and charts are in {options.output}"
    said = fitted(str(conclusions(comparison)))
    text = "\n".join([as_columns(brief(table)), *notes_on(table), "", said, "", where])
    return Outcome(rows_of(table), text, code)


def sweep(options: SweepOptions) -> Outcome:
    """Run the same settings for all strategies, judged on validation text.

    Every run is added to OUTPUT when it is done, and what is there already is not run again.
    """
    from tlkit.evidence.sweeps import run_sweep
    from tlkit.reports.tables import rows_of
    from tlkit.settings import setup
    from tlkit.strategies import load_plugin

    if options.plugin:
        load_plugin(options.plugin)
    output = options.output or Path("results") / f"sweep_{options.sweep}.csv"
    record = run_sweep(
        options.sweep,
        output,
        profile=setup(options.profile),
        model=options.model,
        task=options.task,
        corpus=options.corpus,
        learning_rates=options.learning_rates,
        strategies=options.strategies.split(",") if options.strategies else None,
        seeds=options.seeds,
        values=_numbers(options.values),
        steps=options.steps,
        progress=True,
    )
    text = f"{as_columns(_summary(options.sweep, record))}\n{len(record)} rows are in {output}"
    return Outcome(rows_of(record), text)


def _numbers(text: str | None) -> list[float] | None:
    """The numbers of an option, whole ones as such: a trial is known by what it says."""
    if text is None:
        return None
    try:
        return [int(number) if number.is_integer() else number for number in map(float, text.split(","))]
    except ValueError:
        raise ValueError(f"--values {text}: expected numbers, such as 0.5,1,2") from None


def _summary(sweep: str, record: "pd.DataFrame") -> "pd.DataFrame":
    """Of a sweep of rates the best of each strategy, or why it has none; of the others a row for each setting."""
    import pandas as pd

    from tlkit.evidence.learning_rates import best_rates, why_no_rate

    scores = [name for name in ("validation_perplexity", "general_perplexity") if name in record]
    if sweep != "rates":
        setting = {"epochs": "epochs", "passages": "passages", "general": "general_share"}[sweep]
        shown = record.groupby(["strategy", setting], sort=False)[scores].mean().reset_index()
        return shown.rename(columns=lambda name: name.replace("_", " "))
    rates, rows = best_rates(record), []
    for strategy, part in record.groupby("strategy", sort=False):
        row = {"strategy": strategy, "learning rate": "", "rates tried": part.learning_rate.nunique()}
        if (rate := rates.get(strategy)) is None:
            rows.append(row | {"note": why_no_rate(record, strategy)})
            continue
        means = part[part.learning_rate == rate.value][scores].mean()
        row |= {name.replace("_", " "): mean for name, mean in means.items()}
        rows.append(row | {"learning rate": f"{rate.value:g}", "note": "" if rate.tuned else "the edge of those tried"})
    return pd.DataFrame(rows)


def validate(options: ValidateOptions) -> Outcome:
    """Train a validation tier and judge its criteria.

    Exit 1 where one does not hold, or where the tier cannot run on this machine.
    """
    from tlkit.evidence.tier_files import TIER_NAMES, load_tier
    from tlkit.jobs import Job
    from tlkit.settings import setup

    setup()
    names = TIER_NAMES if options.tier == "all" else [options.tier]
    tiers = [load_tier(name, model=options.model) for name in names]
    rows, code = [], 0
    with Job(len(tiers), "tier") as job:
        for tier in tiers:
            with job.part(tier.name) as part:
                verdicts, text = _judge(tier, options, part)
            rows.append({"tier": tier.name, "model": tier.model, "criteria": verdicts, "said": text})
            job.say(fitted(text))  # each tier as soon as it is judged: the next one may take hours
            if not verdicts or not all(verdict["holds"] for verdict in verdicts):
                code = 1
                if not options.continue_on_error:
                    break
    return Outcome(rows, "", code)


def _judge(tier: "Tier", options: ValidateOptions, progress: "Part") -> tuple[list[dict], str]:
    """The verdicts on a tier, none where it cannot run here, and all that is to be said of it."""
    from tlkit.devices import probe
    from tlkit.evidence.tiers import CannotRunHere, estimate_tier, refuse_what_does_not_fit, run_tier
    from tlkit.memory import in_units

    def show(record) -> None:
        progress.step(record.step, tier.steps, f"step {record.step} of {tier.steps}, loss {record.loss:.3f}")
        if options.verbose and (record.step % 10 == 0 or record.step == 1):
            speed = record.tokens / record.seconds
            progress.job.say(f"  step {record.step}: loss {record.loss:.3f}, {speed:,.0f} tokens/s")

    progress.step(0, 0, "estimating its memory")
    device, estimate = probe(), estimate_tier(tier)
    lines = [
        f"{tier.name}: {tier.model}, {tier.strategy}, {tier.steps} steps of {tier.batch_size} x {tier.sequence_length} "
        f"tokens on {device.name}",
        f"estimate: {estimate}",
    ]
    verdicts = []
    try:
        if options.check_memory:
            refuse_what_does_not_fit(tier, estimate, device)
            fits = estimate.peak <= tier.required_memory
            verdicts = [{"criterion": "memory", "holds": fits, "found": str(estimate)}]
            lines.append(f"{in_units(tier.required_memory)} allowed, {in_units(device.free_memory)} free here")
        else:
            found = run_tier(tier, device=device, estimate=estimate, on_step=show)
            lines += [str(verdict) for verdict in found]
            verdicts = [vars(verdict) for verdict in found]
    except CannotRunHere as error:
        lines.append(f"[CANNOT RUN HERE] {error}")
    return verdicts, "\n".join(lines)


def audit(options: AuditOptions) -> Outcome:
    """Say which rows of a published table can be told apart by the sampling of its test items alone.

    All pairs are compared, with Holm's correction. What is assumed is said; seeds are not in a table.
    """
    from tlkit.evidence.audit import audit as audit_table
    from tlkit.evidence.published_tables import read_table
    from tlkit.reports.tables import rows_of

    table = read_table(options.table, {options.metric, options.items, options.deviation})
    found = audit_table(
        table,
        options.metric,
        _number_or_column(options.items),
        name=options.name,
        deviation=options.deviation,
        percent=options.percent,
        lower_is_better=options.lower_is_better,
        correlation=options.correlation,
    )
    plan = found.plan(options.difference)
    shown = found.table[["name", "value", "error", "low", "high", "rank"]]
    form = _form_of(shown.value.abs().max(), shown.error.max() or (shown.high - shown.low).max())
    texts = {column: shown[column].map(form.format) for column in ("value", "error", "low", "high")}
    text = "\n".join([as_columns(shown.assign(**texts)), "", *found.sentences(options.difference)])
    data = {"rows": rows_of(found.table), "pairs": rows_of(found.pairs), "detectable": found.detectable}
    counts = {"separated": found.separated, "undecided": found.undecided, "out_of_reach": found.out_of_reach}
    return Outcome(data | counts | {"plan": rows_of(plan), "assumptions": list(found.assumptions)}, text)


def _number_or_column(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _form_of(largest: float, error: float) -> str:
    """How to print numbers up to `largest`, so that three digits of their error are seen."""
    before, decimals = math.floor(math.log10(max(largest, error))) + 1, 2 - math.floor(math.log10(error))
    if max(before, decimals) > MOST_DIGITS:
        return f"{{:.{min(max(before + decimals, 1), 17)}g}}"
    return f"{{:.{max(0, decimals)}f}}"

"""What a small model says about a large one: the same claims, measured on both, and a verdict on each."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np
import pandas as pd

from tlkit.evidence.answers import accuracy_differences
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL
from tlkit.evidence.statistics import compare_pairs, holm, paired_differences, seed_intervals
from tlkit.settings import DATA

RECORDED = DATA / "comparisons"  # a folder for each model, with some of the files that `compare` writes
STEP_TIMES = "step_times.csv"  # beside them: strategies that took turns, by data/build/record_step_times.py

# What is claimed of a strategy, in the order in which the lessons claim it, as a chart or a table says it.
CLAIMS = {
    "gain": "perplexity on Rust falls by (%)",
    "behind full": "perplexity on Rust, above that of full (%)",
    "behind lora": "perplexity on Rust, above that of lora (%)",
    "forgetting": "perplexity on general text rises by (%)",
    "Rust answers": "Rust questions right, change (points)",
    "general answers": "general questions right, change (points)",
    "time": "time of a step, against full (%)",
    "memory": "peak of memory, against full (%)",
}
MEASURED = ["claim", "strategy", "value", "low", "high"]


@dataclass(frozen=True)
class RecordedComparison:
    """A comparison that comes with the workbook, as `compare` wrote it.

    Attributes:
        table: a row for each strategy.
        runs: a row for each strategy and seed.
        documents: a row for each strategy, seed and test document.
        answers: a row for each strategy, seed and question.
        provenance: what the numbers depend on, a line each.
        written: a row for each strategy, seed and answer in the model's own words; empty for other tasks.
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    documents: pd.DataFrame
    answers: pd.DataFrame
    provenance: tuple[str, ...]
    written: pd.DataFrame


def recorded_comparison(
    model: str, strategies: str = "classic", *, task: str = "text", folder: Path = RECORDED
) -> RecordedComparison:
    """Read the comparison that was recorded for a model.

    Args:
        model: a preset.
        strategies: "classic", those of the published experiment; "all"; "peft", methods of the library peft that are
            not among them; or "in_time", the schedules.
        task: of `TASKS`; each but "text" has one comparison, of the strategies that its lesson is about.
        folder: in which each model has its own folder, and in that another task, and those of other strategies.

    Raises:
        ValueError: where none is recorded for this model, these strategies and this task.
    """
    place = folder / model / ("" if task == "text" else task) / ("" if strategies == "classic" else strategies)
    if not (place / "comparison.csv").is_file():
        if (folder / model / "comparison.csv").is_file():
            asked = f"strategies={strategies!r} and task={task!r}"
            raise ValueError(f"no comparison of {asked} is recorded for {model!r}: expected classic and text")
        known = sorted(path.parent.name for path in folder.glob("*/comparison.csv"))
        raise ValueError(f"no comparison is recorded for {model!r}: expected one of {', '.join(known) or 'none yet'}")
    names = ("comparison", "runs", "documents", "answers")
    tables = [_table(place / f"{name}.csv") for name in names]
    written = _table(place / "written.csv")[0] if (place / "written.csv").is_file() else pd.DataFrame()
    return RecordedComparison(*(table for table, _ in tables), tables[0][1], written)


def _table(path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """A table as `compare` writes it, and the lines of provenance above it."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    comment = list(takewhile(lambda line: line.startswith("# "), lines))
    table = pd.read_csv(io.StringIO("".join(lines[len(comment) :])), keep_default_na=path.stem != "written")
    return table, tuple(line.removeprefix("# - ").rstrip() for line in comment)


def recorded_carry_over(small: str, large: str, folder: Path = RECORDED) -> pd.DataFrame:
    """What carries over from one recorded model to another; see `carry_over`.

    Time is that of steps which took turns, recorded by themselves: the runs of a comparison last so long that the
    machine may be slower in the last than in the first. Nothing is said of it where one of them has no such record.

    Args:
        small: a preset for which a comparison is recorded.
        large: another one.
        folder: as for `recorded_comparison`.

    Raises:
        ValueError: where one of them is not recorded.
    """
    measured = {}
    for name in (small, large):
        found = recorded_comparison(name, folder=folder)
        path = folder / name / STEP_TIMES
        times = _table(path)[0] if path.is_file() else None
        measured[name] = measure_claims(found.runs, found.documents, found.answers, times)
    return carry_over(measured)


def measure_claims(
    runs: pd.DataFrame, documents: pd.DataFrame, answers: pd.DataFrame, times: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Measure every claim about every strategy in one comparison, beside full fine-tuning.

    Gain and distance from full fine-tuning have intervals over documents and seeds (`compare_pairs`, here for one pair
    at a time); answers over questions and seeds; forgetting and memory over seeds alone; time over turns.

    Args:
        runs: of a comparison, with three seeds or more and `full` among the strategies.
        documents: of the same comparison.
        answers: of the same comparison; may be empty.
        times: a row for each strategy and turn, with the seconds of a step; None: nothing is said of time.

    Returns:
        Columns claim, strategy, value, low, high, in percent. A positive value says that the claim, as `CLAIMS` words
        it, holds.

    Raises:
        ValueError: where `full` or the untouched model is missing.
    """
    names = [name for name in dict.fromkeys(runs.strategy) if name not in (ZERO_SHOT, CONTROL)]
    if missing := {"full", ZERO_SHOT} - set(runs.strategy):
        raise ValueError(f"claims are about full fine-tuning and the untouched model: {missing.pop()} has no runs")
    others = [name for name in names if name != "full"]
    trained = runs[runs.strategy.isin(names)]
    found = [
        *_ratios("gain", ZERO_SHOT, names, documents),
        *_ratios("behind full", "full", others, documents),
        *_forgetting(runs, names),
    ]
    for asked in dict.fromkeys(answers.questions) if len(answers) else ():
        claim = {"rust": "Rust answers", "general": "general answers"}[asked]
        changes = accuracy_differences(answers[answers.questions == asked], ZERO_SHOT).set_index("strategy")
        found += [(claim, name, *changes.loc[name, ["difference", "low", "high"]]) for name in names]
    costs = {} if times is None else {"time": times[["strategy", "turn", "seconds"]]}
    for claim, table in (costs | {"memory": trained[["strategy", "seed", "peak_memory_mb"]]}).items():
        logs = table.set_axis(["strategy", "seed", "cost"], axis=1).assign(log=lambda rows: np.log(rows.cost))
        differences = np.expm1(paired_differences(logs, "full", "log")[["mean", "low", "high"]])
        found += [(claim, name, *differences.loc[name]) for name in others]
    return _in_percent(found)


def measure_relatives(runs: pd.DataFrame, documents: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Measure how far some strategies end above LoRA, and what they and LoRA forget.

    Args:
        runs: of one comparison, or of several with the same model, text, documents and seeds, LoRA's among them.
        documents: of the same.
        names: of the strategies.

    Returns:
        As `measure_claims`, the claims "behind lora" and "forgetting". Each interval is that of its own strategy alone,
        not corrected for their number.

    Raises:
        ValueError: where one of the names, or LoRA, has no runs.
    """
    names = [name for name in names if name != "lora"]
    if missing := [name for name in ["lora", *names] if name not in set(runs.strategy)]:
        raise ValueError(f"relatives of LoRA are measured beside it: {', '.join(missing)} has no runs")
    return _in_percent([*_ratios("behind lora", "lora", names, documents), *_forgetting(runs, ["lora", *names])])


def carry_over(measured: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Lay the same claims about two models side by side.

    Args:
        measured: by the name of each model, the small one first, what `measure_claims` returned.

    Returns:
        A row for each claim and strategy that both have, with value, low and high of each model, and the verdict.

    Raises:
        ValueError: where there are not two models.
    """
    if len(measured) != 2:
        raise ValueError(f"{len(measured)} models: expected two, the small one first")
    (small, one), (large, other) = measured.items()
    keys = ["claim", "strategy"]
    table = one.merge(other, on=keys, suffixes=(f", {small}", f", {large}"))
    ends = [[(row[f"low, {name}"], row[f"high, {name}"]) for name in measured] for _, row in table.iterrows()]
    return table.assign(verdict=[verdict(*pair, small, large) for pair in ends])


def verdict(one: tuple[float, float], other: tuple[float, float], small: str, large: str) -> str:
    """Say whether what one model shows is true of the other.

    Args:
        one: the interval of the small model, low and high end.
        other: that of the large one.
        small: name of the small model.
        large: name of the large one.

    Returns:
        "same" where both intervals exclude zero on the same side and overlap; otherwise what differs.
    """
    signs = [_sign(*one), _sign(*other)]
    if 0 in signs:
        shown = [name for name, sign in zip((small, large), signs, strict=True) if sign]
        return f"only on {shown[0]}" if shown else "open on both"
    if signs[0] != signs[1]:
        return "opposite"
    if one[0] <= other[1] and other[0] <= one[1]:
        return "same"
    stronger = small if signs[0] * (one[0] - other[0]) > 0 else large
    return f"same direction, stronger on {stronger}"


def relative_perplexities(documents: pd.DataFrame, start: str, names: Iterable[str]) -> pd.DataFrame:
    """How far each strategy's perplexity lies from another's, as a share of it.

    Args:
        documents: of a comparison.
        start: the other strategy, or the untouched model. That has one run, which stands beside every seed: nothing in
            it was left to chance.
        names: of the strategies.

    Returns:
        By strategy the columns value, low, high, negative where the strategy's perplexity is lower, each of one pair
        by itself; and p, corrected for the number of strategies by Holm.
    """
    scores = documents[documents.strategy != CONTROL]
    untouched = scores[scores.strategy == ZERO_SHOT]
    repeated = [untouched.assign(seed=seed) for seed in scores[scores.strategy != ZERO_SHOT].seed.unique()]
    scores = pd.concat([scores[scores.strategy != ZERO_SHOT], *repeated])
    means = scores.groupby("strategy")[["nats", "tokens"]].sum()
    perplexity = np.exp(means.nats / means.tokens)
    rows = {}
    for name in names:
        pair = compare_pairs(scores[scores.strategy.isin([name, start])]).iloc[0]
        ends = pair[["difference", "low", "high"]].to_numpy(float)
        if pair["first"] == start:
            ends = -ends[[0, 2, 1]]
        # A difference of two perplexities with this geometric mean, as the logarithm of their ratio.
        logs = 2 * np.arcsinh(ends / (2 * np.sqrt(perplexity[name] * perplexity[start])))
        rows[name] = [*np.expm1(logs), pair.p]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high", "p"], dtype=float)
    return table.assign(p=holm(table.p.to_numpy()))


def _ratios(claim: str, start: str, names: list[str], documents: pd.DataFrame) -> list[tuple]:
    shares = relative_perplexities(documents, start, names)[["value", "low", "high"]]
    return [
        (claim, name, *(-shares.loc[name].to_numpy()[[0, 2, 1]] if claim == "gain" else shares.loc[name]))
        for name in names
    ]


def _forgetting(runs: pd.DataFrame, names: list[str]) -> list[tuple]:
    intervals = seed_intervals(runs.assign(change=runs.general / runs.general_before - 1), "change")
    return [("forgetting", name, *intervals.loc[name, ["mean", "low", "high"]]) for name in names]


def _in_percent(found: list[tuple]) -> pd.DataFrame:
    table = pd.DataFrame(found, columns=MEASURED)
    table[["value", "low", "high"]] *= 100
    return table


def _sign(low: float, high: float) -> int:
    """1 or -1 where an interval excludes zero, else 0; also where there is none."""
    return int(low > 0) - int(high < 0)

"""The six questions of the autopsy, put to a study by its own record."""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from tlkit.classroom.study.record import Study, StudyRun
from tlkit.evaluation import first_loss_warning
from tlkit.evidence.flops import StepFlops, speedup_warning
from tlkit.memory import in_units


@dataclass(frozen=True)
class Asked:
    """One of the six questions, the answer in words, and whether that is satisfactory."""

    number: int
    question: str
    passed: bool
    answer: str


def six_questions(study: Study) -> list[Asked]:
    """Answer the six questions of lesson 15 from a record.

    Args:
        study: the record.
    """
    answers = (_first_loss, _baseline, _trained, _counts, _spread, _costs)
    asked = (
        "Does the first training loss agree with the baseline?",
        "Is the baseline below the vocabulary's size, and the same in every run?",
        "What exactly was trained, in values, block by block?",
        "Do the values add up to the parts that are named?",
        "How many tokens, how many seeds, what spread?",
        "How much compute and memory traffic is saved, and did every run fit?",
    )
    return [
        Asked(number, question, *answer(study))
        for number, (question, answer) in enumerate(zip(asked, answers, strict=True), 1)
    ]


def _strategies(study: Study) -> list[StudyRun]:
    return [run for run in study.runs if run.strategy in study.plan.strategies]


def _first_loss(study: Study) -> tuple[bool, str]:
    runs = [run for run in _strategies(study) if run.first_loss is not None]
    if not runs:
        return False, "No first training loss is recorded."
    before = study.baseline.nats_per_token
    furthest = max(runs, key=lambda run: abs(run.first_loss - before))
    warning = first_loss_warning(furthest.first_loss, before)
    said = f"{furthest.strategy}, seed {furthest.seed}: {furthest.first_loss:.2f} nats a token against {before:.2f}"
    return warning is None, f"{said}, the furthest of {len(runs)} runs." if warning is None else f"{warning}."


def _baseline(study: Study) -> tuple[bool, str]:
    before, size = study.baseline.perplexity, study.baseline.vocabulary
    same = study.provenance.get("weights_sha256") == study.baseline.weights_sha256
    weights = "the same weights in both scores" if same else "other weights in the comparison than in the baseline"
    return before < size and same, f"Perplexity {before:,.1f} of {size:,} tokens; {weights}."


def _trained(study: Study) -> tuple[bool, str]:
    found = {one.strategy: one for one in study.trained}
    if missing := [name for name in study.plan.strategies if name not in found]:
        return False, f"Nothing says what {missing[0]} trains."
    parts = [
        f"{name}: {one.trainable_values:,} values in {_parts(one.components)}"
        + (f" ({_shortly(one.doubts[0])})" if one.doubts else "")
        for name, one in found.items()
    ]
    return True, "; ".join(parts) + "."


def _counts(study: Study) -> tuple[bool, str]:
    counted = {run.strategy: run.trainable_values for run in _strategies(study)}
    for one in study.trained:
        parts = sum(one.components.values())
        if one.trainable_values != parts or counted.get(one.strategy, parts) != parts:
            return False, (
                f"{one.strategy}: its parts add up to {parts:,} values, and {counted.get(one.strategy, 0):,} were "
                "trained."
            )
    return True, "They do, for every strategy."


def _spread(study: Study) -> tuple[bool, str]:
    tokens, documents = sum(study.document_tokens), len(study.document_tokens)
    seeds = [sum(run.strategy == name for run in study.runs) for name in study.plan.strategies]
    pairs = study.compared.dropna(subset="p") if min(seeds, default=0) else study.compared[:0]
    spread = "an interval for each difference" if len(pairs) else "no interval for any difference"
    said = f"{tokens:,} tokens of {documents} documents, {min(seeds, default=0)} seeds of each strategy, {spread}."
    return len(pairs) > 0, said


def _costs(study: Study) -> tuple[bool, str]:
    """Seconds of runs that took as many steps, held against the arithmetic; and every peak against the card."""
    over = [run for run in _strategies(study) if run.peak_mb is not None and run.peak_mb > study.plan.card_mb]
    if over:
        return (
            False,
            f"{over[0].strategy} took {in_units(1e6 * over[0].peak_mb)} of {in_units(1e6 * study.plan.card_mb)}.",
        )
    seconds = {
        name: float(np.median([run.seconds for run in _strategies(study) if run.strategy == name] or [math.nan]))
        for name in study.plan.strategies
    }
    flops = {one.strategy: one.flops for one in study.trained if one.flops}
    known = [name for name in study.plan.strategies if flops.get(name) and seconds[name] > 0]
    most = max((flops[name] for name in known), default=1)
    told = [f"{name} {flops[name] / most:.0%} and {seconds[name]:.2g} s" for name in known]
    said = "Every run fitted the card."
    said += f" Arithmetic of a step, and seconds of a run: {', '.join(told)}." if told else ""
    if any(_too_fast(seconds, flops, *pair) for pair in permutations(known, 2)):
        # Seconds of one machine prove no fault, so this is said and left to the reader.
        said += (
            " The seconds do not follow the arithmetic. On a small model the extra operations of adapters may cost "
            "more than they save; a shared machine or short memory is possible, too."
        )
    return True, said


def _too_fast(seconds: dict[str, float], flops: dict[str, float], slow: str, fast: str) -> bool:
    claimed = seconds[slow] / seconds[fast]
    return speedup_warning(claimed, *(StepFlops(0, int(flops[name])) for name in (slow, fast))) is not None


def _parts(components: dict[str, int]) -> str:
    """The names of components, with blocks that follow each other as a range."""
    blocks = [int(name.removeprefix("block ")) for name in components if name.startswith("block ")]
    whole = len(blocks) > 2 and blocks == list(range(blocks[0], blocks[-1] + 1))
    named = [f"blocks {blocks[0]} to {blocks[-1]}"] if whole else [f"block {number}" for number in blocks]
    return ", ".join([*(name for name in components if not name.startswith("block ")), *named])


def _shortly(doubt: str) -> str:
    return doubt.split(". ")[0].rstrip(".")

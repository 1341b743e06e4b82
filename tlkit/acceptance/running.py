"""Make every check, whatever becomes of the others, and write down what was found after each."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from tlkit.acceptance import company, fitting, learning
from tlkit.acceptance.bench import Bench, Check
from tlkit.acceptance.counters import give_back
from tlkit.acceptance.record import Record, describe_device, today, versions_here, write_record
from tlkit.fitting.out_of_memory import let_go
from tlkit.jobs import Job
from tlkit.strategies import strategies_named

TRAINING = "training: "
CHECKS: dict[str, Callable[[Bench], Check]] = {
    "arithmetic": learning.arithmetic,
    **{f"{TRAINING}{name}": partial(learning.training, strategy=name) for name in strategies_named(["all"])},
    "bf16": learning.bf16,
    "4-bit weights": learning.four_bits,
    "frozen prefix": learning.frozen_prefix,
    "checkpoints": learning.checkpoints,
    "generation": learning.generation,
    "estimate of tensors": fitting.estimate_of_tensors,
    "estimate of device": fitting.estimate_of_device,
    "offloading": fitting.offloading,
    "out of memory": fitting.out_of_memory,
    "two processes": company.two_processes,
    "beside the Trainer": company.beside_trainer,
}
# Under a minute: the arithmetic, what most lessons train, and what has to hold for a long run.
SHORT = ("arithmetic", "training: full", "training: lora", "checkpoints", "generation", "out of memory")


def checks_named(words: str | None) -> dict[str, Callable[[Bench], Check]]:
    """The checks to make.

    Args:
        words: names separated by commas, "training" for all of the strategies; None for every check.

    Raises:
        ValueError: for a name that no check has.
    """
    if words is None:
        return CHECKS
    chosen = []
    for word in (word.strip() for word in words.split(",")):
        names = [name for name in CHECKS if word in (name, name.partition(":")[0])]
        if not names:
            known = [name for name in CHECKS if not name.startswith(TRAINING)]
            raise ValueError(f"check {word!r} is unknown: expected some of training, {', '.join(known)}")
        chosen += names
    return {name: CHECKS[name] for name in CHECKS if name in chosen}


def accept(
    bench: Bench,
    checks: Mapping[str, Callable[[Bench], Check]] | None = None,
    *,
    output: Path | None = None,
    command: str = "",
    shown: bool = True,
    rows_shown: bool = False,
) -> Record:
    """Make checks on one device. One that fails or breaks off is a row, and the others go on.

    Args:
        bench: from `bench_for`.
        checks: of `CHECKS`, by default all.
        output: the folder for the record; it is written before and after each check, so that one which takes the
            process down with it is named there as running.
        command: that repeats this run, for the record.
        shown: whether to show which check is running.
        rows_shown: whether to print what each has found.

    Returns:
        What was found.
    """
    checks = CHECKS if checks is None else checks
    record = Record(describe_device(bench.device), versions_here(), today(), command, False, ())

    def note(rows: tuple[Check, ...], complete: bool = False) -> Record:
        found = replace(record, checks=rows, complete=complete)
        if output is not None:
            write_record(found, output)
        return found

    rows = ()
    with Job(len(checks), "check", shown=shown) as job:
        for name, check in checks.items():
            note((*rows, Check(name)))
            with job.part(name):
                rows = (*rows, _made(name, check, bench))
            note(rows)
            if rows_shown:
                job.say(str(rows[-1]))
    return note(rows, complete=True)


def _made(name: str, check: Callable[[Bench], Check], bench: Bench) -> Check:
    """Make one check; whatever breaks off in it is what it found, and the next one goes on."""
    begun = time.perf_counter()
    try:
        with _as_before():
            found = check(bench)
    except Exception as error:
        found = Check(status="failed", reason=_in_words(error))
        let_go(error)
    try:
        give_back("cpu" if bench.is_virtual else bench.device.kind)
    except Exception as error:  # of a driver that is lost, and with it the checks to come; each says so
        found = replace(found, status="failed", reason=f"{found.reason} Then: {_in_words(error)}".strip())
    return replace(found, name=name, seconds=time.perf_counter() - begun)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no reason given'}"


@contextmanager
def _as_before() -> Iterator[None]:
    """Inside, fp32 is fp32; afterwards that setting and the processor's random numbers are as they were."""
    precision, numbers = torch.get_float32_matmul_precision(), torch.get_rng_state()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_rng_state(numbers)

"""The lines of a lab notebook as they are kept, and as a handed-in notebook has stored them."""

import math
import os
from collections.abc import Iterable
from dataclasses import replace

from tlkit.classroom.exercises import Wrong
from tlkit.classroom.lab.experiments import Experiment, Run, find_experiment
from tlkit.classroom.lab.method import SAME_VALUE, judge

DECISION = "application/vnd.tlkit.decision+json"  # the type of what a notebook stores beside a verdict


def runs_of(experiment: Experiment, lines: Iterable[dict]) -> list[Run]:
    """Read the lines of a lab notebook; what another release has written is passed over.

    Args:
        experiment: whose control says what a line does not.
        lines: as `LabNotebook` writes them.
    """
    found: list[Run] = []
    for line in lines:
        if "strike" in line:
            found = [replace(run, struck=str(line["why"])) if run.number == line["strike"] else run for run in found]
        elif isinstance(line.get("settings"), dict) and isinstance(line.get("metrics"), dict):
            settings, split, setup = experiment.control | line["settings"], line.get("split", ""), line.get("setup", "")
            found.append(Run(len(found) + 1, settings, line.get("pair"), split, line["metrics"], setup))
    return found


def judged_again(outputs: Iterable[dict]) -> dict[str, tuple[bool, str]]:
    """Judge the decisions that a handed-in notebook has stored, from the runs that are stored with them.

    Args:
        outputs: of all its cells, as the notebook's file has them.

    Returns:
        From the name of each experiment to whether the method supports its last decision, and if not, why.
    """
    found = {}
    for output in outputs:
        record = (output.get("data") or {}).get(DECISION) if isinstance(output, dict) else None
        if not isinstance(record, dict):
            continue
        try:
            one = find_experiment(record["name"])
            own = tuple(name for name in record["control"] if name not in one.control)
            one = replace(one, control=one.control | record["control"], may_change=one.may_change + own)
            judge(one, runs_of(one, record["runs"]), record["decision"], record["changed"])
            found[one.name] = True, ""
        except Wrong as wrong:
            found[one.name] = False, f"{str(wrong).rstrip('.')}."
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # edited by hand
            found[str(record.get("name"))] = False, "its stored decision cannot be read"
    return found


def same_run(experiment: Experiment, one: Run, other: Run) -> bool:
    """Whether a run is in the notebook already: the same settings and seed, and the same result."""
    if (one.settings, one.pair, one.split, one.setup) != (other.settings, other.pair, other.split, other.setup):
        return False
    values = [(one.metrics.get(name), other.metrics.get(name)) for name in experiment.metrics]
    return all(a == b or (None not in (a, b) and math.isclose(a, b, rel_tol=SAME_VALUE)) for a, b in values)


def setup_here() -> str:
    """What all runs of a session share, and what another session may have otherwise."""
    model = os.environ.get("TLKIT_MODEL")
    return f"profile {os.environ.get('TLKIT_PROFILE') or 'ci'}" + (f" and model {model}" if model else "")

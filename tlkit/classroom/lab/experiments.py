"""Experiments: what a lesson asks its reader to find out, and the runs that they log for it. `method` judges them."""

import importlib
import importlib.util
import re
from dataclasses import dataclass, field
from functools import cache

BETTER, WORSE, UNKNOWN, SAME = "better", "worse", "cannot tell", "does not matter"  # what a decision may claim
Setting = str | bool | int | float | None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is to be found out, and what its method has to keep to.

    Args:
        name: such as "e05".
        question: in one line, as students read it.
        control: every setting of the control run with its value, what must stay the same included.
        may_change: the settings that may be changed, one at a time; the others are data and budget, and stay.
        metrics: what a run logs; the first one decides, the others are shown beside it.
        better: "lower" or "higher", of the metric that decides.
        decisions: from each decision, as students write it, to what it claims of the changed runs against the control:
            `BETTER`, `WORSE`, `UNKNOWN` or `SAME`. Whatever the runs show, one of them has to be right.
        seeds: the fewest pairs of runs that a decision takes; 1 where nothing is left to chance, as in a count.
        pair: what pairs the runs of two settings: "seed", or what else is repeated, such as "draw".
        split: that runs are scored on; empty where no text is scored.
        matters: the smallest difference that matters, for decisions that claim `SAME`.
        most: the most pairs that anyone is sent to run, such as the number of passages there are.
        limits: values that honest runs may share to the last digit, such as 100 percent.
        keep: from a further metric to the highest mean of the changed runs with which a decision may claim `BETTER`,
            so that a model that has learned nothing does not win by having changed nothing.

    Raises:
        ValueError: for a declaration that its judge could not work with.
    """

    name: str
    question: str
    control: dict[str, Setting]
    may_change: tuple[str, ...]
    metrics: tuple[str, ...]
    better: str
    decisions: dict[str, str]
    seeds: int = 3
    pair: str = "seed"
    split: str = "validation"
    matters: float = 0.0
    most: int = 30
    limits: tuple[float, ...] = ()
    keep: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = (BETTER, WORSE, UNKNOWN, SAME)
        needed = {BETTER, WORSE} | ({UNKNOWN} if self.seeds > 1 else set())
        for name, wrong, expected in (
            (
                "may_change",
                [one for one in self.may_change if one not in self.control] or not self.may_change,
                "settings of the control",
            ),
            ("metrics", not self.metrics or isinstance(self.metrics, str), "one name or more, in a tuple"),
            ("better", self.better not in ("lower", "higher"), "'lower' or 'higher'"),
            ("decisions", not set(self.decisions.values()) <= {*known}, f"claims out of {', '.join(map(repr, known))}"),
            (
                "decisions",
                not needed <= set(self.decisions.values()),
                f"one for each result, {', '.join(map(repr, sorted(needed)))} among them",
            ),
            ("seeds", self.seeds < 1, "1 or more"),
            ("most", self.most < self.seeds, f"{self.seeds} or more, because a decision takes as many"),
            ("keep", not set(self.keep) <= set(self.metrics[1:]), "metrics behind the first one"),
            (
                "matters",
                SAME in self.decisions.values() and self.seeds > 1 and not self.matters > 0,
                "more than 0, because a decision says that it does not matter",
            ),
        ):
            if wrong:
                raise ValueError(f"{self.name}: {name}={getattr(self, name)!r}: expected {expected}")


@dataclass(frozen=True)
class Run:
    """One run of a lab notebook.

    Args:
        number: its place in the notebook, from 1; it never changes.
        settings: all of them, with their values.
        pair: its seed, or what else pairs the runs.
        split: that it was scored on; empty where no text is scored.
        metrics: what was measured; None for what is not a finite number, as in a run that diverged.
        setup: what else it depends on, such as the profile.
        struck: why it does not count; empty where it does.
    """

    number: int
    settings: dict[str, Setting]
    pair: Setting
    split: str
    metrics: dict[str, float | None]
    setup: str = ""
    struck: str = ""


def find_experiment(name: object) -> Experiment:
    """Find an experiment by its name.

    Raises:
        ValueError: for an unknown name; the message lists those of the same lesson.
    """
    lesson = re.fullmatch(r"e(\d\d)(?:_\d+)?", name) if isinstance(name, str) else None
    found = experiments_of(lesson[1]) if lesson else {}
    if lesson is None or name not in found:
        there = ", ".join(found) or 'names such as "e05"'
        raise ValueError(f"experiment {name!r:.40} is unknown: expected {there}")
    return found[name]


@cache
def experiments_of(lesson: str) -> dict[str, Experiment]:
    """Load the experiments of a lesson ("03"), by name; none where there is no such lesson."""
    module = f"tlkit.classroom.checks.lesson{lesson}"
    if importlib.util.find_spec(module) is None:
        return {}
    return {one.name: one for one in getattr(importlib.import_module(module), "EXPERIMENTS", ())}


def written(experiment: Experiment, settings: dict[str, Setting]) -> str:
    """Write settings by what differs from the control: "rate=0.002"; "control" where nothing does."""
    other = {name: value for name, value in settings.items() if experiment.control.get(name) != value}
    return as_code(other) if other else "control"


def as_code(settings: dict[str, Setting]) -> str:
    """Write settings as they stand in a call."""
    shown = {name: f"{value:g}" if type(value) is float else repr(value) for name, value in settings.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def amount(value: float) -> str:
    """Write a measured number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def signed(value: float) -> str:
    """Write a difference with its sign."""
    return amount(value) if value <= 0 else f"+{amount(value)}"

"""What was tried when memory was short, and how each try ended."""

import math
from dataclasses import dataclass, field, replace

import pandas as pd

from tlkit.devices import Device
from tlkit.fitting.ladder import Rung
from tlkit.fitting.out_of_memory import Failure
from tlkit.memory import VirtualDevice, in_units
from tlkit.names import HOST


@dataclass(frozen=True)
class Attempt:
    """One try: what was done where, or where it failed and what for.

    Attributes:
        action: "estimate", "loading", "training", "validation", or what else was tried.
        device: where.
        rung: how, a name of `LADDER` or "as planned".
        first_step: the first optimizer step of this try, from 1.
        steps_done: how many it finished.
        failed_in: the part that failed; empty where none did.
        bytes_asked: of the allocation that failed, NaN where unknown.
        bytes_available: that were free then, NaN where unknown.
        peak: most bytes held on the device, NaN where unknown.
        seconds: that its steps took.
        changes_numerics: True where its result is not that of the plan asked for, beyond the order of additions.
        error: what was said when it failed.
        note: what else there is to know about the rung.
    """

    action: str
    device: str
    rung: str
    first_step: int = 0
    steps_done: int = 0
    failed_in: str = ""
    bytes_asked: float = math.nan
    bytes_available: float = math.nan
    peak: float = math.nan
    seconds: float = math.nan
    changes_numerics: bool = False
    error: str = ""
    note: str = ""


@dataclass
class FallbackLog:
    """Every attempt, in order."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each attempt, a column for each of its attributes."""
        return pd.DataFrame([vars(attempt) for attempt in self.attempts], columns=list(Attempt.__dataclass_fields__))

    def last(self, action: str) -> Attempt:
        """The latest attempt at `action`; there is one."""
        return [attempt for attempt in self.attempts if attempt.action == action][-1]

    def tried(
        self, action: str, device: Device | VirtualDevice, rung: Rung, failure: Failure | None = None, **more: float
    ) -> None:
        """Add what was tried in earnest.

        Args:
            action: what was done.
            device: where, unless the rung says the host.
            rung: how.
            failure: what it ran out of memory for, None where it did not.
            more: other attributes of the attempt.
        """
        where = HOST if rung.plan.train_on_host or rung.name == "on the host" else device.name
        row = Attempt(action, where, rung.name, changes_numerics=rung.changes_numerics, note=rung.note)
        if failure is not None:
            sizes = {"bytes_asked": failure.bytes_asked, "bytes_available": failure.bytes_available}
            row = replace(row, failed_in=failure.failed_in, error=failure.message, **sizes)
        self.attempts.append(replace(row, **more))

    def foreseen(self, rung: Rung, device: Device | VirtualDevice, available: int) -> None:
        """Add a rung that was not tried, because its estimate is above the `available` bytes."""
        needs = f"needs {in_units(rung.estimate)}, {in_units(available)} are there"
        failure = Failure("not tried", rung.estimate, available, needs)
        self.tried("estimate", device, rung, failure)

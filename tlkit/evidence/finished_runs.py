"""A folder of finished runs, a file each."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from filelock import Timeout

from tlkit.files import held, write_text_atomically
from tlkit.jobs import Job

PAUSE = 1.0  # seconds, before other processes' runs are looked for


@dataclass(frozen=True)
class FinishedRuns:
    """The folder `runs` below an output folder; its outcomes are used again for equal settings and strategies."""

    output: Path
    settings: dict[str, object]
    digests: dict[str, str | None] = field(default_factory=dict)  # SHA-256 of strategies that are not tlkit's

    @property
    def folder(self) -> Path:
        return self.output / "runs"

    def read(self) -> dict[str, dict]:
        """The outcomes that are here; ValueError for those of other settings or strategies."""
        outcomes = {}
        for path in sorted(self.folder.glob("*.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                before, outcome = dict(content["settings"]), dict(content["outcome"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path} is damaged: remove it") from None
            digest = self.digests.get(outcome.get("strategy"), before.get("strategy_sha256"))
            here = self.settings | {"strategy_sha256": digest}
            if keys := [key for key in before | here if before.get(key) != here.get(key)]:
                differences = [f"{key} was {before.get(key)} and is now {here.get(key)}" for key in keys]
                raise ValueError(f"{path}: {'; '.join(differences)}: name another output folder")
            outcomes[path.stem] = outcome
        return outcomes

    @contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """Whether a run is this process' to carry out; a claim ends with its process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(held(self.folder / f"{name}.lock"))
                ours = not (self.folder / f"{name}.json").exists()
            except Timeout:
                ours = False
            yield ours

    def keep(self, name: str, outcome: dict) -> None:
        """Write the outcome of a run, unless it failed and is to be tried again."""
        if outcome.get("failure") or outcome.get("error"):
            return
        digest = self.digests.get(outcome.get("strategy"))
        settings = self.settings | ({"strategy_sha256": digest} if digest else {})
        text = json.dumps({"settings": settings, "outcome": outcome}, indent=1)
        write_text_atomically(self.folder / f"{name}.json", text)


def run_all(runs: dict[str, Callable[[Job], dict]], job: Job, kept: FinishedRuns | None = None) -> dict[str, dict]:
    """Carry out all runs that are not finished, one after the other.

    Processes, also of several machines, may share one folder: each takes the next run that nobody has begun, and waits
    at the end for those of others.

    Args:
        runs: by name; each returns values that JSON can hold.
    """
    outcomes: dict[str, dict] = {}
    while True:
        outcomes = (kept.read() if kept else {}) | outcomes
        missing = [name for name in runs if name not in outcomes]
        if not missing:
            return {name: outcomes[name] for name in runs}
        begun = len(outcomes)
        for name in missing:
            with kept.claimed(name) if kept else nullcontext(True) as ours:
                if ours:
                    with job.stage(name) as stage:
                        outcomes[name] = runs[name](stage)
                    if kept:
                        kept.keep(name, outcomes[name])
        if len(outcomes) == begun:
            time.sleep(PAUSE)

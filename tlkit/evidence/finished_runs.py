"""A folder of finished runs: a file each, written when the run ends, so that whatever comes later cannot lose it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tlkit.checkpoints import hold_folder, write_text_atomically


@dataclass(frozen=True)
class FinishedRuns:
    """The folder `runs` below an output folder, and what alone lets its outcomes be used again.

    Attributes:
        output: the folder above it.
        settings: of all runs.
        texts: of each strategy that is run, the SHA-256 of its text where it is a reader's own, and None where it is
            ours. Each run keeps that of its own strategy, so that others can come to it and change.
    """

    output: Path
    settings: dict[str, object]
    texts: dict[str, str | None] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.output / "runs"

    def read(self) -> dict[str, dict]:
        """Find the outcomes that are here already.

        Raises:
            ValueError: where a run had other settings, naming each difference, where its strategy had another text, or
                where a file is damaged.
            OSError: where a file cannot be read.
        """
        outcomes = {}
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else ():
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                name, settings, outcome = content["run"], dict(content["settings"]), dict(content["outcome"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path} is damaged: remove it, and that run will be done again") from None
            text, strategy = settings.pop("strategy_sha256", None), outcome.get("strategy")
            if differences := _differences(settings, self.settings):
                raise ValueError(
                    f"{self.folder} holds runs with other settings: {'; '.join(differences)}. Name another output "
                    "folder, or choose the settings of before to go on with them"
                )
            if strategy in self.texts and text != self.texts[strategy]:
                raise ValueError(
                    f"{self.folder}: strategy {strategy!r} has another text than when it was run. Name another output "
                    "folder, or choose the text of before to go on with it"
                )
            outcomes[name] = outcome
        return outcomes

    def keep(self, name: str, outcome: dict) -> None:
        """Write the outcome of a run that has ended, whole or not at all.

        Raises:
            OSError: where it cannot be written; everything that was kept before is still there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        digest = self.texts.get(outcome.get("strategy"))
        settings = self.settings | ({"strategy_sha256": digest} if digest else {})
        text = json.dumps({"run": name, "settings": settings, "outcome": outcome}, indent=1)
        write_text_atomically(self.folder / f"{name}.json", text)


@contextmanager
def hold_output(folder: Path) -> Iterator[None]:
    """Hold an output folder while runs go into it; where nothing came of them, no new folder is left behind.

    Args:
        folder: is made where there is none.

    Raises:
        CheckpointError: where it cannot be written, or another run holds it.
    """
    new = not folder.exists()
    try:
        with hold_folder(folder):
            yield
    finally:
        if new:
            with suppress(OSError):  # it is not empty: runs came of it
                folder.rmdir()


def _differences(before: dict[str, object], now: dict[str, object]) -> list[str]:
    return [
        f"{key} was {_short(before.get(key))} and is now {_short(now.get(key))}"
        for key in {**before, **now}
        if before.get(key) != now.get(key)
    ]


def _short(value: object) -> str:
    """A hash is told from another by its beginning."""
    return f"{value[:12]}…" if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else str(value)

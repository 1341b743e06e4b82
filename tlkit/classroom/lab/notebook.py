"""The lab notebook: a student's runs, kept with their progress, as a table and a chart that grow with each run."""

import difflib
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pandas as pd

from tlkit.classroom import cards
from tlkit.classroom.exercises import Verdict, Words, Wrong, kind
from tlkit.classroom.lab import page
from tlkit.classroom.lab.experiments import Experiment, Run, find_experiment, written
from tlkit.classroom.lab.method import judge
from tlkit.classroom.lab.records import DECISION, runs_of, same_run, setup_here
from tlkit.classroom.lab.values import accepted, as_metric, as_setting, each_of, names_read
from tlkit.classroom.progress import keep, keep_run, kept_runs

SPLITS = ("train", "validation", "test")
SOUND = cards.Look("✓", "supported", "#0067a0")


@dataclass(frozen=True)
class Decision(Verdict):
    """What came of a decision: whether the method of the runs supports it.

    A notebook stores it with the runs, so that grading can judge it again.
    """

    record: dict | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"[{'SUPPORTED' if self.passed else 'NOT YET'}] {self.name}: {self.message}"

    def _repr_html_(self) -> str:
        return cards.card(SOUND if self.passed else cards.NOT_YET, f"{self.name}: your decision", self.message)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, dict]:
        return {} if self.record is None else {DECISION: self.record}


class LabNotebook:
    """The runs of one experiment; as the last line of a cell it shows them.

    What is logged wrongly is refused with a sentence, and nothing is ever erased. The runs are kept in the student's
    file and are there again after a restart.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @property
    def runs(self) -> list[Run]:
        """Every run, in order.

        Raises:
            ValueError: where the student's file is not one.
            OSError: where it cannot be read.
        """
        return runs_of(self.experiment, kept_runs(self.experiment.name))

    def add(self, **values: object) -> None:
        """Log one run: the settings that differ from the control, its seed, and what was measured.

        What is not as it should be is printed as a sentence, and is not logged. A run that is in the notebook already
        is not logged twice, so that a cell can be run again.

        Args:
            **values: settings, `seed` (or what else pairs the runs), `split`, and the metrics.
        """
        try:
            if trouble := self._logged(values):
                print(trouble)
        except Wrong as wrong:
            print(f"Not logged: {wrong}.")

    def run(self, measure: Callable[..., object], **settings: object) -> None:
        """Run a function and log what it measures, once for each seed; a line is printed for each.

        It gets those of the settings that it takes by name, with the control's values where none is given. An error in
        it is printed as a sentence, and the runs before it stay.

        Args:
            measure: returns the first metric, or all of them in order or by name.
            **settings: what differs from the control; `seed` (or what else pairs the runs) may be a list of values.
        """
        one = self.experiment
        settings = dict(settings)
        split, pairs = settings.pop("split", one.split), settings.pop(one.pair, 0 if one.seeds == 1 else None)
        try:
            self._refuse_function(measure, settings, split)
            for pair in each_of(pairs, one.pair):
                given = one.control | settings | {one.pair: pair}
                try:
                    measured = self._by_name(measure(**accepted(measure, given)))
                except Wrong:
                    raise
                except Exception as error:  # whatever a student's function raises is told in words
                    where = traceback.extract_tb(error.__traceback__)[1:2]
                    line = f", in its line {where[0].lineno}" if where else ""
                    raise Wrong(f"your function stopped with {type(error).__name__}: {error}{line}") from error
                logged = settings | measured | {one.pair: pair} | ({"split": split} if one.split else {})
                print(self._logged(logged) or self._said(logged), flush=True)
        except Wrong as wrong:
            print(f"Not logged: {wrong}.")

    def strike(self, number: int, why: str = "") -> None:
        """Strike out a run that was logged by mistake; it stays readable, with the reason, and no longer counts.

        Args:
            number: of the run.
            why: the reason, in a few words.
        """
        try:
            known = [run.number for run in self.runs]
        except (OSError, ValueError) as error:
            print(f"Your runs cannot be read: {error}.")
            return
        if number not in known:
            print(f"There is no run {number!r}: expected one of {', '.join(map(str, known)) or 'none yet'}.")
        elif not str(why).strip():
            print(f'Say why, for whoever reads the notebook: notes.strike({number}, "the wrong split").')
        else:
            trouble = keep_run(self.experiment.name, {"strike": number, "why": str(why).strip()})
            print(f"Run {number} is struck out: {str(why).strip()}. {trouble}".strip())

    def decide(self, decision: object = None, **changed: object) -> Decision:
        """Decide, and hear whether the method of the runs supports it; the result itself is not judged.

        Args:
            decision: one of the experiment's decisions.
            **changed: the setting that was changed, with its value; not needed where only one was tried.

        Returns:
            The verdict; a notebook shows it as a card. It is kept with the student's progress.
        """
        one = self.experiment
        begun, named = decision is not None and decision is not ..., {}
        try:
            named = {name: as_setting(name, value) for name, value in changed.items()}
            shown = judge(one, self.runs, decision, named)
            passed, said = True, f"{str(decision).strip()[:1].upper()}{str(decision).strip()[1:]}. {shown}"
        except Wrong as wrong:
            passed, said = False, f"{str(wrong).rstrip('.?!')}{_end(str(wrong))} {_looks_at(one)}"
        except (OSError, ValueError) as error:
            return Decision(one.name, False, f"your runs cannot be read: {error}.")
        if not begun:
            return Decision(one.name, passed, said)
        record = {"name": one.name, "decision": str(decision), "changed": named, "control": one.control}
        record["runs"] = list(kept_runs(one.name))
        return Decision(one.name, passed, f"{said} {keep(one.name, passed)}".strip(), record=record)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each run."""
        return page.table(self.experiment, self.runs)

    def __repr__(self) -> str:
        try:
            return page.as_text(self.experiment, self.runs)
        except (OSError, ValueError) as error:
            return f"Your runs cannot be read: {error}."

    def _repr_html_(self) -> str:
        try:
            return page.as_html(self.experiment, self.runs)
        except (OSError, ValueError) as error:
            return cards.rendered(f"Your runs cannot be read: {error}.")

    def _logged(self, values: dict[str, object]) -> str:
        """Log a run. Returns what kept it out of the file, if anything; raises Wrong where it does not fit."""
        one, new = self.experiment, self._as_run(values)
        if any(same_run(one, run, new) for run in self._read_runs() if not run.struck):
            return ""
        line = {"settings": new.settings, "pair": new.pair, "split": new.split, "metrics": new.metrics}
        return keep_run(one.name, line | {"setup": new.setup})

    def _as_run(self, values: dict[str, object]) -> Run:
        """A run as it is to be logged, without its number. Raises Wrong where something does not fit."""
        one = self.experiment
        self._refuse_names(values)
        settings = {name: as_setting(name, values[name]) for name in one.control if name in values}
        split = values.get("split", "")
        if one.split and split not in SPLITS:
            raise Wrong(f'say which texts it was scored on, such as split="{one.split}"; you gave {split!r}')
        pair = as_setting(one.pair, values.get(one.pair, 0 if one.seeds == 1 else None))
        if pair is None:
            raise Wrong(f"say which {one.pair} it is, such as {one.pair}=0: runs are compared {one.pair} by {one.pair}")
        metrics = {name: as_metric(name, values[name]) for name in one.metrics if name in values}
        if one.metrics[0] not in metrics:
            raise Wrong(f"{one.metrics[0]} is missing: that is what this experiment compares")
        return Run(0, one.control | settings, pair, split if one.split else "", metrics, setup_here())

    def _read_runs(self) -> list[Run]:
        try:
            return self.runs
        except (OSError, ValueError):
            return []  # `keep_run` says what is wrong with the file

    def _refuse_names(self, values: Iterable[str]) -> None:
        one = self.experiment
        known = [*one.control, *one.metrics, one.pair, *(["split"] if one.split else [])]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                guess = f"did you mean {near[0]}? " if near else ""
                raise Wrong(
                    f"{name!r} is not known here: {guess}expected one of {', '.join(known)}. For a setting of your "
                    f"own, open the notebook with its value in the control: `tl.lab_notebook({one.name!r}, {name}=...)`"
                )

    def _refuse_function(self, measure: object, settings: dict[str, object], split: object) -> None:
        one = self.experiment
        if not callable(measure):
            raise Wrong(f"pass the function itself, without calling it; this is {kind(measure)}")
        self._refuse_names([*settings, *(["split"] if one.split else [])])
        for name, value in settings.items():
            if name in one.metrics:
                raise Wrong(f"{name} is what your function measures: it cannot be given")
            as_setting(name, value)
        takes = [*settings, *([one.pair] if one.seeds > 1 else [])]
        for name in takes:
            if name not in accepted(measure, {name: None}):
                raise Wrong(f"your function takes no {name!r}, so {name} would be logged and would change nothing")
        if one.split and split != "test" and "test" in names_read(measure):
            raise Wrong(
                f"your function reads the test split (`.test`). Score on {one.split}; the test split comes last"
            )

    def _by_name(self, measured: object) -> dict[str, object]:
        """What a function returned, by the names of the metrics."""
        names = self.experiment.metrics
        if isinstance(measured, dict):
            return measured
        values = measured if isinstance(measured, tuple | list) else (measured,)
        if len(values) > len(names) or not values:
            raise Wrong(f"your function must return {', '.join(names)}, not {kind(measured)}")
        return dict(zip(names, values, strict=False))

    def _said(self, logged: dict[str, object]) -> str:
        one, new = self.experiment, self._as_run(logged)
        number = next((run.number for run in self._read_runs() if same_run(one, run, new)), "")
        paired = f", {one.pair}={new.pair}" if one.seeds > 1 else ""
        values = ", ".join(f"{name} {page.value_in_words(value)}" for name, value in new.metrics.items())
        return f"run {number}: {written(one, new.settings)}{paired}: {values}"


class NoNotebook(Words):
    """What a mistyped name gets: a sentence, whatever is asked of it."""

    def _say(self, *given: object, **named: object) -> None:
        print(self)

    add = run = strike = decide = _say


def lab_notebook(name: str | Experiment, **control: object) -> LabNotebook | NoNotebook:
    """Open the lab notebook of an experiment, with the runs that are in it.

    Args:
        name: of the experiment, such as "e05", or an `Experiment` of your own.
        **control: settings of the control that are to have another value, or that are to be there as well.

    Returns:
        The notebook; for a name or a value that does not fit, a sentence.
    """
    try:
        one = name if isinstance(name, Experiment) else find_experiment(name)
        own = {key: as_setting(key, value) for key, value in control.items()}
        if taken := [key for key in own if key in (*one.metrics, one.pair, "split")]:
            raise Wrong(f"{taken[0]} is not a setting: expected settings, such as {', '.join(one.may_change)}")
    except (ValueError, Wrong) as wrong:
        said = str(wrong)
        return NoNotebook(f"{said[:1].upper()}{said[1:]}.")
    more = tuple(key for key in own if key not in one.control)
    return LabNotebook(replace(one, control=one.control | own, may_change=one.may_change + more))


def _end(sentence: str) -> str:
    return sentence[-1] if sentence.endswith(("?", "!")) else "."


def _looks_at(experiment: Experiment) -> str:
    pairs = f", at least {experiment.seeds} {experiment.pair}s that both settings share" if experiment.seeds > 1 else ""
    where = ", the test split untouched" if experiment.split else ""
    return f"What is judged is the method: a control, one change{pairs}{where}, and a decision that the runs support."

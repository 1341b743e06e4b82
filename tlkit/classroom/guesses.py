"""Predict, then see: a guess before a result, both side by side after it, and all of them summed up."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from tlkit.classroom import cards
from tlkit.classroom.exercises import Words, Wrong
from tlkit.classroom.predictions import Amount, Choice, find_prediction, predictions_of
from tlkit.classroom.progress import Guess, Result, keep_guess, keep_result, kept_guesses

Value = float | str
WIDTH = 88  # characters of a line in a cell of a notebook
ROOM = {"about": 17, "guess": 14, "result": 14, "difference": 12, "note": 10}  # of each column


@dataclass(frozen=True)
class Past:
    """What was guessed and shown so far.

    Attributes:
        guess: the last one before the result was first shown, which counts; None where there was none.
        later: the last one after that, if it is another; it does not count.
        result: the last one that was shown.
    """

    guess: Value | None = None
    later: Value | None = None
    result: Value | None = None


@dataclass(frozen=True)
class Asked:
    """A question with a field for a guess; where no field can be shown, with words that say how to guess from code."""

    prediction: Amount | Choice
    past: Past = Past()
    trouble: str = ""

    @property
    def said(self) -> str:
        """What became of the guess; nothing where there is none."""
        written, past = self.prediction.written, self.past
        if past.later is not None:
            before = f", and {written(past.guess)} before it" if past.guess is not None else ""
            said = f"You guessed {written(past.later)} after the result was shown{before}. "
            said += "The later guess is kept, but it does not count."
        else:
            said = f"Your guess is {written(past.guess)}. Run on and see." if past.guess is not None else ""
        return f"{said} {self.trouble}".strip()

    def __repr__(self) -> str:
        return f"[PREDICT] {self.prediction.name}: {self.prediction.question} {self.said or self._how()}"

    def _ipython_display_(self) -> None:
        """The question stays readable where a page has no field; in a notebook that runs, the field stands below it."""
        from IPython import get_ipython
        from IPython.display import display

        card = cards.card(cards.ASKED, self.prediction.question, self.said or self._how(), kind="tlkit-predict")
        display({"text/plain": repr(self), "text/html": card}, raw=True)
        if hasattr(get_ipython(), "kernel"):
            from tlkit.classroom.widgets import guess_field

            display(guess_field(self))

    def _how(self) -> str:
        one = self.prediction
        what = f"a number ({one.unit})" if isinstance(one, Amount) else _listed(one.choices)
        return f"Type your guess into the field below, if there is one, or run {_call(one.name)}: {what}."


@dataclass(frozen=True)
class Seen:
    """A result beside the guess that was made before it; without a guess it is folded up and can still be guessed."""

    prediction: Amount | Choice
    past: Past
    trouble: str = ""

    def __repr__(self) -> str:
        said = self._compared() if self._guess() is not None else f"{self._result()} {self._without()}"
        return f"[{self._look().word.upper()}] {self.prediction.name}: {said}"

    def _repr_html_(self) -> str:
        one, guess, result = self.prediction, self._guess(), self.past.result
        if guess is None:
            text, picture = self._without(), cards.folded("The result", self._result())
        elif isinstance(one, Amount):
            ends = zip(one.places(guess, result), (one.written(guess), one.written(result)), strict=True)
            text, picture = self._compared(), cards.on_one_line(*ends)
        else:
            text, picture = self._compared(), ""
        return cards.card(self._look(), one.question, text, picture=picture, kind="tlkit-outcome")

    def _guess(self) -> Value | None:
        return self.past.later if self.past.guess is None else self.past.guess

    def _look(self) -> cards.Look:
        if self._guess() is None:
            return cards.NOTE
        if not self.prediction.is_near(self._guess(), self.past.result):
            return cards.APART
        return cards.NEAR if isinstance(self.prediction, Amount) else cards.RIGHT

    def _result(self) -> str:
        return f"It is {self.prediction.written(self.past.result)}."

    def _without(self) -> str:
        how = f"Run {_call(self.prediction.name)} above this cell to see yours beside the result."
        return f"No guess was made before this result. {how} {self.trouble}".strip()

    def _compared(self) -> str:
        one, guess, result = self.prediction, self._guess(), self.past.result
        said = f"you guessed {one.written(guess)}, and it is {one.written(result)}"
        said += f": {one.difference(guess, result)}." if isinstance(one, Amount) else "."
        said += f" {one.says(guess, result)}"
        if self.past.guess is None:
            said += " You guessed after the result was shown, so this does not count in the summary."
        elif self.past.later is not None:
            said += f" Your later guess, {one.written(self.past.later)}, is kept, but it does not count."
        return f"{said} {self.trouble}".strip()


@dataclass(frozen=True)
class Guesses:
    """All guesses that are kept, with their results, and a sentence that sums them up."""

    table: pd.DataFrame
    closing: str

    def __repr__(self) -> str:
        from tabulate import tabulate

        if self.table.empty:
            return self.closing
        noted = self.table.note.any()
        shown = self.table if noted else self.table.drop(columns="note")
        room = ROOM if noted else ROOM | {"about": ROOM["about"] + ROOM["note"] + 2}
        widths = [room.get(name) for name in shown.columns]
        written = tabulate(shown, headers="keys", showindex=False, maxcolwidths=widths, disable_numparse=True)
        return f"{written}\n\n{textwrap.fill(self.closing, WIDTH)}"

    def _repr_html_(self) -> str:
        return ("" if self.table.empty else self.table.to_html(index=False, justify="left")) + cards.rendered(
            self.closing
        )


def predict(name: str, guess: object = None) -> Asked | Words:
    """Ask for a guess before a result is seen, or take one.

    Args:
        name: of a prediction, such as "p04_1".
        guess: a number, or one of the choices; None shows a field for it.

    Returns:
        The question with a field, where widgets can be shown; for a name or a guess that does not fit, a sentence.
    """
    try:
        one = find_prediction(name)
        value = None if guess is None or guess is ... else one.read(guess)
    except (ValueError, Wrong) as wrong:
        return Words(_sentence(str(wrong)))
    trouble = "" if value is None else keep_guess(name, value)
    past, unread = _read_past(one)
    return Asked(one, past, trouble or unread)


def outcome(name: str, result: object) -> Seen | Words:
    """Show a result beside the guess, and say what the difference between them says.

    Args:
        name: of a prediction, such as "p04_1".
        result: what the lesson has measured: a number, or one of the choices.

    Returns:
        A card in a notebook and a line of text elsewhere; for a name or a result that does not fit, a sentence.
    """
    try:
        one = find_prediction(name)
        value = one.read_result(result)
    except (ValueError, Wrong) as wrong:
        return Words(_sentence(str(wrong)))
    trouble = keep_result(name, value)
    past, unread = _read_past(one)
    return Seen(one, Past(past.guess, past.later, value), trouble or unread)


def guesses(lesson: str | int | None = None) -> Guesses:
    """List what was guessed, with the results, and sum it up.

    Args:
        lesson: such as "04"; None for all.

    Returns:
        A row for each prediction that was guessed, and a closing sentence.

    Raises:
        ValueError: for a lesson without predictions, and where the student's file is not one.
        OSError: where that file cannot be read.
    """
    number = None if lesson is None else f"{lesson:0>2}"
    if number is not None and not predictions_of(number):
        raise ValueError(f"lesson {lesson!r} has no predictions: expected a number such as '04'")
    lines = kept_guesses()
    rows, judged = [], []
    for name in sorted({line.name for line in lines if isinstance(line, Guess)}):
        one = predictions_of(name[1:3]).get(name)  # None for one that only another release of the lessons has
        past = _past(one, lines) if one is not None and number in (None, name[1:3]) else Past()
        guess = past.later if past.guess is None else past.guess
        if guess is None:
            continue
        row = {"prediction": name, "about": one.about, "guess": one.written(guess), "result": "not seen yet"}
        row |= {"difference": "", "note": ""}
        if past.result is not None:
            row |= {"result": one.written(past.result), "difference": one.difference(guess, past.result)}
        if past.guess is None:
            row["note"] = "guessed after the result"
        elif past.later is not None:
            row["note"] = f"later {one.written(past.later)}"
        rows.append(row)
        if past.guess is not None and past.result is not None:
            judged.append((one, past.guess, past.result))
    return Guesses(pd.DataFrame(rows), _closing(judged, any_guess=bool(rows)))


def _closing(judged: list[tuple[Amount | Choice, Value, Value]], any_guess: bool) -> str:
    """Say how many guesses were near, and which one was furthest off."""
    if not judged and not any_guess:
        return "No guess is kept yet. Some of the questions marked “Predict first” have a field for yours below them."
    if not judged:
        return "No guess that was made before its result has a result yet."
    near = [one.is_near(guess, result) for one, guess, result in judged]
    one, guess, result = max(judged, key=lambda each: each[0].off(*each[1:]))
    if all(near):
        count = "Your guess was" if len(near) == 1 else f"All your {len(near)} guesses were"
        return f"{count} near or right. {one.summary(guess, result)}"
    count = "" if len(near) == 1 else f"{sum(near)} of your {len(near)} guesses were near or right. The furthest: "
    return f"{count}{one.summary(guess, result)} {one.says(guess, result)}"


def _read_past(one: Amount | Choice) -> tuple[Past, str]:
    """What was guessed and shown, or a sentence that says why it cannot be read."""
    try:
        return _past(one, kept_guesses()), ""
    except (OSError, ValueError) as error:
        return Past(), f"Your guesses cannot be read: {error}."


def _past(one: Amount | Choice, lines: Iterable[Guess | Result]) -> Past:
    guess = later = result = None
    for line in lines:
        value = line.guess if isinstance(line, Guess) else line.result
        # What another release of the lessons asked in another way says nothing here.
        fits = value in one.choices if isinstance(one, Choice) else not isinstance(value, str)
        if line.name != one.name or not fits:
            continue
        if isinstance(line, Result):
            result = value
        elif result is None:
            guess = value
        else:
            later = value
    return Past(guess, None if later == guess else later, result)


def _call(name: str) -> str:
    return f'`tl.predict("{name}", guess)`'


def _listed(choices: Iterable[str]) -> str:
    *most, last = map(repr, choices)
    return f"{', '.join(most)} or {last}"


def _sentence(text: str) -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."

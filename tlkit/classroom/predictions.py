"""What is predicted before a result is seen: how a guess is read, and what its difference from the result says."""

import importlib.util
import math
import re
from dataclasses import dataclass
from functools import cache

from tlkit.classroom.exercises import Wrong, kind, number

THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?|[-+]?\.\d+")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A question that is asked before its result is shown: an `Amount` or a `Choice`.

    Args:
        name: such as "p04_1".
        question: in one line, as students read it.
        about: what is guessed, as it stands in a sentence: "the share of the arithmetic that is left".
    """

    name: str
    question: str
    about: str


@dataclass(frozen=True, kw_only=True)
class Amount(Prediction):
    """A prediction of a number. What is said on each side never names the result, which comes from the run.

    Args:
        unit: "%", "times" for a ratio, or a plural such as "rows".
        lowest: the lowest number that is possible.
        highest: the highest number that is possible.
        within: how far off a guess may be that counts as near, in the unit; a factor where `by_factor`.
        too_low: what a guess that was too low has probably overlooked.
        too_high: what a guess that was too high has probably overlooked.
        near: what a guess that was near has probably seen.
        digits: behind the point, of the result as it is shown.
        by_factor: whether a guess is off by a factor and not by a difference; then `lowest` is above zero.
    """

    unit: str
    lowest: float
    highest: float
    within: float
    too_low: str
    too_high: str
    near: str
    digits: int = 0
    by_factor: bool = False

    def read(self, guess: object) -> float:
        """Read a guess: a number, or one as it is typed ("70", "70 %", "4,096").

        Raises:
            Wrong: for anything else, for nan, and for a number that is not possible here.
        """
        value = _number(_typed(guess, self.unit) if isinstance(guess, str) else guess)
        if not self.lowest <= value <= self.highest:
            possible = f"from {self.written(self.lowest)} to {self.written(self.highest)}"
            raise Wrong(f"a guess of {_plain(value)} is not possible here: expected a number {possible}.")
        return value

    def read_result(self, measured: object) -> float:
        """Read what was measured, and round it as it is shown.

        Raises:
            Wrong: for anything but a number that is finite.
        """
        value = _number(measured)
        if math.isinf(value):
            raise Wrong("the result is infinite.")
        return round(value, self.digits) + 0.0  # no -0

    def written(self, value: float) -> str:
        """Write a number with its unit."""
        if self.unit == "times":
            return f"a factor of {_plain(value)}"
        return f"{_plain(value)}%" if self.unit == "%" else f"{_plain(value)} {self._unit(value)}"

    def is_near(self, guess: float, result: float) -> bool:
        """Say whether a guess is as near to the result as `within` asks."""
        return self.off(guess, result) <= 1

    def off(self, guess: float, result: float) -> float:
        """Say how far a guess is off: at 1 it is just near, so that different predictions can be compared."""
        if self._has_factor(guess, result):
            return abs(math.log(guess / result)) / math.log(self.within)
        return abs(guess - result) / self.within

    def difference(self, guess: float, result: float) -> str:
        """Say in words how far a guess is off, such as "22 points too low"."""
        if guess == result:
            return "exactly right"
        side = "low" if guess < result else "high"
        if self._has_factor(guess, result):
            factor = max(guess / result, result / guess)
            return f"too {side} by a factor of {factor:,.{0 if factor >= 10 else 1 if factor >= 1.1 else 2}f}"
        far = abs(guess - result)
        far = round(far, self.digits) or far
        unit = ("point" if far == 1 else "points") if self.unit == "%" else self._unit(far)
        return f"{_plain(far)} {unit} too {side}"

    def says(self, guess: float, result: float) -> str:
        """Say what the difference between a guess and the result probably comes from."""
        if self.is_near(guess, result):
            return self.near
        return self.too_low if guess < result else self.too_high

    def summary(self, guess: float, result: float) -> str:
        """Say in one sentence how good a guess was."""
        return f"Your guess for {self.about} was {self.difference(guess, result)}."

    def places(self, guess: float, result: float) -> tuple[float, float]:
        """Place a guess and the result on one line, from 0 at its left end to 1.

        The line begins at zero and has room for both; it is logarithmic where a guess is off by a factor.
        """
        if self._has_factor(guess, result):
            low, far = min(guess, result), math.log(max(guess, result) / min(guess, result))
            return tuple((math.log(value / low) + 0.5) / (far + 1) for value in (guess, result))
        if self.unit == "%" and max(guess, result) <= 100:
            left, right = min(0, guess, result), 100
        else:
            left, right = min(0, guess, result), max(0, guess, result)
        width = (right - left) * (1 if right == 100 else 1.2) or 1
        return (guess - left) / width, (result - left) / width

    def _has_factor(self, guess: float, result: float) -> bool:
        return self.by_factor and min(guess, result) > 0

    def _unit(self, value: float) -> str:
        return self.unit.removesuffix("s") if value == 1 and self.unit != "times" else self.unit


@dataclass(frozen=True, kw_only=True)
class Choice(Prediction):
    """A prediction of one among several.

    Args:
        choices: from each choice to what speaks for it, and what someone who takes it may overlook.
    """

    choices: dict[str, str]

    def read(self, guess: object) -> str:
        """Read a guess.

        Raises:
            Wrong: where it is not one of the choices.
        """
        found = [choice for choice in self.choices if choice.lower() == str(guess).strip().lower()]
        if not found:
            listed = ", ".join(map(repr, self.choices))
            raise Wrong(f"{guess!r:.40} is no choice: expected one of {listed}.")
        return found[0]

    def read_result(self, measured: object) -> str:
        """As `read`."""
        return self.read(measured)

    def written(self, value: str) -> str:
        """Write a choice."""
        return f"“{value}”"

    def is_near(self, guess: str, result: str) -> bool:
        """Say whether a guess is right."""
        return guess == result

    def off(self, guess: str, result: str) -> float:
        """As `Amount.off`; a wrong choice is a little more than just not near."""
        return 0 if guess == result else 1.5

    def difference(self, guess: str, result: str) -> str:
        """Say whether a guess is right."""
        return "exactly right" if guess == result else "another choice"

    def says(self, guess: str, result: str) -> str:
        """Say what speaks for the guess, and what it may overlook."""
        return self.choices[guess]

    def summary(self, guess: str, result: str) -> str:
        """Say in one sentence whether a guess was right."""
        if guess == result:
            return f"You guessed {self.about} right: {self.written(result)}."
        return f"Your guess for {self.about} was {self.written(guess)}; it is {self.written(result)}."


def find_prediction(name: object) -> Amount | Choice:
    """Find a prediction by its name.

    Raises:
        ValueError: for an unknown name; the message lists those of the same lesson.
    """
    lesson = re.fullmatch(r"p(\d\d)_\d+", name) if isinstance(name, str) else None
    found = predictions_of(lesson[1]) if lesson else {}
    if lesson is None or name not in found:
        there = ", ".join(found) or 'names such as "p04_1"'
        raise ValueError(f"prediction {name!r:.40} is unknown: expected {there}")
    return found[name]


@cache
def predictions_of(lesson: str) -> dict[str, Amount | Choice]:
    """Load the predictions of a lesson ("03"), by name; none where there is no such lesson."""
    module = f"tlkit.classroom.checks.lesson{lesson}"
    if importlib.util.find_spec(module) is None:
        return {}
    return {one.name: one for one in importlib.import_module(module).PREDICTIONS}


def _number(value: object) -> float:
    """Read one number of any library.

    Raises:
        Wrong: for anything else.
    """
    try:
        return number(value)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:  # of several values, or too large
        raise Wrong(f"expected one number, not {kind(value)}.") from error


def _typed(text: str, unit: str) -> float:
    """Read a number as it was typed, with its unit or without.

    Raises:
        Wrong: for other text.
    """
    bare = text.strip().removesuffix(unit).strip()
    if THOUSANDS.fullmatch(bare):
        bare = bare.replace(",", "")
    if not NUMBER.fullmatch(bare):
        more = " Use a decimal point." if re.fullmatch(r"-?\d+,\d+", bare) else ""
        raise Wrong(f"expected a number, not {text!r:.40}.{more}")
    return float(bare)


def _plain(value: float) -> str:
    whole = abs(value) < 1e15 and value == round(value)
    return f"{value:,.0f}" if whole else f"{value:,.6g}"

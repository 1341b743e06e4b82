"""What is settled before anything is trained, and what is decided at the end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.recommendation import CARD_SHARE
from tlkit.memory import in_units, parse_size
from tlkit.strategies import STRATEGIES

METRICS = ("perplexity",)  # by which strategies are compared
VERDICTS = ("better", "too costly", "equal", "cannot tell")


@dataclass(frozen=True)
class StudyPlan:
    """What a study asks, and what will count as an answer.

    Args:
        question: in one sentence that ends with a question mark.
        strategies: that are compared, at least two names of `STRATEGIES`.
        worthwhile: the smallest difference of perplexity, in percent, that would matter to you.
        may_forget: by how many percent perplexity on general text may rise.
        card: the memory that training may use, such as "128MB".
        metric: by which the strategies are compared.

    Raises:
        ValueError: for a plan that no run could answer.
    """

    question: str
    strategies: tuple[str, ...]
    worthwhile: float
    may_forget: float
    card: str
    metric: str = "perplexity"

    def __post_init__(self):
        if isinstance(self.strategies, str):
            raise ValueError(f"strategies={self.strategies!r}: expected several names, such as ('full', 'lora')")
        object.__setattr__(self, "strategies", tuple(self.strategies))
        if not str(self.question).strip().endswith("?"):
            raise ValueError(f"question={self.question!r:.60}: expected a sentence that ends with a question mark")
        unknown = [name for name in self.strategies if name not in STRATEGIES]
        if unknown or len(set(self.strategies)) < max(2, len(self.strategies)):
            said = unknown[0] if unknown else list(self.strategies)
            raise ValueError(f"strategies: {said!r}: expected at least two different of {', '.join(STRATEGIES)}")
        for name in ("worthwhile", "may_forget"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"{name}={value!r}: expected percent, a number above 0")
        if self.metric not in METRICS:
            raise ValueError(f"metric={self.metric!r}: expected one of {', '.join(METRICS)}")
        parse_size(self.card)

    @property
    def card_mb(self) -> float:
        """The card's memory, in MB of a million bytes."""
        return parse_size(self.card) / 1e6


@dataclass(frozen=True)
class Decision:
    """What is decided, and why.

    In `because` and `explanation` every figure is named and not typed: "$gain_lora" becomes what was measured.
    `figures` lists the names.

    Args:
        verdict: of `VERDICTS`; `honest_verdict` has the rule.
        strategy: the one that is better (or too costly), or the first of two that are equal or cannot be told apart.
        than: the other one, or "zero-shot".
        because: what was measured, in your words.
        explanation: why it came out like this, and the run that would test it, in your words.
        limits: what this study does not say, in your words.

    Raises:
        ValueError: for another verdict, or one about a strategy and itself.
    """

    verdict: str
    strategy: str
    than: str
    because: str
    explanation: str
    limits: str

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r}: expected one of {', '.join(map(repr, VERDICTS))}")
        for name in (self.strategy, self.than):
            if name not in (*STRATEGIES, ZERO_SHOT):
                raise ValueError(f"{name!r} is no strategy: expected one of {', '.join((*STRATEGIES, ZERO_SHOT))}")
        if self.strategy == self.than:
            raise ValueError(f"{self.strategy!r} cannot be compared with itself: expected another one")

    def __str__(self) -> str:
        said = {
            "better": f"{self.strategy} reaches a lower perplexity than {self.than}",
            "too costly": f"{self.strategy} reaches a lower perplexity than {self.than}, and forgets more than the "
            "plan allows",
            "equal": f"{self.strategy} and {self.than} are as good as each other",
            "cannot tell": f"this study cannot tell {self.strategy} from {self.than}",
        }
        return said[self.verdict]


def honest_verdict(
    low: float, high: float, worthwhile: float, forgets: tuple[float, float], may_forget: float
) -> tuple[str, int | None]:
    """The one verdict that an interval and a plan allow.

    Args:
        low: the lower end of the interval of the difference, the first strategy minus the second, in percent; NaN where
            there is none.
        high: its upper end.
        worthwhile: the smallest difference that matters, in percent.
        forgets: by how many percent each of the two raised perplexity on general text; NaN where it was not measured.
        may_forget: by how many percent it may rise.

    Returns:
        "equal" where the whole interval lies within what is not worthwhile; "better" or "too costly" where it does not
        and excludes zero; else "cannot tell". And the place of the better strategy, 0 or 1; None where neither is.
    """
    if -worthwhile <= low and high <= worthwhile:
        return "equal", None
    if not (low > 0 or high < 0):  # also where there is no interval
        return "cannot tell", None
    better = 0 if high < 0 else 1
    return "too costly" if forgets[better] > may_forget else "better", better


def fit_to_card(plan: StudyPlan, model: str, *, batch_size: int, block_size: int) -> pd.DataFrame:
    """Estimate what a step of each strategy needs, and hold it against the card of the plan.

    Args:
        plan: names strategies and card.
        model: a preset, folder or hub id.
        batch_size: blocks in a step.
        block_size: tokens in a block.

    Returns:
        A row for each strategy: `estimated_mb` and `allowed_mb` (other programs also use the card), `fits`, `why` it
        could not be estimated, and both sizes in words, `estimated` and `allowed`.
    """
    allowed, rows = CARD_SHARE * plan.card_mb, []
    for strategy in plan.strategies:
        try:
            peak = estimate_memory(model, strategy, batch_size=batch_size, sequence_length=block_size).peak / 1e6
            rows.append((strategy, peak, allowed, peak <= allowed, ""))
        except ValueError as error:
            rows.append((strategy, math.nan, allowed, False, str(error)))
    found = pd.DataFrame(rows, columns=["strategy", "estimated_mb", "allowed_mb", "fits", "why"])
    for column in ("estimated", "allowed"):
        sizes = found[f"{column}_mb"]
        found[column] = ["not known" if math.isnan(size) else in_units(1e6 * size) for size in sizes]
    return found


def refuse_misfits(fits: pd.DataFrame) -> None:
    """Stop before any training where a strategy does not fit the card.

    Args:
        fits: what `fit_to_card` returned.

    Raises:
        MemoryError: naming each, with both numbers.
    """
    misfits: Sequence[str] = [
        f"{row.strategy} ({row.why or f'{in_units(1e6 * row.estimated_mb)} of {in_units(1e6 * row.allowed_mb)}'})"
        for row in fits.itertuples()
        if not row.fits
    ]
    if misfits:
        raise MemoryError(
            f"not on this card: {', '.join(misfits)}. Use smaller blocks or batches for all strategies alike, leave "
            "the strategy out of the plan, or state another card"
        )

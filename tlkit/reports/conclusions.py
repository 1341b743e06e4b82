"""What a comparison allows to be said, and what not: sentences made from its intervals alone."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from tlkit.evidence.comparison import Comparison
from tlkit.evidence.statistics import relative_perplexities, seed_intervals
from tlkit.names import CONTROL, QUESTION_SETS, ZERO_SHOT

ABOUT = {"rust": "questions about Rust", "general": "questions about other subjects"}


@dataclass(frozen=True)
class Conclusions:
    """Sentences about a comparison.

    Attributes:
        may: what its intervals support.
        may_not: what it leaves open, or says nothing of.
    """

    may: tuple[str, ...]
    may_not: tuple[str, ...]

    def __str__(self) -> str:
        parts = {"What may be concluded": self.may, "What may not be concluded": self.may_not}
        return "\n\n".join(
            "\n".join([f"{title}:", *(f"- {one}" for one in sentences)]) for title, sentences in parts.items()
        )


def conclusions(comparison: Comparison) -> Conclusions:
    """Say what may and what may not be concluded from a comparison.

    Every sentence goes by an interval of the tables: a difference may be spoken of where its interval excludes zero.

    Args:
        comparison: what `compare` returned.
    """
    table = comparison.table[~comparison.table.strategy.isin([ZERO_SHOT, CONTROL]) & comparison.table.seeds.gt(0)]
    if table.empty:
        return Conclusions((), ("Anything: no run has ended.",))
    parts = [_gains(comparison, table), _pairs(comparison, table), _forgetting(comparison, table)]
    parts += [_questions(table, name) for name in QUESTION_SETS]
    parts += [_classes(comparison, table), ((), tuple(_limits(comparison, table)))]
    return Conclusions(*(tuple(one for part in parts for one in part[side]) for side in (0, 1)))


def _gains(comparison: Comparison, table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Against the model before any training."""
    if comparison.provenance["seeds"] < 2:
        return [], [f"By how much another seed would change any figure: there is one run of {_all(table.strategy)}."]
    changes = relative_perplexities(comparison.documents, ZERO_SHOT, list(table.strategy))
    apart = changes[(changes.low > 0) | (changes.high < 0)]
    lower, higher = apart[apart.value < 0].value, apart[apart.value > 0].value
    than = f"perplexity on the {comparison.documents.document.nunique()} test documents than before training"
    may = [f"A {word} {than}: {_each(part)}." for word, part in (("lower", lower), ("higher", higher)) if len(part)]
    unclear = changes.index.difference(apart.index, sort=False)
    return may, _of(unclear, "Whether perplexity changes at all with {}: chance explains as much.")


def _pairs(comparison: Comparison, table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Of strategies with tuned rates, which can be told apart."""
    names = set(table.strategy[table.rate_tuned.eq(True)])
    pairs = comparison.pairs.dropna(subset="p")
    pairs = pairs[pairs["first"].isin(names) & pairs["second"].isin(names)]
    if pairs.empty:
        return [], ["Which strategy is better: that takes two with tuned rates, and two seeds or more."]
    best = table[table.strategy.isin(names)].sort_values("perplexity").strategy.iloc[0]
    with_best = pairs[(pairs["first"] == best) | (pairs["second"] == best)]
    others = with_best["first"].where(with_best["first"] != best, with_best["second"])
    behind, tied = others[with_best.separated], others[~with_best.separated]
    may = _of(behind, f"{best} reaches a lower perplexity than {{}}.")
    may_not = _of(tied, f"Whether {best} is better than {{}}: the interval of the difference has zero in it.")
    if len(pairs) > len(with_best):
        unclear = int((~pairs.separated).sum())
        may += [f"In all, {len(pairs) - unclear} of {len(pairs)} pairs of strategies can be told apart."]
        may_not += [f"Which is better in the other {unclear}."] if unclear else []
    return may, may_not


def _forgetting(comparison: Comparison, table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """On general text, over seeds."""
    runs = comparison.runs[comparison.runs.strategy.isin(table.strategy)].dropna(subset="general")
    if runs.empty or comparison.provenance["seeds"] < 2:
        return [], []
    change = seed_intervals(runs.assign(change=runs.general / runs.general_before - 1), "change")
    worse, better = change["mean"][change.low > 0], change["mean"][change.high < 0]
    may = [
        f"A {word} perplexity on general text than before: {_each(part)}."
        for word, part in (("higher", worse), ("lower", better))
        if len(part)
    ]
    unclear = [name for name in change.index if name not in {*worse.index, *better.index}]
    return may, _of(unclear, "Whether general text is forgotten with {}: over seeds the interval has zero in it.")


def _questions(table: pd.DataFrame, name: str) -> tuple[list[str], list[str]]:
    """Whether answers to four-option questions have changed."""
    column = f"{name}_accuracy_difference"
    if column not in table or table[[f"{column}_low", f"{column}_high"]].isna().any(axis=None):
        return [], []
    change = table.set_index("strategy")[column]
    low, high = (table[f"{column}_{end}"].to_numpy() for end in ("low", "high"))
    may = [
        f"{word} {ABOUT[name]} answered rightly than before: {_each(part, ' points')}."
        for word, part in (("More", change[low > 0]), ("Fewer", change[high < 0]))
        if len(part)
    ]
    unclear = change[(low <= 0) & (high >= 0)]
    lowest, highest = (f"{100 * change:+.1f}" for change in (unclear.min(), unclear.max()))
    if len(unclear) == 1:
        why = f"the change is {lowest} points, and its interval has zero in it"
    else:
        why = f"the changes are {lowest} to {highest} points, and every interval has zero in it"
    return may, _of(
        unclear.index, f"That more or fewer {ABOUT[name]} are answered rightly than before with {{}}: {why}."
    )


def _classes(comparison: Comparison, table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Of a classifier, against who says the same class each time."""
    if "balanced_accuracy_low" not in table:
        return [], []
    chance = 1 / comparison.provenance["classes"]
    tells = table.balanced_accuracy_low > chance
    may = _of(table.strategy[tells], f"A better balanced accuracy than one class for all has ({chance:.0%}): {{}}.")
    return may, _of(table.strategy[~tells], "That the classes can be told at all by {}.")


def _limits(comparison: Comparison, table: pd.DataFrame) -> Iterable[str]:
    """What no comparison of this kind says."""
    made = comparison.provenance
    guessed = table[~table.rate_tuned.eq(True)].strategy
    if len(guessed):
        yield f"How good {_all(guessed)} can be: the learning rate was not tuned for these runs."
    if len(table) > 1:
        yield (
            "That each sentence about general text and questions is right: they go by intervals of one strategy by "
            f"itself, of which one in twenty is wrong, and there are {len(table)} strategies. What is said of "
            "perplexity on the test documents is corrected for that."
        )
    epochs = f"{made['epochs']:g} {'epoch' if made['epochs'] == 1 else 'epochs'}"
    yield (
        f"Whether the order is the same for another model, other texts or longer training: these are {made['model']}, "
        f"{made['corpus']}, {made['train_documents']} training documents and {epochs}."
    )
    yield f"Which is faster on another machine: seconds are of {made['device']}."


def _of(names: Iterable[str], sentence: str) -> list[str]:
    """A sentence about some strategies, none where there are none."""
    return [sentence.format(_all(names))] if len(list(names)) else []


def _all(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _each(changes: pd.Series, unit: str = "%") -> str:
    """Strategies with the size of a change in percent or points, the largest first."""
    sizes = changes.abs().sort_values(ascending=False)
    return _all([f"{name} ({100 * size:.{0 if size >= 0.0995 else 1}f}{unit})" for name, size in sizes.items()])

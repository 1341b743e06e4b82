"""Words of a study: every figure has a name, and text gets its figures by these names."""

import inspect
import math
import re
from string import Template

from tlkit.classroom.study.record import Study
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL
from tlkit.memory import in_units

WORDS = ("because", "explanation", "limits")  # of a decision
FIGURES_NAMED = ("because", "explanation")  # where a figure is named and not typed
NEEDED = 8  # words of each
NAMES = {ZERO_SHOT: "untouched", CONTROL: "control"}  # in the names of figures
# A figure is a number with a unit, with decimals or of two digits and more. A lesson's number, a year, a part of a name
# (SmolLM2-135M, rank-16, 4-bit) and the level of an interval are none.
FIGURE = re.compile(r"(?<![\w$.])\d+(?:[.,]\d+)*(?:\s?(?:%|percent\b|points?\b|MB\b|nats?\b|times\b))?")
NO_FIGURE = re.compile(
    r"\blessons?\s+\d+(?:(?:,| and| to)\s+\d+)*|\b(?:19|20)\d\d\b(?!\s*(?:%|percent|MB))"
    r"|\b[a-z][\w.]*-\d[\w.]*(?![\w.]*\s?(?:%|percent))|\b\d+-(?!percent|points?\b|nats?\b|times\b)[a-z]\w*"
    r"|\b95\s?%(?= (?:confidence )?intervals?\b)",
    re.IGNORECASE,
)


def figures(study: Study) -> dict[str, str]:
    """Everything that was measured, as text, by the name under which it can be written into words.

    Args:
        study: the record.

    Returns:
        From the name, such as "gain_lora", to the figure with its unit.
    """
    text, before = study.text, study.baseline
    detectable = math.inf if text.detectable is None else text.detectable
    found = {
        "baseline": _number(before.perplexity),
        "baseline_interval": f"{_number(before.low)} to {_number(before.high)}",
        "vocabulary": f"{before.vocabulary:,}",
        "removed": str(text.removed),
        "copies": str(sum(text.copies.values())),
        "detectable": "no difference of any size" if math.isinf(detectable) else f"{detectable:.1f}%",
        "detectable_here": "not known" if text.detectable_here is None else f"{text.detectable_here:.1f}%",
        "worthwhile": f"{study.plan.worthwhile:g}%",
        "may_forget": f"{study.plan.may_forget:g}%",
        "allowed": _memory(study.fits[0].allowed_mb) if study.fits else "not known",
        "card": _memory(study.plan.card_mb),
        "seeds": str(len({run.seed for run in study.runs if run.strategy in study.plan.strategies})),
        "openings": str(study.openings),
        "scored_documents": f"{len(study.document_tokens):,}",
        "scored_tokens": f"{sum(study.document_tokens):,}",
        "read_documents": study.provenance.get("train_documents", "all"),
    }
    for split, count in text.documents.items():
        found |= {f"{split}_documents": f"{count:,}", f"{split}_tokens": f"{text.tokens.get(split, 0):,}"}
    for name, value in study.perplexities.items():
        found[f"perplexity_{NAMES.get(name, name)}"] = _number(value)
    for name, row in study.gains.iterrows():
        found[f"gain_{name}"] = _percent(-row.value)
        found[f"gain_{name}_interval"] = _interval(-row.high, -row.low)
    for name, row in study.forgetting.iterrows():
        found[f"forgetting_{name}"] = _percent(row["mean"])
        found[f"forgetting_{name}_interval"] = _interval(row.low, row.high)
    for row in study.compared.itertuples():
        for one, other in ((row.first, row.second), (row.second, row.first)):
            value, low, high = study.difference(one, other)
            found[f"difference_{one}_{other}"] = _percent(value)
            found[f"apart_{one}_{other}"] = _percent(abs(value))
            found[f"difference_{one}_{other}_interval"] = _interval(low, high)
    for fit in study.fits:
        found[f"estimate_{fit.strategy}"] = "not known" if fit.estimated_mb is None else _memory(fit.estimated_mb)
    for one in study.trained:
        found[f"values_{one.strategy}"] = f"{one.trainable_values:,}"
    for run in study.runs:
        name = NAMES.get(run.strategy, run.strategy)
        if run.learning_rate is not None:
            found[f"rate_{name}"] = f"{run.learning_rate:g}"
        if run.peak_mb is not None and run.strategy != ZERO_SHOT:
            found[f"peak_{name}"] = _memory(run.peak_mb)
        found[f"steps_{name}"] = f"{run.steps:,}"
    for one in study.answered:
        found[f"answers_{one.strategy}_{one.questions}"] = f"{100 * (one.before + one.change):.0f}%"
        found[f"answers_untouched_{one.questions}"] = f"{100 * one.before:.0f}%"
    return found


def render(words: str, study: Study) -> str:
    """Put figures into words.

    Args:
        words: in which "$gain_lora" stands for a figure, and "$$" for a dollar sign.
        study: the record.

    Raises:
        ValueError: for a name that no figure has, with those that come close.
    """
    known = figures(study)
    try:
        return Template(inspect.cleandoc(words)).substitute(known)
    except KeyError as missing:
        name = missing.args[0]
        near = [one for one in known if one.split("_")[0] == name.split("_")[0]] or list(known)[:8]
        raise ValueError(f"${name} is no figure of this study: expected such as {', '.join(near[:8])}") from None
    except ValueError:
        raise ValueError("a $ stands before something that is no name: write $$ for a dollar sign") from None


def typed_figures(words: str) -> list[str]:
    """Find figures that were typed and not named.

    Args:
        words: of a decision.

    Returns:
        Each as it stands there; single digits without a unit, numbers of lessons, years and parts of names are none.
    """
    bare = NO_FIGURE.sub("", words)
    return [found for found in FIGURE.findall(bare) if not re.fullmatch(r"\d", found)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}"


def _memory(megabytes: float) -> str:
    return in_units(1e6 * megabytes)


def _percent(value: float) -> str:
    return "not known" if not math.isfinite(value) else f"{value:.1f}%"


def _interval(low: float, high: float) -> str:
    return "no interval" if not math.isfinite(low + high) else f"{low:.1f} to {high:.1f}%"

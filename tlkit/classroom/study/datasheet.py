"""What a text is before anything is trained: sizes, copies between its splits, and what its test split can show."""

import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from tlkit.checkpoints import write_text_atomically
from tlkit.corpus import SPLITS, Corpus, load_corpus, token_stream
from tlkit.evaluation import PerplexityResult
from tlkit.evidence.carry_over import recorded_comparison
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL
from tlkit.evidence.planning import smallest_found
from tlkit.evidence.statistics import FEWEST_DOCUMENTS, over_seeds

RUN, LONG_RUN = 5, 12  # words in a row
SHARED = 0.5  # of the runs of a document: with as many in another one it is a copy
PAIRS = (("validation", "train"), ("test", "train"), ("test", "validation"), ("test", "test"))


@dataclass(frozen=True)
class Copy:
    """A document that has much in common with an earlier one.

    Attributes:
        split: where it is.
        other: where the earlier one is.
        shared: the share of its runs of five words that the other has, too.
        text: its beginning.
    """

    split: str
    other: str
    shared: float
    text: str

    def __str__(self) -> str:
        where = f"in {self.split}" if self.split == self.other else f"in {self.split}, and nearly so in {self.other}"
        return f"{where}: {self.text!r} ({self.shared:.0%} of its runs of {RUN} words are the other's)"


@dataclass(frozen=True)
class Datasheet:
    """A text as a study records it.

    Attributes:
        name: of the corpus.
        sha256: of all its documents.
        documents: by split, how many.
        tokens: by split, how many, as the model's tokenizer counts them.
        test_tokens: of each test document.
        removed: documents that were left out when the text was read, because an earlier one has the same words.
        copies: documents that have much in common with another.
    """

    name: str
    sha256: str
    documents: dict[str, int]
    tokens: dict[str, int]
    test_tokens: tuple[int, ...]
    removed: int
    copies: tuple[Copy, ...]

    @property
    def copied(self) -> dict[str, int]:
        """How many copies there are, by the pair of splits, such as "test in train"."""
        found = Counter((copy.split, copy.other) for copy in self.copies)
        return {f"{split} in {other}": found[split, other] for split, other in PAIRS}

    @property
    def table(self) -> pd.DataFrame:
        """A row for each split."""
        counts = {split: [self.documents[split], self.tokens[split]] for split in SPLITS}
        table = pd.DataFrame.from_dict(counts, orient="index", columns=["documents", "tokens"])
        table["copies of others"] = [sum(copy.split == split for copy in self.copies) for split in SPLITS]
        return table.rename_axis("split").reset_index()

    def __repr__(self) -> str:
        return "\n".join([self.table.to_string(index=False), *self._said()])

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self._said())
        return self.table.to_html(index=False, justify="left") + f"<ul>{lines}</ul>"

    def _said(self) -> list[str]:
        lines = [f"{self.name}: {self.removed} documents left out because an earlier one has the same words"]
        if self.documents["test"] < FEWEST_DOCUMENTS:
            lines.append(
                f"{self.documents['test']} test documents: below {FEWEST_DOCUMENTS} no difference can be shown at all"
            )
        shown = [str(copy) for copy in self.copies[:3]]
        more = [f"and {len(self.copies) - 3} more"] if len(self.copies) > 3 else []
        return [*lines, *(shown or ["no document has much in common with one of another split"]), *more]


def datasheet(corpus: Corpus, tokenizer) -> Datasheet:
    """Describe a text: its sizes, and which documents have copies.

    A document counts as a copy where half of its runs of five words, or one run of twelve, are in another document.
    Case, punctuation and white space do not count.

    Args:
        corpus: with its three splits.
        tokenizer: of the model that will read it.

    Returns:
        The datasheet.
    """
    counts = {split: _token_counts(getattr(corpus, split), tokenizer) for split in SPLITS}
    return Datasheet(
        name=Path(corpus.name).name,
        sha256=corpus.sha256,
        documents={split: len(getattr(corpus, split)) for split in SPLITS},
        tokens={split: sum(counts[split]) for split in SPLITS},
        test_tokens=counts["test"],
        removed=corpus.duplicates,
        copies=tuple(copy for pair in PAIRS for copy in _copies(corpus, *pair)),
    )


def without_copies(name: str | Path, output: str | Path) -> Path:
    """Write a text anew without the documents that have much in common with a longer one.

    The file can then be used as a corpus. It is split again, and however it is split, no copies are left.

    Args:
        name: of a corpus, or a path, as `load_corpus` takes it.
        output: a .jsonl file, which is replaced; its folder is made where there is none.

    Returns:
        The path of the file.

    Raises:
        ValueError: as `load_corpus`; and where fewer than ten documents are left.
        OSError: where it cannot be written.
    """
    corpus, output = load_corpus(name), Path(output)
    texts = (*corpus.test, *corpus.validation, *corpus.train)
    index, found = _Index(), set()
    # The longest first: what two have in common is more of the shorter one, which may come to lie in either split.
    for place in sorted(range(len(texts)), key=lambda place: -len(set(_runs(texts[place], RUN)))):
        if not index.is_copy(index.best(texts[place])):
            index.add(texts[place])
            found.add(place)
    kept = [text for place, text in enumerate(texts) if place in found]
    if len(kept) < 10:
        raise ValueError(f"{name}: without copies {len(kept)} documents are left, and 10 are needed: add other text")
    output.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in kept)
    write_text_atomically(output, lines)
    return output


@dataclass(frozen=True)
class Agreement:
    """How alike two strategies are, as far as chance goes.

    Attributes:
        correlation: of their losses over documents.
        deviation: of their difference between seeds, in nats a token.
        freedom: degrees of freedom that each seed but one gives to this deviation.
    """

    correlation: float
    deviation: float
    freedom: float


def refuse_unfit(sheet: Datasheet) -> None:
    """Stop before any training where a text cannot carry a comparison.

    Args:
        sheet: of the text.

    Raises:
        ValueError: where there are too few test documents, or documents have copies; it says what to do.
    """
    count = sheet.documents["test"]
    if count < FEWEST_DOCUMENTS:
        raise ValueError(
            f"{sheet.name} has {count} test documents: below {FEWEST_DOCUMENTS} a test split cannot compare anything, "
            "so stop here and add text. A tenth of it becomes the test split: "
            f"{10 * FEWEST_DOCUMENTS} paragraphs are the least, and 300 a beginning"
        )
    if sheet.copies:
        raise ValueError(
            f"{len(sheet.copies)} documents of {sheet.name} have much in common with another one. Run "
            '`tl.without_copies(text, folder / "clean.jsonl").resolve()`, set TLKIT_CORPUS to the path that it shows, '
            "and start again"
        )


def smallest_difference(
    sheet: Datasheet,
    baseline: PerplexityResult,
    strategies: Sequence[str] = (),
    *,
    documents: int | None = None,
    seeds: int | None = None,
    alike: Agreement | None = None,
) -> float:
    """Say which difference of two strategies a test finds 80% of the time.

    How much documents differ is seen on validation text, so that the test split stays closed. Two strategies find the
    same documents hard, so that most of it cancels in their difference; how much cancels, and how much a seed matters,
    is known from the recorded comparison on Rust (see `recorded_agreement`).

    Args:
        sheet: of the text.
        baseline: what the untouched model scored on the validation documents.
        strategies: that are compared; each pair of them is counted in the correction for several comparisons.
        documents: how many test documents will be scored; None for all. If there are not so many, the others are taken
            to be like those that are there.
        seeds: runs of each strategy, at least 2; None counts documents alone, as if a seed did not matter.
        alike: how alike the strategies are, where that is known; default: as recorded on Rust.

    Returns:
        The difference of perplexity in percent; infinite where there are too few documents or seeds for any.
    """
    count = len(sheet.test_tokens) if documents is None else documents
    if count < FEWEST_DOCUMENTS or not any(sheet.test_tokens) or (seeds is not None and seeds < 2):
        return math.inf
    alike = alike or recorded_agreement(strategies)
    scored = np.resize(np.array(sheet.test_tokens, dtype=float), count)
    effective = scored.sum() ** 2 / (scored**2).sum()  # Kish: long documents count for more, so there are fewer
    parts = [(spread_of(baseline) * math.sqrt(2 * (1 - alike.correlation) / effective), effective - 1)]
    if seeds is not None:
        parts.append((alike.deviation / math.sqrt(seeds), alike.freedom * (seeds - 1)))
    pairs = max(1, math.comb(len(strategies), 2))
    return 100 * math.expm1(smallest_found(parts, pairs=pairs))


def spread_of(scores: PerplexityResult) -> float:
    """The standard deviation over documents of the loss, in nats a token; long documents count for more.

    Args:
        scores: of a model on documents.
    """
    tokens = np.array(scores.document_tokens, dtype=float)
    kept = tokens > 0
    means, weights = np.array(scores.document_nats)[kept] / tokens[kept], tokens[kept]
    return math.sqrt(np.average((means - np.average(means, weights=weights)) ** 2, weights=weights))


def agreement(scores: pd.DataFrame, strategies: Sequence[str]) -> Agreement:
    """How alike strategies are: the least alike of their pairs.

    Args:
        scores: a row for each strategy, seed and document, as `compare_pairs` takes them, such as `Study.scores`; with
            two seeds or more.
        strategies: two names or more.
    """
    return _agreement(scores, strategies, min, max)


def recorded_agreement(strategies: Sequence[str] = (), model: str = "tiny") -> Agreement:
    """How alike strategies are in the recorded comparison on Rust: the least alike of their pairs.

    Args:
        strategies: names; where one of them is not recorded, or there are fewer than two, the mean of all recorded
            pairs stands for theirs.
        model: a preset with a recorded comparison.
    """
    scores = recorded_comparison(model).documents
    known = sorted(set(scores.strategy) - {ZERO_SHOT, CONTROL})
    if len(strategies) < 2 or not set(strategies) <= set(known):
        return _agreement(scores, known, np.mean, np.mean)
    return agreement(scores, strategies)


def _agreement(scores: pd.DataFrame, names: Sequence[str], least: Callable, most: Callable) -> Agreement:
    losses = scores.assign(loss=scores.nats / scores.tokens).pivot_table("loss", "document", "strategy")[list(names)]
    sums = scores.groupby(["strategy", "seed"])[["nats", "tokens"]].sum()
    per_token = (sums.nats / sums.tokens).unstack().loc[list(names)].dropna(axis=1).to_numpy()
    pairs = list(combinations(range(len(names)), 2))
    correlations = [losses.corr().to_numpy()[pair] for pair in pairs]
    errors, freedoms = zip(*(over_seeds(per_token, pair) for pair in pairs), strict=True)
    count = per_token.shape[1]
    return Agreement(
        float(least(correlations)), float(most(errors)) * math.sqrt(count), float(freedoms[0]) / (count - 1)
    )


class _Index:
    """Which documents hold a run of words."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.holders: dict[tuple[str, ...], set[int]] = {}
        self.long_runs: set[tuple[str, ...]] = set()
        self.count = 0
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        for run in _runs(text, RUN):
            self.holders.setdefault(run, set()).add(self.count)
        self.long_runs.update(_runs(text, LONG_RUN))
        self.count += 1

    def best(self, text: str, beside: int | None = None) -> tuple[float, bool]:
        """The largest share of the runs of a text that one other document has, and whether a long run is shared."""
        runs = set(_runs(text, RUN))
        found = Counter(number for run in runs for number in self.holders.get(run, ()) if number != beside)
        share = max(found.values(), default=0) / len(runs) if runs else 0.0
        # Within one split a document's own runs are in the index, so there the share alone decides.
        long = beside is None and any(run in self.long_runs for run in _runs(text, LONG_RUN))
        return share, long

    @staticmethod
    def is_copy(best: tuple[float, bool]) -> bool:
        return best[0] >= SHARED or best[1]


def _copies(corpus: Corpus, split: str, other: str) -> Iterator[Copy]:
    index = _Index(getattr(corpus, other))
    for number, text in enumerate(getattr(corpus, split)):
        best = index.best(text, number if split == other else None)
        if index.is_copy(best):
            yield Copy(split, other, best[0], " ".join(text.split())[:60])


def _runs(text: str, length: int) -> list[tuple[str, ...]]:
    """All runs of words; of a text with fewer words, all of it if short runs are asked for."""
    words = re.findall(r"\w+", str(text).lower())
    if len(words) < length:
        return [tuple(words)] if words and length == RUN else []
    return [tuple(words[place : place + length]) for place in range(len(words) - length + 1)]


def _token_counts(texts: Sequence[str], tokenizer) -> tuple[int, ...]:
    _, owners = token_stream(list(texts), tokenizer)
    return tuple(owners.bincount(minlength=len(texts)).tolist()) if len(texts) else ()

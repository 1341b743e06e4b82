"""What training did to answers: intervals of a difference of accuracies."""

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from tlkit.evidence.questions import Answers
from tlkit.evidence.statistics import CONFIDENCE

ANSWER_COLUMNS = ["strategy", "seed", "questions", "question", "chosen", "correct"]
DIFFERENCE_COLUMNS = ["questions", "strategy", "difference", "low", "high"]


def accuracy_interval(apart: np.ndarray) -> tuple[float, float]:
    """The 95% interval of a difference of accuracies, had other questions been asked and other seeds been drawn.

    As `compare_pairs` does with documents and seeds, each of the two sources of chance has its own standard error and
    its own quantile of Student's t, and the half-width is the root of the sum of their squares. One question gained
    and one lost with every seed are added. With one seed the interval is about the questions alone.

    Args:
        apart: 1 for a question gained, -1 for one lost, else 0; shape (questions, seeds).

    Returns:
        Low and high end, within -1 to 1.

    Source:
        Bonett and Price 2012 (the two added questions). Banerjee 1960 (two errors, each with its own quantile).
    """
    seeds = apart.shape[1]
    apart = np.concatenate([apart, np.ones((1, seeds)), -np.ones((1, seeds))])
    halves = []
    for means in (apart.mean(axis=1), apart.mean(axis=0)):
        if len(means) > 1:
            error = means.std(ddof=1) / np.sqrt(len(means))
            halves.append(stdtrit(len(means) - 1, (1 + CONFIDENCE) / 2) * error)
    centre, half = apart.mean(), np.hypot.reduce(halves)
    return float(max(centre - half, -1.0)), float(min(centre + half, 1.0))


def answer_rows(answers: dict[str, Answers]) -> dict[str, list]:
    """A model's answers as columns of plain values, as a run's outcome keeps them.

    Args:
        answers: by the name of the set of questions.
    """
    return {
        "questions": [name for name, result in answers.items() for _ in result.questions],
        "question": [asked.id for result in answers.values() for asked in result.questions],
        "chosen": [place for result in answers.values() for place in result.chosen],
        "correct": [right for result in answers.values() for right in result.correct],
    }


def accuracy_differences(answers: pd.DataFrame, against: str) -> pd.DataFrame:
    """Subtract one model's accuracy from that of each strategy, on the same questions, averaged over seeds.

    Args:
        answers: a row for each strategy, seed and question, with columns strategy, seed, questions (the name of the
            set), question (its id) and correct.
        against: what is subtracted; it has one seed.

    Returns:
        Columns questions, strategy, difference, low, high; the interval is that of `accuracy_interval`. With one seed
        low and high are NaN: how much another seed would matter cannot be known.
    """
    rows = []
    for name, asked in answers.groupby("questions", sort=False):
        start = asked[asked.strategy == against].set_index("question").correct.astype(float)
        for strategy, part in asked[asked.strategy != against].groupby("strategy", sort=False):
            after = part.pivot(index="question", columns="seed", values="correct").astype(float).reindex(start.index)
            apart = after.to_numpy() - start.to_numpy()[:, None]
            low, high = accuracy_interval(apart) if apart.shape[1] > 1 else (np.nan, np.nan)
            rows.append((name, strategy, apart.mean(), low, high))
    return pd.DataFrame(rows, columns=DIFFERENCE_COLUMNS)

"""Preferences: DPO plus SFT from log-probabilities that are already there."""

import math
from functools import partial

import torch

from course.exercises import Quiz, function_exercise


def _cases():
    """Answers of unequal length; the last case has no SFT."""
    for story, beta, weight, tokens, before, after in (
        ("for 3 pairs", 0.1, 1.0, [40, 8, 15], [[-90, -30, -61], [-45, -90, -50]], [[-93, -25, -60], [-52, -97, -46]]),
        ("for 2 pairs and beta 0.5", 0.5, 0.25, [12, 30], [[-40, -88], [-70, -41]], [[-38, -91], [-74, -42.5]]),
        ("for one pair with weight 0", 0.1, 0.0, [20], [[-60], [-50]], [[-64], [-59]]),
    ):
        yield story, torch.tensor(before) * 1.0, torch.tensor(after) * 1.0, torch.tensor(tokens), beta, weight


def _per_token(before, after, tokens):
    return -sum(after[0].tolist()) / sum(tokens.tolist())


def _loss(before, after, tokens, beta, weight, sign=1, reference=1, slope=None, summed=False, sft=_per_token):
    rows = zip(*(reference * before).tolist(), *after.tolist(), strict=True)
    pairs = [math.log1p(math.exp(-(slope or beta) * sign * (w - w0 - r + r0))) for w0, r0, w, r in rows]
    return sum(pairs) / (1 if summed else len(pairs)) + weight * sft(before, after, tokens)


both = function_exercise(
    "ex14_1",
    "the loss of three batches with answers of unequal length, in the last of which the weight is 0",
    "`won, lost = after - before` are the changes, as `changes` returns them; the DPO loss is that of the page.",
    "`after[0]` are the chosen answers' log-probabilities, summed over tokens. SFT wants them as large as possible.",
    "`sft = -after[0].sum() / tokens.sum()`: a mean over the tokens of all chosen answers.",
    right=_loss,
    cases=_cases,
    mistakes={
        "chosen and rejected are swapped: the first row is that of the chosen answers.": partial(_loss, sign=-1),
        "the reference is missing: DPO compares changes, `after - before`.": partial(_loss, reference=0),
        "the DPO loss is the mean over the pairs, and yours is their sum.": partial(_loss, summed=True),
        "beta is missing: it multiplies the margin.": partial(_loss, slope=1),
        "the SFT loss is a mean over answers; a mean over all of their tokens is asked for.": partial(
            _loss, sft=lambda before, after, tokens: -after[0].mean().item()
        ),
        "the SFT loss has no reference: it takes `after` alone.": partial(
            _loss, sft=lambda before, after, tokens: _per_token(before, after - before, tokens)
        ),
        "the SFT loss has the wrong sign.": partial(_loss, sft=lambda *given: -_per_token(*given)),
    },
)

QUIZ = Quiz(
    "quiz14",
    "A run of DPO logs a falling loss, a reward accuracy of 0.98 and margins that grow. What do you do next?",
    {
        "a": "Use the model: all three numbers are good.",
        "b": "Train longer, because the margins still grow.",
        "c": "Let it write and count, and look whether chosen answers that it has not seen became less likely.",
        "d": "Raise the learning rate.",
    },
    {
        "a": "no: the damaged run of this lesson had the lowest loss and the widest margin, too.",
        "b": "no: a margin also grows when both answers become less likely, and the damaged run has the widest one.",
        "c": "yes: the numbers are of pairs in training; the damaged run raised their chosen answers most.",
        "d": "no: nothing here asks for a higher rate, and too high a rate gives such numbers as well.",
    },
    right="c",
)

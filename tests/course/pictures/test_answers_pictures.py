"""The pictures of lesson 19 say what their data say."""

import pytest
import torch

from course.lesson19.pictures import answer_picture, preference_chart, stopping_chart
from tlkit.evidence.answering import Answering
from tlkit.examples import IGNORED, PADDING, Examples
from tlkit.examples.conversations import Conversation
from tlkit.models import Continuation


def headline_of(figure) -> str:
    return figure.alt


def answers(*lengths: tuple[int, bool]) -> Answering:
    asked = Conversation("a", (("user", "Why?"), ("assistant", "So.")))
    written = [Continuation("So", "So", tokens, ended) for tokens, ended in lengths]
    return Answering((asked,) * len(written), tuple(written))


def test_the_picture_counts_what_is_read_and_learned():
    tokens = torch.arange(10)[None]
    texts = torch.tensor([[0] * 8 + [PADDING] * 2])
    labels = tokens.masked_fill((torch.arange(10) < 5) | (texts == PADDING), IGNORED)
    figure = answer_picture(Examples(tokens, labels, texts))
    assert "3 of 8 tokens are learned" in headline_of(figure)
    drawn = " ".join(text.get_text() for axes in figure.axes for text in axes.texts)
    assert "5 tokens" in drawn and "2 tokens" in drawn and "1 token" in drawn


def test_answers_that_never_stop_are_named():
    figure = stopping_chart({"good": answers((3, True), (7, True), (9, False)), "bad": answers((9, False))}, 9)
    assert "Bad: no answer ever stops" in headline_of(figure)
    good, bad = figure.axes[0].lines
    assert good.get_ydata().tolist() == pytest.approx([100, 200 / 3, 100 / 3, 100 / 3])
    assert good.get_xdata().tolist() == [0, 3, 7, 9] and bad.get_ydata().tolist() == [100, 100]


def test_where_all_stop_the_title_says_no_more():
    figure = stopping_chart({"good": answers((3, True)), "other": answers((4, True))}, 9)
    assert "no answer" not in headline_of(figure)


def test_margins_and_losers_are_counted():
    figure = preference_chart(torch.tensor([-1.0, 2.0, -3.0]), torch.tensor([-5.0, -1.0, -2.0]))
    assert "2 of 3 margins widen, and 2 of the 3 preferred answers are less likely" in headline_of(figure)

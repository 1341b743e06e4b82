"""The pictures of lesson 15 draw the numbers that they are given, and their titles say what these show."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import collisions

from course.lesson15.pictures import label_shift_scheme, margins_chart, published_chart

TOKENS = ["In", " R", "ust", ",", " V", "ec", "<", "T"]
LOSSES = pd.DataFrame({"full": [3.0, 3.1, 2.0, 2.5], "last_layers": [3.1, 3.0, 2.2, 2.6]})
PICTURES = {
    "published": published_chart(
        {"Python: before training": 254_801.06, "Rust: freeze lower layers": 64_249.05}, 151_936
    ),
    "labels": label_shift_scheme(TOKENS),
    "margins": margins_chart(LOSSES, "full", "last_layers"),
}


@pytest.mark.parametrize("chart", PICTURES.values(), ids=list(PICTURES))
def test_no_text_lies_over_another(chart):
    assert collisions(chart) == []


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("published", "1 of 2 published perplexities are worse than guessing at random"),
        ("labels", "After 'In' comes 'R'; the report asked for the one after that"),
        ("margins", "full wins on 3 blocks and last_layers on 1, so one block may name either"),
    ],
)
def test_the_title_is_what_the_numbers_say(name, finding):
    assert PICTURES[name].finding == finding


def test_each_row_of_labels_is_one_token_further():
    words = [text.get_text() for text in PICTURES["labels"].axes[0].texts]
    rows = [words[start + 1 : start + 9] for start in (0, 9, 18)]
    assert rows == [TOKENS, [*TOKENS[1:], ""], [*TOKENS[2:], "", ""]]


def test_the_bars_of_blocks_are_the_differences_in_order():
    bars = [bar.get_height() for bar in PICTURES["margins"].axes[0].patches]
    assert bars == pytest.approx([-0.2, -0.1, -0.1, 0.1])
    whole = margins_chart(pd.DataFrame({"a": np.zeros(3), "b": np.ones(3)}), "a", "b")
    assert whole.finding == "a wins on all 3 blocks"


@pytest.mark.parametrize("tokens", [TOKENS[:2], TOKENS + TOKENS])
def test_too_few_or_too_many_tokens_are_refused(tokens):
    with pytest.raises(ValueError, match="expected 3 to 10"):
        label_shift_scheme(tokens)

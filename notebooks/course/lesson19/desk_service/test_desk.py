"""Whether DESK_MODEL at DESK_URL answers as at the release, or a new model well enough."""

from math import comb

import pytest
from asking import ask_release

LEAST = 64  # of 75; an unchanged model has fewer right in under 2.5% of the draws


@pytest.fixture(scope="module")  # all tests use the same answers
def rows():
    return ask_release()


def test_every_start_gives_the_same_answers(rows):
    assert [row["now"] for row in rows] == [row["answer"] for row in rows]


def test_new_model_is_right_often_enough(rows):
    assert sum(row["now"] == row["desk"] for row in rows) >= LEAST


def test_new_model_has_not_clearly_lost(rows):
    lost = sum(row["answer"] == row["desk"] != row["now"] for row in rows)
    won = sum(row["now"] == row["desk"] != row["answer"] for row in rows)
    n = lost + won
    p_value = sum(comb(n, k) for k in range(lost, n + 1)) / 2**n  # one-sided
    assert p_value >= 0.05, f"{lost} lost, {won} won"

"""Whether a service answers as at the release, and whether a new model is right often enough.

DESK_URL and DESK_MODEL say whom to ask; `asking.py` and `release.json` lie beside this file.
"""

import json
import os
from pathlib import Path

import pytest
from asking import LEAST, ask, desk_of
from openai import OpenAI

RELEASE = json.loads(Path(__file__).with_name("release.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")  # both tests use the same answers
def served():
    client = OpenAI(base_url=os.environ["DESK_URL"], api_key="none", timeout=60)
    model = os.environ["DESK_MODEL"]
    return [desk_of(ask(client, model, row["question"])) for row in RELEASE]


def test_every_start_gives_the_same_answers(served):
    assert served == [row["answer"] for row in RELEASE]


def test_new_model_is_right_often_enough(served):
    right = [desk == row["desk"] for desk, row in zip(served, RELEASE, strict=True)]
    assert sum(right) >= LEAST

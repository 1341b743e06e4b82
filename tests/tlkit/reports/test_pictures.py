"""Every chart of real tables says what it finds, in words that lie beside each other, on a ground of its own."""

import functools

import matplotlib.image
import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from figure_checks import collisions

from tlkit.evidence.recorded import recorded, recorded_comparison
from tlkit.evidence.statistics import compare_pairs
from tlkit.fitting.estimate import MemoryEstimate
from tlkit.models import load_model
from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports import (
    cost_charts,
    diagrams,
    forgetting_charts,
    score_charts,
)
from tlkit.strategies import apply_strategy

GiB = 2**30
TINY, REAL = "tiny", "smollm2-135m-instruct"


@functools.cache
def comparison(model=TINY):
    return recorded_comparison(model)


def table(model=TINY):
    return comparison(model).table


def pairs(model=TINY):
    documents = comparison(model).documents
    return compare_pairs(documents[~documents.strategy.isin([ZERO_SHOT, CONTROL])])


def report(strategy):
    return apply_strategy(load_model("tiny").model, strategy)


def classified():
    rows = [("zero-shot", 0.11, 0.1, 0.13), ("lora", 0.8, 0.7, 0.9), ("linear_probe", 0.6, 0.5, 0.7)]
    ends = ["balanced_accuracy", "balanced_accuracy_low", "balanced_accuracy_high"]
    return pd.DataFrame(rows, columns=["strategy", *ends])


def path(of, by):
    part = recorded(of).query("strategy == 'full' and validation_perplexity < 130").groupby(by)
    means = part[["validation_perplexity", "general_perplexity"]].mean().reset_index()
    means = means.set_axis(["label", "rust", "general"], axis=1)
    return means.assign(label=means.label.map("{:g}".format))


PARTS = ("weights", "gradients", "optimizer state", "activations", "logits and loss", "temporary", "gathered")


def parts(phase, *sizes):
    categories = {name: int(size * GiB) for name, size in zip(PARTS, sizes, strict=False)}
    return MemoryEstimate(categories, {phase: sum(categories.values())})


def rates(*strategies):
    record = recorded("rates")
    return record[record.strategy.isin(strategies) & (record.validation_perplexity < 300)]


PICTURES = {
    "perplexity": lambda: score_charts.perplexity_chart(table()),
    "accuracy": lambda: score_charts.accuracy_chart(table()),
    "class accuracy": lambda: score_charts.class_accuracy_chart(classified(), 9),
    "pairs": lambda: score_charts.pairs_chart(pairs()),
    "parameters": lambda: cost_charts.parameters_chart(table()),
    "cost": lambda: cost_charts.cost_chart(table()),
    "forgetting": lambda: forgetting_charts.forgetting_chart(table()),
    "forgetting of two": lambda: forgetting_charts.forgetting_chart({"tiny": table(), "SmolLM2": table(REAL)}),
    "network strips": lambda: diagrams.network_strip(report("full"), report("last_layers"), report("lora")),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_it_finds_and_no_text_lies_over_another(name):
    chart = PICTURES[name]()
    assert len(chart.finding.split()) >= 4 and not chart.finding.endswith(".") and "nan" not in chart.finding
    assert " ".join(chart.get_suptitle().split()) == chart.finding
    assert chart.alt.startswith(f"{chart.about} {chart.finding}.")
    assert chart._repr_mimebundle_()[1]["image/png"]["alt"] == chart.alt
    assert collisions(chart) == []


def test_texts_that_lie_over_each_other_or_leave_the_picture_are_found():
    chart = PICTURES["cost"]()
    one, other = (chart.axes[0].text(0.9, 0.9, name, transform=chart.axes[0].transAxes) for name in ("one", "other"))
    assert ("one", "other") in collisions(chart)
    one.set_visible(False)
    other.set_text("far " * 60)
    assert (other.get_text(), "leaves the picture") in collisions(chart)


def test_a_picture_has_a_white_ground_and_dark_ink_whatever_style_is_set(tmp_path):
    for style in ("default", "dark_background"):
        with matplotlib.style.context(style):
            PICTURES["forgetting"]().savefig(tmp_path / f"{style}.png")
    light, dark = (matplotlib.image.imread(tmp_path / f"{style}.png") for style in ("default", "dark_background"))
    assert np.array_equal(light, dark) and (light[..., 3] == 1).all()
    assert np.array_equal(light[0, 0], [1, 1, 1, 1]) and light[..., :3].min() < 0.2

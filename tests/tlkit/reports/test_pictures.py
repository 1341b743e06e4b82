"""Every chart of real tables says what it finds, in words that lie beside each other, on a ground of its own.

`recorded/` has the comparison of lesson 14, made with the profile ci on the bundled model.
"""

import functools
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from figure_checks import collisions, struck, written

from course.lesson20 import pictures as scaling
from tlkit.evidence.flops import StepFlops
from tlkit.evidence.recorded import recorded_comparison
from tlkit.evidence.sweeps import recorded
from tlkit.fitting.attempts import Attempt
from tlkit.fitting.estimate import MemoryEstimate
from tlkit.fitting.ladder import Rung
from tlkit.models import load_model, meta_model
from tlkit.names import CONTROL
from tlkit.reports import charts, cost_charts, diagrams, memory_charts, model_charts, schemes, training_charts
from tlkit.steps import Plan
from tlkit.strategies import STRATEGIES, apply_strategy

ROOT = Path(__file__).resolve().parents[3]
MiB, GiB = 2**20, 2**30


@functools.cache
def table(name="comparison"):
    return pd.read_csv(Path(__file__).parent / "recorded" / f"{name}.csv")


@functools.cache
def report(strategy, model="tiny"):
    loaded = load_model("tiny").model if model == "tiny" else meta_model(model)
    return apply_strategy(loaded, strategy)


def scores(*names):
    values = {"Rust, before": 126, "Rust, after": 72, "Python reference, before": 36, "Python reference, after": 47.5}
    rows = [(name, values[name], 0.94 * values[name], 1.06 * values[name]) for name in names or values]
    return pd.DataFrame(rows, columns=["strategy", "perplexity", "perplexity_low", "perplexity_high"])


def path(of, by):
    part = recorded(of).query("strategy == 'full' and validation_perplexity < 130").groupby(by)
    means = part[["validation_perplexity", "general_perplexity"]].mean().reset_index()
    means = means.set_axis(["label", "rust", "general"], axis=1)
    return means.assign(label=means.label.map("{:g}".format))


def run(epochs, *validation):
    steps = range(1, 4 * epochs + 1)
    history = pd.DataFrame({"step": steps, "epoch": [step / 4 for step in steps]})
    history["loss"] = 4.5 * np.exp(-history.epoch / 2)
    at = np.linspace(4, 4 * epochs, len(validation)).round().astype(int)
    return SimpleNamespace(history=history, validation=pd.DataFrame({"step": at, "validation_loss": validation}))


RUNS = {"20 epochs": run(20, 4.6, 4.8, 5.2, 5.5), "early stopping": run(6, 4.6, 4.8), "5 epochs": run(5, 4.6, 4.7)}
RUNS |= {"weight decay 0.1": run(20, 4.6, 4.8, 5.2, 5.4), "dropout 0.1": run(20, 4.6, 4.7, 5.1, 5.3)}
RUNS |= {"last_layers": run(20, 4.75, 4.7, 4.7, 4.7), "last_layers, its own rate": run(20, 5.6, 6.2, 6.8, 7.0)}
PARTS = ("weights", "gradients", "optimizer state", "activations", "logits and loss", "temporary", "gathered")


def parts(phase, *sizes):
    categories = {name: int(size * GiB) for name, size in zip(PARTS, sizes, strict=False)}
    return MemoryEstimate(categories, {phase: sum(categories.values())})


CARDS = {
    "1 card": parts("backward pass", 25.1, 25.1, 50.2, 0, 0, 0.2, 0),
    "2 cards": parts("backward pass", 12.6, 12.6, 25.1, 0, 0, 0.2, 4.3),
    "8 cards": parts("forward pass", 3.1, 0, 6.3, 5.2, 0.1, 0, 2.6),
}
BUDGETS = {"RTX 4090 24GB": 24 * GiB, "A100 40GB": 40 * GiB, "A100 80GB": 80 * GiB}
CARD = "virtual card of 48MB"
ATTEMPTS = [
    Attempt("training", CARD, "as planned", 1, 0, "forward pass", 4 * MiB, 3 * MiB, 45 * MiB),
    Attempt("training", CARD, "activation checkpointing", 1, 0, "optimizer step", MiB, MiB // 2, 47.5 * MiB),
    Attempt("training", CARD, "optimizer on the host", 1, 8, peak=40 * MiB),
]
RUNGS = [Rung("as planned", Plan(), 17 * GiB), Rung("chunked loss", Plan(), 13 * GiB)]
RUNGS += [
    Rung("smaller micro-batch", Plan(micro_batch_size=1), 8 * GiB),
    Rung("optimizer on the host", Plan(), 5 * GiB),
]


def pareto(model, *costs):
    comparison = recorded_comparison(model)
    return charts.pareto_of(comparison.documents, comparison.runs, *costs)


def fits(model):
    record = pd.read_csv(ROOT / "tests" / "benchmarks" / "fit_tables.csv")
    return record[record.model == model]


def rates(*strategies):
    record = recorded("rates")
    return record[record.strategy.isin(strategies or STRATEGIES) & (record.validation_perplexity < 300)]


RATE = ("learning_rate", "learning rate (log scale)")
PICTURES = {
    "perplexity": lambda: charts.perplexity_chart(table()),
    "before and after": lambda: charts.perplexity_chart(scores()),
    "two scores": lambda: charts.perplexity_chart(scores("Rust, before", "Python reference, before")),
    "accuracy": lambda: charts.accuracy_chart(table()),
    "parameters": lambda: cost_charts.parameters_chart(table()),
    "cost": lambda: cost_charts.cost_chart(table()),
    "forgetting": lambda: cost_charts.forgetting_chart(table()),
    "forgetting of two": lambda: cost_charts.forgetting_chart({"tiny": table(), "SmolLM2-135M": table()}),
    "differences": lambda: charts.differences_chart(table()),
    "pareto": lambda: pareto("tiny"),
    "pareto, two costs": lambda: pareto("smollm2-135m-instruct", ["peak_memory_mb", "general"]),
    "pairs": lambda: charts.pairs_chart(table("pairs")),
    "rates of four": lambda: training_charts.sweep_chart(rates("full", "last_layers", "lora", "bitfit"), *RATE),
    "rates of all": lambda: training_charts.sweep_chart(rates(), *RATE, untouched=126.2),
    "passages": lambda: training_charts.sweep_chart(recorded("passages"), "passages", "passages of Rust text"),
    "two paths": lambda: training_charts.tradeoff_chart(
        {"full, learning rate": path("rates", "learning_rate"), "full, epochs": path("epochs", "epochs")}
    ),
    "one path": lambda: training_charts.tradeoff_chart({"rehearsal": path("general", "general_share")}),
    "one run": lambda: training_charts.overfitting_chart({"20 epochs": RUNS["20 epochs"]}),
    "live runs": lambda: training_charts.live_curves(
        {"1. full": [(1, 4.8), (5, 4.4)], "2. lora": [(1, 4.9), (5, 6.3)], "3. full": [(1, 4.8), (5, 4.7), (9, 4.5)]},
        "3. full",
        untouched=4.89,
        across=(0, 20),
        upwards=(3.7, 5.9),
        diverged={"2. lora": 5},
    ),
    "seven runs": lambda: training_charts.overfitting_chart(RUNS, untouched=4.79),
    "flops": lambda: model_charts.flops_chart({"full": StepFlops(20, 40), "last_layers": StepFlops(20, 5)}),
    "memory of cards": lambda: memory_charts.memory_chart(CARDS, BUDGETS),
    "memory of one": lambda: memory_charts.memory_chart({"full": CARDS["1 card"]}, {"A100 80GB": 80 * GiB}),
    "ladder": lambda: memory_charts.ladder_chart(RUNGS, {"8 GB": 8 * GiB, "16 GB": 16 * GiB}),
    "attempts": lambda: memory_charts.attempts_chart(ATTEMPTS),
    "fit of a small model": lambda: memory_charts.fit_chart(fits("qwen2-0.5b")),
    "fit of a large model": lambda: memory_charts.fit_chart(fits("llama2-7b")),
    "network strips": lambda: diagrams.network_strip(report("full"), report("last_layers"), report("lora")),
    "step": schemes.step_flow,
    "ring of 2": lambda: scaling.ring_scheme(2),
    "ring of 8": lambda: scaling.ring_scheme(8),
    "shards of 2": lambda: scaling.sharding_scheme(2),
    "shards of 8": lambda: scaling.sharding_scheme(8),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_it_finds_and_no_text_lies_over_another(name):
    chart = PICTURES[name]()
    assert len(chart.finding.split()) >= 4 and not chart.finding.endswith(".") and "nan" not in chart.finding
    assert " ".join(chart.get_suptitle().split()) == " ".join(chart.finding.split())
    assert f"{chart.finding}." in chart.alt
    assert collisions(chart) == [] == struck(chart)
    assert chart.get_figwidth() == 8


def test_the_test_finds_texts_that_lie_over_each_other_or_leave_the_picture():
    chart = cost_charts.forgetting_chart(table())
    one, other = (chart.axes[0].text(0.9, 0.9, name, transform=chart.axes[0].transAxes) for name in ("one", "other"))
    assert ("one", "other") in collisions(chart)
    one.set_visible(False)
    assert collisions(chart) == []
    other.set_text("far " * 60)
    assert (other.get_text(), "leaves the picture") in collisions(chart)


@pytest.mark.parametrize("name", ["forgetting", "step"])
def test_a_picture_has_a_white_ground_and_dark_ink_whatever_style_is_set(name, tmp_path):
    PICTURES[name]().savefig(tmp_path / "light.png")
    with matplotlib.style.context("dark_background"):
        PICTURES[name]().savefig(tmp_path / "dark.png")
    light, dark = (matplotlib.image.imread(tmp_path / f"{style}.png") for style in ("light", "dark"))
    assert np.array_equal(light, dark)
    assert np.array_equal(light[0, 0], [1, 1, 1, 1]) and (light[..., 3] == 1).all()
    assert light[..., :3].min() < 0.2


def test_a_notebook_and_a_page_get_the_finding_with_the_picture():
    chart = PICTURES["flops"]()
    _, metadata = chart._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == chart.alt
    assert chart.alt.startswith(chart.about) and "last_layers needs 42% of the arithmetic of full." in chart.alt


def test_scores_stay_in_the_order_of_their_table():
    chart = PICTURES["before and after"]()
    axes = chart.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(scores().strategy)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first one on top
    assert chart.finding == "Perplexity falls from 126 to 72 on Rust, and rises from 36 to 47.5 on Python reference"


def test_the_control_stands_at_the_edge_with_its_value():
    chart = PICTURES["perplexity"]()
    axes = chart.axes[0]
    control = table().set_index("strategy").perplexity[CONTROL]
    assert control > 2 * axes.get_xlim()[1]
    assert any(text.startswith(f"{control:.0f} (") for text, _ in written(chart))
    assert "full and freeze_embeddings" in chart.finding  # "tied 1-2" and "tied 1-4"


def test_an_order_is_claimed_only_where_it_was_found():
    rows = table("pairs")
    assert PICTURES["pairs"]().finding.startswith(f"{rows.separated.sum()} of 21 pairs are separated; bitfit is")
    assert "not separated from full: freeze_embeddings" in PICTURES["differences"]().finding
    apart = table().assign(rank=[None, "1", *["tied 2-7"] * 6, None])
    assert charts.perplexity_chart(apart).finding.startswith("full is lowest (72.3), separated")
    sizes = recorded("passages")
    assert training_charts.sweep_chart(sizes, "passages", "").finding == (
        "full is lowest at every number of passages, with every seed"
    )
    first = sizes.index[(sizes.strategy == "full") & (sizes.passages == 50)][0]
    sizes.loc[first, "validation_perplexity"] = 1000.0
    assert training_charts.sweep_chart(sizes, "passages", "").finding.startswith("Best passages: ")


def test_two_panels_have_their_own_scales_and_the_untouched_model():
    large = table().assign(perplexity=table().perplexity / 8, general=table().general / 4)
    for end in ("low", "high"):
        large[f"perplexity_seeds_{end}"] /= 8
    chart = cost_charts.forgetting_chart({"tiny": table(), "large": large})
    assert [axes.get_title() for axes in chart.axes] == ["tiny", "large"]
    assert chart.axes[1].get_xlim()[1] < chart.axes[0].get_xlim()[0]
    assert {"untouched", "full"} <= {text.get_text() for text in chart.legends[0].get_texts()}
    for axes in chart.axes:
        assert any("best corner" in text.get_text() for text in axes.texts)
    assert collisions(chart) == []


def test_runs_begin_at_the_untouched_model_and_each_is_drawn_beside_the_first():
    chart = PICTURES["seven runs"]()
    first, *others = RUNS
    assert [axes.get_title() for axes in chart.axes] == others
    for axes, name in zip(chart.axes, others, strict=True):
        drawn = {line.get_label(): line.get_xydata() for line in axes.lines}
        for label, run in ((first, RUNS[first]), ("validation", RUNS[name])):
            assert drawn[label][0].tolist() == [0, 4.79]
            assert drawn[label][1:, 1].tolist() == run.validation.validation_loss.tolist()
        last = RUNS[name].history.loss.tail(3).mean()
        assert f"training ends at {last:.2f}" in [text.get_text() for text in axes.texts]
    low, high = chart.axes[0].get_ylim()
    assert 4 < low < 4.6 and 7 < high < 8  # from the validation losses alone


def test_a_tie_is_not_counted_as_better_than_the_untouched_model():
    runs = {name: run(2, 4.6, end) for name, end in (("a", 4.5), ("b", 4.72), ("c", 4.75), ("d", 4.9))}
    finding = training_charts.overfitting_chart(runs, untouched=4.79).finding
    assert finding == "2 of 4 runs end more than 0.05 nats per token below the untouched model (4.79)"


def test_limits_stand_at_the_share_of_a_card_that_can_be_used():
    ladder = PICTURES["ladder"]()
    assert [line.get_xdata()[0] for line in ladder.axes[0].lines] == pytest.approx([6.8, 13.6])
    first = "The first rung that fits 8 GB is “optimizer on the host”"
    assert ladder.finding == f"{first}, and the first rung that fits 16 GB is “chunked loss”"
    attempts = PICTURES["attempts"]()
    assert [line.get_xdata()[0] for line in attempts.axes[0].lines] == [48]
    assert "card: 48 MiB" in [text for text, _ in written(attempts)]
    assert memory_charts.attempts_chart(ATTEMPTS, limit=64 * MiB).axes[0].lines[0].get_xdata()[0] == 64
    fit = PICTURES["fit of a large model"]()
    assert fit.axes[0].lines[1].get_xdata()[0] == pytest.approx(0.85 * 8)
    assert "9.2 GiB: 12 GB card" in [text for text, _ in written(fit)]


def test_a_kind_of_bytes_that_one_bar_lacks_is_explained():
    chart = PICTURES["memory of cards"]()
    note = "there are no gradients at the peak of 8 cards, in the forward pass"
    assert note in chart.axes[0].get_xlabel() and note in chart.alt.replace("\n", " ")
    assert {"8 cards\npeak: forward pass", "1 card\npeak: backward pass"} <= {text for text, _ in written(chart)}
    assert "gradients" in [text for text, _ in written(chart)]  # in the legend, although one bar has none


def test_every_card_of_a_ring_ends_with_every_sum():
    for cards in range(2, 9):
        states = scaling.ring_states(cards)
        assert len(states) == 2 * (cards - 1) + 1
        for before, after in zip(states, states[1:], strict=False):
            changes = [sum(a != b for a, b in zip(*held, strict=True)) for held in zip(before, after, strict=True)]
            assert changes == [1] * cards  # a card receives one part a step
        whole = [[count == cards for count in held] for held in states[cards - 1]]
        assert [sum(held) for held in whole] == [1] * cards == [sum(part) for part in zip(*whole, strict=True)]
        assert states[-1] == [[cards] * cards] * cards
    for refused in (1, 9):
        with pytest.raises(ValueError, match=f"cards={refused}: expected 2 to 8"):
            scaling.ring_scheme(refused)
    assert "each card sends 1.75 times" in scaling.ring_scheme(8).finding


def test_the_shards_of_all_cards_together_are_the_whole():
    chart = scaling.sharding_scheme(4, 1_000_000_000)
    boxes = [patch for patch in chart.axes[0].patches if type(patch).__name__ == "Rectangle"]
    outlines, filled = boxes[::2], boxes[1::2]
    whole = sum(box.get_width() for box in filled[:12])  # DDP: three kinds on each of four cards
    assert sum(box.get_width() for box in filled[12:]) == pytest.approx(whole / 4)
    assert whole == pytest.approx(sum(box.get_width() for box in outlines[:12]))
    assert chart.finding.startswith("FSDP leaves each of 4 cards 3.73 GiB of the 14.9 GiB")


def test_a_step_names_its_shapes():
    words = " ".join(text for text, _ in written(schemes.step_flow(8, 512, 151_936, 494_000_000)))
    assert "(8, 511, 151936)" in words and "494M values" in words

"""The panels of the live demo without a browser: what they compute, what they say, and faults that must show."""

import math
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import ipywidgets as ipw
import numpy as np
import pandas as pd
import pytest

import tlkit
from course.demo import chart, inside, ladder, race, real_model, strategies
from course.demo.panel import Panel
from course.panels import lab_steps, ladder_steps, strategy_report, untouched_loss
from course.runs import TOO_HIGH
from tlkit.fitting.attempts import Attempt
from tlkit.fitting.fallback import FallbackLog
from tlkit.reports.palette import KINDS
from tlkit.settings import Profile

SMALL = Profile("small", train_passages=6, test_passages=4, epochs=1, seeds=1)
UNTOUCHED = 4.8
ROOT = Path(__file__).resolve().parents[2]


def numbers(figure: dict) -> int:
    """How many numbers and texts of a figure are smaller than the stage allows."""
    found = []

    def walk(part, name=""):
        if isinstance(part, dict):
            for key, value in part.items():
                walk(value, f"{name}.{key}")
        elif isinstance(part, list):
            for value in part:
                walk(value, name)
        elif name.endswith("font.size"):
            found.append(part)

    walk(figure["layout"])
    return min(found)


def run(name: str, losses: list[float], **more) -> race.Run:
    return race.Run(name, 0.001, list(enumerate(losses, 1)), len(losses), **more)


@pytest.fixture(scope="module")
def looker(tiny):
    from tlkit.models import load_model

    loaded = load_model("tiny")
    loaded.model.set_attn_implementation("eager")
    return loaded.model.eval(), loaded.tokenizer


def test_inside_attention_rows_are_shares_and_see_no_future(looker):
    found = inside.look_inside(*looker, "In Rust, the borrow checker")
    assert found.tokens == ["In", "·R", "ust", ",", "·the", "·b", "or", "row", "·check", "er"]
    assert len(found.attention) == 8 and len(found.attention[0]) == 4
    for block in found.attention:
        for head in block:
            for place, line in enumerate(head):
                assert sum(line) == pytest.approx(1, abs=1e-5) and not any(line[place + 1 :])


def test_inside_expects_what_the_plain_model_expects(looker, tiny):
    import torch

    text = "If the file does not exist, an"
    with torch.no_grad():  # of the model with the attention that all else uses
        plain = tiny.model(torch.tensor([tiny.tokenizer(text)["input_ids"]])).logits[0, -1].softmax(-1)
    found = inside.look_inside(*looker, text)
    best = plain.topk(inside.LIKELIEST)
    assert [share for _, share in found.likeliest] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert found.likeliest[0][0] == "·error"


def test_the_head_that_the_presenter_points_at_copies(looker):
    found = inside.look_inside(*looker, inside.TEXTS[2])
    last = found.attention[7][0][-1]
    place = max(range(len(last)), key=last.__getitem__)
    assert (found.tokens[place - 1], found.tokens[place], round(100 * last[place])) == ("·the", "·file", 91)
    assert found.likeliest[0][0] == "·file" and round(100 * found.likeliest[0][1]) == 84
    assert len(last) - place <= inside.MOST_SHOWN, "it is on the screen"


def test_what_is_recorded_is_what_the_model_does(looker):
    ready = inside.recorded()
    assert tuple(ready) == inside.TEXTS
    for text, found in ready.items():
        live = inside.look_inside(*looker, text)
        assert found.tokens == live.tokens
        for one, other in zip(found.attention, live.attention, strict=True):
            assert np.allclose(one, other, atol=2e-5)  # five digits are kept, and another processor changes the seventh
        for (name, share), (other, live_share) in zip(found.likeliest, live.likeliest, strict=True):
            assert name == other and share == pytest.approx(live_share, abs=2e-5)


def test_the_first_panel_is_there_without_torch_and_without_a_model():
    program = """
        import sys
        from course.demo import inside
        panel = inside.build(print)
        assert "10 tokens" in panel.children[1].value, panel.children[1].value
        print(sorted({"torch", "transformers", "pandas", "matplotlib"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_long_text_shows_its_end_and_an_empty_one_is_refused(looker):
    found = inside.look_inside(*looker, "a file " * 60)
    assert len(found.tokens) == inside.MOST_READ
    figure, _ = inside.attention_figure(found, 3, 1)
    assert len(figure["data"][0]["z"]) == inside.MOST_SHOWN == len(figure["layout"]["yaxis"]["ticktext"])
    shown = inside.chips(found.tokens).count('class="stage-chip"')
    assert 0 < shown < len(found.tokens) and "…" in inside.chips(found.tokens)
    assert "…" not in inside.chips(found.tokens[:5]) and "5 tokens" in inside.chips(found.tokens[:5])
    with pytest.raises(ValueError, match="the text is empty"):
        inside.look_inside(*looker, "")


def test_tokens_on_the_page_are_text_and_no_markup(looker):
    found = inside.look_inside(*looker, "<script>alert(1)</script>")
    for figure in (inside.attention_figure(found, 0, 0)[0], inside.next_token_figure(found)[0]):
        assert not any("<" in name for name in figure["layout"]["yaxis"]["ticktext"])
    assert "<script" not in inside.chips(found.tokens)


@pytest.mark.parametrize("strategy", ["full", "last_layers", "lora"])
def test_counts_and_memory_are_those_of_the_report(strategy):
    report = strategy_report("tiny", strategy)
    added = strategies.training_bytes(report)
    assert added == {"gradients": 4 * report.trainable_values, "optimizer state": 8 * report.trainable_values}
    assert f"{report.trainable_values:,}" in strategies.counts(report)
    figure, words = strategies.memory_figure({strategy: report}, strategy)
    assert [trace["x"][0] * 2**20 for trace in figure["data"]] == pytest.approx(list(added.values()))
    assert strategy in words


def test_memory_of_training_is_what_an_optimizer_really_holds(tiny):
    """The bytes on the screen against AdamW's own tensors after a step."""
    import torch

    from tlkit.models import load_model
    from tlkit.strategies import apply_strategy

    report = apply_strategy(load_model("tiny").model, "last_layers")
    trained = [parameter for parameter in report.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    report.model(torch.ones(1, 4, dtype=torch.long)).logits.sum().backward()
    optimizer.step()
    held = sum(t.nbytes for state in optimizer.state.values() for name, t in state.items() if name != "step")
    shown = strategies.training_bytes(report)
    assert shown["optimizer state"] == held
    assert shown["gradients"] == sum(parameter.grad.nbytes for parameter in trained)


def test_a_strip_lights_up_what_is_trained():
    assert strategies.strip(strategy_report("tiny", "full")).count("stage-box trained") == 11
    last = strategies.strip(strategy_report("tiny", "last_layers"))
    assert "stage-box spared" in last and "stage-box trained" in last
    assert strategies.strip(strategy_report("tiny", "lora")).count("stage-adapter") == 8
    assert "blocks 0 to" in strategies.strip(strategy_report("qwen2-0.5b", "last_layers"))


@pytest.mark.parametrize(
    ("loss", "diverged"), [(4.8, False), (5.79, False), (5.81, True), (math.nan, True), (math.inf, True)]
)
def test_what_counts_as_diverged(loss, diverged):
    assert race.has_diverged(loss, UNTOUCHED) == diverged


def test_a_race_takes_turns_and_names_the_run_that_diverged():
    untouched = untouched_loss(SMALL)
    runs = [race.Run("full", 0.001), race.Run("lora", 30.0)]
    turns = [[len(one.points) for one in now] for now in race.race(runs, untouched, 1, profile=SMALL, every=1)]
    assert turns[0] == [1, 1], "both begin with the first turn"
    assert runs[0].diverged_at is None and len(runs[0].points) == lab_steps(1, SMALL)
    assert runs[1].diverged_at is not None and runs[1].points[-1][0] == runs[1].diverged_at
    said = race.outcome(runs)
    assert f"lora, rate 30 diverged at step {runs[1].diverged_at}" in said and "full, rate 0.001 is at" in said
    figure, _ = race.race_figure(runs, [], untouched, 5)
    assert any(f"diverged at step {runs[1].diverged_at}" in note["text"] for note in figure["layout"]["annotations"])


def test_a_race_is_the_training_that_each_strategy_has_alone():
    from course.panels import training_lab

    runs = [race.Run("full", 0.001), race.Run("last_layers", 0.005)]
    for _ in race.race(runs, untouched_loss(SMALL), 1, profile=SMALL, every=1):
        pass
    for one in runs:
        *_, alone = training_lab(one.strategy, one.rate, 1, profile=SMALL, every=1)
        assert [loss for _, loss in one.points] == pytest.approx(alone.validation.validation_loss.tolist(), abs=1e-5)


def test_axes_are_the_same_for_every_usual_race_and_hold_every_run():
    usual = [run("full", [4.8, 4.2]), run("lora", [4.8, 4.4])]
    assert race.axes_for(usual, UNTOUCHED, 34) == race.axes_for([], UNTOUCHED, 34)
    far = [run("full", [4.8, 2.0]), run("lora", [math.nan], diverged_at=1), run("bitfit", [4.0] * 80)]
    (left, right), (bottom, top) = race.axes_for(far, UNTOUCHED, 34)
    assert left == 0 and right > 80 and bottom < 2.0 and top == UNTOUCHED + TOO_HIGH
    figure, _ = race.race_figure(far[:1], far[1:], UNTOUCHED, 34)
    for trace in figure["data"]:
        assert all(left <= x <= right for x in trace["x"])
        assert all(bottom <= y <= top for y in trace["y"]), "and none of them is no number"
    assert [trace["opacity"] for trace in figure["data"]] == [0.3, 0.3, 1]


def test_the_outcome_compares_two_runs_and_says_when_it_was_stopped():
    both = [run("full", [4.8, 4.2]), run("lora", [4.8, 4.5])]
    assert race.outcome(both) == (
        "After 2 steps: full, rate 0.001 is 0.30 nats per token below lora, rate 0.001; one seed each."
    )
    assert race.outcome(both, stopped=True).startswith("Stopped at step 2: ")
    assert race.outcome([race.Run("full", 1), race.Run("lora", 1)], stopped=True) == "Stopped before the first step."


def log(*failed: str) -> FallbackLog:
    rungs = ("as planned", "smaller micro-batch", "smaller micro-batch", "optimizer on the host")
    return FallbackLog(
        [
            Attempt("training", "virtual card of 48MB", rung, 1, 0 if where else 2, where, 4e6, 3e6)
            for rung, where in zip(rungs, failed, strict=False)
        ]
    )


def test_ladder_steps_know_the_plan_of_each_attempt():
    steps = ladder_steps(log("forward pass", "backward pass", "optimizer step", ""))
    assert [step.plan.micro_batch_size for step in steps] == [None, 2, 1, 1]
    assert steps[-1].plan.offload_optimizer and "it holds" in steps[-1].text
    assert "failed in the forward pass" in steps[0].text


def test_a_thinned_timeline_keeps_the_peak_and_short_ones_whole():
    timeline = pd.DataFrame({kind: [0] * 5000 for kind in KINDS})
    timeline.loc[3777, "activations"] = 60 * 2**20
    thin = ladder.thinned(timeline)
    assert len(thin) == ladder.MOMENTS and thin.activations.max() == 60 * 2**20
    assert len(ladder.thinned(timeline.head(7))) == 7


def test_the_card_has_its_limit_and_legend_before_the_first_attempt():
    empty = pd.DataFrame({kind: [] for kind in KINDS})
    figure, _ = ladder.ladder_figure(empty, 48 * 2**20, 100, "nothing yet")
    layout = figure["layout"]
    assert layout["showlegend"] and [area["name"] for area in figure["data"]] == list(KINDS)
    assert layout["shapes"][0]["y0"] == 48 and "48 MiB" in layout["annotations"][0]["text"]
    over = pd.DataFrame({kind: [10 * 2**20] for kind in KINDS})
    assert "above the limit" in ladder.ladder_figure(over, 48 * 2**20, 100, "one")[1]
    assert "below the limit" in ladder.ladder_figure(over, 64 * 2**20, 100, "one")[1]


def test_recorded_answers_come_in_pairs_and_figures_are_those_of_the_table():
    from tlkit.evidence.recorded import recorded_comparison

    pairs = real_model.recorded_pairs()
    assert len(pairs) == 40 and not pairs[["before", "after"]].isna().any().any()
    assert pairs.after_stopped.mean() > 0.8 > 0.3 > pairs.before_stopped.mean()
    table = recorded_comparison(real_model.MODEL, task="answer").table.set_index("strategy")
    figures = {name: (before, after) for name, before, after in real_model.recorded_figures()}
    assert figures["perplexity on unseen answers"] == (
        f"{table.perplexity['zero-shot']:.1f}",
        f"{table.perplexity['lora']:.1f}",
    )
    assert "&lt;T&gt;" in real_model.card("Before", "Vec<T>") and "<T>" not in real_model.card("Before", "Vec<T>")


def test_without_the_real_model_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("tlkit.models.fetched.fetched_folder", lambda name: None)
    shown = real_model.build(lambda text: None)
    words = " ".join(widget.value for widget in _inside(shown, ipw.HTML))
    assert "python -m tlkit fetch smollm2-135m-instruct" in words and words.count("stage-card") == 2
    (live,) = [widget for widget in _inside(shown, ipw.Button) if "live" in widget.description]
    assert live.disabled


def _inside(widget, kind):
    found = [widget] if isinstance(widget, kind) else []
    return found + [one for child in getattr(widget, "children", ()) for one in _inside(child, kind)]


def test_a_panel_that_cannot_be_built_says_why_and_the_next_one_is_built():
    def broken(tell):
        tell("planting")
        raise RuntimeError("planted <fault>")

    bad = Panel("Bad", broken).wait()
    good = Panel("Good", lambda tell: ipw.HTML("built")).wait()
    assert 'role="alert"' in bad.status.value and "RuntimeError: planted &lt;fault&gt;" in bad.status.value
    assert "stage-ready" in bad._dom_classes
    assert [widget.value for widget in _inside(good, ipw.HTML)][-1] == "built" and good.status not in good.children
    assert repr(good) == "Panel('Good')"


def test_every_panel_of_the_notebook_is_built_without_an_error(shallow):
    """Its cells return at once, so running the notebook alone would not show it."""
    source = (ROOT / "notebooks" / "demo.py").read_text(encoding="utf-8")
    names = re.findall(r"^tl\.(\w+_panel)\(\)$", source, re.M)
    assert len(names) == source.count('tags=["panel"]') == 6
    for built in [getattr(tlkit, name)() for name in names]:
        assert 'role="alert"' not in built.wait().status.value and built.status not in built.children, built


def test_a_page_that_comes_late_is_told_again():
    panel = Panel("Late", lambda tell: ipw.HTML("built")).wait()
    sent = []
    panel.send_state = lambda *names: sent.append("panel")
    panel.status.send_state = lambda *names: sent.append("status")
    panel.children[0]._handle_msg({"content": {"data": {"method": "custom", "content": "here"}}, "buffers": []})
    assert sent == ["status", "panel"]


def test_charts_are_large_enough_and_follow_the_library_that_is_there(monkeypatch, looker):
    found = inside.look_inside(*looker, "In Rust, the borrow checker")
    figures = [inside.attention_figure(found, 0, 0)[0], inside.next_token_figure(found)[0]]
    figures.append(race.race_figure([run("full", [4.8])], [], UNTOUCHED, 9)[0])
    figures.append(strategies.memory_figure({"full": strategy_report("tiny", "full")}, "full")[0])
    assert all(numbers(figure) >= chart.LETTERS for figure in figures)
    chart._module.cache_clear()
    monkeypatch.setenv(chart.ADDRESS, "/somewhere/plotly.min.js")
    assert 'import("/somewhere/plotly.min.js")' in chart._module() and len(chart._module()) < 2000
    chart._module.cache_clear()
    monkeypatch.delenv(chart.ADDRESS)
    assert len(chart._module()) > 1e6, "without a server of ours, JupyterLab is given the library itself"
    assert not re.search(r"https?://[^ ]*cdn", chart._module()[-3000:])
    chart._module.cache_clear()

"""Panels without a browser: what they compute, what they say, what a page without widgets keeps, faults that show."""

import html
import json
import math
import time

import ipywidgets as ipw
import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook, new_output

import course
from course.lessons import WIDGET, without_views
from course.panels import fitting, inside, ladder, strategies, tickets, training, views
from course.panels.training import Run
from tlkit.fitting.estimate import MemoryEstimate, estimate_memory
from tlkit.fitting.fallback import FallbackLog
from tlkit.models import load_model
from tlkit.settings import Plan, Profile
from tlkit.steps import mean_loss
from tlkit.strategies import apply_strategy

SMALL = Profile("small", train_passages=6, test_passages=4, epochs=1, seeds=1)
UNTOUCHED = 4.8


def within(panel, kind):
    """Every widget of a kind in a panel, in order."""
    found = [panel] if isinstance(panel, kind) else []
    return found + [widget for child in getattr(panel, "children", ()) for widget in within(child, kind)]


def control(panel, label):
    return next(widget for widget in within(panel, ipw.DOMWidget) if getattr(widget, "description", "") == label)


def said(panel):
    return panel.said.value


def test_a_saved_notebook_keeps_the_picture_of_a_panel_and_no_widget(monkeypatch):
    displayed = []
    monkeypatch.setattr(views, "display", lambda data, **_: displayed.append(new_output("display_data", data)))
    for panel in (course.strategy_map(), course.quiz("quiz07")):
        panel._ipython_display_()
    notebook = new_notebook(cells=[new_code_cell("", outputs=[output]) for output in displayed])
    assert all(WIDGET in cell.outputs[0].data for cell in notebook.cells)
    bare = new_output("display_data", {WIDGET: {"model_id": "2"}, "text/plain": "Bar()"})  # of another library
    notebook.cells.append(new_code_cell("", outputs=[new_output("display_data", {"text/plain": "2"}), bare]))
    without_views(notebook)
    assert "widgets" not in notebook.metadata and WIDGET not in nbformat.writes(notebook)
    (shown,), choices, others = [cell.outputs for cell in notebook.cells]
    assert set(shown.data) == {"text/html", "text/plain"} and choices == []
    assert [output.data for output in others] == [{"text/plain": "2"}, {"text/plain": "Bar()"}]
    assert shown.data["text/plain"].startswith("full: 4,036,800 of 4,036,800 parameters trainable")


def test_a_picture_has_its_words_and_they_are_text():
    figure, _ = views.new_figure(2)
    view = views.View("2 < 3 & <b>", figure)
    assert 'alt="2 &lt; 3 &amp; &lt;b&gt;"' in view.picture()
    assert view.output()["image/png"].startswith(b"\x89PNG") and view.output()["text/plain"] == view.text


def test_an_error_is_shown_as_text_and_the_panel_goes_on():
    panel = views.Panel()
    with panel.working("counting"):
        assert "counting …" in said(panel)
        raise RuntimeError("planted <fault>")
    assert 'role="alert"' in said(panel) and "RuntimeError: planted &lt;fault&gt;" in said(panel)
    panel.show(views.View("well", page="<p>well</p>"))


def test_a_quiz_answers_each_choice():
    panel = course.quiz("quiz04")
    (letters,) = within(panel, ipw.ToggleButtons)
    assert letters.value is None and panel.first is None
    letters.value = "a"
    assert "✗ not yet" in said(panel) and "quiz04" in said(panel)
    letters.value = "b"
    assert "✓ right" in said(panel)
    with pytest.raises(ValueError, match="is an exercise, not a quiz"):
        course.quiz("ex04_1")


def test_bytes_of_training_are_what_an_optimizer_holds_after_a_step():
    report = apply_strategy(load_model("tiny").model, "last_layers")
    trained = [parameter for parameter in report.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    report.model(torch.ones(1, 4, dtype=torch.long)).logits.sum().backward()
    optimizer.step()
    held = sum(t.nbytes for state in optimizer.state.values() for name, t in state.items() if name != "step")
    grown = sum(parameter.grad.nbytes for parameter in trained)
    assert strategies.training_bytes(report) == {"gradients": grown, "optimizer state": held}


def test_boxes_show_what_is_trained_and_what_the_gradient_does_not_reach():
    def page(model, strategy):
        return strategies.strategy_view(strategies.strategy_report(model, strategy)).page

    assert page("tiny", "full").count(f"background:{strategies.TRAINED}") == 11 + 1, "every part, and the key"
    last = page("tiny", "last_layers")
    assert last.count("linear-gradient") == 6 + 1 and last.count(f"background:{strategies.SPARED}") == 1 + 1
    assert page("tiny", "lora").count(f"background:{strategies.ADAPTER}") == 8 + 1
    assert "blocks 0 to 21: " in page("qwen2-0.5b", "last_layers")
    panel = course.strategy_map()
    control(panel, "Strategy").value = "freeze_embeddings"
    assert "3,250,368 of 4,036,800" in said(panel)
    assert 'title="embedding: 0 of 786,432 trained"' in panel.picture.value


def run(name, *losses, **more):
    return Run(name, 0.001, list(enumerate(losses, 1)), len(losses), **more)


def test_runs_take_turns_each_as_it_would_alone_and_one_diverges(shallow):
    untouched = training.untouched_loss(SMALL)
    runs = [Run("full", 0.001), Run("lora", 30.0), Run("last_layers", 0.005)]
    turns = [[len(one.points) for one in runs] for _ in training.race(runs, untouched, profile=SMALL, every=1)]
    assert turns[0] == [1, 1, 1] and runs[0].done and runs[2].done and turns[-1][0] == runs[0].total_steps
    assert runs[1].diverged_at == runs[1].points[-1][0] and not runs[1].done
    alone = Run("last_layers", 0.005)
    for _ in training.trained(alone, profile=SMALL, every=1):
        pass
    assert runs[2].points == alone.points
    assert alone.points[-1][1] == mean_loss(alone.model, training._text(SMALL)[2]), "the model is as it was scored"
    assert f"lora, rate 30 diverged at step {runs[1].diverged_at}" in training.outcome(runs, untouched)
    lost = {5.79: False, 5.81: True, math.nan: True, math.inf: True}
    assert {loss: training.has_diverged(loss, UNTOUCHED) for loss in lost} == lost


def test_curves_begin_untouched_and_stay_on_axes_that_hold_them_all():
    usual = training.training_view([run("full", 4.8, 4.2)], [], UNTOUCHED).figure.axes[0]
    far = [run("lora", math.nan, diverged_at=1), run("bitfit", *[2.0] * 40)]
    axes = training.training_view([run("full", 4.8, 4.2)], far, UNTOUCHED).figure.axes[0]
    assert usual.get_ylim() == (UNTOUCHED - training.ROOM_BELOW, UNTOUCHED + training.TOO_HIGH)
    bottom, top = axes.get_ylim()
    curves = axes.lines[1:]
    assert len(curves) == 3 and list(curves[-1].get_ydata()) == [UNTOUCHED, 4.8, 4.2]
    for curve in curves:
        assert curve.get_ydata()[0] == UNTOUCHED and all(bottom <= loss <= top for loss in curve.get_ydata())
        assert max(curve.get_xdata()) <= axes.get_xlim()[1]
    text = training.outcome([run("full", 4.2), run("lora", 4.5)], UNTOUCHED)
    assert "full, rate 0.001: step 1 of 1, 4.20 nats per token, 0.60 less than untouched." in text
    assert text.endswith("full, rate 0.001 is 0.30 below lora, rate 0.001; that is one seed each.")


def test_stop_stops_and_keeps_what_was_reached():
    lab = course.TrainingLab()
    assert control(lab, "Stop").disabled and lab.state is None
    control(lab, "Strategy").value, control(lab, "Epochs").value = "last_layers", 4
    control(lab, "Start").click()
    assert control(lab, "Start").disabled and not control(lab, "Stop").disabled
    deadline = time.monotonic() + 120
    while lab.state is None and time.monotonic() < deadline:
        time.sleep(0.05)
    control(lab, "Stop").click()
    lab.wait()
    reached = lab.state.points[-1][0]
    assert 0 < reached < lab.state.total_steps
    assert "Stopped, and kept." in said(lab) and f"step {reached} of" in said(lab)
    assert control(lab, "Stop").disabled and not control(lab, "Start").disabled
    assert sum(p.requires_grad for p in lab.state.model.parameters()) < 98, "the adapted model is there to be used"


def test_a_lab_that_cannot_train_says_so(monkeypatch):
    monkeypatch.setattr(training, "setup", lambda: Profile("none", 0, 0, 1, 1))
    lab = course.TrainingLab(2)
    lab.start()
    lab.wait()
    assert "no documents to pack" in said(lab) and lab.state is None and not control(lab, "Start").disabled


def test_the_bar_is_the_estimate_and_the_verdict_compares_it_with_the_card(shallow):
    step = fitting.Step("tiny", "last_layers", batch_size=4, micro_batch_size=2, chunked_loss=True)
    view, plan = fitting.memory_view(step), Plan(2, chunked_loss=True)
    estimate = estimate_memory("tiny", "last_layers", batch_size=4, sequence_length=512, plan=plan)
    assert step.estimate == estimate
    bars = [bar.get_width() * 2**20 for container in view.figure.axes[0].containers for bar in container]
    assert bars == pytest.approx([estimate.categories[kind] for kind in fitting.KINDS])
    assert view.text.startswith("Fits RTX 4060 8GB: ")
    large = fitting.memory_view(fitting.Step(), before=estimate)
    assert large.text.startswith("Does not fit RTX 4060 8GB: 1.58 GiB more than the 6.80 GiB it can give.")
    assert len(large.figure.axes[0].containers) == 2 * len(fitting.KINDS)


def test_the_explorer_takes_the_way_that_fits_and_says_what_takes_time(monkeypatch):
    heard, panel = [], None

    def planted(model, strategy, *, plan, dtype="fp32", **shape):
        heard.append(panel and said(panel))
        size = {"full": 12, "lora": 9}.get(strategy, 4) - plan.chunked_loss - plan.activation_checkpointing
        kinds = dict.fromkeys(fitting.KINDS, 0) | {"weights": size * 2**30}
        return MemoryEstimate(kinds, {"forward pass": 1})

    monkeypatch.setattr(fitting, "estimate_memory", planted)
    monkeypatch.setattr("course.panels.recommendation.estimate_memory", planted)
    panel = course.memory_explorer()
    control(panel, "Strategy").value = "lora"
    assert "Does not fit" in said(panel) and "estimating" in heard[1]
    control(panel, "What would make it fit?").click()
    assert "trying one change" in " ".join(heard[1:]) and "Fits RTX 4060 8GB" in said(panel)
    assert control(panel, "Strategy").value == "last_layers", "no plan made lora fit"


def test_the_ladder_goes_on_and_back():
    log = ladder.fallback_run("48MiB", "last_layers")
    shown = ladder.ladder_views(log)
    assert "it holds" in shown[-1].text and all("failed in the" in view.text for view in shown[:-1])
    panel = course.ladder_player(log)
    assert shown[0].text in said(panel) and control(panel, "Back").disabled
    for view in shown[1:]:
        control(panel, "Next attempt").click()
        assert view.text in said(panel)
    assert control(panel, "Next attempt").disabled
    held = shown[-1].figure.axes[0].containers[-1][0].get_width() * 2**20
    assert held == log.attempts[-1].peak <= 48 * 2**20
    empty = course.ladder_player(FallbackLog())
    assert 'role="alert"' in said(empty) and "no training was tried" in said(empty)


def test_attention_rows_are_shares_without_sight_of_the_future_and_the_next_token_is_the_models(tiny):
    text = inside.TEXTS[1]
    found = inside.look_inside(*inside.reader(), text)
    count = len(found.tokens)
    assert found.attention.shape == (8, 4, count, count)
    torch.testing.assert_close(found.attention.sum(-1), torch.ones(8, 4, count))
    assert not found.attention.triu(1).any()
    with torch.no_grad():  # with the attention that all else uses
        plain = tiny.model(torch.tensor([tiny.tokenizer(text)["input_ids"]])).logits[0, -1].softmax(-1)
    assert [share for _, share in found.likeliest] == pytest.approx(plain.topk(8).values.tolist(), abs=1e-4)
    assert found.likeliest[0][0] == "·error"


def test_the_head_that_the_presenter_points_at_copies_and_an_empty_text_is_refused():
    view = inside.inside_view(inside.look_inside(*inside.reader(), inside.TEXTS[2]), 7, 0)
    assert "‘·the’ looks most at ‘·file’ (91%). Expected next: ‘·file’ 84%" in view.text
    panel = course.inside_the_model()
    control(panel, "Text").value = "<script>$x$ " + "a file " * 60
    assert f"{inside.MOST_READ} tokens" in said(panel) and 'role="alert"' not in said(panel)
    control(panel, "Text").value = ""
    assert "the text is empty" in said(panel)


def test_three_ways_to_answer_a_report_are_marked_as_plain_json_says():
    answers = tickets.recorded_answers()
    assert answers.groupby("way").size().to_dict() == dict.fromkeys(tickets.WAYS.values(), 96)
    for row in answers.itertuples():
        try:
            given = dict(json.loads(row.answer))
        except (ValueError, TypeError):
            given = {}
        right = {name: value for name, value in json.loads(row.completion).items() if given.get(name, "") == value}
        assert {name for name in tickets.FIELDS if getattr(row, name)} == set(right)
    panel = course.three_ways()
    control(panel, "Next").click()
    second = answers.loc[answers.index[1][0]]
    assert html.escape(" ".join(second.iloc[0].prompt.split())[:90]) in panel.picture.value
    assert panel.picture.value.count("✓") == second[tickets.FIELDS].sum().sum()

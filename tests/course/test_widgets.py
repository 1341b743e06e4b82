"""Panels without a browser: what a control changes, what Stop keeps, and errors that are shown."""

import re
import time

import ipywidgets as ipw
import pytest

from course.panels import (
    continuations,
    fallback_run,
    ladder_views,
    memory_view,
    strategy_boxes,
    strategy_report,
)
from course.widgets import TrainingLab, before_and_after, ladder_player, memory_explorer, quiz, strategy_map
from tlkit.fitting.fallback import FallbackLog
from tlkit.settings import Profile


def inside(panel, kind):
    """Every widget of a kind in a panel, in order."""
    found = [panel] if isinstance(panel, kind) else []
    return found + [widget for child in getattr(panel, "children", ()) for widget in inside(child, kind)]


def control(panel, label):
    return next(widget for widget in inside(panel, ipw.Dropdown | ipw.Textarea) if widget.description == label)


def button(panel, label):
    return next(widget for widget in inside(panel, ipw.Button) if widget.description == label)


def said(panel):
    return " ".join(widget.value for widget in inside(panel, ipw.HTML))


@pytest.fixture(scope="module")
def explorer():
    panel = memory_explorer()
    control(panel, "Model").value = "tiny"
    return panel


def test_memory_explorer_says_what_the_function_says(explorer):
    control(explorer, "Strategy").value = "last_layers"
    control(explorer, "Card").value = "RTX 3060 12GB"
    view = memory_view("tiny", "last_layers", "fp32", 1, 512, "RTX 3060 12GB")
    assert view.text.startswith("Fits RTX 3060 12GB") and view.text in said(explorer)
    assert f'alt="{view.text}"' in said(explorer), "the words are the picture's alternative text"


def test_an_error_in_a_callback_is_shown_and_the_next_choice_works(explorer, monkeypatch):
    import course.panels

    def broken(estimates, budgets):
        raise RuntimeError("planted <fault>")

    with monkeypatch.context() as planted:
        planted.setattr(course.panels, "memory_chart", broken)
        control(explorer, "Batch size").value = 2
        assert "RuntimeError: planted &lt;fault&gt;" in said(explorer), "shown, as text"
        assert 'role="alert"' in said(explorer) and "<fault>" not in said(explorer)
    control(explorer, "Batch size").value = 4
    assert 'role="alert"' not in said(explorer) and memory_view("tiny", "last_layers", batch_size=4).text[:4] == "Fits"


def test_a_large_model_does_not_fit_a_small_card():
    view = memory_view("qwen2-0.5b", "full", card="RTX 4060 8GB")
    assert view.text.startswith("Does not fit RTX 4060 8GB: 1.58 GiB more than the 6.80 GiB it can give.")
    with pytest.raises(ValueError, match="is unknown: give memory="):
        memory_view(card="RTX 1 1GB")


def test_strategy_map_has_a_box_for_each_part_with_its_counts():
    panel = strategy_map()
    control(panel, "Strategy").value = "last_layers"
    report = strategy_report("tiny", "last_layers")
    boxes = strategy_boxes(report)
    assert str(report) in said(panel) and boxes in said(panel)
    assert boxes.count('tabindex="0"') == len(report.components) == boxes.count("aria-label=")
    for name, part in report.components.items():
        assert f'title="{name}: {part.trainable_values:,} of {part.total_values:,} values trained"' in boxes


def test_stop_stops_and_keeps_what_was_reached():
    lab = TrainingLab()
    assert button(lab.panel, "Stop").disabled
    lab.strategy.value, lab.epochs.value = "last_layers", 4
    button(lab.panel, "Start").click()
    assert button(lab.panel, "Start").disabled and not button(lab.panel, "Stop").disabled
    deadline = time.monotonic() + 60
    while lab.state is None and time.monotonic() < deadline:
        time.sleep(0.05)
    button(lab.panel, "Stop").click()
    lab.wait()
    reached = len(lab.state.history)
    assert 0 < reached < lab.state.total_steps and not lab.state.done
    assert "Stopped, and kept." in said(lab.panel) and f"step {reached} of" in said(lab.panel)
    assert button(lab.panel, "Stop").disabled and not button(lab.panel, "Start").disabled
    assert sum(p.requires_grad for p in lab.state.model.parameters()) < 98, "the adapted model is there to be used"


def test_runs_of_a_lab_are_laid_over_each_other_on_axes_that_stay_and_a_diverged_one_says_so(monkeypatch):
    import course.panels

    monkeypatch.setattr(course.panels, "setup", lambda: Profile("small", 8, 4, 1, 1))
    charts, draw = [], course.panels.live_curves

    def drawn(*curves, **options):
        charts.append(draw(*curves, **options))
        return charts[-1]

    monkeypatch.setattr(course.panels, "live_curves", drawn)
    lab = TrainingLab()
    lab.strategy.value, lab.learning_rate.value = "full", 1e-3
    lab.start()
    lab.wait()
    assert re.search(
        r"full, rate 0\.001: step (\d+) of \1, validation loss from 4\.\d\d to .* It took \d+ s\.", said(lab.panel)
    )
    lab.learning_rate.value, lab.epochs.value = 5e-2, 4
    lab.start()
    lab.wait()
    assert "diverged at step" in said(lab.panel) and "Its learning rate is too high" in said(lab.panel)
    assert not button(lab.panel, "Start").disabled
    assert [run.diverged_at is None for run in lab.runs] == [True, False]
    first, last = charts[0].axes[0], charts[-1].axes[0]
    assert len(first.lines) == 2 and len(last.lines) == 3, "the line of the untouched model, and a line for each run"
    assert last.lines[1].get_ydata()[-1] == lab.runs[0].points[-1][1], "the first run is still there"
    assert first.get_ylim() == last.get_ylim(), "and lies where it lay"
    upright = {chart.axes[0].get_xlim() for chart in charts}
    assert len(upright) == 2, "one for the short run, one that has room for the long one"


def test_a_lab_that_cannot_train_says_so(monkeypatch):
    import course.panels

    monkeypatch.setattr(course.panels, "setup", lambda: Profile("none", 0, 0, 1, 1))
    lab = TrainingLab()
    lab.start()
    lab.wait()
    assert "no documents to pack" in said(lab.panel) and lab.state is None
    assert not button(lab.panel, "Start").disabled


def test_before_and_after_side_by_side(tiny):
    adapted = []
    panel = before_and_after(tiny.model, lambda: adapted[0] if adapted else None, tiny.tokenizer)
    control(panel, "Prompt").value = "A <b>bold</b> prompt"
    button(panel, "Continue").click()
    assert "not adapted yet" in said(panel) and "<b>bold</b>" not in said(panel)
    adapted.append(tiny.model)
    button(panel, "Continue").click()
    texts = [widget.value.split("</h4>")[1] for widget in inside(panel, ipw.HTML) if "<h4>" in widget.value]
    assert len(texts) == 2 and texts[0] == texts[1], "the same model writes the same"
    control(panel, "Prompt").value = " "
    button(panel, "Continue").click()
    assert "the prompt is empty" in said(panel) and 'role="alert"' in said(panel)
    with pytest.raises(ValueError, match="has 500 characters: at most 400"):
        continuations({"before": tiny.model}, tiny.tokenizer, "x" * 500)


def test_ladder_player_goes_on_and_back():
    log = fallback_run("48MB", "last_layers")
    views = ladder_views(log)
    assert views[-1].text.split(": ")[1].startswith("it holds") and all("failed in the" in v.text for v in views[:-1])
    panel = ladder_player(log)
    assert button(panel, "Back").disabled
    for view in views:
        button(panel, "Next attempt").click()
        assert view.text in said(panel)
    assert button(panel, "Next attempt").disabled
    if len(views) > 1:
        button(panel, "Back").click()
        assert views[-2].text in said(panel) and not button(panel, "Next attempt").disabled


def test_a_log_without_an_attempt_is_said():
    panel = ladder_player(FallbackLog())
    button(panel, "Next attempt").click()
    assert 'role="alert"' in said(panel)


def test_a_quiz_answers_each_choice():
    panel = quiz("quiz04")
    choice = inside(panel, ipw.ToggleButtons)[0]
    assert choice.value is None
    choice.value = "a"
    assert "✗ not yet" in said(panel) and "quiz04" in said(panel)
    choice.value = "b"
    assert "✓ right" in said(panel)
    with pytest.raises(ValueError, match="is an exercise, not a quiz"):
        quiz("ex04_1")


def test_every_control_has_a_label_and_every_button_words():
    lab = TrainingLab()
    for panel in (memory_explorer(), strategy_map(), lab.panel, before_and_after(None, lambda: None, None)):
        assert all(widget.description for widget in inside(panel, ipw.Dropdown | ipw.Textarea | ipw.Button))


def test_what_takes_time_says_so_before_it_begins(explorer, monkeypatch):
    import course.panels

    real, heard = course.panels.estimate_memory, []

    def listening(*arguments, **options):
        heard.append(said(explorer))
        return real(*arguments, **options)

    monkeypatch.setattr(course.panels, "estimate_memory", listening)
    control(explorer, "Sequence length").value = 64
    assert "estimating" in heard[-1] and "estimating" not in said(explorer)

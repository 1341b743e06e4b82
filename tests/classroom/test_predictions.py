"""Predict, then see: every lesson asks before it shows, guesses are kept as they were, and differences are in words."""

import ast
import builtins
import json
import re
from pathlib import Path

import ipywidgets as ipw
import jupytext
import nbformat
import pytest

import tlkit as tl
from tlkit.classroom.cards import folded
from tlkit.classroom.exercises import Wrong
from tlkit.classroom.guesses import guesses, outcome, predict
from tlkit.classroom.pages import exercise_cells
from tlkit.classroom.predictions import Amount, Choice, find_prediction, predictions_of
from tlkit.classroom.progress import kept, kept_guesses, where_was_i
from tlkit.classroom.slides import slides_of
from tlkit.classroom.widgets import guess_field
from tlkit.cli import main

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
LESSONS = sorted(FOLDER.glob("[0-2][0-9]_*.py"))[1:]  # the first is the index
PREDICTIONS = [one for lesson in LESSONS for one in predictions_of(lesson.stem[:2]).values()]
SHARE = Amount(
    name="p00_1", question="How much is left?", about="the cost of freezing half the blocks", unit="%",
    lowest=0, highest=100, within=4, too_low="Perhaps low.", too_high="Perhaps high.", near="Quite near.",
)  # fmt: skip


@pytest.fixture
def file(tmp_path, monkeypatch):
    file = tmp_path / "progress.jsonl"
    monkeypatch.setenv("TLKIT_PROGRESS", str(file))
    return file


@pytest.fixture
def share(monkeypatch):
    """Lesson 0 has one prediction, `SHARE`."""
    monkeypatch.setattr("tlkit.classroom.predictions.predictions_of", {"00": {"p00_1": SHARE}}.get)
    monkeypatch.setattr("tlkit.classroom.guesses.predictions_of", {"00": {"p00_1": SHARE}}.get)
    return SHARE


# What is declared


def test_every_lesson_has_a_prediction():
    assert len(LESSONS) == 21 and all(predictions_of(lesson.stem[:2]) for lesson in LESSONS)
    assert predictions_of("77") == {}


def said(one):
    """All that a prediction may say about a guess."""
    return list(one.choices.values()) if isinstance(one, Choice) else [one.too_low, one.too_high, one.near]


@pytest.mark.parametrize("one", PREDICTIONS, ids=lambda one: one.name)
def test_a_prediction_has_a_sentence_for_every_side_and_none_gives_a_number(one):
    assert re.fullmatch(r"p\d\d_\d", one.name) and "\n" not in one.question and one.question.count("?") == 1
    assert not one.about.endswith(".") and len(one.question) <= 120
    assert len(set(said(one))) == len(said(one)) >= 2
    for sentence in said(one):
        assert re.fullmatch(r"[A-Z`].{30,}\.", sentence) and not re.search(r"\d", sentence), sentence
    if isinstance(one, Amount):
        assert one.lowest < one.highest and one.within > (1 if one.by_factor else 0)
        assert one.lowest > 0 or not one.by_factor
        assert one.read(one.lowest) == one.lowest and one.read(one.highest) == one.highest


# Where a lesson asks and answers


def faults(lesson: str, names) -> list[str]:
    """What is wrong with the places of a lesson's predictions, in a percent script."""
    code = [cell.source for cell in jupytext.reads(lesson, "py:percent").cells if cell.cell_type == "code"]
    found, known = [], set(dir(builtins))
    asked = {name: [n for n, source in enumerate(code) if f'tl.predict("{name}"' in source] for name in names}
    shown = {name: [n for n, source in enumerate(code) if f'tl.outcome("{name}"' in source] for name in names}
    for name in names:
        if (len(asked[name]), len(shown[name])) != (1, 1):
            found.append(f"{name}: asked {len(asked[name])} times, shown {len(shown[name])} times")
        elif asked[name] >= shown[name]:
            found.append(f"{name}: shown before it is asked")
        elif code[asked[name][0]] != f'tl.predict("{name}")':
            found.append(f"{name}: its question has no cell of its own")
    for name in sorted(set(re.findall(r'tl\.(?:predict|outcome)\("(\w+)"', lesson)) - set(names)):
        found.append(f"{name}: not declared")
    for source in code:
        tree = ast.parse(re.sub(r"^[%!].*$", "", source, flags=re.MULTILINE))
        stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        if "tl.outcome(" in source:
            last = tree.body[-1].value
            assert last.func.attr == "outcome", "the card is what its cell shows"
            used = {node.id for node in ast.walk(last.args[1]) if isinstance(node, ast.Name)} - {"tl"}
            if not used:
                found.append(f"{last.args[0].value}: its result is written down, not measured")
            own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"tl"}
            if own - known - stored:
                found.append(f"{last.args[0].value}: {sorted(own - known - stored)} not computed before")
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                stored |= {(name.asname or name.name).split(".")[0] for name in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                stored.add(node.name)
        known |= stored
    return found


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_asks_once_and_then_shows_what_it_has_measured(path):
    assert faults(path.read_text(encoding="utf-8"), list(predictions_of(path.stem[:2]))) == []


def test_a_prediction_in_the_wrong_place_is_found():
    ask, measure, show = '# %%\ntl.predict("p00_1")\n', "# %%\nleft = 1\n", '# %%\ntl.outcome("p00_1", 100 * left)\n'
    assert faults(ask + measure + show, ["p00_1"]) == []
    for planted, expected in (
        (measure + show + ask, "p00_1: shown before it is asked"),
        (measure + show, "p00_1: asked 0 times, shown 1 times"),
        (ask + measure + show + show, "p00_1: asked 1 times, shown 2 times"),
        (ask.replace('1")', '1", 50)') + measure + show, "p00_1: its question has no cell of its own"),
        (ask + show, "p00_1: ['left'] not computed before"),
        (ask + show + measure, "p00_1: ['left'] not computed before"),
        (ask + '# %%\ntl.outcome("p00_1", 88)\n', "p00_1: its result is written down, not measured"),
        (ask + measure + show + ask.replace("_1", "_2"), "p00_2: not declared"),
    ):
        assert faults(planted, ["p00_1"]) == [expected]


# How a guess is read


@pytest.mark.parametrize(
    "guess, value", [(70, 70), ("70", 70), (" 70 % ", 70), ("70.5%", 70.5), ("7e1", 70), (0.5, 0.5), (".5", 0.5)]
)
def test_a_guess_is_read_as_it_is_typed(guess, value):
    assert SHARE.read(guess) == value


def test_a_guess_may_have_commas_between_thousands_and_come_from_a_library():
    import numpy as np
    import torch

    rows = find_prediction("p06_1")
    assert rows.read("4,096 rows") == rows.read("4096") == rows.read(np.int64(4096)) == 4096
    assert rows.read(torch.tensor(64)) == 64
    with pytest.raises(Wrong, match="Use a decimal point"):
        rows.read("1,5")


@pytest.mark.parametrize(
    "guess, sentence",
    [
        (float("nan"), "this is nan"),
        (float("inf"), "A guess of inf is not possible here: expected a number from 0% to 100%"),
        (101, "A guess of 101 is not possible here"),
        ("-3", "A guess of -3 is not possible here"),
        ("about 70", "Expected a number, not 'about 70'."),
        ("", "Expected a number"),
        ("0,125", "Use a decimal point"),
        (True, "this is bool True"),
        ([70], "this is list [70]"),
        (10**400, "Expected one number"),
    ],
)
def test_a_bad_guess_is_a_sentence_and_is_not_kept(file, share, guess, sentence):
    said = str(predict("p00_1", guess))
    assert sentence in said and said[0].isupper() and said.endswith(".") and not file.exists()


def test_several_values_are_no_guess(file, share):
    import numpy as np
    import torch

    for several in (np.array([1.0, 2.0]), torch.zeros(2)):
        assert "xpected one number, not" in str(predict("p00_1", several))


@pytest.mark.parametrize("name", ["p04_9", "p99_1", "ex04_1", "p4", None, 3, ["p04_1"]])
def test_an_unknown_name_is_a_sentence(name):
    for answer in (predict(name), predict(name, 3), outcome(name, 3)):
        assert "is unknown: expected" in str(answer)
    with pytest.raises(ValueError, match="is unknown: expected"):
        find_prediction(name)


def test_a_choice_is_read_whatever_its_case_and_another_is_a_sentence(file):
    assert find_prediction("p05_2").read(" Full ") == "full"
    assert str(predict("p05_2", "half")) == "'half' is no choice: expected one of 'full', 'freeze_lower'."
    assert "is no choice" in str(outcome("p05_2", "half")) and not file.exists()


def test_a_result_that_is_no_number_is_a_sentence(file, share):
    for result in (float("nan"), float("inf"), None, "88"):
        assert str(outcome("p00_1", result)).endswith(".") and not file.exists()


# What the difference says


def test_shares_differ_in_points_ratios_by_a_factor_and_counts_in_their_unit():
    assert SHARE.summary(66, 88) == "Your guess for the cost of freezing half the blocks was 22 points too low."
    assert SHARE.difference(89, 88) == "1 point too high" and SHARE.difference(88, 88) == "exactly right"
    assert SHARE.difference(87.8, 88) == "0.2 points too low"
    which = find_prediction("p05_2")
    wrong = "Your guess for the strategy that forgets more at the same rate was “freeze_lower”; it is “full”."
    assert which.summary("freeze_lower", "full") == wrong
    ratio = find_prediction("p02_1")
    assert ratio.written(1) == "a factor of 1" and ratio.written(0.5) == "a factor of 0.5"
    assert ratio.difference(500, 1) == "too high by a factor of 500"
    assert ratio.difference(1, 1.5) == "too low by a factor of 1.5" and ratio.difference(1.02, 1) != "exactly right"
    rows = find_prediction("p06_1")
    assert rows.difference(64, 4096) == "4,032 rows too low" and rows.difference(2, 1) == "1 row too high"
    assert find_prediction("p04_1").difference(-10, 40) == "50 points too low"


def test_the_sentence_is_that_of_its_side_and_near_is_what_is_within():
    says = [SHARE.says(guess, 88) for guess in (83.9, 84, 88, 92, 92.1)]
    assert says == ["Perhaps low.", "Quite near.", "Quite near.", "Quite near.", "Perhaps high."]
    one = find_prediction("p16_2")
    assert [one.is_near(guess, 30_000) for guess in (19_000, 21_000, 44_000, 46_000)] == [False, True, True, False]


@pytest.mark.parametrize("one", [one for one in PREDICTIONS if isinstance(one, Amount)], ids=lambda one: one.name)
def test_both_have_their_place_on_one_line(one):
    numbers = [one.lowest, one.highest, (one.lowest + one.highest) / 2]
    for guess in numbers:
        for result in numbers:
            at = one.places(guess, result)
            assert all(0 <= place <= 1 for place in at)
            assert (at[0] < at[1], at[0] > at[1]) == (guess < result, guess > result)


# What is kept


def test_a_guess_is_kept_reread_and_shown_beside_the_result(file, share):
    assert "Your guess is 66%. Run on and see." in repr(predict("p00_1", 66))
    assert [json.loads(line)["guess"] for line in file.read_text().splitlines()] == [66]
    assert "Your guess is 66%" in repr(predict("p00_1")), "also in the next notebook"
    seen = outcome("p00_1", 87.6)
    assert repr(seen) == "[APART] p00_1: you guessed 66%, and it is 88%: 22 points too low. Perhaps low."
    card = seen._repr_html_()
    assert "left:66%" in card and "left:88%" in card and "<details>" not in card


def test_running_all_cells_again_adds_nothing(file, share):
    for _ in range(3):
        predict("p00_1", 66)
        outcome("p00_1", 87.6)
    assert len(file.read_text().splitlines()) == 2
    outcome("p00_1", 90)
    assert guesses().table.result.tolist() == ["90%"], "the last one, as with another profile"


def test_before_the_result_a_guess_may_change_and_after_it_that_does_not_count(file, share):
    predict("p00_1", 20)
    predict("p00_1", 66)
    outcome("p00_1", 88)
    assert "You guessed 88% after the result was shown, and 66% before it." in repr(predict("p00_1", 88))
    said = repr(outcome("p00_1", 88))
    assert "you guessed 66%" in said and "Your later guess, 88%, is kept, but it does not count." in said
    found = guesses()
    assert found.table.guess.tolist() == ["66%"] and found.table.note.tolist() == ["later 88%"]
    assert found.closing.startswith("Your guess for the cost of freezing half the blocks was 22 points too low.")
    assert [line.guess for line in kept_guesses() if hasattr(line, "guess")] == [20, 66, 88]


def test_a_first_guess_after_the_result_is_shown_and_does_not_count(file, share):
    outcome("p00_1", 88)
    predict("p00_1", 88)
    assert "so this does not count in the summary" in repr(outcome("p00_1", 88))
    assert guesses().table.note.tolist() == ["guessed after the result"]
    assert guesses().closing == "No guess that was made before its result has a result yet."


def test_old_lines_are_still_read_and_answers_and_guesses_do_not_mix(file, share):
    old = '{"name": "quiz04", "right": true, "at": "2026-01-02T03:04:05+00:00"}\n'
    file.write_text(old)
    predict("p00_1", 66)
    assert file.read_text().startswith(old)
    assert [one.name for one in kept()] == ["quiz04"] and [one.name for one in kept_guesses()] == ["p00_1"]
    assert where_was_i().startswith("Your last answer was to quiz04")


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "p00_1", "guess": NaN, "at": ""}',
        '{"name": "p00_1", "guess": true, "at": ""}',
        '{"name": "p00_1", "guess": 1}',
        '{"name": "p00_1", "guess": 1, "result": 2, "at": ""}',
        '{"name": 3, "result": 2, "at": ""}',
    ],
)
def test_a_line_of_something_else_is_named_and_left_alone(file, share, line, capsys):
    file.write_text(line + "\n")
    assert "This guess is not kept with your progress: line 1 of" in repr(predict("p00_1", 66))
    assert "It is 88%." in repr(outcome("p00_1", 88)) and "line 1 of" in repr(outcome("p00_1", 88))
    assert file.read_text() == line + "\n" and main(["progress"]) == 2
    assert "line 1 of" in capsys.readouterr().err


def test_a_choice_that_the_lesson_no_longer_has_is_passed_over(file):
    lines = [{"name": name, "guess": "third", "at": ""} for name in ("p05_2", "p05_9")]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "No guess was made" in repr(outcome("p05_2", "full")) and guesses().table.empty


def test_without_a_file_it_is_kept_in_memory(monkeypatch, share):
    monkeypatch.setenv("TLKIT_PROGRESS", "off")
    monkeypatch.setattr("tlkit.classroom.progress._while_off", [])
    predict("p00_1", 66)
    assert "22 points too low" in repr(outcome("p00_1", 88)) and len(guesses().table) == 1


# What is shown


def test_without_a_guess_the_result_is_folded_up_and_the_same_each_time(file, share):
    cards = {outcome("p00_1", result)._repr_html_() for result in (87.6, 87.9, 88.04)}
    (card,) = cards
    assert folded("The result", "It is 88%.") in card and card.count("88") == 1
    assert "<code>tl.predict(&quot;p00_1&quot;, guess)</code>" in card
    assert repr(guesses()) == guesses().closing and guesses().closing.startswith("No guess is kept yet.")


def test_the_summary_counts_the_near_ones_and_names_the_furthest(file):
    for name, guess, result in (("p05_1", 87, 88), ("p06_1", 64, 4096), ("p05_2", "full", "full"), ("p07_1", 25, 56)):
        predict(name, guess)
        outcome(name, result)
    predict("p10_1", 50)
    found = guesses()
    start = "2 of your 4 guesses were near or right. The furthest: Your guess for the number of rows"
    assert found.closing.startswith(start)
    assert found.table.set_index("prediction").result["p10_1"] == "not seen yet"
    assert guesses("05").table.prediction.tolist() == ["p05_1", "p05_2"] and guesses(5).closing == guesses("05").closing
    assert guesses("05").closing.startswith("All your 2 guesses were near or right.")
    assert "<table" in found._repr_html_() and "too low" in repr(found)
    with pytest.raises(ValueError, match="lesson '77' has no predictions"):
        guesses("77")


@pytest.mark.parametrize("again", [False, True], ids=["guessed once", "and once more after the result"])
def test_the_summary_in_text_fits_a_cell_of_a_notebook(file, again):
    """JupyterLab wraps longer lines, and the columns then stand anywhere."""
    for number in range(1, 22):
        for name, one in predictions_of(f"{number:02d}").items():
            ends = (
                (one.lowest, one.highest)
                if isinstance(one, Amount)
                else sorted(one.choices, key=len)[:: len(one.choices) - 1]
            )
            predict(name, ends[1])
            outcome(name, ends[0])
            if again:
                predict(name, ends[0])
    lines = repr(guesses()).splitlines()
    assert len(lines) > 60 and max(map(len, lines)) <= 88 and ("note" in lines[0]) == again


def test_the_field_and_the_buttons_set_the_guess(file):
    field = guess_field(predict("p05_1"))
    text = next(child for child in field.children if isinstance(child, ipw.Text))
    assert text.description == "Your guess (%)" and text.value == ""
    text.value = "66"
    assert "Your guess is 66%" in field.children[-1].value
    text.value = "many"
    assert "Expected a number" in field.children[-1].value
    outcome("p05_1", 88)
    again = guess_field(predict("p05_1")).children
    assert again[0].value == "66", "what was kept stands in the field"
    assert again[-1].value == "", "and the card above it says so, once"
    buttons = guess_field(predict("p05_2")).children[0]
    assert buttons.options == ("full", "freeze_lower") and buttons.value is None
    buttons.value = "full"
    assert [line.guess for line in kept_guesses() if hasattr(line, "guess")] == [66, "full"]


def displayed(asked, monkeypatch, shell):
    """What a notebook shows for a question, in a kernel or in a terminal."""
    shown = []
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", lambda one, raw=False: shown.append(one))
    asked._ipython_display_()
    return shown


def test_a_notebook_gets_the_field_below_the_question_and_a_terminal_words(file, share, monkeypatch):
    (card,) = displayed(predict("p00_1"), monkeypatch, None)
    assert "How much is left?" in card["text/html"] and "a number (%)" in card["text/html"]
    how = 'if there is one, or run `tl.predict("p00_1", guess)`: a number (%).'
    assert card["text/plain"] == repr(predict("p00_1")) and card["text/plain"].endswith(how)
    kernel = type("Shell", (), {"kernel": object()})()
    again, field = displayed(predict("p00_1"), monkeypatch, kernel)
    assert again == card and isinstance(field.children[0], ipw.Text)
    assert "Your guess is 66%" in displayed(predict("p00_1", 66), monkeypatch, None)[0]["text/html"]


def test_a_lesson_ends_with_its_guesses_and_the_command_prints_them(file, capsys):
    solution = jupytext.read(FOLDER / "solutions" / "04_full_fine_tuning.py")
    last = exercise_cells("04", solution)[-1].source
    assert last == 'print(tl.guesses("04"))\ntl.progress("04")'
    exec(last, {"tl": tl})
    assert capsys.readouterr().out.startswith("No guess is kept yet.")
    predict("p04_1", 10)
    outcome("p04_1", 40)
    assert main(["progress"]) == 0
    assert "the change of perplexity on the Python reference" in capsys.readouterr().out
    assert main(["progress", "--lesson", "05"]) == 0
    assert "Python reference" not in capsys.readouterr().out


def test_a_slide_asks_with_the_result_folded_up_before_any_slide_answers(file, share, monkeypatch):
    (asked,) = displayed(predict("p00_1"), monkeypatch, None)
    card = {"text/html": outcome("p00_1", 88)._repr_html_(), "text/plain": "[NOTE]"}
    parts = [('tl.predict("p00_1")', asked), ("left = 88\nleft", {"text/plain": "88"})]
    parts.append(('share = left\ntl.outcome("p00_1", share)', card))
    cells = [
        nbformat.v4.new_code_cell(source, outputs=[nbformat.v4.new_output("execute_result", data)])
        for source, data in parts
    ]
    question, answer = slides_of(nbformat.v4.new_notebook(cells=cells))
    assert question.kind == "text" and question.body.startswith("<p><strong> How much is left?</strong></p><details>")
    assert "88%" in question.body and "guess was made" not in question.body
    assert answer.kind == "code" and "tl.outcome" not in answer.body + answer.notes

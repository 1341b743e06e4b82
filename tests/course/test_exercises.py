"""Every exercise: its solution passes, its stub fails kindly, and typical wrong answers are told why they are wrong."""

from pathlib import Path

import jupytext
import nbformat
import pytest
from wrong_answers import WRONG

import course
import tlkit
from course.exercises import Exercise, Quiz, check, find, hint, tasks_of
from course.pages import exercise_cells

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
SOLUTIONS = sorted((FOLDER / "solutions").glob("*.py"))
TASKS = [task for solution in SOLUTIONS for task in tasks_of(solution.stem[:2]).values()]
EXERCISES = [task for task in TASKS if isinstance(task, Exercise)]


def verdicts(cells, monkeypatch):
    """Run cells, each with nothing but the first one's imports, as their text promises; what was said, by name."""
    said = {}

    def keep(name, answer):
        said[name] = check(name, answer)
        return said[name]

    monkeypatch.setattr(course, "check", keep)
    for cell in cells:
        if cell.cell_type == "code" and not cell.source.startswith("course.quiz("):
            exec(compile(cell.source, "<cell>", "exec"), {"course": course, "tl": tlkit})
    return said


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solutions_pass_and_stubs_fail_kindly(path, monkeypatch):
    solution = jupytext.read(path)
    right = verdicts(solution.cells, monkeypatch)
    assert right and all(verdict.passed for verdict in right.values()), right
    stubs = verdicts(exercise_cells(path.stem[:2], solution), monkeypatch)
    assert stubs.keys() == right.keys()
    for verdict in stubs.values():
        assert not verdict.passed and ("no answer yet" in verdict.message or "returns nothing yet" in verdict.message)
    cells = nbformat.read(FOLDER / f"{path.stem}.ipynb", as_version=4).cells
    shown = [cell.outputs[0].data["text/html"] for cell in cells if "\ncourse.check(" in cell.source]
    assert shown == [verdict._repr_html_() for verdict in stubs.values()], "the lesson shows what a stub hears"


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_lesson_has_a_few_exercises_and_a_quiz_and_no_solution(path):
    tasks = tasks_of(path.stem[:2]).values()
    numbers = [int(task.name.rpartition("_")[2]) for task in tasks if isinstance(task, Exercise)]
    assert numbers in ([1], [1, 2], [1, 2, 3])
    assert any(isinstance(task, Quiz) for task in tasks)
    assert "SOLUTION" not in (FOLDER / f"{path.stem}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("task", EXERCISES, ids=lambda task: task.name)
def test_wrong_answers_are_told_why(task):
    """Those that stand beside the judge, and those of `wrong_answers`; no two of them hear the same."""
    wrong = [*((answer, reason) for reason, answer in task.mistakes.items()), *WRONG.get(task.name, ())]
    for answer, reason in wrong:
        verdict = check(task.name, answer)
        assert not verdict.passed and reason.rstrip(".") in verdict.message, verdict
    assert len({reason for _, reason in wrong}) == len(wrong) >= 3


@pytest.mark.parametrize("task", EXERCISES, ids=lambda task: task.name)
def test_nothing_that_is_handed_in_breaks_a_check_or_pleases_it(task):
    def breaks(*arguments, **named):
        raise ZeroDivisionError("planted")

    class Anything:
        """Equal to whatever it is compared with."""

        def __eq__(self, other):
            return True

        __hash__ = None

    odd = (float("nan"), "", "text", [], {}, True, -1, object(), Anything())
    for answer in (*odd, lambda *a, **k: "text", lambda: 1, lambda *a, **k: Anything(), breaks):
        verdict = check(task.name, answer)
        assert not verdict.passed and str(verdict).startswith(f"[NOT YET] {task.name}: "), answer


@pytest.mark.parametrize("task", EXERCISES, ids=lambda task: task.name)
def test_hints_come_one_at_a_time(task):
    assert len(task.hints) >= 2 and len(set(task.hints)) == len(task.hints)
    assert task.hints[0] in hint(task.name) and hint(task.name, len(task.hints)).endswith("(the last hint)")
    for missing in (len(task.hints) + 1, 0, -1, "1", None, 1.5):
        assert hint(task.name, missing) == f"{task.name} has hints 1 to {len(task.hints)}, and no hint {missing}."


@pytest.mark.parametrize("quiz", [task for task in TASKS if isinstance(task, Quiz)], ids=lambda quiz: quiz.name)
def test_every_choice_of_a_quiz_has_its_reason(quiz):
    assert quiz.choices.keys() == quiz.reasons.keys() and len(quiz.choices) >= 3
    for letter in quiz.choices:
        verdict = check(quiz.name, f" {letter.upper()} ")
        assert verdict.passed is (letter == quiz.right) and verdict.message == quiz.reasons[letter]
    assert "expected one of a, b, c" in check(quiz.name, "z").message
    assert "no answer yet" in check(quiz.name, None).message


@pytest.mark.parametrize("name", ["ex04_9", "ex99_1", "exercise", None, 3])
def test_an_unknown_exercise_is_a_sentence_and_for_programs_a_refusal(name):
    verdict = check(name, 1)
    assert not verdict.passed and "is unknown: expected" in verdict.message
    assert "is unknown: expected" in hint(name)
    with pytest.raises(ValueError, match="is unknown: expected"):
        find(name)


def test_solutions_that_do_not_fit_their_checks_are_named():
    text = (FOLDER / "solutions" / "04_full_fine_tuning.py").read_text()
    for planted, said in (
        (text.replace("ex04_1", "ex04_3"), r"check \['ex04_3'\]"),
        (text.replace("### END SOLUTION", "", 1), "ex04_1: expected its question"),
    ):
        with pytest.raises(ValueError, match=said):
            exercise_cells("04", jupytext.reads(planted, "py:percent"))


def test_a_verdict_is_a_card_with_its_hints_folded_into_one_another_and_nothing_of_the_answer_is_run():
    wrong = check("ex04_1", "<script>alert(1)</script>")._repr_html_()
    assert "✗ not yet" in wrong and "<script>" not in wrong and "&lt;script&gt;" in wrong
    assert wrong.count("<details>") == len(find("ex04_1").hints) and wrong.endswith("</details></details></div>")
    right = check("quiz04", "b")._repr_html_()
    assert "✓ right" in right and "<details>" not in right

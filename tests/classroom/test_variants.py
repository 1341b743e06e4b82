"""Variants: cases drawn anew accept every solution, and nothing that was made for the lesson's own cases."""

from functools import cache
from pathlib import Path
from random import Random

import jupytext
import pytest

import tlkit
from tlkit.classroom.exercises import Exercise, check, check_anew, tasks_of

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
SOLUTIONS = {path.stem[:2]: path for path in sorted((FOLDER / "solutions").glob("*.py"))}
EXERCISES = [task for lesson in SOLUTIONS for task in tasks_of(lesson).values() if isinstance(task, Exercise)]
DRAWN = [task for task in EXERCISES if task.drawn]
SEEDS = (1, 2027)
BY_WHAT_CHANGES = {
    "ex07_3",
    "ex10_2",
    "ex11_2",
    "ex13_3",
}  # judged by what they do to a model: a recorded result says nothing


@cache
def solutions(lesson):
    """What the solutions of a lesson hand in, by exercise."""
    given = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tlkit, "check", lambda name, answer: given.setdefault(name, answer))
        for cell in jupytext.read(SOLUTIONS[lesson]).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, "<cell>", "exec"), {"tl": tlkit})
    return given


@pytest.mark.parametrize("task", DRAWN, ids=lambda task: task.name)
def test_solutions_are_right_for_every_seed(task):
    for seed in SEEDS:
        verdict = check_anew(task.name, solutions(task.name[2:4])[task.name], seed)
        assert verdict.passed, verdict


@pytest.mark.parametrize("task", [task for task in DRAWN if task.name not in BY_WHAT_CHANGES], ids=lambda t: t.name)
def test_what_was_made_for_the_lessons_own_cases_is_not_right_for_others(task):
    """The solution's results are recorded call by call, and played back, as one who has seen the cases could."""
    solution, recorded = solutions(task.name[2:4])[task.name], []

    def recording(*arguments, **named):
        try:
            recorded.append(solution(*arguments, **named))
        except Exception as error:
            recorded.append(error)
            raise
        return recorded[-1]

    def playing(*arguments, **named):
        result = tape.pop(0) if tape else recorded[0]
        if isinstance(result, Exception):
            raise result
        return result

    assert check(task.name, recording).passed
    tape = list(recorded)
    assert check(task.name, playing).passed
    for seed in SEEDS:
        tape = list(recorded)
        _is_right_for_no_others(task.name, playing, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_knows_the_lessons_own_models_is_not_right_for_others(seed):
    last, biases, pieces = solutions("07")["ex07_3"], solutions("10")["ex10_2"], solutions("13")["ex13_3"]

    def known_depths(model):
        blocks = tlkit.find_blocks(model)
        for block in list(blocks)[{4: 2, 5: 2, 12: 6}.get(len(blocks), 0) :]:
            block.mlp.requires_grad_(True)
        return model

    counts = {}

    def known_counts(model):
        right = biases(model)
        return counts.setdefault(type(model), right)

    def known_shapes(model, inputs, targets, rows):
        some = slice(None) if tuple(targets.shape) in ((4, 6), (5, 6), (3, 6)) else slice(1)
        return pieces(model, inputs[some], targets[some], rows)

    planted = {"ex11_2": known_depths, "ex07_3": lambda model, blocks: last(model, min(blocks, 3))}
    planted |= {"ex10_2": known_counts, "ex13_3": known_shapes}
    assert planted.keys() == BY_WHAT_CHANGES
    for name, answer in planted.items():
        assert check(name, answer).passed
        _is_right_for_no_others(name, answer, seed)


def _is_right_for_no_others(name, answer, seed):
    verdict = check_anew(name, answer, seed)
    assert not verdict.passed and f"not for others (seed {seed})" in verdict.message, verdict


def test_every_lesson_has_a_variant_and_numbers_have_none():
    """But for the capstone, whose judges look at the method; teachers read how many there are."""
    assert {task.name[2:4] for task in DRAWN} >= set(SOLUTIONS) - {"21"}
    for_teachers = " ".join((FOLDER / "instructors.md").read_text(encoding="utf-8").split())
    assert f"{len(DRAWN)} exercises, at least one in each lesson, have such variants" in for_teachers
    for task in EXERCISES:
        if not callable(solutions(task.name[2:4])[task.name]):
            assert task.drawn is None, f"{task.name} asks for one number: it has nothing to draw"
            assert check_anew(task.name, 1, 5) == check(task.name, 1)


def test_a_seed_draws_the_same_cases_again_and_another_seed_others():
    task = tasks_of("04")["ex04_2"]
    assert task.drawn(Random("7 ex04_2")) == task.drawn(Random("7 ex04_2")) != task.drawn(Random("8 ex04_2"))

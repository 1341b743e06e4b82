"""The parts of the lessons that are written by a program: the index, the exercises, and the way on and back.

Exercises are written once, with their solutions (`notebooks/solutions/`); a lesson gets them without.
"""

import re
from pathlib import Path
from textwrap import fill

import jupytext
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course.exercises import Exercise, Quiz, tasks_of
from course.lessons import (
    EXERCISES_IMPORT,
    FOLDER,
    INDEX,
    MINUTES,
    Lesson,
    lessons,
    minutes_needed,
    recorded_seconds,
)

WIDTH = 118  # of a line of text, behind its `# `
SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION$", re.DOTALL | re.MULTILINE)
# The parts of the course, by the number of the first lesson of each.
PARTS = {
    "01": "Part 1: First results",
    "04": "Part 2: What to train",
    "09": "Part 3: Make it fit",
    "11": "Part 4: Do the job",
    "15": "Part 5: Know what is true",
    "18": "Part 6: Beyond",
    "A1": "Appendix",
}
MINUTES_OFF = 0.1  # what a lesson says may be off by this share: seconds differ from run to run
TABLE = re.compile(r"^\| lesson \| question \| minutes \|\n(?:\|.*\n)+", re.MULTILINE)
GENERATED = re.compile(r"\n# %% \[markdown\][^\n]*\n# (?:## Exercises|Previous: |Next: )")


def lesson_table(found: list[Lesson], link: str = "{}.ipynb") -> str:
    """Write the lessons as a Markdown table, with a row before each part of the course.

    Args:
        found: what `lessons` returned.
        link: where a lesson is, with {} for the stem of its file.
    """
    rows, named = [], ""
    for lesson in found:
        part = max(first for first in PARTS if first <= lesson.number)
        if part != named:
            rows.append(f"| **{PARTS[part]}** | | |")
        rows.append(f"| [{lesson.title}]({link.format(lesson.stem)}) | {lesson.question} | {lesson.minutes} |")
        named = part
    return "\n".join(["| lesson | question | minutes |", "| --- | --- | --- |", *rows])


def index_source(found: list[Lesson]) -> str:
    """Write the index page as a percent script."""
    hours = sum(lesson.minutes for lesson in found) / 60
    values = {"table": lesson_table(found), "hours": round(hours), "first": found[0]}
    top, middle, bottom = (
        new_markdown_cell(text.format(**values).strip()) for text in (INDEX_TOP, INDEX_MIDDLE, INDEX_BOTTOM)
    )
    doctor = new_code_cell(DOCTOR, metadata={"tags": ["nbval-ignore-output"]})
    cells = [top, doctor, new_code_cell(HEALTHY), middle, bottom]
    return _as_script(cells)


def lesson_source(stem: str, found: list[Lesson], folder: Path = FOLDER) -> str:
    """Write a lesson as its file should be: what its author wrote, then exercises and links as they are now.

    Args:
        stem: of its file, such as "04_full_fine_tuning".
        found: what `lessons` returned.
        folder: where the lessons are, and their solutions below it.

    Returns:
        A percent script.

    Raises:
        ValueError: where the solutions and the checks of the lesson do not fit together.
    """
    written = (folder / f"{stem}.py").read_text(encoding="utf-8")
    written = GENERATED.split(written, maxsplit=1)[0].rstrip()
    solution = folder / "solutions" / f"{stem}.py"
    cells = exercise_cells(stem[:2], jupytext.read(solution)) if solution.is_file() else []
    cells.append(new_markdown_cell(_way(stem, found)))
    return f"{written}\n\n{_as_script(cells)}"


def exercise_cells(lesson: str, solution: NotebookNode) -> list[NotebookNode]:
    """Make a lesson's exercises from its solutions.

    Args:
        lesson: its number, such as "03".
        solution: its notebook of solutions.

    Returns:
        The cells from the heading on: the import, the quiz, and each exercise with its solution taken out.

    Raises:
        ValueError: where exercises and checks do not fit together.
    """
    tasks = tasks_of(lesson)
    quizzes = [task for task in tasks.values() if isinstance(task, Quiz)]
    slide = {"slideshow": {"slide_type": "slide"}}
    top = new_markdown_cell(EXERCISES_TOP.format(first=f"ex{lesson}_1"), metadata=slide)
    cells = [top, new_code_cell(EXERCISES_IMPORT)]
    for quiz in quizzes:
        cells += [new_markdown_cell(_as_markdown(quiz)), new_code_cell(f'course.quiz("{quiz.name}")')]
    exercises = [task for task in tasks.values() if isinstance(task, Exercise)]
    parts = list(zip(solution.cells[2::2], solution.cells[3::2], strict=True))  # behind a title and imports
    checked = [name for _, code in parts for name in re.findall(r'^course\.check\("(\w+)"', code.source, re.MULTILINE)]
    if checked != [task.name for task in exercises]:
        raise ValueError(f"solutions of lesson {lesson} check {checked}: expected {[t.name for t in exercises]}")
    for number, (task, (question, code)) in enumerate(zip(exercises, parts, strict=True), 1):
        stub, found = SOLUTION.subn(r"\1# your code here", code.source)
        if (question.cell_type, code.cell_type, found) != ("markdown", "code", 1):
            raise ValueError(f"{task.name}: expected its question, then one cell of code with one solution in it")
        heading = f"**Exercise {lesson.lstrip('0')}.{number}.** "
        first, *rest = question.source.split("\n\n")
        text = "\n\n".join([fill(heading + first, WIDTH), *rest])
        below = {"slideshow": {"slide_type": "subslide"}}
        cells += [new_markdown_cell(text, metadata=below), new_code_cell(stub)]
    return cells


def _as_script(cells: list[NotebookNode]) -> str:
    metadata = {"jupytext": {"notebook_metadata_filter": "-all"}}
    script = re.sub(
        r"\n{3,}# %%", "\n\n# %%", jupytext.writes(new_notebook(cells=cells, metadata=metadata), "py:percent")
    )
    return re.sub(r"\n\n(# %%\ndef )", r"\n\n\n\1", script)  # the blank lines that the formatter wants


def _as_markdown(quiz: Quiz) -> str:
    choices = [fill(f"- **{key}** {text}", WIDTH, subsequent_indent="  ") for key, text in quiz.choices.items()]
    return "\n".join([fill(f"**Quiz.** {quiz.question}", WIDTH), "", *choices])


def _way(stem: str, found: list[Lesson]) -> str:
    place = next(number for number, lesson in enumerate(found) if lesson.stem == stem)
    around = {"Previous": found[place - 1] if place else None, "Next": found[place + 1] if found[place + 1 :] else None}
    return " ·\n".join(f"{word}: [{at.title}]({at.stem}.ipynb)" for word, at in around.items() if at)


def write_generated(folder: Path = FOLDER) -> None:
    """Write the index, the minutes and the generated part of every lesson, and README's table, into their files.

    Raises:
        ValueError: where a lesson lacks what the index needs, or its solutions do not fit its checks.
    """
    _write_minutes(folder)
    found = lessons(folder)
    wanted = {INDEX: index_source(found)} | {lesson.stem: lesson_source(lesson.stem, found, folder) for lesson in found}
    for stem, text in wanted.items():
        (folder / f"{stem}.py").write_text(text, encoding="utf-8")
    readme = folder.parent / "README.md"
    table = lesson_table(found, "notebooks/{}.ipynb") + "\n"
    readme.write_text(TABLE.sub(lambda _: table, readme.read_text(encoding="utf-8")), encoding="utf-8")


def _write_minutes(folder: Path) -> None:
    """Where a lesson's minutes are off by more than a tenth, write those that are computed."""
    seconds = recorded_seconds()
    for lesson in lessons(folder):
        script = folder / f"{lesson.stem}.py"
        needed = minutes_needed(jupytext.read(script), seconds.get(lesson.stem, 0))
        if abs(lesson.minutes - needed) > MINUTES_OFF * needed:
            said = re.sub(MINUTES, f"About {needed} minutes.", script.read_text(encoding="utf-8"), count=1)
            script.write_text(said, encoding="utf-8")


EXERCISES_TOP = """\
## Exercises

Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("{first}", 1)`. After
*Restart Kernel* run the next cell first."""
DOCTOR = """\
import course
from tlkit.cli import main

exit_code = main(["doctor"])"""
HEALTHY = 'course.claim("Everything that the lessons need is here", exit_code == 0)'
INDEX_TOP = """\
# Transfer learning, hands on

In this course you adapt a language model to a new subject. The model is small, but it was really pretrained, and the
subject is the programming language Rust, about which it has read nothing. You do it by several methods, from training
all of the model to LoRA and QLoRA, on the machine that you have. You should know Python and a little torch. You need
no GPU, and a network only to install the course and to fetch the model of lesson 12.

![What each strategy gains on Rust against what it forgets, on two models](images/forgetting.png)

The picture shows what the methods do to two models, the small one and one of 135 million parameters. All methods make
both models better at Rust (further right), and all but LoRA on the larger one make them clearly worse at other text
(further up). By the end you will be able to make such a picture for your own model and text, and to say which of its
differences are real.

The course also retraces a published experiment, in which Qwen2-0.5B, a model of half a billion parameters, was
adapted to text about Rust. Its five reports contain mistakes that are easy to make, and easy to find once you know
how. It used two programs, one written in Python and one in Rust. "The Python run" and "the Rust run" are named after
the program; the text is about Rust in both.

## The lessons

Each lesson asks one question, measures the answer, and explains what came out.

{table}

About {hours} hours in all, with the exercises. The lessons build on one another, so take them in order the first time.
The [glossary](glossary.md) explains the terms.

## How to work

- **Work in a copy.** `make lab` opens one of each lesson, in `my_lessons`, that nobody has run yet. If you came here in
  another way, begin each lesson with *Edit → Clear Outputs of All Cells*, because the recorded answers would spoil
  your guesses.
- **Run the cells from the top** with Shift+Enter. Where you meet a question in bold, answer it before you run the next
  cell. A wrong guess that you made teaches you more than a right answer that you only read.
- **Change something** and see what happens. Then choose *Kernel → Restart Kernel and Run All Cells*, because training
  changes a model in place: a training cell that is run twice trains the same model twice. Your changes are saved in
  your copy. To begin a lesson anew, delete its copy and start `make lab` again.
- **The lessons check what they claim.** A line that begins with ✓ is a claim that was just tested on your machine. If a
  claim does not hold there, the cell stops and says which one.

## Is everything here?

The next cell looks for all parts that the lessons need."""
INDEX_MIDDLE = """\
A line with [FAIL] says what is missing and how to get it. If something goes wrong later, `notebooks/troubleshooting.md`
has a table of problems and their remedies."""
INDEX_BOTTOM = """\
Next: [{first.title}]({first.stem}.ipynb)
"""

"""Commands for those who run the workbook, and for those who teach with it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tlkit.commands.outcome import Outcome
from tlkit.options import option

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class DoctorOptions:
    """What to look at"""

    gpu: bool = option(False, "the accelerator too, in under a minute: the short form of `accept`")


@dataclass(frozen=True)
class GradeOptions:
    """What to grade"""

    notebooks: tuple[Path, ...] = option(help="lessons that students have handed in", positional=True, path="file")
    lesson: str | None = option(None, "what was asked for, such as 04; other lessons are then not graded")
    variants: int | None = option(None, "a seed: right answers are tried again on cases drawn by it", at_least=0)
    output: Path | None = option(None, "a CSV file with a row for each notebook and exercise", path="new file")
    feedback: Path | None = option(None, "a folder for a page of HTML for each notebook", path="new folder")
    hints: bool = option(True, "hints on these pages, folded up")
    gradebook: Path | None = option(None, "a CSV file for another program", path="new file")
    format: str = option("nbgrader", "what reads that file", choices=("nbgrader", "canvas", "moodle"))
    students: Path | None = option(None, "that program's own list of students, a CSV file", path="file")
    jobs: int | None = option(None, "notebooks at a time; default: one for each core", at_least=1)
    seconds: float = option(600, "that a notebook may take", above=0)
    memory: float = option(4, "GB of memory that a notebook may take", above=0)


@dataclass(frozen=True)
class JudgeOptions:
    """What to judge"""

    studies: tuple[Path, ...] = option(help="study.json of a study, or its folder", positional=True, path="any")
    output: Path | None = option(None, "a CSV file with a row for each study and criterion", path="new file")


@dataclass(frozen=True)
class ProgressOptions:
    """Of what"""

    lesson: str | None = option(None, "only this one, such as 04; default: all")
    output: Path | None = option(None, "a CSV file to write it to", path="new file")


@dataclass(frozen=True)
class RestoreOptions:
    """What to bring back"""

    lesson: str = option(help="such as 05", positional=True)
    folder: Path | None = option(None, "where your file is; default: this folder, or my_lessons")
    beside: bool = option(False, "leave your file as it is, and write the original under another name")


@dataclass(frozen=True)
class StudentOptions:
    """Where to"""

    output: Path = option(
        ROOT / "results" / "student", "the folder; with --zip the file has its name", path="new folder"
    )
    zip: bool = option(False, "write one zip file instead of a folder")


@dataclass(frozen=True)
class HandoutsOptions:
    """Where to"""

    output: Path = option(ROOT / "results" / "handouts", "the folder for slides and code", path="new folder")


@dataclass(frozen=True)
class LinksOptions:
    """Where to"""

    output: Path = option(
        ROOT / "results" / "colab", "the folder for lessons that install themselves", path="new folder"
    )


@dataclass(frozen=True)
class LabOptions:
    """How to open"""

    browser: bool = option(True, "open a browser")


@dataclass(frozen=True)
class DemoOptions:
    """How to serve"""

    port: int = option(8866, "of this machine", at_least=1, at_most=65535)
    token: str | None = option(None, "what opens the page; default: a new one, which is printed")
    browser: bool = option(True, "open a browser")


@dataclass(frozen=True)
class RunOptions:
    """How to run"""

    in_place: bool = option(False, "write the executed notebooks beside their sources")
    jobs: int = option(1, "lessons at a time; times are truest with one", at_least=1)


def doctor(options: DoctorOptions) -> Outcome:
    """Say what is here, what works, and how to mend what does not; exit 1 where a lesson would fail."""
    from tlkit.classroom.doctor import examine, examine_accelerator
    from tlkit.settings import setup

    setup()
    findings = examine() + (examine_accelerator() if options.gpu else [])
    code = 1 if any(finding.status == "FAIL" for finding in findings) else 0
    return Outcome(findings, "\n".join(map(str, findings)), code)


def run(options: RunOptions) -> Outcome:
    """Execute every notebook, and write the executed copies, the comparison and its charts below results/."""
    from tlkit.classroom.notebooks import FOLDER, execute_all, sources
    from tlkit.classroom.pages import write_generated
    from tlkit.classroom.results import draw_result

    _refuse_without(FOLDER)
    results = ROOT / "results"
    if options.in_place:
        write_generated()
        draw_result()
    scripts = [*sources(), FOLDER / "demo.py"] if options.in_place else sources()
    failed = execute_all(scripts, FOLDER if options.in_place else results, results, jobs=options.jobs)
    for name, reason in failed.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    table = results / "comparison.md"
    lines = [table.read_text(encoding="utf-8")] if table.is_file() else []
    text = "\n".join([*lines, f"Results are in {results}"])
    return Outcome({"results": results, "failed": failed}, text, 1 if failed else 0)


def grade(options: GradeOptions) -> Outcome:
    """Run the exercises of handed-in lessons (students' code) and say which are right; exit 1: some were not graded.

    This runs the students' code. What keeps it apart on this system is said at the end; where that is not much, do it
    in a container or under an account that holds nothing of yours, and not where marks or keys lie.
    """
    import os

    from tlkit.classroom.grading.confinement import Limits, described, walls_here
    from tlkit.classroom.grading.feedback import write_feedback
    from tlkit.classroom.grading.grade import grade_all
    from tlkit.classroom.grading.gradebooks import gradebook, read_students
    from tlkit.classroom.notebooks import number_of

    for name in ("output", "gradebook"):
        file = getattr(options, name)
        if file and not file.parent.is_dir():  # said now, not after an hour of grading
            raise FileNotFoundError(f"--{name} {file}: no such folder, {file.parent}")
    lesson = None if options.lesson is None else number_of(options.lesson)
    students = read_students(options.students) if options.students else None
    limits = Limits(seconds=options.seconds, memory=options.memory * 1e9)
    jobs = options.jobs or os.cpu_count() or 1
    marks = grade_all(options.notebooks, lesson=lesson, variants=options.variants, limits=limits, jobs=jobs)
    lines = _marks_in_words(marks)
    if options.variants is not None:
        lines.append(_variants_in_words(marks, options.variants))
    if options.output:
        marks.to_csv(options.output, index=False)
    if options.feedback:
        pages = write_feedback(marks, options.feedback, hints=options.hints)
        lines.append(f"{len(pages)} pages of feedback are in {options.feedback}.")
    if options.gradebook:
        book = gradebook(marks, options.format, students)
        book.table.to_csv(options.gradebook, index=False)
        lines += [*book.remarks, f"{options.gradebook} is for {options.format}."]
    took = marks.drop_duplicates("notebook").seconds
    lines.append(f"{len(took)} notebooks, {took.mean():.1f} s each on average, {min(jobs, len(took))} at a time.")
    lines.append(described(walls_here(), limits))
    return Outcome(json.loads(marks.to_json(orient="records")), "\n".join(lines), 1 if marks.right.isna().any() else 0)


def _marks_in_words(marks: "pd.DataFrame") -> list[str]:
    from tlkit.classroom.lab.experiments import experiments_of

    lines = []
    for path, of in marks.groupby("notebook", sort=False):
        if of.right.isna().any():
            lines.append(f"{path}: not graded: {of.reason.iloc[0]}")
            continue
        points = of[~of.exercise.isin(experiments_of(of.lesson.iloc[0]))]  # a stored decision gives none
        lines.append(f"{path}: {points.right.sum()} of {len(points)} right")
        for row in of.itertuples():
            right, wrong = (
                ("right", "wrong") if row.Index in points.index else ("decision supported", "decision: not yet")
            )
            lines.append(f"  {row.exercise} {right if row.right else f'{wrong}: {row.reason}'}")
    return lines


def _variants_in_words(marks: "pd.DataFrame", seed: int) -> str:
    from tlkit.classroom.exercises import find

    names = sorted({name for name in marks.exercise if name})
    having = [name for name in names if find(name).drawn]
    others = [name for name in names if name not in having]
    text = f"Tried again on cases drawn by seed {seed}: {', '.join(having) or 'none'}."
    return f"{text} Without variants: {', '.join(others)}." if others else text


def judge(options: JudgeOptions) -> Outcome:
    """Judge the method of studies (lesson 21) by their records, and say why each point is lost.

    No code of a student is run. Exit 1: something is wrong in one of them, or one could not be read.
    """
    import pandas as pd

    from tlkit.classroom.study.method import judge_study

    if options.output and not options.output.parent.is_dir():
        raise FileNotFoundError(f"--output {options.output}: no such folder, {options.output.parent}")
    tables, lines, code = [], [], 0
    for path in options.studies:
        try:
            found = judge_study(path)
        except (ValueError, OSError) as error:  # one bad file keeps no other from being judged
            tables.append(pd.DataFrame([{"criterion": "", "points": "not judged", "reason": str(error)}]))
            lines.append(f"{path}: not judged: {error}")
        else:
            tables.append(found.table)
            lines.append(f"{path}: {found!r}")
        tables[-1].insert(0, "study", str(path))
        code = code if tables[-1].reason.eq("").all() else 1
    marks = pd.concat(tables, ignore_index=True)
    if options.output:
        marks.to_csv(options.output, index=False)
    return Outcome(marks.to_dict("records"), "\n".join(lines), code)


def progress(options: ProgressOptions) -> Outcome:
    """List what you have solved and guessed, and say which lesson to go on with."""
    from tabulate import tabulate

    from tlkit.classroom.guesses import guesses
    from tlkit.classroom.progress import progress, progress_file, where_was_i

    table = progress(options.lesson)
    if options.output:
        table.to_csv(options.output, index=False)
    file = progress_file()
    place = f"It is kept in {file}." if file else "Nothing is kept: TLKIT_PROGRESS is off."
    solved = tabulate(table, headers="keys", showindex=False)
    text = f"{solved}\n\n{guesses(options.lesson)}\n\n{where_was_i()}\n{place}"
    return Outcome(table.to_dict("records"), text)


def restore(options: RestoreOptions) -> Outcome:
    """Bring a lesson back as it was; yours is kept under another name."""
    from tlkit.classroom.notebooks import FOLDER, number_of
    from tlkit.classroom.originals import restore

    _refuse_without(FOLDER)
    number_of(options.lesson)
    said = str(restore(options.lesson, options.folder, beside=options.beside))
    return Outcome({"said": said}, said, 1 if said.startswith("Nothing was changed") else 0)


def student(options: StudentOptions) -> Outcome:
    """Write the edition for students: lessons without outputs, solutions and scripts, and what they need to run."""
    from tlkit.classroom.notebooks import FOLDER
    from tlkit.classroom.student import write_student_edition

    _refuse_without(FOLDER)
    written = write_student_edition(options.output, zipped=options.zip)
    return Outcome({"written": written}, f"The edition for students is {written}")


def handouts(options: HandoutsOptions) -> Outcome:
    """Write the executed lessons as slides, and their code alone."""
    from tlkit.classroom.handouts import write_code_only, write_slides
    from tlkit.classroom.notebooks import FOLDER

    _refuse_without(FOLDER)
    written = write_slides(options.output / "slides") + write_code_only(options.output / "code")
    return Outcome(written, "\n".join(map(str, written)))


def links(options: LinksOptions) -> Outcome:
    """Print links that open this copy on Colab, Binder and elsewhere, and write its lessons for Colab.

    The address is that of the git remote `origin`.
    """
    from tlkit.classroom.notebooks import FOLDER
    from tlkit.classroom.places import address_of, write_for_colab

    _refuse_without(FOLDER)
    address = address_of(FOLDER)
    found, written = address.links(), write_for_colab(options.output, address)
    lines = [f"{place}: {link}" for place, link in found.items()]
    lines.append(f"{len(written)} lessons that install themselves are in {options.output}")
    return Outcome(
        {"address": address.web, "revision": address.revision, "links": found, "lessons": written}, "\n".join(lines)
    )


def lab(options: LabOptions) -> Outcome:
    """Open JupyterLab with your own copies of the lessons (my_lessons, made at first); Ctrl+C ends it.

    Paths in TLKIT_CORPUS, TLKIT_STUDY and TLKIT_MODEL are meant from the folder in which it is started.
    """
    import os
    import subprocess

    from tlkit.classroom.desk import copy_lessons, jupyterlab, own_places, serving
    from tlkit.classroom.notebooks import COPIES, FOLDER, INDEX

    _refuse_without(FOLDER)
    places = own_places(Path.cwd())
    command = jupyterlab(COPIES.relative_to(ROOT) / f"{INDEX}.ipynb", browser=options.browser)
    written = copy_lessons()
    new = f"; {len(written)} of them are new, and what was there stays as it is" if written else ""
    print(f"Your notebooks are in {COPIES}{new}", file=sys.stderr)
    server = subprocess.run(command, cwd=ROOT, env=os.environ | serving() | places)
    return Outcome({"copies": COPIES, "written": written}, code=server.returncode)


def demo(options: DemoOptions) -> Outcome:
    """Serve the live demo on this machine, behind a token; Ctrl+C ends it."""
    import os
    import secrets
    import shutil
    import tempfile

    from tlkit.classroom.notebooks import FOLDER
    from tlkit.classroom.stage.chart import ADDRESS, library

    _refuse_without(FOLDER)
    token = options.token or secrets.token_urlsafe()
    url = f"http://localhost:{options.port}/?token={token}"
    arguments = ["--Voila.ip=localhost", f"--port={options.port}", "--template=stage", f"--token={token}"]
    for other_page in ("jupyterlab-jupytext", "jupyterlab-plotly"):
        arguments.append(f"--VoilaConfiguration.extension_denylist={other_page}")
    arguments += [] if options.browser else ["--no-browser"]
    with tempfile.TemporaryDirectory() as beside:
        static = Path(beside) / "voila" / "templates" / "stage" / "static"
        static.mkdir(parents=True)
        shutil.copy(library(), static)
        os.environ[ADDRESS] = f"/voila/templates/stage/static/{library().name}"
        os.environ["JUPYTER_PATH"] = os.pathsep.join([str(FOLDER / "share"), beside])  # read when Voilà is imported
        from voila.app import main as serve

        print(url, flush=True)
        serve([*arguments, str(FOLDER / "demo.ipynb")])
    return Outcome({"url": url})


def _refuse_without(lessons: Path) -> None:
    if not lessons.is_dir():
        raise RuntimeError("the lessons are not part of an installed package: run this in a clone of the repository")

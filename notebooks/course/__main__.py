"""For those who run and teach the lessons: `python -m course run|lab|demo|slides|grade`, in notebooks/."""

import argparse
import csv
import json
import os
import secrets
import subprocess
import sys
from dataclasses import asdict
from glob import glob
from pathlib import Path

from course.grade import Limits, container, how
from course.grade import grade as marks_of
from course.lessons import FOLDER, INDEX, NO_COMPILER, SECONDS, copy_lessons, execute_all, recorded_seconds, sources
from course.pages import write_generated

ROOT = FOLDER.parent
RESULTS, COPIES = ROOT / "results", ROOT / "my_lessons"


def run(arguments: argparse.Namespace) -> int:
    """Execute every notebook, and write the executed copies, the comparison and its charts below results/."""
    scripts = sources()
    if arguments.in_place:
        write_generated()
        from course.results import draw_result  # which loads torch

        draw_result()
        scripts = [*scripts, FOLDER / "demo.py"]
    ended = execute_all(scripts, FOLDER if arguments.in_place else RESULTS, jobs=arguments.jobs)
    failed = {name: one.failure for name, one in ended.items() if one.failure}
    for name, reason in failed.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    if arguments.in_place:
        seconds = recorded_seconds() | {name: round(one.seconds) for name, one in ended.items()}
        SECONDS.write_text(json.dumps(seconds, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    table = RESULTS / "comparison.md"
    if table.is_file():
        print(table.read_text(encoding="utf-8"))
    print(f"Results are in {RESULTS}")
    return 1 if failed else 0


def lab(arguments: argparse.Namespace) -> int:
    """Open JupyterLab with copies of the lessons to work in (my_lessons, made at first); Ctrl+C ends it."""
    written = copy_lessons(COPIES)
    print(f"Your notebooks are in {COPIES} ({len(written)} of them new)", file=sys.stderr)
    command = [sys.executable, "-m", "jupyterlab", f"--LabApp.default_url=/lab/tree/{COPIES.name}/{INDEX}.ipynb"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # noqa: TID251  in a container everyone is root; the token stays
        command.append("--allow-root")
    command += [] if arguments.browser else ["--no-browser"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | NO_COMPILER | _with_course()).returncode


def demo(arguments: argparse.Namespace) -> int:
    """Serve the live demo on this machine, behind a token; Ctrl+C ends it."""
    token = arguments.token or secrets.token_urlsafe()
    command = ["--Voila.ip=localhost", f"--port={arguments.port}", "--template=stage", f"--token={token}"]
    command.append("--VoilaConfiguration.extension_denylist=jupyterlab-jupytext")
    command += [] if arguments.browser else ["--no-browser"]
    os.environ["JUPYTER_PATH"] = str(FOLDER / "share")  # read when Voilà is imported
    from voila.app import main as serve

    print(f"http://localhost:{arguments.port}/?token={token}", flush=True)
    serve([*command, str(FOLDER / "demo.ipynb")])
    return 0


def slides(arguments: argparse.Namespace) -> int:
    """Write the lessons, as executed, as slides for a browser, which need no network (results/slides)."""
    from course.slides import write_slides

    pages = write_slides(RESULTS / "slides")
    print(f"{len(pages)} lessons are in {RESULTS / 'slides'}: open one in a browser; the key S shows what comes next")
    return 0


def grade(arguments: argparse.Namespace) -> int:
    """Run the exercises of handed-in lessons anew, and write a table with a row for each exercise of each file."""
    # Windows hands `week1/*.ipynb` on as it is.
    files = [Path(found) for name in arguments.files for found in sorted(glob(name)) or [name]]
    limits, program = Limits(arguments.cell_seconds, arguments.seconds, arguments.memory), container()
    print(how(program, limits), file=sys.stderr)
    marks = marks_of(files, program, limits, arguments.jobs)
    with open(arguments.output, "w", encoding="utf-8", newline="") as table:
        rows = csv.DictWriter(table, ["file", "exercise", "passed", "message"])
        rows.writeheader()
        rows.writerows(asdict(mark) for mark in marks)
    failed = [mark for mark in marks if not mark.exercise]
    for mark in failed:
        print(f"{mark.file} {mark.message}", file=sys.stderr)
    graded = [mark for mark in marks if mark.exercise]
    print(
        f"{len(files) - len(failed)} of {len(files)} files graded: {sum(mark.passed for mark in graded)} of "
        f"{len(graded)} answers are right; {arguments.output}"
    )
    return 1 if failed else 0


def _with_course() -> dict[str, str]:
    """The environment in which kernels find this package and what you bring, and a server its settings.

    A kernel runs in the folder of its notebook, so a path that is meant from here would lead elsewhere.
    """
    found = {"PYTHONPATH": FOLDER, "JUPYTER_CONFIG_PATH": FOLDER / "share"}
    places = {name: os.pathsep.join([str(path), *filter(None, [os.environ.get(name)])]) for name, path in found.items()}
    brought = {name: Path(os.environ[name]) for name in ("TLKIT_CORPUS", "TLKIT_MODEL") if os.environ.get(name)}
    return places | {name: str(path.resolve()) for name, path in brought.items() if path.exists()}


def parser() -> argparse.ArgumentParser:
    """The command line, a function above for each command."""
    whole = argparse.ArgumentParser(prog="python -m course", description=__doc__)
    names = whole.add_subparsers(required=True, metavar="COMMAND")
    for command in (run, lab, demo, slides, grade):
        one = names.add_parser(command.__name__, help=command.__doc__, description=command.__doc__)
        one.set_defaults(command=command)
        if command is run:
            one.add_argument(
                "--in-place", action="store_true", help="write the executed notebooks beside their sources"
            )
            one.add_argument("--jobs", type=int, default=1, help="lessons at a time; times are truest with one")
            continue
        if command is grade:
            one.add_argument("files", nargs="+", metavar="FILE", help="a notebook that was handed in")
            one.add_argument("--output", default="marks.csv", metavar="FILE", help="the table, default: %(default)s")
            one.add_argument("--cell-seconds", type=int, default=Limits.cell, help="for one cell, default: %(default)s")
            one.add_argument("--seconds", type=int, default=Limits.file, help="for one file, default: %(default)s")
            one.add_argument("--memory", type=int, default=Limits.memory, help="gigabytes, default: %(default)s")
            one.add_argument("--jobs", type=int, default=1, help="files at a time")
            continue
        if command is slides:
            continue
        one.add_argument("--browser", action=argparse.BooleanOptionalAction, default=True, help="open a browser")
        if command is demo:
            one.add_argument("--port", type=int, default=8866, help="of this machine")
            one.add_argument("--token", help="what opens the page; default: a new one, which is printed")
    return whole


if __name__ == "__main__":
    chosen = parser().parse_args()
    sys.exit(chosen.command(chosen))

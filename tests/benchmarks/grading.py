"""How long grading takes, for a class that hands in one lesson: `python tests/benchmarks/grading.py`.

Makes `--count` submissions of `--lesson` from its solutions, of which every second one has a mistake and every tenth
one never ends, grades them with `--jobs` at a time (one for each core) on cases drawn anew, and prints what each took.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course.grading.confinement import Limits, walls_here
from course.grading.feedback import write_feedback
from course.grading.grade import grade_all

SOLUTIONS = Path(__file__).resolve().parents[2] / "notebooks" / "solutions"
LIMITS = Limits(seconds=60)


def hand_in(folder: Path, lesson: str, count: int) -> list[Path]:
    """Write the submissions of a class; what each has is said by its name."""
    solved = [cell.source for cell in jupytext.read(next(SOLUTIONS.glob(f"{lesson}_*.py"))).cells]
    solved = [source for source in solved if "tl.check(" in source]
    paths = []
    for number in range(count):
        cells = list(solved)
        if number % 10 == 9:
            cells.insert(0, "while True: pass")
        elif number % 2:
            cells[-1] = cells[-1].split("### BEGIN SOLUTION")[0].rstrip() + "\n"
        written = [new_markdown_cell("## Exercises"), *map(new_code_cell, cells)]
        paths.append(folder / f"student{number:03d}.ipynb")
        nbformat.write(new_notebook(cells=written), paths[-1])
    return paths


def main() -> int:
    """Grade a class, and print a line of Markdown for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lesson", default="03")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        paths = hand_in(Path(folder), given.lesson, given.count)
        began = time.monotonic()
        marks = grade_all(paths, variants=1, limits=LIMITS, jobs=given.jobs)
        whole = time.monotonic() - began
        pages = write_feedback(marks, Path(folder) / "feedback")
        writing = time.monotonic() - began - whole
    took = marks.drop_duplicates("notebook").seconds
    print("| lesson | submissions | at a time | all of them | each | slowest | pages of feedback | right | walls |")
    print("|---|---|---|---|---|---|---|---|---|")
    figures = [given.lesson, given.count, given.jobs, f"{whole:.0f} s", f"{took.median():.1f} s", f"{took.max():.0f} s"]
    figures += [f"{len(pages)} in {writing:.1f} s", f"{int(marks.right.sum())} of {len(marks)}", " ".join(walls_here())]
    print(f"| {' | '.join(map(str, figures))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

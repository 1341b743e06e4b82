"""The lessons as files: what there is, the index page made from it, and executing them all."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
INDEX = "00_index"
CELL_SECONDS = 600


@dataclass(frozen=True)
class Lesson:
    """What a lesson says of itself in its first cell."""

    stem: str
    title: str
    question: str
    minutes: int


def lessons(folder: Path = FOLDER) -> list[Lesson]:
    """Every lesson in order. Raises ValueError for one whose first cell lacks title, question or minutes."""
    found = []
    for source in sources(folder):
        if source.stem == INDEX:
            continue
        text = source.read_text(encoding="utf-8")
        parts = [re.search(p, text, re.M) for p in (r"^# # (.+)$", r"^# \*([^*]+\?)\*$", r"About (\d+) minutes\.")]
        if not all(parts):
            raise ValueError(f"{source.name}: expected title, *question?* and 'About N minutes.' at the top")
        title, question, minutes = (part.group(1) for part in parts)
        found.append(Lesson(source.stem, title, question, int(minutes)))
    return found


def sources(folder: Path = FOLDER) -> list[Path]:
    """The percent scripts, in order; the notebook of each stands beside it."""
    return sorted(folder.glob("[0-9][0-9]_*.py"))


def lesson_table(found: list[Lesson], link: str = "{}.ipynb") -> str:
    """The lessons as a Markdown table, each linked to its notebook."""
    rows = [
        f"| [{lesson.title}]({link.format(lesson.stem)}) | {lesson.question} | {lesson.minutes} |" for lesson in found
    ]
    return "\n".join(["| lesson | question | minutes |", "| --- | --- | --- |", *rows])


def index_source(found: list[Lesson]) -> str:
    """The index page as a percent script."""
    import jupytext
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    values = {"table": lesson_table(found), "minutes": sum(lesson.minutes for lesson in found), "first": found[0]}
    cells = [new_markdown_cell(text.format(**values).strip()) for text in (INDEX_TOP, INDEX_BOTTOM)]
    cells[1:1] = [
        new_code_cell(DOCTOR, metadata={"tags": ["nbval-ignore-output"]}),
        new_code_cell(HEALTHY),
    ]
    return jupytext.writes(new_notebook(cells=cells, metadata=KERNEL), fmt="py:percent")


def execute(source: Path, target: Path, results: Path) -> None:
    """Run one lesson from the top in a fresh kernel and write it, with its outputs, as a notebook.

    The lesson finds `results` in its environment as TLKIT_RESULTS, and exports there. What was reached is written
    also when a cell fails; then nbclient's CellExecutionError is raised.
    """
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    notebook = jupytext.read(source)
    notebook.metadata["kernelspec"] = KERNEL["kernelspec"]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{source.stem[:2]}-{number:03d}"
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": source.parent}},
    )
    try:
        client.execute(env=os.environ | {"TLKIT_RESULTS": str(results)})
    finally:
        # What changes with every run, and is nobody's reading.
        notebook.metadata.pop("widgets", None)
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
        nbformat.write(notebook, target)


def execute_all(scripts: list[Path], folder: Path, results: Path) -> dict[str, str]:
    """Execute lessons into `folder`, one line of progress each; returns the failed ones with the reason."""
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    results.mkdir(parents=True, exist_ok=True)
    failed = {}
    for source in scripts:
        print(f"executing {source.stem}", flush=True)
        try:
            execute(source, folder / f"{source.stem}.ipynb", results)
        except CellExecutionError as error:
            failed[source.stem] = f"{error.ename}: {error.evalue}"
        except DeadKernelError as error:
            failed[source.stem] = str(error)
    return failed


KERNEL = {
    "jupytext": {"notebook_metadata_filter": "kernelspec,-jupytext"},
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
}
DOCTOR = """\
from tlkit.cli import main

exit_code = main(["doctor"])"""
HEALTHY = """\
print("all checks passed:", exit_code == 0)
assert exit_code == 0"""
INDEX_TOP = """\
# Transfer learning, hands on

A small language model, really pretrained, is adapted to text about Rust: in several ways, on the machine you have.
Each lesson asks one question, lets you predict the answer, and then measures it.

{table}

About {minutes} minutes in all, reading included. This page is made from the lessons; they build on one another,
so take them in order the first time.

## How to work

- **First *Edit → Clear Outputs of All Cells***: the lessons come with recorded answers, and they would spoil the guess.
- **Run the cells from the top**, with Shift+Enter. Where a cell says *Predict first*, write your guess down before you
  run the next one. A wrong guess that you wrote down is worth more than a right answer that you read.
- **Change something**, then *Kernel → Restart Kernel and Run All Cells*: training changes a model in place, so a cell
  run twice trains twice. Nothing can be broken; the files on disk are only read.
- **Numbers and orderings are asserted.** Where the text says that one number is above another, a cell fails if it is
  not.
- Lessons are sized for two CPU cores. For more data and more epochs set `TLKIT_PROFILE` before you start JupyterLab:
  `TLKIT_PROFILE=laptop make lab`, or on Windows `set TLKIT_PROFILE=laptop` and then the command of the README.

## Is everything here?"""
INDEX_BOTTOM = """\
A line with [FAIL] says what is missing. The README has a table of what can go wrong and what to do.

Next: [{first.title}]({first.stem}.ipynb)
"""

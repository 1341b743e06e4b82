"""The lessons as files: what there is, and executing them all."""

import json
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert.preprocessors import ClearOutputPreprocessor
from tqdm import tqdm

import tlkit as tl

FOLDER = Path(__file__).resolve().parents[1]
INDEX = "00_index"
CELL_SECONDS = 7200  # the comparison of the larger profiles takes half an hour on a small machine
SECONDS = Path(__file__).resolve().parent / "seconds.json"  # how long each lesson ran when it was last recorded
MINUTES = r"About (\d+) minutes\."
EXERCISES_IMPORT = "import course\nimport tlkit as tl"  # the first cell of a lesson's exercises
# As JupyterLab writes them: a lesson that is opened and saved stays as it is.
PAIRED = {"formats": "ipynb,py:percent", "notebook_metadata_filter": "-all"}
# What a cell writes on its chart, which is what somebody hears who cannot see it.
CHART_WORDS = re.compile(r"""(title|xlabel|ylabel)\s*[(=]\s*f?(["'])(.+?)\2""")
WIDGET = "application/vnd.jupyter.widget-view+json"
# bitsandbytes loads torch's compiler, three seconds a kernel; no lesson compiles.
NO_COMPILER = {"TORCHDYNAMO_DISABLE": "1"}
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}


@dataclass(frozen=True)
class Lesson:
    """What a lesson says of itself in its first cell; `stem` is the name of its file without the ending."""

    stem: str
    title: str
    question: str
    minutes: int

    @property
    def number(self) -> str:
        """Its place in the course: 01, 02, …, and A1 for the appendix."""
        return self.stem[:2]


@dataclass(frozen=True)
class Execution:
    """How the run of a lesson ended: after how many seconds, and why it failed; None where it did not."""

    seconds: float
    failure: str | None


def lessons(folder: Path = FOLDER) -> list[Lesson]:
    """Read what every lesson says of itself, in order.

    Raises:
        ValueError: for a lesson whose first cell lacks title, question or minutes.
    """
    found = []
    for source in sources(folder):
        if source.stem == INDEX:
            continue
        text = source.read_text(encoding="utf-8")
        parts = [re.search(p, text, re.M) for p in (r"^# # (.+)$", r"^# \*([^*]+\?)\*$", MINUTES)]
        if not all(parts):
            raise ValueError(f"{source.name}: expected title, *question?* and 'About N minutes.' at the top")
        title, question, minutes = (part.group(1) for part in parts)
        found.append(Lesson(source.stem, title, question, int(minutes)))
    return found


def at_exercises(lesson: nbformat.NotebookNode) -> int:
    """The place of the cell with which a lesson's exercises begin; the number of cells where there are none."""
    headings = (n for n, cell in enumerate(lesson.cells) if cell.source.startswith("## Exercises"))
    return next(headings, len(lesson.cells))


def words_of(cells: list[nbformat.NotebookNode]) -> int:
    """How many words the text of some cells has."""
    return sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")


def minutes_needed(lesson: nbformat.NotebookNode, seconds: float) -> int:
    """Compute how long a lesson takes its reader.

    Args:
        lesson: its cells.
        seconds: that it runs.

    Returns:
        Minutes: 180 words in each, 8 seconds for each line of code, the running, and 4 minutes for each exercise.
    """
    page, exercises = lesson.cells[: at_exercises(lesson)], lesson.cells[at_exercises(lesson) :]
    code = [line for cell in page if cell.cell_type == "code" for line in cell.source.splitlines() if line.strip()]
    answers = [cell for cell in exercises if cell.cell_type == "code" and "course.check(" in cell.source]
    return round(words_of(page) / 180 + (8 * len(code) + seconds) / 60 + 4 * len(answers))


def recorded_seconds() -> dict[str, float]:
    """How long each lesson ran when it was last recorded, by the stem of its file."""
    return json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.is_file() else {}


def missing_model(source: Path) -> str | None:
    """Say that a lesson's model is not on this machine; None where it is, or where the bundled one is all it needs.

    Args:
        source: its percent script. A lesson that needs a model tells its reader how to fetch it.

    Returns:
        One sentence with the command that fetches the model.
    """
    command = re.search(r"python -m tlkit fetch ([\w./-]+\w)", source.read_text(encoding="utf-8"))
    if command is None or tl.fetched_folder(command[1]):
        return None
    return f"{source.stem} needs {command[1]}, which is not on this machine: {command[0]}"


def sources(folder: Path = FOLDER) -> list[Path]:
    """List the percent scripts, in order; the notebook of each stands beside it."""
    return sorted(folder.glob("[0-9A][0-9]_*.py"))


def copy_lessons(target: Path, folder: Path = FOLDER) -> list[Path]:
    """Copy the lessons, without what they have printed, into a folder to work in; a copy that is there stays as it is.

    Args:
        target: the folder; made where it is not there.
        folder: where the lessons are; only read.

    Returns:
        The notebooks that were written.
    """
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for source in sources(folder):
        copy = target / f"{source.stem}.ipynb"
        if not copy.exists():
            notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
            nbformat.write(ClearOutputPreprocessor().preprocess(notebook, {})[0], copy)
            written.append(copy)
    shutil.copyfile(folder / "glossary.md", target / "glossary.md")
    shutil.copytree(folder / "images", target / "images", dirs_exist_ok=True)
    return written


def without_views(notebook: nbformat.NotebookNode | dict) -> None:
    """Leave of each panel in a notebook what is seen without widgets, and of the state of widgets nothing.

    Args:
        notebook: changed in place.
    """
    notebook["metadata"].pop("widgets", None)
    for cell in notebook["cells"]:
        for output in list(cell.get("outputs", ())):
            if output.get("data", {}).pop(WIDGET, None) and not output["data"]:
                cell["outputs"].remove(output)


def describe_charts(notebook: nbformat.NotebookNode) -> None:
    """Give each plain matplotlib chart, as its alternative text, the title and the axes that its cell names.

    Args:
        notebook: changed in place; charts that have a text keep it.
    """
    for cell in notebook.cells:
        named = sorted(CHART_WORDS.findall(cell.source), key=lambda match: match[0] != "title")
        texts = [text for *_, text in named]
        if not named or named[0][0] != "title":  # a function of the lesson draws it, and is told the title
            texts = re.findall(r'"([A-Z][^"\n]{20,})"', cell.source)[:1] + texts
        words = re.sub(r"\{[^}]*\}", "…", "; ".join(dict.fromkeys(texts)))  # what a title fills in is in the picture
        for output in cell.get("outputs", []):
            if words and "image/png" in output.get("data", {}):
                output.metadata.setdefault("image/png", {}).setdefault("alt", f"Chart: {words}.")


def execute(source: Path, target: Path, *, threads: int | None = None) -> None:
    """Run one lesson from the top in a fresh kernel and write it, with its outputs, as a notebook.

    What was reached is written also when a cell fails.

    Args:
        source: the percent script.
        target: the notebook to write.
        threads: that torch computes on (None: all cores).

    Raises:
        CellExecutionError: of nbclient, where a cell fails; CellTimeoutError or DeadKernelError where one never ends
            or ends the kernel.
    """
    notebook = jupytext.read(source)
    notebook.metadata["kernelspec"], notebook.metadata["jupytext"] = KERNEL, PAIRED
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
    settings = NO_COMPILER | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    try:
        client.execute(env=os.environ | settings)
    finally:
        # What changes with every run, and is nobody's reading.
        without_views(notebook)
        describe_charts(notebook)
        notebook.metadata.get("language_info", {}).pop("version", None)
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
        nbformat.write(notebook, target)


def execute_all(scripts: list[Path], folder: Path, *, jobs: int = 1) -> dict[str, Execution]:
    """Execute lessons, show on a terminal how far they are, and print a line for each that has ended.

    Side by side, each lesson gets its share of the cores: small models leave the second core idle half of the time,
    and threads that wait for one another's cores cost more than they bring.

    A lesson whose model was not fetched is left out, and a line says so.

    Args:
        scripts: the percent scripts.
        folder: where the notebooks are written; made where it is not there.
        jobs: lessons at a time.

    Returns:
        How each lesson ended, by the stem of its file; where one fails, the others go on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = {source: sentence for source in scripts if (sentence := missing_model(source))}
    for sentence in missing.values():
        print(f"left out: {sentence}")
    scripts = [source for source in scripts if source not in missing]
    threads = None if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)

    def one(source: Path) -> Execution:
        begun, failure = time.monotonic(), None
        try:
            execute(source, folder / f"{source.stem}.ipynb", threads=threads)
        except CellExecutionError as error:
            failure = f"{error.ename}: {error.evalue}"
        except (DeadKernelError, CellTimeoutError) as error:  # the other lessons go on
            failure = str(error)
        seconds = time.monotonic() - begun
        tqdm.write(f"{source.stem}: {seconds:.0f} s")
        sys.stdout.flush()
        bar.update()
        return Execution(seconds, failure)

    # The last lessons are the longest; begun last, they would run alone.
    order = list(reversed(scripts)) if jobs > 1 else scripts
    with tqdm(total=len(scripts), unit="lesson", disable=None) as bar, ThreadPoolExecutor(jobs) as pool:
        ended = dict(zip((source.stem for source in order), pool.map(one, order), strict=True))
    return {source.stem: ended[source.stem] for source in scripts}

"""An edition for students: the lessons without answers, and what they need to run, in a folder or a zip file."""

import filecmp
import re
import shutil
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tlkit.classroom.notebooks import COPIES, FOLDER, sources
from tlkit.classroom.originals import unanswered

ROOT = FOLDER.parent
NAME = "transfer-learning"  # of the folder inside the zip file
WHOLE = ("tlkit", "data", "constraints.txt", "pyproject.toml", "LICENSE")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints", "build")
PAGES = ("glossary.md", "images")  # of the folder of the lessons, which they show or link
READ = re.compile(r"tests/benchmarks/\w+\.csv")  # records that lessons read
TROUBLE = "## When something goes wrong"
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#]+)[^)]*\)")
ASIDE = re.compile(rf" \({LINK.pattern}\)")  # a link in brackets of its own
MAKEFILE = """\
PYTHON ?= python3
BIN := .venv/bin

.PHONY: lab
lab: .venv/installed
	$(BIN)/python -m tlkit lab

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[lab,qlora]"
	$(BIN)/python -c "open('.venv/installed', 'w')"
"""
IGNORED = """\
.venv/
.ipynb_checkpoints/
__pycache__/
*.egg-info/
results/
"""
README = """\
# Transfer learning, hands on: for students

A course in notebooks. You need Python 3.11 or newer, no GPU, and a network only to install.

## Begin

On Linux and macOS, `make lab` in this folder installs everything into `.venv` and opens the first page. By hand, also
on Windows (there the second line is `.venv\\Scripts\\activate`):

```
python -m venv .venv
. .venv/bin/activate
python -m pip install -c constraints.txt -e ".[lab,qlora]"
python -m tlkit doctor
python -m tlkit lab
```

On Linux without an NVIDIA card, put `--extra-index-url https://download.pytorch.org/whl/cpu` behind `install`: torch is
then far smaller. On a machine where your teacher has installed the course, only the last line is for you.

## Work

- Your lessons are in `my_lessons/`. The originals in `notebooks/` stay as they are.
- Each lesson ends with exercises: put your answer where it says *your code here*, and run the cell. `tl.check` says
  whether it is right, and if not yet, why; its card has hints.
- `python -m tlkit restore 05` brings the original of lesson 5 back and keeps yours under another name. So does
  `tl.restore("05")` in a notebook.
- `python -m tlkit progress` says what you have solved, and which lesson to go on with; so does `tl.where_was_i()`.
  It is kept in a file in your home, and goes nowhere by itself.
- Hand in a lesson as its notebook, such as `my_lessons/04_full_fine_tuning.ipynb`, saved. Its name does not matter. Of
  your experiment, the decision that the notebook shows is read: leave the cell with `notes.decide` and its card.
- Lesson 17 needs a larger model, once: `python -m tlkit fetch smollm2-135m-instruct`.

"""


def write_student_edition(target: Path, *, zipped: bool = False) -> Path:
    """Write the edition for students.

    Args:
        target: the folder; an edition that is there is replaced, unless somebody has worked in it.
        zipped: as one file beside the folder's place, with ".zip" behind its name.

    Returns:
        The folder or the file.

    Raises:
        FileExistsError: where `target` holds something else, or lessons that were worked on.
    """
    if zipped:
        file = target.with_name(f"{target.name}.zip")
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as folder:
            _write(Path(folder) / NAME)
            _zip(Path(folder), file)
        return file
    if target.exists() and any(target.iterdir()):
        _refuse_what_is_not_ours(target)
        shutil.rmtree(target)
    _write(target)
    return target


def _write(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in WHOLE:
        _copy(ROOT / name, target / name)
    shutil.copytree(FOLDER / "share", target / "notebooks" / "share", ignore=LEFT_OUT)
    for place in ("notebooks", COPIES.name):
        (target / place).mkdir(exist_ok=True)
        for name in PAGES:
            _copy(FOLDER / name, target / place / name)
    for source in sources():
        text = unanswered((FOLDER / f"{source.stem}.ipynb").read_text(encoding="utf-8"))
        for place in ("notebooks", COPIES.name):
            (target / place / f"{source.stem}.ipynb").write_text(text, encoding="utf-8")
        for record in set(READ.findall(text)):
            (target / record).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / record, target / record)
    (target / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    (target / ".gitignore").write_text(IGNORED, encoding="utf-8")
    (target / "README.md").write_text(_readme(target), encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=LEFT_OUT)
    else:
        shutil.copy(source, target)


def _readme(target: Path) -> str:
    """The students' page, with the table of problems of ours; links to what they do not get are text or nothing."""
    ours = (ROOT / "README.md").read_text(encoding="utf-8")
    text = README + (TROUBLE + ours.split(TROUBLE, 1)[1] if TROUBLE in ours else "")
    text = ASIDE.sub(lambda link: link[0] if (target / link[2]).exists() else "", text)
    return LINK.sub(lambda link: link[0] if (target / link[2]).exists() else link[1], text)


def _refuse_what_is_not_ours(target: Path) -> None:
    lessons, copies = target / "notebooks", target / COPIES.name
    if not (copies.is_dir() and lessons.is_dir() and (target / "Makefile").is_file()):
        raise FileExistsError(f"{target} is not empty, and no edition for students: choose another folder")
    _, changed, alone = filecmp.cmpfiles(lessons, copies, [file.name for file in copies.glob("*.ipynb")], shallow=False)
    if changed or alone:
        raise FileExistsError(f"somebody has worked in {copies} ({[*changed, *alone][0]}): choose another folder")


def _zip(folder: Path, target: Path) -> None:
    """The same bytes each time: names in order, and no times."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(folder).as_posix())
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())

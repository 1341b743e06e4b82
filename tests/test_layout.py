"""The house stays small: sizes as a ratchet, imports one way and in no circle, and a face of names that are used.

A budget below is the size that was reached, rounded up. Who makes something smaller lowers it; nobody raises it, but
for a new lesson.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import tlkit

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, LESSONS = ROOT / "tlkit", ROOT / "notebooks"
# Each part: the most lines and the most bytes of its Python files, and how many files there may be.
BUDGETS = {
    "tlkit": (7_900, 378_000, 57),
    "notebooks/course": (5_645, 259_300, 78),
    "tests": (13_800, 672_000, 105),
}
LESSON_LINES = 9_576
MOST_NAMES = 34
# What a module pulls in, itself counted: files and lines.
CLOSURES = {"tlkit.training": (12, 1_650), "tlkit.reports.charts": (3, 230)}
# Each may import from itself and from those before it.
ROOMS = ("core", "fitting", "evidence", "reports", "cli")
COMMAND_LINE = {"cli", "commands", "doctor", "__main__"}


def python_files(part: str) -> list[Path]:
    """The Python files of a part of the repository, without what tools have made."""
    return [file for file in sorted((ROOT / part).rglob("*.py")) if "__pycache__" not in file.parts]


def module_of(file: Path) -> str:
    """The name by which a file of the package is imported."""
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in python_files("tlkit")}


def imports_of(module: str, text: str) -> set[str]:
    """The modules of tlkit that a source imports, anywhere in it: at the top, in functions, for types alone."""
    wanted = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            wanted |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module if MODULES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            wanted |= {base, *(f"{base}.{name.name}" for name in node.names)}
    return {name for name in wanted if name in MODULES or name == "course" or name.startswith("course.")} - {module}


@cache
def graph() -> dict[str, set[str]]:
    """What each module of the package imports."""
    return {module: imports_of(module, file.read_text(encoding="utf-8")) for module, file in MODULES.items()}


def closure(module: str) -> set[str]:
    """A module and all that importing and using it pulls in."""
    reached, waiting = set(), [module]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += graph().get(one, ())
    return reached


def room_of(module: str) -> int:
    """The place of a module's room in `ROOMS`."""
    first = module.split(".")[1] if "." in module else ""
    return ROOMS.index("cli" if first in COMMAND_LINE else first if first in ROOMS else "core")


@pytest.mark.parametrize("part", BUDGETS)
def test_no_part_grows(part):
    files = python_files(part)
    size = (sum(file.read_bytes().count(b"\n") for file in files), sum(file.stat().st_size for file in files))
    assert all(now <= most for now, most in zip((*size, len(files)), BUDGETS[part], strict=True)), (size, len(files))


def test_lessons_do_not_grow():
    assert sum(file.read_bytes().count(b"\n") for file in LESSONS.glob("*.py")) <= LESSON_LINES


@pytest.mark.parametrize("module", CLOSURES)
def test_what_a_module_pulls_in_does_not_grow(module):
    reached = closure(module)
    lines = sum(MODULES[name].read_bytes().count(b"\n") for name in reached)
    assert (len(reached), lines) <= CLOSURES[module] and lines <= CLOSURES[module][1]


def test_no_imports_go_in_a_circle():
    circles = {tuple(sorted({a, b})) for a in graph() for b in closure(a) - {a} if a in closure(b)}
    assert not circles


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_one_way(module):
    upward = [name for name in graph()[module] if name.startswith("course") or room_of(name) > room_of(module)]
    assert upward == []


@pytest.mark.parametrize(
    "line",
    [
        "from tlkit.reports.charts import perplexity_chart",
        "def f():\n    import tlkit.evidence.statistics",
        "from tlkit import evidence",
        "from ..evidence import audit",
        "from tlkit.cli import main",
        "from course import check",
    ],
)
def test_an_import_that_points_up_is_noticed(line):
    wanted = imports_of("tlkit.fitting.planted", line)
    assert any(name.startswith("course") or room_of(name) > room_of("tlkit.fitting.planted") for name in wanted)


def test_every_name_is_there_and_earns_its_place():
    """A name of `tl` is used by two lessons, or by what the command line runs."""
    assert len(tlkit.__all__) <= MOST_NAMES
    for name in tlkit.__all__:
        assert getattr(tlkit, name) is not None
    pages = [file.read_text(encoding="utf-8") for file in LESSONS.glob("[0-9A][0-9]_*.py")]
    used = {name: sum(bool(re.search(rf"\btl\.{name}\b", page)) for page in pages) for name in tlkit.__all__}
    commands = {module for entry in graph() if entry.startswith("tlkit.commands") for module in closure(entry)}
    at_work = "\n".join(MODULES[module].read_text(encoding="utf-8") for module in commands - {"tlkit"})
    idle = [name for name, lessons in used.items() if lessons < 2 and len(re.findall(rf"\b{name}\b", at_work)) < 2]
    assert idle == []


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="perplexitty"):
        tlkit.perplexitty  # noqa: B018


def test_importing_the_package_loads_no_library():
    """torch and transformers take seconds: they come with the name that needs them."""
    heavy = {"torch", "transformers", "pandas", "matplotlib", "numpy", "peft", "scipy", "ipywidgets"}
    program = f"import sys, tlkit, tlkit.cli; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


SIZED = [*python_files("tlkit"), *python_files("notebooks")]


@pytest.mark.parametrize("file", SIZED, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_size_in_bytes_is_divided_by_what_its_unit_says(file):
    """MB is 10**6 bytes and MiB 2**20; a line that names one of them computes with it."""
    decimal, binary = re.compile(r"1e[69]\b|10 ?\*\* ?[69]\b"), re.compile(r"2 ?\*\* ?[23]0\b|\b1024\b")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        units = {bool(match[1]) for match in re.finditer(r"\b[MG](i?)B\b", line)}
        factors = {name for name, factor in ((False, decimal), (True, binary)) if factor.search(line)}
        assert not (units and factors) or units & factors, f"line {number}: {line.strip()}"

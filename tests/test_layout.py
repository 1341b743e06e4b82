"""The house: a small core, six rooms, imports one way, and a face that loads nothing until it is asked."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tlkit

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tlkit"
# Each may import from itself and from those before it.
ROOMS = ("core", "fitting", "scaling", "evidence", "acceptance", "reports", "classroom", "cli")
AT_THE_TOP = 18
COMMAND_LINE = {"cli", "commands", "__main__"}


def room_of(parts: list[str]) -> str:
    """The room of a module, given by the parts of its name behind `tlkit`."""
    if parts and parts[0] in ROOMS[1:-1]:
        return parts[0]
    return "cli" if parts and parts[0] in COMMAND_LINE else "core"


def imported(tree: ast.AST, package: list[str]) -> list[list[str]]:
    """The modules of tlkit that a file imports, anywhere in it, as the parts of their names behind `tlkit`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name.split(".")[1:] for name in node.names if name.name.split(".")[0] == "tlkit"]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else (node.module or "").split(".")
            base = base + node.module.split(".") if node.level and node.module else base
            if base[:1] == ["tlkit"]:
                found += [[*base[1:], name.name] for name in node.names]
    return found


def upward(file: Path, text: str | None = None) -> list[str]:
    """The imports of a file that point to a room above its own."""
    where = list(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    here = ROOMS.index(room_of(where[1:]))
    tree = ast.parse(file.read_text(encoding="utf-8") if text is None else text)
    return [".".join(parts) for parts in imported(tree, where[:-1]) if ROOMS.index(room_of(parts)) > here]


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(file):
    assert upward(file) == []


@pytest.mark.parametrize(
    "line",
    [
        "from tlkit.reports.charts import flops_chart",
        "def f():\n    import course.exercises",
        "from tlkit import evidence",
        "from ..evidence import flops",
        "from tlkit.cli import main",
    ],
)
def test_an_import_that_points_up_is_found(line):
    assert upward(PACKAGE / "fitting" / "planted.py", line)
    assert not upward(PACKAGE / "fitting" / "planted.py", "import torch\nfrom tlkit.steps import Plan")


def test_the_core_is_small():
    assert len(list(PACKAGE.glob("*.py"))) <= AT_THE_TOP


def test_every_public_name_is_there_and_nowhere_twice():
    names = [name for names in tlkit._WHERE.values() for name in names]
    assert len(names) == len(set(names)) and set(names) == set(tlkit.__all__) <= set(dir(tlkit))
    for name in names:
        assert getattr(tlkit, name) is not None
    with pytest.raises(AttributeError, match="tlkit has no 'perplexitty': expected one of"):
        tlkit.perplexitty  # noqa: B018


def test_importing_the_package_loads_no_library():
    """torch and transformers take seconds: they come with the name that needs them."""
    heavy = {"torch", "transformers", "pandas", "matplotlib", "numpy", "peft", "scipy", "ipywidgets"}
    program = f"import sys, tlkit, tlkit.cli; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"

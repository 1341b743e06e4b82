"""What would stop a reader on Windows, as far as it can be seen from another system."""

import ast
import re
import subprocess
from pathlib import Path, PureWindowsPath

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "tlkit").rglob("*.py")) + sorted((ROOT / "notebooks").rglob("*.py"))
MISSING = {"resource", "fcntl", "pwd", "grp", "termios", "posix", "syslog"}  # modules that Windows does not have
UNIX_ONLY = {
    *("os.fork", "os.killpg", "os.setsid", "os.getuid", "os.geteuid", "os.uname", "os.getpgid", "os.sched_setaffinity"),
    *("signal.SIGKILL", "signal.SIGALRM", "signal.alarm", "signal.setitimer", "signal.pause", "os.mkfifo"),
}
GUARDS = ("sys.platform", "os.name", "hasattr", "platform.system")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def unguarded(source: str) -> list[str]:
    """What Windows does not have, where nothing around it asks for the system first."""
    found = []

    def asked(node: ast.AST) -> bool:
        return isinstance(node, ast.If | ast.IfExp) and any(word in ast.unparse(node.test) for word in GUARDS)

    def lacking(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return sorted({*(alias.name for alias in node.names), getattr(node, "module", "")} & MISSING)
        return [ast.unparse(node)] if isinstance(node, ast.Attribute) and ast.unparse(node) in UNIX_ONLY else []

    def walk(node: ast.AST, guarded: bool) -> None:
        first = isinstance(node, ast.BoolOp) and any(word in ast.unparse(node.values[0]) for word in GUARDS)
        caught = isinstance(node, ast.Try) and re.search(
            "AttributeError|ImportError", " ".join(map(ast.unparse, node.handlers))
        )
        guarded = guarded or asked(node) or first or bool(caught)
        if not guarded:
            found.extend(f"line {node.lineno}: {name}" for name in lacking(node))
        for child in ast.iter_child_nodes(node):
            walk(child, guarded)
            if isinstance(child, ast.If) and asked(child) and isinstance(child.body[-1], ast.Return | ast.Raise):
                guarded = True  # what follows is not reached there

    walk(ast.parse(source), False)
    return found


def needs_a_unix_shell(command: str) -> str:
    """Why neither PowerShell nor cmd would run a command as it stands; empty where they would."""
    for why, pattern in {
        "a variable before the command": r"^\w+=\S",
        "another command joined to it": r"&&|\|\||;|\|",
        "a variable of a shell": r"\$",
        "single quotes": r"'",
        "a folder of Unix": r"\.venv/bin|(^|\s)/\w|~/",
        "a Unix program": r"^(make|source|\.|export|sudo|chmod|cp|rm|mv|cat|bash|sh)\s",
    }.items():
        if re.search(pattern, command):
            return why
    return ""


def test_every_command_of_the_pages_runs_without_a_unix_shell():
    """And each command of make has one that needs no make."""
    pages = README + (ROOT / "notebooks" / "commands.md").read_text(encoding="utf-8")
    fenced = [line for block in re.findall(r"^```\n(.*?)^```", pages, re.M | re.S) for line in block.splitlines()]
    commands = [re.split(r"\s+#", line)[0].strip() for line in fenced]
    commands = [command for command in commands if command and command != ". .venv/bin/activate"]
    rows = re.findall(r"^\| [^|]+ \| `(make [\w-]+)` \| `([^`]+)`(?:, in `notebooks/`)? \|$", README, re.M)
    assert {"make run", "make test", "make lab", "make demo", "make book"} <= {made for made, _ in rows}
    assert len(commands) > 20 and all(command.startswith("python -m ") for _, command in rows)
    commands += [command for _, command in rows]
    assert {command: why for command in commands if (why := needs_a_unix_shell(command))} == {}
    assert r".venv\Scripts\activate" in README and ". .venv/bin/activate" in README


@pytest.mark.parametrize(
    "command", ["A=1 python x", "make lab", "python -m a && b", "echo $HOME", "python 'x'", ". .venv/bin/activate"]
)
def test_what_only_a_unix_shell_takes_is_found(command):
    assert needs_a_unix_shell(command)


def test_names_of_files_are_names_on_windows_too():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a clone: git lists no files")
    names = listed.stdout.splitlines()
    assert len({name.lower() for name in names}) == len(names), "two that differ only in case"
    for name in names:
        assert not re.search(r'[<>:"\\|?*]|[ .](/|$)', name), name
        assert not PureWindowsPath(name).is_reserved(), name
        assert len(name) < 160, name  # with a folder of 100 it is below the limit of 260


def test_sources_ask_before_they_use_what_windows_lacks():
    """That text is read and written in an encoding that is named is held by the linter, PLW1514."""
    found = {path.relative_to(ROOT): unguarded(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert len(found) > 100 and {path: lines for path, lines in found.items() if lines} == {}


def test_planted_calls_are_found():
    assert unguarded("import os, fcntl\nos.killpg(1, signal.SIGKILL)\n") == [
        *("line 1: fcntl", "line 2: os.killpg", "line 2: signal.SIGKILL"),
    ]
    assert unguarded("def a():\n    from resource import getrusage\n") == ["line 2: resource"]
    assert unguarded("if hasattr(os, 'fork'):\n    os.fork()\nelse:\n    os.fork()\n") == []
    assert unguarded("def a():\n    if sys.platform == 'win32':\n        return\n    os.fork()\n") == []
    assert unguarded("def a():\n    if sys.platform == 'win32':\n        b()\n    os.fork()\n") == ["line 4: os.fork"]

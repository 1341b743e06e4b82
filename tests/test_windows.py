"""What would stop a reader on Windows, as far as it can be seen from another system."""

import ast
import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "tlkit").rglob("*.py")) + sorted((ROOT / "notebooks").rglob("*.py"))
MISSING = ("resource", "fcntl", "pwd", "grp", "termios", "posix", "syslog")  # modules that Windows does not have
UNIX_ONLY = {
    *("os.fork", "os.killpg", "os.setsid", "os.getuid", "os.geteuid", "os.uname", "os.getpgid", "os.sched_setaffinity"),
    *("signal.SIGKILL", "signal.SIGALRM", "signal.alarm", "signal.setitimer", "signal.pause", "os.mkfifo"),
}
GUARDS = ("sys.platform", "os.name", "hasattr", "platform.system")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def unguarded(source: str) -> list[str]:
    """What Windows does not have, where nothing around it asks for the system first."""
    tree, found = ast.parse(source), []

    def asked(node: ast.AST) -> bool:
        return isinstance(node, ast.If | ast.IfExp) and any(word in ast.unparse(node.test) for word in GUARDS)

    def walk(node: ast.AST, guarded: bool) -> None:
        asks = (
            asked(node) or isinstance(node, ast.BoolOp) and any(word in ast.unparse(node.values[0]) for word in GUARDS)
        )
        asks = asks or isinstance(node, ast.Try) and any("AttributeError" in ast.unparse(one) for one in node.handlers)
        guarded = guarded or asks
        if isinstance(node, ast.Attribute) and ast.unparse(node) in UNIX_ONLY and not guarded:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        for child in ast.iter_child_nodes(node):
            walk(child, guarded)
            if isinstance(child, ast.If) and asked(child) and isinstance(child.body[-1], ast.Return | ast.Raise):
                guarded = True  # what follows is not reached there

    walk(tree, False)
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


def test_each_command_of_make_has_one_that_needs_neither_make_nor_a_shell():
    rows = re.findall(r"^\| [^|]+ \| `(make [\w-]+)` \| `([^`]+)`(?:, in `notebooks/`)? \|$", README, re.M)
    named = {made for made, _ in rows}
    assert {"make run", "make test", "make lab", "make demo", "make book"} <= named
    for made, command in rows:
        assert not needs_a_unix_shell(command), f"{made}: {command}"
        assert command.startswith("python -m "), made


def test_every_command_of_the_pages_runs_without_a_unix_shell():
    pages = README + (ROOT / "notebooks" / "commands.md").read_text(encoding="utf-8")
    fenced = [line for block in re.findall(r"^```\n(.*?)^```", pages, re.M | re.S) for line in block.splitlines()]
    commands = [re.split(r"\s+#", line)[0].strip() for line in fenced]
    commands = [command for command in commands if command and command != ". .venv/bin/activate"]
    assert len(commands) > 20
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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sources_ask_before_they_use_what_windows_lacks(path):
    assert unguarded(path.read_text(encoding="utf-8")) == []


def test_text_is_read_and_written_in_an_encoding_that_is_named():
    """Else it is that of the system, which on Windows is not UTF-8."""

    def faults(*arguments: str, given: str | None = None) -> list[str]:
        command = [sys.executable, "-m", "ruff", "check", "--select", "PLW1514", "--output-format", "concise"]
        done = subprocess.run([*command, *arguments], cwd=ROOT, input=given, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "unspecified-encoding" in line]

    assert faults("tlkit", "notebooks", "data", "tests") == []
    assert len(faults("-", given='open("b")\nopen("b", "rb")\nopen("b", encoding="utf-8")\n')) == 1


def test_planted_calls_are_found():
    assert unguarded("import os, signal\nos.killpg(1, signal.SIGKILL)\n") == [
        "line 2: os.killpg",
        "line 2: signal.SIGKILL",
    ]
    assert unguarded("if hasattr(os, 'fork'):\n    os.fork()\nelse:\n    os.fork()\n") == []
    assert unguarded("def a():\n    if sys.platform == 'win32':\n        return\n    os.fork()\n") == []
    assert unguarded("def a():\n    if sys.platform == 'win32':\n        b()\n    os.fork()\n") == ["line 4: os.fork"]


def test_every_module_is_imported_without_what_windows_lacks():
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in SOURCES
        if path.is_relative_to(ROOT / "tlkit") and path.name not in ("__main__.py", "__init__.py")
    ]
    program = f"""
import importlib, sys, traceback
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name in {MISSING!r} and any("tlkit" in frame.filename for frame in traceback.extract_stack()[-12:]):
            raise ModuleNotFoundError(f"Windows has no {{name}}", name=name)
for name in {MISSING!r}:
    if name != "posix":
        sys.modules.pop(name, None)
sys.meta_path.insert(0, Lacking())
for name in {modules!r}:
    importlib.import_module(name)
print(len({modules!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert int(done.stdout.splitlines()[-1]) > 100

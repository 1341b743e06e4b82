"""What would stop a reader on Windows, as far as it can be seen from another system."""

import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


def test_what_windows_lacks_is_banned_by_the_linter():
    """PLW1514: text has an encoding that is named. `noqa` says that the code asks for the system first."""
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "TID251,PLW1514", "--output-format", "concise"]
    assert subprocess.run([*ruff, "tlkit", "notebooks"], cwd=ROOT).returncode == 0
    planted = "import fcntl\nimport os\nimport signal\nos.killpg(1, signal.SIGKILL)\nopen('a').read()\n"
    found = subprocess.run(
        [*ruff, "--stdin-filename", "tlkit/a.py", "-"], cwd=ROOT, input=planted, capture_output=True, text=True
    )
    assert re.findall(r"`(\S+)` (?:is banned|in text mode)", found.stdout) == [
        "fcntl",
        "os.killpg",
        "signal.SIGKILL",
        "open",
    ]

"""Where else the workbook can be opened: links to this copy's own address, and lessons that install themselves."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import nbformat

from tlkit.classroom.notebooks import FOLDER, lessons

START = "notebooks/00_index.ipynb"
INSTALL = """# On Colab this installs the workbook beside the packages that are there. Elsewhere it does nothing.
import importlib.util
import subprocess
import sys
from importlib.metadata import version

if importlib.util.find_spec("tlkit") is None:
    before = version("torch")
    wanted = "tlkit[qlora] @ git+{clone}@{revision}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", wanted]
    subprocess.run(pip, check=True)
    importlib.invalidate_caches()
    print("Installed beside torch", before)
    assert version("torch") == before, "torch was replaced: choose Runtime > Restart session\""""


@dataclass(frozen=True)
class Address:
    """Where a copy of the repository can be read by others.

    Attributes:
        host: such as github.com.
        path: of the repository there, such as owner/name.
        revision: a branch, or a commit where none is checked out.
    """

    host: str
    path: str
    revision: str

    @property
    def web(self) -> str:
        """The page of the repository; `git clone` takes it too."""
        return f"https://{self.host}/{self.path}"

    @property
    def clone(self) -> str:
        """What git clones."""
        return f"{self.web}.git"

    def links(self) -> dict[str, str]:
        """By the name of a place what opens the index of this copy there; places that take only GitHub are left out."""
        found = {}
        if self.host == "github.com":
            found["Colab"] = f"https://colab.research.google.com/github/{self.path}/blob/{self.revision}/{START}"
            found["Codespaces"] = f"https://codespaces.new/{self.path}?ref={quote(self.revision, safe='')}"
            found["VS Code in the browser"] = f"https://vscode.dev/github/{self.path}/tree/{self.revision}"
        kind = {"github.com": f"gh/{self.path}", "gitlab.com": f"gl/{quote(self.path, safe='')}"}
        binder = kind.get(self.host, f"git/{quote(self.clone, safe='')}")
        found["Binder"] = (
            f"https://mybinder.org/v2/{binder}/{quote(self.revision, safe='')}?urlpath={quote(f'lab/tree/{START}')}"
        )
        found["VS Code on this machine"] = f"vscode://vscode.git/clone?url={quote(self.clone, safe='')}"
        return found


def address_of(folder: Path = FOLDER) -> Address:
    """Read from git where the reader's copy came from.

    Args:
        folder: in the copy.

    Raises:
        ValueError: where git is not there, or the copy has no address that others can open.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        url = git("remote", "get-url", "origin")
        branch = git("rev-parse", "--abbrev-ref", "HEAD")
        revision = git("rev-parse", "HEAD") if branch == "HEAD" else branch
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(
            f"{folder} has no address: expected a clone with a remote of the name origin. "
            "`git remote add origin https://…` gives it one"
        ) from error
    found = re.fullmatch(
        r"(?:https?|ssh|git)://(?:[^@/]+@)?([\w.-]+)(?::\d+)?/(.+?)(?:\.git)?/?|[\w.-]+@([\w.-]+):(.+?)(?:\.git)?/?",
        url,
    )
    if found is None:
        shown = re.sub(r"//[^@/]+@", "//", url)  # without a password
        raise ValueError(f"the remote origin is {shown!r}, which others cannot open: expected https://… or git@host:…")
    return Address(found[1] or found[3], found[2] or found[4], revision)


def write_for_colab(target: Path, address: Address, folder: Path = FOLDER) -> list[Path]:
    """Write every lesson with a first cell that installs the workbook where it is not there.

    Links between lessons become links to the address; outputs are left out.

    Args:
        target: the folder to write to; made where it is not there.
        address: of the copy that is installed.
        folder: where the lessons are.

    Returns:
        The files.
    """
    target.mkdir(parents=True, exist_ok=True)
    install = INSTALL.format(clone=address.clone, revision=address.revision)
    files = []
    for lesson in lessons(folder):
        notebook = nbformat.read(folder / f"{lesson.stem}.ipynb", as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
            else:
                cell.source = re.sub(
                    r"\]\((?!\w+:|#)([^)]+)\)", rf"]({address.web}/blob/{address.revision}/notebooks/\1)", cell.source
                )
        first = nbformat.v4.new_code_cell(install, id="install")
        notebook.cells.insert(0, first)
        notebook.metadata.pop("jupytext", None)
        files.append(target / f"{lesson.stem}.ipynb")
        nbformat.write(notebook, files[-1])
    return files

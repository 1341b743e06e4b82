"""JupyterLab for who learns: copies of the lessons to work in, and a server that saves notebooks whole.

The server finds this module by `notebooks/share/jupyter_server_config.d`, a folder that `JUPYTER_CONFIG_PATH` names.
"""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

from tlkit.classroom.notebooks import COPIES, FOLDER, sources
from tlkit.classroom.originals import unanswered
from tlkit.classroom.stills import without_views

OF_THE_MACHINE = ("kernelspec", "language_info")  # parts of a notebook that name a version of Python or an environment


def copy_lessons(target: Path = COPIES, folder: Path = FOLDER) -> list[Path]:
    """Copy the lessons, without what they have printed, into a folder to work in; a copy that is there stays as it is.

    Args:
        target: the folder; made where it is not there.
        folder: where the lessons are; only read.

    Returns:
        The notebooks that were written.
    """
    (target / "images").mkdir(parents=True, exist_ok=True)
    written = []
    for source in sources(folder):
        copy = target / f"{source.stem}.ipynb"
        if not copy.exists():
            original = source.with_suffix(".ipynb").read_text(encoding="utf-8")
            copy.write_text(unanswered(original), encoding="utf-8", newline="\n")
            written.append(copy)
    for file in (folder / "glossary.md", *(folder / "images").iterdir()):
        shutil.copyfile(file, target / file.relative_to(folder))  # without the rights of an original that is read only
    return written


def jupyterlab(page: Path, *, browser: bool = True) -> list[str]:
    """The command that opens JupyterLab.

    Args:
        page: the notebook to open, below the folder that is served; the address that is printed leads to it, too.
        browser: whether to open a browser.

    Raises:
        RuntimeError: where JupyterLab is not installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise RuntimeError('JupyterLab is not installed: python -m pip install -e ".[lab]"')
    command = [sys.executable, "-m", "jupyterlab", f"--LabApp.default_url=/lab/tree/{page.as_posix()}"]
    # In a container everyone is root, and Jupyter then asks to be told that this is meant. Its token stays.
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return command if browser else [*command, "--no-browser"]


def serving(folder: Path = FOLDER) -> dict[str, str]:
    """The environment in which a Jupyter server saves notebooks as this module does.

    Args:
        folder: where the lessons are.
    """
    found = [str(folder / "share"), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    return {"JUPYTER_CONFIG_PATH": os.pathsep.join(found)}


def own_places(started: Path) -> dict[str, str]:
    """What a student brings, named so that a notebook in any folder finds it.

    A kernel runs in the folder of its notebook, so a path that was meant from the shell would lead elsewhere.

    Args:
        started: the folder from which the paths are meant.

    Returns:
        Of TLKIT_CORPUS, TLKIT_STUDY and TLKIT_MODEL those that are set and are paths, in full.

    Raises:
        FileNotFoundError: where TLKIT_CORPUS is neither there nor the name of a corpus.
    """
    from tlkit.corpus import NAMED
    from tlkit.models import PRESETS

    given = {name: os.environ.get(name, "") for name in ("TLKIT_CORPUS", "TLKIT_STUDY", "TLKIT_MODEL")}
    found = {name: str((started / value).resolve()) for name, value in given.items() if value.strip()}
    if given["TLKIT_CORPUS"] in NAMED:
        del found["TLKIT_CORPUS"]
    if given["TLKIT_MODEL"] in PRESETS or not Path(found.get("TLKIT_MODEL", "")).is_dir():
        found.pop("TLKIT_MODEL", None)  # a preset or an id on the hub
    if "TLKIT_CORPUS" in found and not Path(found["TLKIT_CORPUS"]).exists():
        raise FileNotFoundError(
            f"TLKIT_CORPUS={given['TLKIT_CORPUS']}: no such file or folder in {started}; expected "
            f"{', '.join(NAMED)}, or a path to .txt, .md or .jsonl"
        )
    return found


def save_whole(model: dict, path: str, contents_manager: object, **_: object) -> None:
    """Before a notebook is saved: panels leave their stills, and what names a machine stays as the file has it.

    JupyterLab would show an error in place of a panel that is saved and opened again, and it writes the version of
    Python that is running into every notebook that it opens.

    Args:
        model: what is to be saved, changed in place.
        path: where, as the server names it.
        contents_manager: the server's.
    """
    if model["type"] != "notebook" or model["content"].get("nbformat") != 4:
        return
    from jupyter_server.utils import to_os_path

    without_views(model["content"])
    try:
        file = Path(to_os_path(path, contents_manager.root_dir))
        before = json.loads(file.read_text(encoding="utf-8"))["metadata"]
        model["content"]["metadata"].update({name: before[name] for name in OF_THE_MACHINE if name in before})
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return  # a new file, or one that was no notebook before


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: object) -> None:
    server.contents_manager.register_pre_save_hook(save_whole)

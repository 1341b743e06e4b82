"""Run files: the settings of one run as YAML, read with every key checked, written so that it can be repeated."""

from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path

import yaml

from tlkit.files import write_text_atomically
from tlkit.options import checked_by_name

FIRST_LINE = "# Repeat this run: python -m tlkit train --run-file THIS_FILE --output OTHER\n"


def read_run_file(path: Path, settings: Mapping[str, Field]) -> dict[str, object]:
    """The settings in a run file.

    Args:
        path: a YAML file of names and values.
        settings: the settings that there are, by name.

    Returns:
        The values by name, in the settings' own types.

    Raises:
        ValueError: naming the file and the key, for what is no YAML, unknown or twice there, or has a wrong value.
        OSError: where the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content, tree = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(content, dict):
            raise ValueError("expected names with values, such as `epochs: 2`")
        written = [key.value for key, _ in tree.value]
        if twice := sorted({name for name in written if written.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)} is there more than once")
        return checked_by_name(settings, content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of the 13th month is a ValueError
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None


def refuse_to_replace(path: Path) -> None:
    """Refuse to write a run file over one that somebody has written.

    Raises:
        ValueError: where there is a file that does not begin as `write_run_file` begins.
    """
    if path.exists() and not path.read_bytes().startswith(FIRST_LINE.encode()):
        raise ValueError(f"{path} was not written by tlkit and would be replaced: move it, or name another --output")


def write_run_file(path: Path, settings: Mapping[str, object], notes: Mapping[str, object]) -> None:
    """Write settings so that `read_run_file` reads the same.

    Args:
        notes: what the run depends on besides, for people: written as comments.

    Raises:
        OSError: where the file cannot be written.
    """
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    comments = "".join(f"# {name}: {value}\n" for name, value in notes.items())
    text = FIRST_LINE + comments + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    write_text_atomically(path, text)

"""From dataclasses of settings to a command line, and from a command line and a run file back to dataclasses."""

import argparse
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field
from functools import partial
from pathlib import Path
from typing import get_origin

import yaml

from tlkit.commands import WIDTH
from tlkit.files import write_text_atomically
from tlkit.options import checked, checked_by_name, kind_of, option_fields

METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH", dict: "NAME=VALUE"}
FIRST_LINE = "# Repeat this run: python -m tlkit train --run-file THIS_FILE --output OTHER\n"


def parser_of(commands: Mapping[str, Callable]) -> argparse.ArgumentParser:
    """The command line of functions, by name, whose parameters are dataclasses of settings; docstrings are the help.

    Returns:
        A parser whose result has the settings that were given, `command` and `json`.
    """
    parser = _Parser(prog="python -m tlkit", description="Transfer learning, from a shell.", allow_abbrev=False)
    names = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for name, command in commands.items():
        words = inspect.getdoc(command)
        one = names.add_parser(
            name,
            help=words.splitlines()[0],
            description="\n\n".join(textwrap.fill(part, WIDTH) for part in words.split("\n\n")),
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=32, width=WIDTH),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        one.add_argument("--json", action="store_true", default=False, help="print JSON, for machines")
        for kind in _kinds_of(command):
            group = one.add_argument_group(kind.__doc__.splitlines()[0].rstrip("."))
            for setting in option_fields(kind):
                _add(group, setting)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        """argparse would print its usage too, and end the process."""
        words = re.sub(r"^argument (--[a-z-]+|[A-Z]+): ", r"\1 ", message)
        raise ValueError(f"{words} (see {self.prog} --help)")


def _kinds_of(command: Callable) -> list[type]:
    """The dataclasses of settings that a command takes."""
    return [parameter.annotation for parameter in inspect.signature(command).parameters.values()]


def _add(group, setting: Field) -> None:
    kind, words = kind_of(setting), setting.metadata["help"].replace("%", "%%")
    if setting.metadata.get("positional"):
        group.add_argument(setting.name, metavar=_flag(setting), help=words, type=partial(_value, setting))
        return
    if _is_needed(setting):
        words += " (needed)"
    elif kind is not dict and setting.default not in (None, False):
        words += f"; default: {'yes' if setting.default is True else setting.default}"
    if kind is bool:
        form = {"action": argparse.BooleanOptionalAction}
    else:
        form = {"metavar": "|".join(setting.metadata["choices"]) or METAVARS[kind], "type": partial(_value, setting)}
    if kind is dict or get_origin(setting.type) is tuple:
        form["action"] = "append"
    group.add_argument(_flag(setting), dest=setting.name, help=words, **form)


def _is_needed(setting: Field) -> bool:
    return setting.default is setting.default_factory is MISSING


def _flag(setting: Field) -> str:
    """As it is written on the command line; a name that Python keeps for itself ends in "_" there, as in `from_`."""
    if setting.metadata.get("positional"):
        return setting.name.upper()
    return "--" + setting.name.rstrip("_").replace("_", "-")


def _value(setting: Field, text: str) -> object:
    """What was typed, in the setting's own type; of train_norms=false, the pair of name and value."""
    try:
        return _named_value(text) if kind_of(setting) is dict else checked(setting, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _named_value(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    with suppress(yaml.YAMLError, ValueError, RecursionError):  # said below, as what has no value is
        if name and value:
            return name, yaml.safe_load(value)
    raise ValueError(f"{text!r}: expected NAME=VALUE, such as train_norms=false")


def settings_of(command: Callable, given: Mapping[str, object]) -> list[object]:
    """What a command takes, from its command line (`given`), then from its run file, then by default.

    Returns:
        An object of each dataclass, in the order of the parameters.
    """
    kinds = _kinds_of(command)
    settings = {setting.name: setting for kind in kinds for setting in option_fields(kind)}
    values = {name: _joined(settings[name], value) for name, value in given.items()}
    if "run_file" in values:
        in_file = {name: setting for name, setting in settings.items() if name != "run_file"}
        values = read_run_file(values["run_file"], in_file) | values
    for name, setting in settings.items():
        if name not in values and _is_needed(setting):
            raise ValueError(f"{_flag(setting)} is missing: {setting.metadata['help']}")
        if isinstance(path := values.get(name), Path):
            _check_path(setting, path)
    return [kind(**{s.name: values[s.name] for s in option_fields(kind) if s.name in values}) for kind in kinds]


def _joined(setting: Field, value: object) -> object:
    """What an option has that was given several times."""
    if value == []:  # what argparse makes of "--"
        raise ValueError(f"{_flag(setting)} '--': expected a value")
    if isinstance(value, list):
        return dict(value) if kind_of(setting) is dict else tuple(value)
    return value


def _check_path(setting: Field, path: Path) -> None:
    """Raise OSError, before any work, where a path cannot be what a setting needs: a file, or a folder to write to."""
    if setting.metadata["path"] == "file":
        with open(path, "rb"):
            return
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{_flag(setting)} {path}: {there} is a file, expected a folder")
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{_flag(setting)} {path}: {there} cannot be written")


def read_run_file(path: Path, settings: Mapping[str, Field]) -> dict[str, object]:
    """The values in a YAML file of names and values, by name, in the types of the settings there are.

    Raises:
        ValueError: naming the file and the key, for what is no YAML, unknown or twice there, or has a wrong value.
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


def write_run_file(path: Path, settings: Mapping[str, object], notes: Mapping[str, object]) -> None:
    """Write settings so that `read_run_file` reads the same, and as comments what the run depends on besides."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    comments = "".join(f"# {name}: {value}\n" for name, value in notes.items())
    text = FIRST_LINE + comments + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    write_text_atomically(path, text)


def refuse_to_replace(path: Path) -> None:
    """Refuse to write a run file over one that does not begin as `write_run_file` begins: somebody's own."""
    if path.exists() and not path.read_bytes().startswith(FIRST_LINE.encode()):
        raise ValueError(f"{path} was not written by tlkit and would be replaced: move it, or name another --output")

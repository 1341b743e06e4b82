"""Dataclasses of settings as a command line, and values from it and a run file as dataclasses."""

import argparse
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field
from functools import partial
from pathlib import Path
from typing import get_origin

import yaml

from tlkit.commands import WIDTH
from tlkit.commands.options import COMMANDS
from tlkit.files import read_text, write_text_atomically
from tlkit.options import checked, kind_of, option_fields

METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH", dict: "NAME=VALUE"}
FIRST_LINE = "# Repeat this run: python -m tlkit train --run-file THIS_FILE --output OTHER"


def command_parser() -> argparse.ArgumentParser:
    """Parses to the given settings as text, `command` and `json`."""
    parser = _Parser(prog="python -m tlkit", description="Transfer learning, from a shell.", allow_abbrev=False)
    names = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    form = {"formatter_class": partial(argparse.HelpFormatter, max_help_position=32, width=WIDTH)}
    form |= {"argument_default": argparse.SUPPRESS, "allow_abbrev": False}
    for name, (_, settings, *shared) in COMMANDS.items():
        words = inspect.getdoc(settings)
        one = names.add_parser(name, help=words.splitlines()[0], description=words, **form)
        one.add_argument("--json", action="store_true", default=False, help="print JSON, for machines")
        for kind in (settings, *shared):
            group = one if kind is settings else one.add_argument_group(kind.__doc__.splitlines()[0].rstrip("."))
            for setting in option_fields(kind):
                _add(group, setting)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        """Else argparse prints its usage and ends the process."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def _add(group, setting: Field) -> None:
    kind, words = kind_of(setting), setting.metadata["help"].replace("%", "%%")
    if setting.metadata["positional"]:
        group.add_argument(setting.name, metavar=_flag(setting), help=words)
        return
    if _is_needed(setting):
        words += " (needed)"
    elif kind is not dict and setting.default not in (None, False):
        words += f"; default: {setting.default}"
    if kind is bool:
        form = {"action": argparse.BooleanOptionalAction}
    else:
        form = {"metavar": "|".join(setting.metadata["choices"]) or METAVARS[kind]}
        form["action"] = "append" if _is_repeated(setting) else "store"
    group.add_argument(_flag(setting), dest=setting.name, help=words, **form)


def _flag(setting: Field) -> str:
    """As on the command line; "_" ends the name of a Python keyword, as in `from_`."""
    name = setting.name.rstrip("_").replace("_", "-")
    return name.upper() if setting.metadata["positional"] else f"--{name}"


def _is_needed(setting: Field) -> bool:
    return setting.default is setting.default_factory is MISSING


def _is_repeated(setting: Field) -> bool:
    return kind_of(setting) is dict or get_origin(setting.type) is tuple


def settings_of(command: str, given: Mapping[str, object]) -> list[object]:
    """An object of each dataclass of a command, from `given`, else its run file, else defaults."""
    _, *kinds = COMMANDS[command]
    settings = {setting.name: setting for kind in kinds for setting in option_fields(kind)}
    values = {name: _typed(settings[name], value) for name, value in given.items()}
    if "run_file" in values:
        values = read_run_file(values["run_file"], settings) | values
    for name, setting in settings.items():
        if name not in values and _is_needed(setting):
            raise ValueError(f"{_flag(setting)} is missing: {setting.metadata['help']}")
    if output := values.get("output"):
        there = next(place for place in (output, *output.absolute().parents) if place.exists())
        if not there.is_dir():
            raise NotADirectoryError(f"--output {output}: {there} is a file, expected a folder")
    return [kind(**{s.name: values[s.name] for s in option_fields(kind) if s.name in values}) for kind in kinds]


def _typed(setting: Field, given: object) -> object:
    if not _is_repeated(setting):
        return checked(setting, given, _flag(setting))
    if kind_of(setting) is dict:
        return dict(map(_named_value, given))
    return tuple(checked(setting, one, _flag(setting)) for one in given)


def _named_value(text: str) -> tuple[str, object]:
    try:
        name, value = text.split("=", 1)
        return name, yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ValueError(f"{text!r}: expected NAME=VALUE") from None


def read_run_file(path: Path, settings: Mapping[str, Field]) -> dict[str, object]:
    """Read a YAML file of names and values, each in the type of its setting."""
    text = read_text(path)
    try:
        content = yaml.safe_load(text)
        if not isinstance(content, dict):
            raise ValueError("expected names with values")
        names = [key.value for key, _ in yaml.compose(text, yaml.SafeLoader).value]
        if twice := [name for name in content if names.count(name) > 1]:  # YAML takes the last without a word
            raise ValueError(f"{twice[0]} is there more than once")
        for name in content:
            if name not in settings:
                raise ValueError(f"{name!r}: expected some of {', '.join(settings)}")
        return {name: checked(settings[name], value) for name, value in content.items()}
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of the 13th month is a ValueError
        raise ValueError(f"{path}: {error}") from None


def write_run_file(path: Path, settings: Mapping[str, object], notes: Mapping[str, object]) -> None:
    """Write settings as YAML that `--run-file` reads, and notes as comments."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    comments = [f"# {name}: {value}" for name, value in notes.items()]
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    write_text_atomically(path, "\n".join([FIRST_LINE, *comments, text]))


def refuse_to_replace(path: Path) -> None:
    """Refuse a run file that somebody else has written."""
    if path.exists() and not path.read_bytes().startswith(FIRST_LINE.encode()):
        raise ValueError(f"{path} was not written by tlkit: move it, or name another --output")

"""`python -m tlkit …`: the package from a shell. Exit 0: done; 1: failed; 2: bad input; 130: interrupted."""

import dataclasses
import errno
import importlib
import io
import json
import os
import sys
import traceback
import warnings
from contextlib import nullcontext, redirect_stdout, suppress

from tqdm import tqdm

from tlkit.commands.options import COMMANDS
from tlkit.commands.parsing import command_parser, settings_of

BAD_INPUT = (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError, FileExistsError)
BAD_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = " ".join(["tlkit", *(word for word in arguments[:1] if word in COMMANDS)])
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `| head` has read enough
        with suppress(io.UnsupportedOperation):  # a notebook's stdout is no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python says so when it ends
        return 128 + 13
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("TLKIT_TRACEBACK"):
            traceback.print_exc()
        print(f"{name}: {_message_of(error)}", file=sys.stderr)
        return 2 if isinstance(error, BAD_INPUT) or getattr(error, "errno", None) in BAD_PATH else 1


def _run(arguments: list[str]) -> int:
    try:
        given = vars(command_parser().parse_args(arguments))
    except SystemExit as end:  # --help
        return end.code
    name, as_json = given.pop("command"), given.pop("json")
    settings = settings_of(name, given)
    with redirect_stdout(sys.stderr) if as_json else nullcontext(), warnings.catch_warnings():
        # On one line, and not in the middle of a progress bar.
        warnings.showwarning = lambda message, *_: tqdm.write(f"tlkit {name}: {_on_one_line(message)}", file=sys.stderr)
        outcome = getattr(importlib.import_module(f"tlkit.commands.{COMMANDS[name][0]}"), name)(*settings)
    if text := _as_json(outcome.data) if as_json and outcome.data is not None else outcome.text:
        print(text)
    return outcome.code


def _as_json(data: object) -> str:
    """Dataclasses by field, what JSON does not have as text, NaN and infinities as null."""
    text = json.dumps(data, default=lambda one: vars(one) if dataclasses.is_dataclass(one) else str(one))
    return json.dumps(json.loads(text, parse_constant=lambda _: None), indent=2)


def _on_one_line(message: object) -> str:
    return " ".join(str(message).split()).encode("utf-8", "backslashreplace").decode()


def _message_of(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if not isinstance(error, ValueError | OSError | RuntimeError | ArithmeticError | MemoryError | ImportError):
        text = f"{type(error).__name__} {error} (not foreseen: TLKIT_TRACEBACK=1 shows where)"
    return _on_one_line(text)

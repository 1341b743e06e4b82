"""A strategy of the reader's own: known wherever ours are, and refused in one line where it cannot be one."""

import functools
import hashlib
import json
import linecache
import os
import sys
from typing import Literal  # noqa: F401 - `with_type` names it

import peft
import pytest
import torch
from small_models import small_model

from tlkit.cli import main
from tlkit.fitting.estimate import estimate_memory
from tlkit.models import meta_model
from tlkit.models.parts import find_blocks
from tlkit.names import CLASSIC
from tlkit.strategies import (
    STRATEGIES,
    apply_strategy,
    check_strategy,
    load_plugin,
    sha256_of_own,
    strategies_named,
    strategy,
)

MINE = '''
from tlkit.models.groups import ParameterGroup, set_groups
from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy


@strategy("mine")
def mine(model, blocks: int = 1):
    """The first blocks instead of the last, the lowest of them twice as fast."""
    for block in find_blocks(model)[:blocks]:
        block.requires_grad_(True)
    lowest = [name for name, p in model.named_parameters() if p.requires_grad and ".0." in name]
    set_groups(model, [ParameterGroup(frozenset(lowest), rate=2.0)])
'''


pytestmark = pytest.mark.usefixtures("registry_as_before")


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "my_strategies.py"
    path.write_text(MINE)
    return path


def test_a_function_becomes_a_strategy_with_options_and_the_same_checks():
    @strategy("first_block")
    def first_block(model, norms: bool = False, share=1.0):
        model.model.layers[0].requires_grad_(True)
        if norms:
            model.model.norm.requires_grad_(True)

    model = small_model("llama")
    plain, with_norm = (apply_strategy(small_model("llama"), "first_block", norms=n) for n in (False, True))
    assert plain.trainable_values == sum(p.numel() for p in model.model.layers[0].parameters())
    assert with_norm.trainable_values == plain.trainable_values + 32 and plain.strategy == "first_block"
    check_strategy("first_block", {"share": 0.5})  # of no type, so that it takes any
    for options, said in (
        ({"norms": 3}, "expected a value of type bool"),
        ({"n": 1}, "has no option n: expected norms"),
    ):
        with pytest.raises(ValueError, match=said):
            apply_strategy(small_model("llama"), "first_block", **options)

    @strategy("first_block")  # the cell was run again
    def changed(model):
        model.requires_grad_(False)

    @strategy("everything")
    def everything(model):
        return model.requires_grad_(True)

    @strategy("a_word")
    def a_word(model):
        return "done"

    @strategy("without_wrapper")
    def without_wrapper(model):
        peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM"))

    for name, said in (
        ("without_wrapper", "without_wrapper put an adapter into the model: expected it to return peft's wrapper"),
        ("first_block", "first_block selected no weights of LlamaForCausalLM"),
        ("everything", "selected every weight of LlamaForCausalLM: that is `full`"),
        ("a_word", "a_word returned a str: expected the model"),
    ):
        with pytest.raises(ValueError, match=said):
            apply_strategy(small_model("llama"), name)


def with_type(text):
    """A function whose option has a type that only looks like one, as a file with postponed annotations has it."""

    def mine(model, blocks=1):
        model.requires_grad_(True)

    mine.__annotations__ = {"blocks": text}
    return mine


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        ("full", lambda model: model, "'full' is there already"),
        ("lora", lambda model: model, "'lora' is there already"),
        ("peft", lambda model: model, "expected a name of small letters"),
        ("random initialisation", lambda model: model, "expected a name of small letters"),
        ("mine,yours", lambda model: model, "expected a name of small letters"),
        ("Mine", lambda model: model, "expected a name of small letters"),
        ("mine", lambda: None, "expected a function of a model"),
        ("mine", lambda model, blocks: model, "and defaults for its other parameters"),
        ("mine", lambda model, *blocks: model, "and defaults for its other parameters"),
        ("mine", lambda *, model=None: model, "expected a function of a model"),
        ("mine", lambda model, **options: model, "expected each as a parameter with a default, not \\*\\*options"),
        ("mine", lambda model, blocks=1, /: model, "expected each as a parameter with a default, not blocks=1"),
        ("mine", with_type("nowhere.Module"), "cannot be read: NameError: name 'nowhere' is not defined"),
        ("mine", with_type("int | 'one'"), "cannot be read: TypeError: unsupported operand"),
        ("mine", with_type("Literal[1, 2]"), "expected a type such as int, float, bool, str or int . None"),
        ("mine", 3, "cannot be read: TypeError: 3 is not a callable object"),
    ],
)
def test_what_cannot_be_a_strategy_is_refused_where_it_is_made(name, function, said):
    known = dict(STRATEGIES)
    with pytest.raises(ValueError, match=said):
        strategy(name)(function)
    assert known == STRATEGIES
    with pytest.raises(ValueError, match="has no name: expected one in brackets"):
        strategy(function)


def test_names_stand_for_families():
    assert strategies_named(None) == strategies_named(["classic"]) == list(CLASSIC)
    everything = strategies_named(["all"])
    assert set(everything) == set(STRATEGIES) - {"linear_probe"} and everything[: len(CLASSIC)] == list(CLASSIC)
    methods = strategies_named(["peft"])
    assert {"lora", "dora", "ia3", "prompt_tuning"} < set(methods) and "full" not in methods
    assert strategies_named(["ia3", "peft", "full"]) == ["ia3", *(name for name in methods if name != "ia3"), "full"]
    assert strategies_named(["nothing"]) == ["nothing"], "whoever asks refuses it with what is known there"
    strategy("mine")(lambda model: model)
    assert "mine" in strategies_named(["all"]) and "mine" not in strategies_named(["peft"])


def test_a_file_of_strategies(plugin, tmp_path):
    assert load_plugin(plugin) == ["mine"] and load_plugin(plugin) == ["mine"]
    report = apply_strategy(meta_model("tiny"), "mine", blocks=2)
    assert {name for name, part in report.components.items() if part.trainable_values} == {"block 0", "block 1"}
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "ends.py").write_text("import sys\n\nsys.exit(3)\n")
    (tmp_path / "two.py").write_text(MINE + MINE)
    for name, kind, said in (
        ("empty.py", ValueError, "empty.py defines no strategy"),
        ("broken.py", ValueError, "broken.py, line 2: ZeroDivisionError"),
        ("torn.py", ValueError, "torn.py, line 1: SyntaxError"),
        ("ends.py", ValueError, "ends.py, line 3: SystemExit: it ends the whole program"),
        ("two.py", ValueError, "two.py, line 20: ValueError: strategy 'mine' is defined twice in this file"),
        ("notes.txt", ValueError, "notes.txt: expected a .py file"),
        ("nowhere.py", FileNotFoundError, "nowhere.py: no such file"),
    ):
        with pytest.raises(kind, match=said):
            load_plugin(tmp_path / name)


@pytest.fixture
def few():
    """Of ours the classic ones alone: `params` applies each that it knows."""
    for name in STRATEGIES.keys() - set(CLASSIC):
        del STRATEGIES[name]


def test_the_command_line_knows_it(plugin, tmp_path, capsys, few):
    known = ["--plugin", str(plugin)]
    assert main(["params", "--json", *known]) == 0
    rows = {row["strategy"]: row for row in json.loads(capsys.readouterr().out)}
    assert 0 < rows["mine"]["trainable_values"] < rows["full"]["trainable_values"]
    shape = ["--batch-size", "1", "--sequence-length", "32"]
    assert main(["estimate", "--strategy", "mine", "--strategy-option", "blocks=2", *shape, *known]) == 0
    capsys.readouterr()
    assert main(["estimate", "--strategy", "yours", *shape, *known]) == 2
    assert "strategy 'yours' is unknown: expected one of full" in capsys.readouterr().err


LATER = """
from __future__ import annotations

import functools

from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy

BLOCKS = {blocks}


@strategy("mine")
def mine(model, blocks: int = 1, share: float | None = None):
    for block in find_blocks(model)[:blocks]:
        block.requires_grad_(True)


strategy("in_part")(functools.partial(mine, blocks=BLOCKS))
for number in range(1, 3):
    strategy(f"first_{{number}}")(lambda model, n=number: find_blocks(model)[:n].requires_grad_(True) and None)
"""


def test_postponed_types_parts_of_functions_and_loops(tmp_path):
    (tmp_path / "later.py").write_text(LATER.format(blocks=2))
    assert load_plugin(tmp_path / "later.py") == ["mine", "in_part", "first_1", "first_2"]
    found = [apply_strategy(meta_model("tiny"), name).trainable_values for name in ("mine", "in_part", "first_2")]
    assert found == [found[0], 2 * found[0], 2 * found[0]]
    assert apply_strategy(meta_model("tiny"), "in_part", blocks=3).trainable_values == 3 * found[0]
    for option in ({"blocks": "two"}, {"share": "half"}):
        with pytest.raises(ValueError, match="expected a value of type"):
            check_strategy("mine", option)


def test_a_strategy_of_a_file_is_known_by_the_whole_file(tmp_path, monkeypatch):
    """A constant is another, and no function: even in a file that is as long as before, and written at once."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # as where Python keeps what it has compiled
    path, known, trained = tmp_path / "later.py", set(), []
    for blocks in (1, 2):
        path.write_text(LATER.format(blocks=blocks))
        os.utime(path, (0, 0))
        names = load_plugin(path)
        (digest,) = {sha256_of_own(name) for name in names}
        known.add(digest)
        trained.append(apply_strategy(meta_model("tiny"), "in_part").trainable_values)
    assert len(known) == 2 and trained[1] == 2 * trained[0], "what is hashed is what is run"
    assert sha256_of_own("full") is None and sha256_of_own("random initialisation") is None
    strategy("mine")(lambda model: model)
    assert sha256_of_own("mine") != sha256_of_own("in_part"), "defined anew, it is not that of the file"


CELL = """
from functools import partial
from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy

BLOCKS = 1


def made(first):
    def mine(model, norms=0.5):
        for block in find_blocks(model)[first:BLOCKS]:
            block.requires_grad_(True)

    return mine


strategy("mine")(partial(made(0), norms=1.0))
"""


@pytest.mark.parametrize(
    ("before", "after", "another"),
    [
        ("", "", False),
        ("[first:BLOCKS]", "[-first:BLOCKS]", True),
        ("norms=0.5", "norms=0.25", True),
        ("BLOCKS = 1", "BLOCKS = 2", False),
    ],
)
def test_a_strategy_of_a_notebook_is_known_by_the_source_of_its_function(before, after, another):
    """And by nothing beside it: what changes a constant belongs into a file."""

    def run(cell):
        place = f"cell {hashlib.sha256(cell.encode()).hexdigest()}"
        linecache.cache[place] = (len(cell), None, cell.splitlines(keepends=True), place)  # as a notebook does
        exec(compile(cell, place, "exec"), {"__name__": "__main__"})
        return sha256_of_own("mine")

    assert run(CELL) == run("\n\n" + CELL)
    assert (run(CELL) != run(CELL.replace(before, after))) is another


def test_a_strategy_without_a_source_is_refused():
    exec(CELL, {"__name__": "__main__"})
    with pytest.raises(ValueError, match="strategy 'mine': Python does not know its source, .*: expected it in a file"):
        sha256_of_own("mine")


RAISING = """
import sys

import torch
from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy


@strategy("beyond")
def beyond(model):
    find_blocks(model)[99].requires_grad_(True)


@strategy("largest")
def largest(model):
    max(find_blocks(model), key=lambda block: next(block.parameters()).norm().item()).requires_grad_(True)


@strategy("ends")
def ends(model):
    sys.exit("not this model")


@strategy("full_card")
def full_card(model):
    raise torch.OutOfMemoryError("CUDA out of memory")
"""


def test_what_a_strategy_raises_is_said_in_one_line_with_its_name_and_place(tmp_path, capsys):
    (tmp_path / "my.py").write_text(RAISING)
    load_plugin(tmp_path / "my.py")
    where = "a model without weights, where there are no values to ask for"
    for name, said in (
        ("beyond", r"strategy 'beyond' \(my.py, line 11\) raised IndexError: index 99 is out of range$"),
        ("largest", rf"strategy 'largest' \(my.py, line 16\) raised RuntimeError: .* meta tensors; .* {where}"),
        ("ends", r"strategy 'ends' \(my.py, line 21\) raised SystemExit: not this model$"),
    ):
        with pytest.raises(ValueError, match=said):
            apply_strategy(meta_model("tiny"), name)
    with pytest.raises(torch.OutOfMemoryError):  # there is a way out of that: the fallback
        apply_strategy(meta_model("tiny"), "full_card")
    assert apply_strategy(small_model("llama"), "largest").trainable_values, "of a model with weights it can be asked"
    exec("from tlkit.strategies import strategy\n@strategy('cell')\ndef cell(model):\n    model.nothing\n", {})
    with pytest.raises(ValueError, match=r"strategy 'cell' \(line 4\) raised AttributeError: 'LlamaForCausalLM' obj"):
        apply_strategy(small_model("llama"), "cell")
    with pytest.raises(ValueError, match="strategy 'cell' raised TypeError: .*missing 1 required"):
        strategy("cell")(functools.wraps(lambda model: None)(lambda model, more: None))
        apply_strategy(small_model("llama"), "cell")


def test_a_strategy_that_raises_is_a_row_with_a_reason(tmp_path, capsys, few):
    (tmp_path / "my.py").write_text(MINE + RAISING.split('@strategy("ends")')[0])
    assert main(["params", "--plugin", str(tmp_path / "my.py"), "--json"]) == 0
    rows = {row["strategy"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mine"]["trainable_values"] and rows["full"]["trainable_values"]
    assert "(my.py, line 24) raised IndexError" in rows["beyond"]["cannot"] and "meta" in rows["largest"]["cannot"]


def test_an_estimate_is_of_the_strategy_as_it_is_now():
    shape = {"batch_size": 1, "sequence_length": 16}

    @strategy("mine")
    def mine(model):
        find_blocks(model)[0].requires_grad_(True)

    before = estimate_memory("tiny", "mine", **shape)

    @strategy("mine")
    def changed(model):
        find_blocks(model)[:7].requires_grad_(True)

    after = estimate_memory("tiny", "mine", **shape)
    assert after.categories["gradients"] > before.categories["gradients"]
    assert estimate_memory("tiny", "bitfit", **shape) is estimate_memory("tiny", "bitfit", **shape), "ours are kept"

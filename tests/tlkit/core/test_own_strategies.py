"""A strategy of the reader's own: known wherever ours are, and refused in one line where it cannot be one."""

import hashlib
import linecache
import os
import sys

import pytest
from peft import LoraConfig, get_peft_model
from small_models import small_model

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
    for options, said in (({"norms": 3}, "expected a value of type bool"), ({"n": 1}, "has no option n")):
        with pytest.raises(ValueError, match=said):
            apply_strategy(small_model("llama"), "first_block", **options)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda model: None, "selected no weights"),
        (lambda model: model.requires_grad_(True), "selected every weight of LlamaForCausalLM: that is `full`"),
        (lambda model: "done", "returned a str: expected the model"),
        (lambda model: get_peft_model(model, LoraConfig()) and None, "expected it to return peft's wrapper"),
    ],
)
def test_what_a_function_has_selected_is_checked(function, said):
    strategy("mine")(function)
    with pytest.raises(ValueError, match=said):
        apply_strategy(small_model("llama"), "mine")


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        ("lora", lambda model: model, "'lora' is there already"),
        ("peft", lambda model: model, "expected a name of small letters"),
        ("mine", lambda model, blocks: model, "and defaults for its other parameters"),
    ],
)
def test_what_cannot_be_a_strategy_is_refused_where_it_is_made(name, function, said):
    known = dict(STRATEGIES)
    with pytest.raises(ValueError, match=said):
        strategy(name)(function)
    assert known == STRATEGIES


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
    for name, said in (
        ("empty.py", "empty.py defines no strategy"),
        ("broken.py", "broken.py, line 2: ZeroDivisionError"),
    ):
        with pytest.raises(ValueError, match=said):
            load_plugin(tmp_path / name)


LATER = """
from __future__ import annotations

import functools

from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy

BLOCKS = {blocks}


@strategy("mine")
def mine(model, blocks: int = 1):
    for block in find_blocks(model)[:blocks]:
        block.requires_grad_(True)


strategy("in_part")(functools.partial(mine, blocks=BLOCKS))
"""


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
        ("[first:BLOCKS]", "[-first:BLOCKS]", True),
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


BEYOND = """
from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy


@strategy("beyond")
def beyond(model):
    find_blocks(model)[99].requires_grad_(True)
"""


def test_what_a_strategy_raises_is_said_in_one_line_with_its_name_and_place(plugin):
    plugin.write_text(BEYOND)
    load_plugin(plugin)
    with pytest.raises(ValueError, match=r"strategy 'beyond', line 8: IndexError: "):
        apply_strategy(meta_model("tiny"), "beyond")


def test_an_estimate_is_of_the_strategy_as_it_is_now(shallow):
    shape = {"batch_size": 1, "sequence_length": 16}

    @strategy("mine")
    def mine(model):
        find_blocks(model)[0].requires_grad_(True)

    before = estimate_memory("tiny", "mine", **shape)

    @strategy("mine")
    def changed(model):
        find_blocks(model)[:2].requires_grad_(True)

    after = estimate_memory("tiny", "mine", **shape)
    assert after.categories["gradients"] > before.categories["gradients"]
    assert estimate_memory("tiny", "bitfit", **shape) is estimate_memory("tiny", "bitfit", **shape), "ours are kept"

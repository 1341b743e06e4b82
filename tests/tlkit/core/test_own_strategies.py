"""A strategy of the reader's own: known wherever ours are, and refused in one line where it cannot be one."""

import hashlib
import linecache

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

pytestmark = pytest.mark.usefixtures("registry_as_before")


def test_a_function_becomes_a_strategy_with_options_and_the_same_checks():
    @strategy("first_block")
    def first_block(model, norms: bool = False, share=1.0):
        model.model.layers[0].requires_grad_(True)
        if norms:
            model.model.norm.requires_grad_(True)

    model = small_model("llama")
    plain, with_norm = (apply_strategy(small_model("llama"), "first_block", norms=n) for n in (False, True))
    assert plain.trainable_parameters == sum(p.numel() for p in model.model.layers[0].parameters())
    assert with_norm.trainable_parameters == plain.trainable_parameters + 32 and plain.strategy == "first_block"
    check_strategy("first_block", {"share": 0.5})
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
        ("mine", lambda model, blocks: model, "and defaults for other parameters"),
    ],
)
def test_what_cannot_be_a_strategy_is_refused_where_it_is_made(name, function, said):
    known = dict(STRATEGIES)
    with pytest.raises(ValueError, match=said):
        strategy(name)(function)
    assert known == STRATEGIES


def test_names_stand_for_families():
    assert strategies_named(["classic"]) == list(CLASSIC)
    everything = strategies_named(["all"])
    assert set(everything) == set(STRATEGIES) - {"linear_probe"} and everything[: len(CLASSIC)] == list(CLASSIC)
    methods = strategies_named(["peft"])
    assert {"lora", "dora", "ia3", "prompt_tuning"} < set(methods) and "full" not in methods
    assert strategies_named(["ia3", "peft", "full"]) == ["ia3", *(name for name in methods if name != "ia3"), "full"]
    assert strategies_named(["nothing"]) == ["nothing"], "whoever asks refuses it with what is known there"
    strategy("mine")(lambda model: model)
    assert "mine" in strategies_named(["all"]) and "mine" not in strategies_named(["peft"])


MINE = """
import tlkit as tl

BLOCK = {block}


@tl.strategy("mine")
def mine(model, count: int = 1):
    for number in range(count):
        tl.find_blocks(model)[BLOCK + number].requires_grad_(True)
"""


def test_a_strategy_of_a_file_is_known_by_the_whole_file(tmp_path):
    """A constant is another, and no function."""
    path, known = tmp_path / "my_strategies.py", set()
    for block in (0, 1):
        path.write_text(MINE.format(block=block))
        load_plugin(path)
        known.add(sha256_of_own("mine"))
        report = apply_strategy(meta_model("tiny"), "mine", count=2)
        trained = {name for name, part in report.components.items() if part.trainable_parameters}
        assert trained == {f"block {block}", f"block {block + 1}"}, "what is hashed is what is run"
    decorated = MINE.format(block=2).replace("def mine", "@torch.no_grad()\ndef mine")
    path.write_text(f"import torch\n{decorated}")
    load_plugin(path)
    known.add(sha256_of_own("mine"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() in known, "that of its file, not of the decorator's"
    strategy("mine")(lambda model: model)  # defined anew, it is not that of the file
    assert len(known | {sha256_of_own("mine")}) == 4 and sha256_of_own("full") is None


def test_what_a_file_or_its_strategy_raises_is_said_in_one_line_with_its_place(tmp_path):
    path = tmp_path / "mine.py"
    for text, said in (
        ("x = 1", "mine.py defines no strategy"),
        ("x = 1\ny = x / 0", "mine.py, line 2: ZeroDivisionError"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=said):
            load_plugin(path)
    path.write_text(MINE.format(block=99))
    load_plugin(path)
    with pytest.raises(ValueError, match=r"mine, line 10: IndexError: "):
        apply_strategy(meta_model("tiny"), "mine")


@pytest.mark.parametrize(("before", "after", "another"), [("[0:", "[1:", True), ("BLOCKS = 1", "BLOCKS = 2", False)])
def test_a_strategy_of_a_notebook_is_known_by_the_source_of_its_function(before, after, another):
    """And by nothing beside it: what changes a constant belongs into a file."""
    cell = "BLOCKS = 1\n\n@strategy('mine')\ndef mine(model):\n    model.layers[0:BLOCKS].requires_grad_(True)\n"

    def run(cell):
        place = f"cell {hashlib.sha256(cell.encode()).hexdigest()}"
        linecache.cache[place] = (len(cell), None, cell.splitlines(keepends=True), place)  # as a notebook does
        exec(compile(cell, place, "exec"), {"__name__": "__main__", "strategy": strategy})
        return sha256_of_own("mine")

    assert run(cell) == run("\n\n" + cell)
    assert (run(cell) != run(cell.replace(before, after))) is another


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

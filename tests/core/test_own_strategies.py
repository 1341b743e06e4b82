"""A strategy of the reader's own: known wherever ours are, and refused in one line where it cannot be one."""

import json

import pytest
from small_models import small_model

from tlkit.cli import main
from tlkit.models import meta_model
from tlkit.strategies import (
    CLASSIC,
    STRATEGIES,
    apply_strategy,
    check_strategy,
    load_plugin,
    source_of_own,
    strategies_named,
    strategy,
)

MINE = '''
from tlkit.strategies import ParameterGroup, find_blocks, set_groups, strategy


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

    for name, said in (
        ("first_block", "first_block selected no weights of LlamaForCausalLM"),
        ("everything", "selected every weight of LlamaForCausalLM: that is `full`"),
        ("a_word", "a_word returned 'done': expected the model"),
    ):
        with pytest.raises(ValueError, match=said):
            apply_strategy(small_model("llama"), name)


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
    assert "The first blocks instead of the last" in source_of_own(["full", "mine"])["mine"]
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    (tmp_path / "notes.txt").write_text("x")
    for name, kind, said in (
        ("empty.py", ValueError, "empty.py defines no strategy"),
        ("broken.py", ValueError, "broken.py, line 2: ZeroDivisionError"),
        ("torn.py", ValueError, "torn.py, line 1: SyntaxError"),
        ("notes.txt", ValueError, "notes.txt: expected a .py file"),
        ("nowhere.py", FileNotFoundError, "nowhere.py: no such file"),
    ):
        with pytest.raises(kind, match=said):
            load_plugin(tmp_path / name)


def test_the_command_line_knows_it(plugin, tmp_path, capsys):
    known = ["--plugin", str(plugin)]
    assert main(["params", "--json", *known]) == 0
    rows = {row["strategy"]: row for row in json.loads(capsys.readouterr().out)}
    assert 0 < rows["mine"]["trainable_values"] < rows["full"]["trainable_values"]
    shape = ["--batch-size", "1", "--sequence-length", "32"]
    assert main(["estimate", "--strategy", "mine", "--strategy-option", "blocks=2", *shape, *known]) == 0
    capsys.readouterr()
    assert main(["estimate", "--strategy", "yours", *shape, *known]) == 2
    assert "strategy 'yours' is unknown: expected one of full" in capsys.readouterr().err

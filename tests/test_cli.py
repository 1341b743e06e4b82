"""The command line: one line and an exit code, whatever it is given; settings from one place; runs that repeat."""

import errno
import json
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tlkit.cli import COMMANDS, main
from tlkit.commands import Outcome, as_columns
from tlkit.commands.parsing import command_parser
from tlkit.files import CheckpointError
from tlkit.options import kind_of, option_fields
from tlkit.settings import Plan, TrainingConfig

ROOT = Path(__file__).resolve().parent.parent
REACHED = "the work begins"
# What does the work of each command, once everything that can be refused has been.
WORK = (
    "tlkit.models.load_model",
    "tlkit.evidence.experiment.load_model",
    "tlkit.commands.models.bring",
    "tlkit.commands.models.estimate_memory",
    "tlkit.commands.models.apply_strategy",
    "tlkit.commands.evidence.settings_of_tier",
)
NEEDED = {
    "fetch": ["tiny"],
    "train": ["--strategy", "bitfit"],
    "validate": ["quick"],
    "audit": ["table.csv", "--metric", "accuracy", "--items", "1319"],
    "generate": ["--prompt", "In Rust,"],
}
PARSER = command_parser()
SETTINGS = [
    (name, setting) for name, (_, *kinds) in COMMANDS.items() for kind in kinds for setting in option_fields(kind)
]
NO_NUMBERS = ["", "nan", "-inf", "1,5", "0x10", "None", "--", "9" * 5000, "1e999999", "\udcff", "\n"]
NO_WHOLE_NUMBERS = [*NO_NUMBERS, "1.5", "1e9", "inf", str(10**12), str(-(10**12))]
TEXTS = ["", "-1", ".", "/proc/no", "~", "{0}%s", "é ☃", "x" * 5000, "\udcff", "a\nb"]


@pytest.fixture
def stopped(monkeypatch, tmp_path):
    """In an empty folder, without a network, and with the work of every command replaced by an error."""

    def begin(*_, **__):
        raise RuntimeError(REACHED)

    for place in WORK:
        monkeypatch.setattr(place, begin)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    # A thousand commands: the parser is made once, and the garbage is left where it is.
    monkeypatch.setattr("tlkit.cli.command_parser", lambda: PARSER)
    monkeypatch.setattr("gc.collect", lambda: 0)
    for name in ("TLKIT_MODEL", "TLKIT_CORPUS", "TLKIT_PROFILE", "TLKIT_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "there.ipynb").write_text("{}")
    (tmp_path / "here" / "adapter").mkdir()
    (tmp_path / "here" / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "tiny"}')
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def command_line(name: str, *more: str) -> list[str]:
    line = [name, *NEEDED.get(name, ())]
    return [*line, *more] + (["--output", "out"] if name in ("train", "compare") and "--output" not in more else [])


def said(capsys) -> str:
    """The one line that went to stderr."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def flag(setting) -> str:
    return "--" + setting.name.rstrip("_").replace("_", "-")


@pytest.mark.parametrize(("name", "setting"), SETTINGS, ids=lambda value: getattr(value, "name", value))
def test_every_option_of_every_command_refuses_what_it_cannot_be(name, setting, stopped, capsys):
    """Nothing is loaded, nothing is written, and one line says which option it was."""
    kind = kind_of(setting)
    (stopped / "folder").mkdir()
    (stopped / "latin").write_bytes(b"\xe9t\xe9: [")
    paths = ["", "folder", "latin", "x" * 5000, "no/such", "there.ipynb/below", "/proc/no", "\udcff"]
    wrong = {int: NO_WHOLE_NUMBERS, float: NO_NUMBERS}.get(kind, [])
    if setting.metadata.get("at_most") == math.inf:
        wrong = [value for value in wrong if not value.startswith(("9", "1e"))]  # those are infinity
    doubtful = {int: ["-1", "0", "1"], float: ["-1", "0", "1e9", "inf"], str: TEXTS, Path: paths, dict: TEXTS}
    for value in wrong + doubtful.get(kind, []):
        # A name of its own for the option, so that what is needed besides is not given twice.
        line = [name, "--", value] if setting.metadata["positional"] else command_line(name, f"{flag(setting)}={value}")
        code = main(line)
        heard = said(capsys)
        assert heard.startswith(f"tlkit {name}: ") and "Traceback" not in heard and "not foreseen" not in heard
        if value in wrong:
            assert code == 2 and flag(setting) in heard, (value, heard)
        assert (code == 1) is (REACHED in heard) and code in (1, 2), (value, heard)
        assert not any(stopped.glob("out/**/*"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "--strategy", "lora", "--strategy-option", "r=[1"], "'r=[1': expected NAME=VALUE"),
        (["train", "--micro-batch-size", "5"], "micro_batch_size=5: expected 1 to batch_size=4"),
        (["train", "--strategy", "full", "--optimizer", "sgd"], "no rate is recorded for sgd"),
        (["train", "--epoch", "3"], "unrecognized arguments: --epoch 3"),
        (["train", "--run-file", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["estimate", "--dtype", "int4"], "--dtype='int4': expected fp32 or bf16 or fp16"),
        (["compare", "--learning-rates", "full=fast"], "learning rate of full='fast': expected a number above 0"),
        (["compare", "--output", "file"], "--output file: file is a file, expected a folder"),
        (["audit", "folder", "--metric", "a", "--items", "9"], "folder: no such file, or not a file of text"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["train", "--output", "out"], "--strategy is missing: what to train, such as full, "),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, expected, stopped, capsys):
    (stopped / "folder").mkdir()
    (stopped / "file").write_text("")
    line = command_line(*arguments) if arguments[:1] == ["train"] and arguments[1] != "--output" else arguments
    assert main(line) == 2
    assert expected in said(capsys)
    assert not (stopped / "out").exists()


def test_a_device_that_is_not_there_is_a_failure(stopped, monkeypatch, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    monkeypatch.setenv("TLKIT_DEVICE", "cuda")
    for name in ("train", "evaluate"):
        assert main(command_line(name)) == 1
        assert "cuda: not present" in said(capsys)
    monkeypatch.setenv("TLKIT_DEVICE", "abacus")
    assert main(command_line("train")) == 2
    assert "'abacus' is unknown" in said(capsys)


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (FloatingPointError("the loss became nan\nat step 3"), 1, "tlkit evaluate: the loss became nan at step 3"),
        (MemoryError(), 1, "tlkit evaluate: MemoryError"),
        (OSError(errno.ENOSPC, "No space left on device", "out/model"), 1, "No space left on device: 'out/model'"),
        (OSError(errno.ENOENT, "No such file or directory", "corpus"), 2, "No such file or directory: 'corpus'"),
        (CheckpointError("no checkpoints can be kept"), 1, "tlkit evaluate: no checkpoints can be kept"),
        (KeyError("x"), 1, "tlkit evaluate: KeyError 'x' (not foreseen: TLKIT_TRACEBACK=1 shows where)"),
        (KeyboardInterrupt(), 130, "tlkit evaluate: interrupted"),
    ],
)
def test_every_failure_is_one_line_with_its_exit_code(error, code, expected, stopped, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("tlkit.models.load_model", fail)
    assert main(["evaluate"]) == code
    assert expected in said(capsys)
    monkeypatch.setenv("TLKIT_TRACEBACK", "1")
    assert main(["evaluate"]) == code
    shown = "Traceback (most recent call last)" in capsys.readouterr().err
    assert shown is not isinstance(error, KeyboardInterrupt), "for who asks"


@pytest.mark.skipif(os.name != "posix", reason="pipes of this kind")
def test_a_reader_that_has_had_enough_ends_a_command_quietly():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "tlkit", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    os.close(write)
    assert done.stderr == "" and done.returncode == 141


def test_help_is_there_without_the_libraries():
    heavy = {"torch", "transformers", "pandas", "numpy", "peft", "matplotlib"}
    program = f"import sys; from tlkit.cli import main\nfor name in {list(COMMANDS)}:\n    main([name, '--help'])\n"
    program += f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    for _, setting in SETTINGS:
        name = setting.name.upper() if setting.metadata["positional"] else flag(setting)
        assert name in done.stdout and setting.metadata["help"]


def test_every_setting_of_a_training_is_an_option_of_train_and_of_its_run_file(stopped, capsys):
    offered = {setting.name for name, setting in SETTINGS if name == "train"}
    wanted = {setting.name for kind in (TrainingConfig, Plan) for setting in fields(kind)}
    assert wanted - offered == {"train_on_host"}, "what only a fallback decides"
    assert {setting.name for setting in option_fields(Plan)} <= {s.name for name, s in SETTINGS if name == "estimate"}
    for setting in option_fields(TrainingConfig) + option_fields(Plan):
        Path("run.yaml").write_text(f"strategy: bitfit\noutput: out\n{setting.name}: {{}}\n", encoding="utf-8")
        assert main(["train", "--run-file", "run.yaml"]) == 2
        assert said(capsys).startswith(f"tlkit train: run.yaml: {setting.name}={{}}: expected ")


@pytest.mark.parametrize("page", ["README.md", "notebooks/commands.md", "notebooks/instructors.md"])
def test_the_commands_in_the_documentation_are_understood(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"-m tlkit ([a-z][^\n`#|…]*)", text)
    assert found
    for line in found:
        given = vars(PARSER.parse_args(shlex.split(line)))
        assert COMMANDS[given["command"]], line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epoch: 2", "run.yaml: 'epoch': expected some of strategy, "),
        ("epochs: 2\nepochs: 3", "run.yaml: epochs is there more than once"),
        ("batch_size: true", "run.yaml: batch_size=True: expected a whole number of at least 1"),
        ("- 1", "run.yaml: expected names with values"),
        (b"epochs: \xe9", "run.yaml, line 1: not UTF-8 text"),
    ],
)
def test_a_run_file_is_checked_key_by_key(text, expected, stopped, capsys):
    Path("run.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    line = ["train", "--run-file", "run.yaml", "--strategy", "bitfit"]
    assert main([*line, "--output", "out"]) == 2
    assert expected in said(capsys)


def test_a_run_file_of_somebody_is_not_replaced(tmp_path, stopped, capsys):
    mine = "# my notes\nstrategy: bitfit\n"
    (tmp_path / "run.yaml").write_text(mine)
    assert main(["train", "--run-file", str(tmp_path / "run.yaml"), "--output", str(tmp_path)]) == 2
    assert "run.yaml was not written by tlkit" in said(capsys)
    assert (tmp_path / "run.yaml").read_text() == mine


@pytest.fixture
def small(monkeypatch, shallow):
    from tlkit.settings import PROFILES, Profile

    profile = Profile("small", train_passages=3, test_passages=3, epochs=1, seeds=1)
    monkeypatch.setitem(PROFILES, "small", profile)


def test_a_run_is_repeated_by_the_file_it_leaves(tmp_path, capsys, small):
    """The command line wins over the file, and the file over the defaults; train and evaluate score the same."""
    asked = {"strategy": "lora", "profile": "small", "epochs": "1e-1", "seed": 7, "precision": "bf16"}
    asked |= {"strategy_option": {"r": 2}, "micro_batch_size": 1, "batch_size": 3, "schedule": "linear"}
    asked |= {"learning_rate": 1e-2, "context": 64, "stride": 32, "optimizer": "sgd", "sequence_length": 64}
    (tmp_path / "asked.yaml").write_text(yaml.safe_dump(asked))
    first, second = tmp_path / "first", tmp_path / "second"
    line = ["train", "--run-file", str(tmp_path / "asked.yaml"), "--batch-size", "2", "--json", "--output", str(first)]
    assert main(line) == 0
    one = json.loads(capsys.readouterr().out)
    used = yaml.safe_load((first / "run.yaml").read_text())
    assert used.items() >= (asked | {"batch_size": 2, "epochs": 0.1, "model": "tiny", "corpus": "rust"}).items()
    assert used["weight_decay"] == 0.01 and used["chunked_loss"] is False, "what was not said is written down too"
    assert not {"output", "resume", "run_file"} & set(used)

    assert main(["train", "--run-file", str(first / "run.yaml"), "--json", "--output", str(second)]) == 0
    two = json.loads(capsys.readouterr().out)
    assert (one["before"], one["after"]) == (two["before"], two["after"])
    assert (second / "run.yaml").read_text().split("model:")[1] == (first / "run.yaml").read_text().split("model:")[1]

    assert main(["evaluate", "--profile", "small", "--context", "64", "--stride", "32", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    corpus = alone.pop("corpus")
    assert alone.pop("documents_open_with") == "<|endoftext|>"
    assert alone == one["before"] and alone["documents"] == corpus["test"] == 3
    assert one["corpus"] == corpus
    assert (alone["context"], alone["stride"]) == (64, 32)


@pytest.mark.parametrize(
    ("strategy", "speed", "given", "precision", "dtype"),
    [
        ("lora", 6.0, [], "bf16", "bf16"),
        ("lora", 6.0, ["--dtype", "fp32"], "bf16", "fp32"),
        ("full", 6.0, [], "bf16", "fp32"),
        ("lora", 0.2, [], "fp32", "fp32"),
    ],
)
def test_precision_auto_is_settled_before_the_run_said_and_stored(
    tmp_path, capsys, monkeypatch, small, strategy, speed, given, precision, dtype
):
    monkeypatch.setattr("tlkit.devices._measured_bf16_speed", lambda kind, threads: speed)
    line = ["train", "--strategy", strategy, "--precision", "auto", "--sequence-length", "32", "--profile", "small"]
    assert main([*line, *given, "--max-steps", "1", "--batch-size", "1", "--output", str(tmp_path)]) == 0
    shown, used = capsys.readouterr().out, yaml.safe_load((tmp_path / "run.yaml").read_text())
    assert (used["precision"], used["dtype"]) == (precision, dtype)
    assert f"computed in {precision}; weights in {dtype}" in shown


def test_a_run_file_says_what_the_environment_chose_and_stays_while_another_run_is_refused(
    tmp_path, capsys, monkeypatch, small
):
    monkeypatch.setenv("TLKIT_PROFILE", "small")
    monkeypatch.setenv("TLKIT_CORPUS", "facts")
    line = ["train", "--strategy", "bitfit", "--sequence-length", "64", "--output", str(tmp_path)]
    assert main(line) == 0
    used = yaml.safe_load((tmp_path / "run.yaml").read_text())
    assert (used["profile"], used["corpus"], used["model"]) == ("small", "facts", "tiny")
    assert main([*line, "--seed", "5"]) == 1
    assert "of an earlier run" in capsys.readouterr().err
    assert main([*line, "--seed", "5", "--resume"]) == 2
    assert "seed was 0 and is now 5" in capsys.readouterr().err
    assert yaml.safe_load((tmp_path / "run.yaml").read_text())["seed"] == 0


def test_an_output_folder_in_use_is_refused(tmp_path, capsys, monkeypatch):
    from tlkit.files import lock_folder

    with lock_folder(tmp_path):
        assert main(["train", "--strategy", "bitfit", "--output", str(tmp_path)]) == 1
    assert "is in use by another run" in said(capsys)
    assert not (tmp_path / "run.yaml").exists()


def test_the_seed_decides_an_adapters_first_values(tmp_path, monkeypatch, small):
    first = []

    def note(model, *_, **__):
        first.append({name: p.detach().clone() for name, p in model.named_parameters() if "lora_A" in name})
        raise RuntimeError(REACHED)

    monkeypatch.setattr("tlkit.training.train", note)
    monkeypatch.setattr("tlkit.evaluation.perplexity", lambda *_, **__: None)
    for seed in (1, 1, 2):
        main(["train", "--strategy", "lora", "--profile", "small", "--seed", str(seed), "--output", str(tmp_path)])
    name = next(iter(first[0]))
    assert first[0][name].equal(first[1][name]) and not first[0][name].equal(first[2][name])


def test_settings_of_train_reach_the_training(tmp_path, capsys, monkeypatch, small):
    """Each as it was given, and a validation split where one is asked for."""
    seen = {}

    def note(model, blocks, config, **more):
        seen.update(vars(config), **vars(more["plan"]), validation=more["validation"], blocks=blocks)
        raise RuntimeError(REACHED)

    monkeypatch.setattr("tlkit.training.train", note)
    given = {"weight_decay": 0.5, "warmup_fraction": 0.25, "max_gradient_norm": math.inf, "patience": 3, "seed": 9}
    given |= {"schedule": "constant", "optimizer": "sgd", "evaluate_every": 2, "micro_batch_size": 2, "epochs": 3.0}
    given |= {"learning_rate": 0.25}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    words += ["--chunked-loss", "--activation-checkpointing", "--offload-activations", "--offload-optimizer"]
    line = ["train", "--strategy", "bitfit", "--profile", "small", "--output", str(tmp_path / "out"), *words]
    assert main(line) == 1
    assert seen.items() >= given.items()
    assert seen["chunked_loss"] and seen["activation_checkpointing"] and seen["offload_optimizer"]
    assert seen["validation"].shape[1] == seen["blocks"].shape[1] == 128
    assert REACHED in said(capsys)


def test_a_full_disk_at_the_last_save_loses_nothing(tmp_path, capsys, monkeypatch, small):
    from peft import PeftModel
    from safetensors import SafetensorError

    def full(*_, **__):
        raise SafetensorError("No space left on device")

    line = ["train", "--strategy", "lora", "--profile", "small", "--max-steps", "2", "--output", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(PeftModel, "save_pretrained", full)
        assert main(line) == 1
    heard = capsys.readouterr().err.splitlines()[-1]
    assert (
        heard.startswith(f"tlkit train: {tmp_path}: ") and "(No space left on device)" in heard and "--resume" in heard
    )
    assert main([*line, "--resume"]) == 0, "what was said is true"
    assert (tmp_path / "adapter_model.safetensors").is_file()


def test_a_run_that_diverged_is_told_so(tmp_path, capsys, small):
    line = ["train", "--strategy", "full", "--profile", "small", "--max-steps", "6", "--output", str(tmp_path)]
    assert main([*line, "--learning-rate", "1"]) == 0
    assert re.search(r"DOUBT: the loss rose from [\d.]+ to [\d.]+: try a lower learning rate", capsys.readouterr().out)
    assert "try a lower learning rate" in (tmp_path / "README.md").read_text()


def test_an_adapter_is_continued_or_merged_as_asked_and_never_lost(tmp_path, capsys, small):
    def train(*more: str) -> int:
        return main(["train", "--profile", "small", "--max-steps", "2", "--learning-rate", "1e-2", *more])

    first = str(tmp_path / "first")
    assert train("--strategy", "lora", "--output", first, "--json") == 0
    trained = json.loads(capsys.readouterr().out)["after"]["perplexity"]
    assert train("--strategy", "full", "--model", first, "--output", str(tmp_path / "no")) == 2
    heard = capsys.readouterr().err.splitlines()[-1]
    assert heard.startswith("tlkit train: ") and "merge" in heard and "continue" in heard
    for strategy, way in (("full", "merge"), ("lora", "continue")):
        line = ["--strategy", strategy, "--model", first, "--adapter", way, "--output", str(tmp_path / way)]
        assert train(*line, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert told["before"]["perplexity"] == pytest.approx(trained, rel=1e-5), "in another order of additions"
        assert yaml.safe_load((tmp_path / way / "run.yaml").read_text())["adapter"] == way
    assert train("--strategy", "full", "--output", first) == 2
    assert "holds an adapter, and a whole model is to be saved" in capsys.readouterr().err
    assert not (tmp_path / "no" / "checkpoints").exists()


def test_an_estimate_includes_the_evaluation_that_train_makes(capsys, shallow):
    from tlkit.fitting.estimate import estimate_memory

    assert main(["estimate", "--strategy", "bitfit", "--sequence-length", "32", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    shape = {"strategy": "bitfit", "batch_size": 1, "sequence_length": 32}
    assert told["phase"] == "evaluation" and told["peak"] > estimate_memory("tiny", **shape).peak
    assert told["peak"] == estimate_memory("tiny", **shape, evaluation=(8, 256)).peak


def test_json_is_all_that_stdout_has(capsys, monkeypatch):
    """Numbers that are none are null, and what is said on the way goes to stderr."""

    def talkative(*_):
        print("one run")
        return Outcome({"score": math.inf, "where": Path("out")}, "for people", 1)

    monkeypatch.setattr("tlkit.commands.evidence.evaluate", talkative)
    assert main(["evaluate", "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {"score": None, "where": "out"} and told.err == "one run\n"


def test_a_table_repeats_its_first_column_where_it_is_too_wide():
    table = pd.DataFrame({"strategy": ["full", "last_layers"]} | {f"long-heading-{n}": [n, None] for n in range(9)})
    lines = as_columns(table).splitlines()
    assert max(map(len, lines)) <= 100 and sum(line.startswith("last_layers") for line in lines) > 1
    assert "nan" not in str(lines).lower() and "None" not in str(lines)


def test_from_training_to_use(tmp_path, capsys, small):
    """What was trained scores as it did, is described by its card, and writes what it writes once it is merged."""
    from huggingface_hub import ModelCard

    from tlkit.models import load_model, save_model

    adapter, whole = tmp_path / "my adapter", tmp_path / "whole"
    line = ["train", "--strategy", "lora", "--profile", "small", "--max-steps", "2", "--output", str(adapter)]
    assert main([*line, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    card = ModelCard.load(adapter / "README.md")
    assert card.data.eval_results[0].metric_value == told["after"]["perplexity"] and card.data.library_name == "peft"
    for when in ("before", "after"):
        score = told[when]
        assert f"| {when} | {score['perplexity']:,.2f} | {score['low']:,.2f} to {score['high']:,.2f} |" in card.text
    assert "| learning rate | recorded for tiny (" in card.text and str(tmp_path) not in str(card)
    assert "--model 'my adapter' " in card.text

    merged = load_model(str(adapter), adapter="merge")
    save_model(merged.model, merged.tokenizer, whole)
    assert main(["evaluate", "--model", str(whole), "--profile", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(told["after"]["perplexity"], rel=1e-5)
    written = []
    for folder in (adapter, whole):
        line = ["generate", "--model", str(folder), "--prompt", "In Rust,", "--prompt", "The value", "--json"]
        assert main([*line, "--max-new-tokens", "5"]) == 0
        written.append(json.loads(capsys.readouterr().out)["written"])
    assert written[0] == written[1] and [one["prompt"] for one in written[0]] == ["In Rust,", "The value"]


def test_what_is_generated_is_counted_and_depends_on_the_seed_alone(capsys, shallow):
    def written(*more: str) -> list[dict]:
        assert main(["generate", "--max-new-tokens", "6", "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)["written"]

    wild = ["--prompt", "In Rust,", "--temperature", "1.5"]
    first, again, other = (written(*wild, "--seed", seed) for seed in "112")
    assert first == again != other
    assert written("--prompt", "A", *wild)[1] == written(*wild)[0], "whatever other prompts there are"
    assert {one["stopped_by"] for one in first} <= {"limit", "end token"} and first[0]["tokens"] <= 6


def test_a_chat_uses_the_models_own_template_and_an_end_token_is_said(capsys, tmp_path):
    from tlkit.models import load_model, save_model

    assert main(["generate", "--prompt", "Hello", "--chat"]) == 2
    assert "has no chat template" in said(capsys)
    loaded = load_model("tiny")
    loaded.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}!{% endfor %}"
    loaded.model.generation_config.eos_token_id = list(range(4096))
    save_model(loaded.model, loaded.tokenizer, tmp_path / "model")
    assert main(["generate", "--model", str(tmp_path / "model"), "--prompt", "Hello", "--chat"]) == 0
    heard = capsys.readouterr().out
    assert heard.startswith("> Hello\n") and "[1 tokens; stopped by: end token]" in heard


def test_a_prompt_longer_than_the_model_reads_is_one_line(capsys):
    assert main(["generate", "--prompt", "word " * 300]) == 2
    assert re.search(r"a prompt of \d+ tokens and 64 new ones: this model reads at most 256", said(capsys))

"""The acceptance run, whole: on the processor, on a virtual card, and on every accelerator that this machine has."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pretended import TOKENS, small_bench

import tlkit as tl
from tlkit.acceptance import counters, fitting, running
from tlkit.acceptance.bench import Bench, Check, bench_for, device_named, judged
from tlkit.acceptance.record import Record, as_markdown, path_of, read_record, recorded_devices, write_record
from tlkit.acceptance.running import CHECKS, SHORT, accept, checks_named
from tlkit.cli import main
from tlkit.devices import KINDS, _is_present
from tlkit.fitting.ladder import OFFLOADS
from tlkit.memory import VirtualDevice
from tlkit.settings import setup

ROOT = Path(__file__).resolve().parents[2]
CARD = "virtual:96MB"
# Of the strategies two, so that the whole takes seconds: `python -m tlkit accept --device cpu` takes a minute for all.
FEW = {name: check for name, check in CHECKS.items() if not name.startswith("training: ")}
FEW |= {name: CHECKS[name] for name in ("training: full", "training: lora")}
NOT_ON = {
    "cpu": {"estimate of device", "out of memory"},
    CARD: {"estimate of device", "two processes", "beside the Trainer"},
}
ALONE = {"two processes"}  # may be skipped where there is one card


def present(kind: str):
    return pytest.param(kind, marks=pytest.mark.skipif(not _is_present(kind), reason=f"no {kind} here"))


def bench_named(name: str) -> Bench:
    """All of the model, but on the virtual card, which is as slow as the processor."""
    setup()
    device = device_named(name)
    return replace(small_bench(), device=device) if name == CARD else bench_for(device, TOKENS)


@pytest.fixture(scope="module", params=["cpu", CARD, *(present(kind) for kind in KINDS if kind != "cpu")])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    bench = bench_named(request.param)
    before = torch.get_float32_matmul_precision(), torch.get_rng_state()
    with pytest.MonkeyPatch.context() as patch:  # fewer of a kind
        patch.setattr(fitting, "PLANS", {name: fitting.PLANS[name] for name in ("as planned", *OFFLOADS)})
        patch.setattr(fitting, "ADAPTER_PLANS", ())
        patch.setattr(fitting, "SHARES", (0.25,))
        record = accept(bench, FEW, output=folder, command="the command", shown=False)
    assert torch.get_float32_matmul_precision() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    return request.param, bench, record, folder


def test_every_check_passes_or_says_why_not(run):
    name, _, record, _ = run
    assert [check.name for check in record.checks] == list(FEW) and record.complete
    assert not [str(check) for check in record.checks if check.status not in ("passed", "skipped")]
    left_out = {check.name for check in record.checks if check.status == "skipped"}
    assert left_out == NOT_ON[name] if name in NOT_ON else left_out <= ALONE
    for check in record.checks:
        assert check.reason if check.status == "skipped" else check.found and check.expected and check.figures


def test_the_record_is_what_was_found(run):
    _, bench, record, folder = run
    path = path_of(record, folder)
    assert {file.name for file in folder.iterdir()} == {path.name, path.with_suffix(".md").name}
    assert read_record(path) == record and recorded_devices(folder) == [record]
    assert record.device["name"] and record.device["driver"] and record.versions["torch"] == torch.__version__
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert all(f"| {check.name} | {check.status} |" in page for check in record.checks)
    assert record.command in page and record.date in page


def test_nothing_stays_on_the_device(run):
    _, bench, _, _ = run
    if bench.is_virtual:
        assert bench.device.current == 0
    elif bench.is_real:
        counters.give_back(bench.device.kind)
        assert counters.held(bench.device) < 128 * 2**20, "the workspaces of libraries stay, and no model"


@pytest.fixture
def bench():
    return replace(small_bench(), device=VirtualDevice("small", 96 * 2**20))


def passing(bench):
    return judged(True, "all of it", "all of it", figure=1.0)


def test_a_check_that_breaks_off_is_a_row_and_the_others_go_on(bench, tmp_path):
    def broken(bench):
        kept = torch.zeros(2**20)  # its frame must not keep it
        with bench.device:
            bench.device.hold([kept])
            raise RuntimeError("the driver\nsays no")

    def silent(bench):
        raise KeyError

    checks = {"first": broken, "second": silent, "third": passing}
    record = accept(bench, checks, output=tmp_path, shown=False)
    rows = [(check.name, check.status, check.reason) for check in record.checks]
    assert rows == [
        ("first", "failed", "RuntimeError: the driver says no"),
        ("second", "failed", "KeyError: no reason given"),
        ("third", "passed", ""),
    ]
    assert record.failed == 2 and bench.device.current == 0


def test_a_device_that_is_lost_fails_every_check_and_ends_none(bench, monkeypatch):
    def lost(kind):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(running, "give_back", lost)
    first, second = accept(bench, {"first": passing, "second": passing}, shown=False).checks
    assert first.status == second.status == "failed"
    assert first.reason == "Then: RuntimeError: CUDA error: device-side assert triggered" and first.found


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_run_that_is_ended_leaves_what_it_found(bench, tmp_path, end):
    """So does one whose driver takes the process down: the check is named before it begins."""

    def ended(bench):
        raise end

    with pytest.raises(end):
        accept(bench, {"first": passing, "second": ended, "third": passing}, output=tmp_path, shown=False)
    (record,) = recorded_devices(tmp_path)
    assert [(check.name, check.status) for check in record.checks] == [("first", "passed"), ("second", "running")]
    assert not record.complete and "did not come to its end" in str(record)


def test_fp32_is_fp32_inside_and_settings_come_back(bench):
    found = []

    def looking(bench):
        found.append(torch.get_float32_matmul_precision())
        torch.manual_seed(5)
        return passing(bench)

    torch.set_float32_matmul_precision("medium")
    try:
        numbers = torch.get_rng_state()
        accept(bench, {"first": looking}, shown=False)
        assert found == ["highest"] and torch.get_float32_matmul_precision() == "medium"
        assert torch.equal(torch.get_rng_state(), numbers)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_figures_that_are_no_numbers_can_be_written(tmp_path):
    checks = (Check("a", "failed", "x | y", figures={"gap": math.inf, "share": math.nan, "loss": 1.5}),)
    record = Record({"name": "Card"}, {}, "2026-01-01", "command", True, checks)
    path = write_record(record, tmp_path)
    assert read_record(path).checks[0].figures == {"gap": None, "share": None, "loss": 1.5}
    assert "x \\| y" in as_markdown(record) and json.loads(path.read_text())["format"] == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2, "checks": []}', '{"format": 1, "checks": [{"x": 1}]}'])
def test_what_is_no_record_is_named(tmp_path, text):
    (tmp_path / "wrong.json").write_text(text)
    with pytest.raises(ValueError, match="wrong.json: not a record of `accept`"):
        recorded_devices(tmp_path)


def test_the_records_that_came_with_the_workbook_are_whole_and_stand_in_readme():
    records = tl.recorded_devices()
    assert {"cpu", "virtual"} <= {record.device["kind"] for record in records} <= {*KINDS, "virtual"}
    for record in records:
        assert record.complete and not record.failed and len(record.checks) == len(CHECKS)
    lines = tl.device_table().to_markdown(index=False, disable_numparse=True).splitlines()
    missing = [line for line in lines if line not in (ROOT / "README.md").read_text(encoding="utf-8")]
    assert missing == [], "README shows the records: put these lines there"
    if {"cuda", "mps", "xpu"} & {record.device["kind"] for record in records}:
        for page in ("README.md", "data/README.md"):
            assert "Nobody has contributed" not in (ROOT / page).read_text(encoding="utf-8").replace("nobody", "Nobody")


def test_a_row_says_what_was_measured_and_what_was_not():
    seconds = {"tlkit seconds of a step": 2.0, "Trainer seconds of a step": 3.0}
    checks = (
        Check("training: full", "passed", figures={"difference": 2e-7}),
        Check("training: lora", "passed", figures={"difference": -3.4e-6}),
        Check("training: dora", "failed", figures={"difference": 1.0}),
        Check("estimate of tensors", "passed", figures={"full": 1.001, "lora": 0.99}),
        Check("estimate of device", "passed", figures={"full": 1.04}),
        Check("out of memory", "skipped"),
        Check("beside the Trainer", "passed", figures=seconds),
    )
    record = Record({"name": "a card", "kind": "cuda"}, {}, "2026-11-23", "the command", True, checks)
    row, empty = (row for _, row in tl.device_table([record, replace(record, checks=())]).iterrows())
    assert tuple(row[["device", "passed", "failed", "skipped"]]) == ("a card", 5, 1, 1)
    assert list(row.iloc[-4:]) == ["3e-06", "1.040", "not measured", "1.50"]
    assert set(empty.iloc[-4:]) == {"not measured"}
    assert tl.device_table([]).empty


def test_a_device_that_is_not_there_is_one_line(no_accelerator, capsys):
    assert main(["accept", "--device", "cuda"]) == 1
    said = "tlkit accept: cuda: not present on this machine. Ask for cpu, which is always there\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--device", "abacus"], 2, "device 'abacus' is unknown: expected one of cuda, mps, xpu, cpu, or virtual:96MB"),
        (["--device", "virtual:big"], 2, "memory 'big': expected a size such as 48MB"),
        (["--device", "virtual:20MB"], 2, "which a step of the bundled model needs"),
        (["--device", "cpu", "--only", "training,magic"], 2, "check 'magic' is unknown: expected some of training, ar"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, code, expected, tmp_path, capsys):
    assert main(["accept", *arguments, "--output", str(tmp_path / "out")]) == code
    said = capsys.readouterr().err
    assert expected in said and len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture
def no_accelerator(monkeypatch):
    monkeypatch.delenv("TLKIT_DEVICE", raising=False)
    monkeypatch.setattr("tlkit.devices._is_present", lambda kind: kind == "cpu")


def test_without_an_accelerator_it_says_what_was_looked_for_and_what_to_do(no_accelerator, capsys):
    assert main(["accept"]) == 1
    said = capsys.readouterr().err
    for words in ("looked for cuda (NVIDIA and AMD), mps (Apple) and xpu (Intel)", "--device cpu", CARD, "pytorch.org"):
        assert words in said
    assert len(said.splitlines()) == 1


def test_the_command_shows_each_check_and_fails_where_one_failed(tmp_path, capsys, monkeypatch):
    failing = {"good": passing, "bad": lambda bench: judged(False, "half of it", "all of it", "none: it is counted")}
    monkeypatch.setattr(running, "CHECKS", failing)
    line = ["accept", "--device", CARD, "--output", str(tmp_path)]
    assert main(line) == 1
    shown = capsys.readouterr()
    assert "[passed] good: all of it\n" in shown.out
    assert "[failed] bad: half of it. expected: all of it. tolerance: none: it is counted\n" in shown.out
    assert "virtual card of 96MB: 1 passed, 1 failed, 0 skipped\nThe record is in " in shown.out
    assert "check 2 of 2" in shown.err
    assert main([*line, "--only", "good", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in found["checks"]] == ["good"] and found["complete"]
    assert found["command"] == f"python -m tlkit accept --device {CARD} --only good"


def test_the_doctor_looks_at_the_accelerator_where_it_is_asked_to(no_accelerator, monkeypatch, capsys):
    monkeypatch.setattr("tlkit.doctor.CHECKS", {})
    assert main(["doctor", "--gpu"]) == 1
    assert "[FAIL] accelerator: no accelerator works here: looked for" in capsys.readouterr().out
    monkeypatch.setattr(running, "CHECKS", dict.fromkeys(SHORT, passing))
    monkeypatch.setenv("TLKIT_DEVICE", CARD)
    assert main(["doctor", "--gpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"[OK] cpu, {name.split(':')[0]}" for name in SHORT]
    monkeypatch.setitem(running.CHECKS, SHORT[0], lambda bench: judged(False, "half of it", "all of it"))
    assert main(["doctor", "--gpu"]) == 1
    assert "half of it. To mend it: python -m tlkit accept makes every check" in capsys.readouterr().out


def test_checks_are_named_one_by_one_or_all_strategies_at_once():
    assert list(checks_named("generation, arithmetic")) == ["arithmetic", "generation"]
    trained = checks_named("training")
    assert len(trained) == len(CHECKS) - len(FEW) + 2 and all(name.startswith("training: ") for name in trained)
    assert set(SHORT) <= set(CHECKS) and checks_named(None) == CHECKS


def test_the_documentation_counts_the_checks():
    for page in ("README.md", "notebooks/instructors.md"):
        assert f"{len(CHECKS)} checks" in " ".join((ROOT / page).read_text(encoding="utf-8").split())

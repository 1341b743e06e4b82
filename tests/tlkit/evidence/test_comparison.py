"""A comparison loses nothing that is finished, borrows no rate, and says all that its numbers depend on."""

import hashlib
import json
import math
import re
import shutil
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from tlkit.cli import main
from tlkit.corpus import load_corpus
from tlkit.evaluation import perplexity
from tlkit.evidence import comparison, finished_runs, learning_rates
from tlkit.evidence.comparison import Comparison, compare
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import load_experiment, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns, run_all
from tlkit.evidence.learning_rates import rate_for
from tlkit.fitting.fallback import LADDER
from tlkit.jobs import Job
from tlkit.models import load_model, save_model
from tlkit.names import CONTROL
from tlkit.reports.charts import CHARTS
from tlkit.reports.export import brief, export
from tlkit.settings import PROFILES, Profile
from tlkit.strategies import apply_strategy

GIVEN = {"last_layers": 1e-3, "bitfit": 1e-2, CONTROL: 1e-3}
RATES = [word for name, rate in GIVEN.items() for word in ("--learning-rates", f"{name}={rate}")]
PROFILE = Profile("test", train_passages=3, test_passages=5, epochs=1, seeds=2)
TIMES = ["seconds", "tokens_per_second", "samples_per_second", "date"]
RUNS = [("last_layers", 0), ("last_layers", 1), ("bitfit", 0), ("bitfit", 1), (CONTROL, 0)]


def quick(model, profile, output=None, **settings) -> Comparison:
    """Two strategies at rates that are given, so that nothing is searched for."""
    settings = ComparisonSettings(**({"learning_rates": GIVEN} | settings))
    return compare(model, ["last_layers", "bitfit"], profile=profile, settings=settings, output=output)


class Runs(list):
    """The runs that were carried out, in order; `faults` are raised by those that have one."""

    def __init__(self):
        self.faults = {}


@pytest.fixture
def carried_out(monkeypatch) -> Runs:
    runs = Runs()

    def noted(experiment, strategy, config, *others, **options):
        runs.append(run := (strategy, config.seed))
        if run in runs.faults:
            raise runs.faults[run]
        return run_strategy(experiment, strategy, config, *others, **options)

    for module in (comparison, learning_rates):
        monkeypatch.setattr(module, "run_strategy", noted)
    return runs


@pytest.fixture
def profile(monkeypatch) -> Profile:
    """Little text; the command line knows it as `test`."""
    monkeypatch.setitem(PROFILES, "test", PROFILE)
    return PROFILE


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of `whole`."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture(scope="module")
def whole(small_model, finished) -> Comparison:
    """One that nothing has stopped."""
    return quick(small_model, PROFILE, finished)


def test_a_comparison_that_was_stopped_twice_goes_on_and_ends_as_if_it_had_not_been(
    monkeypatch, tmp_path, small_model, profile, carried_out, whole
):
    """Interrupted, then with one more seed on a full disk; each start runs only what is missing."""
    keep = FinishedRuns.keep

    def full_disk(kept, name, outcome):
        if name == "bitfit at 0.01, seed 0":
            raise OSError(28, "No space left on device")
        keep(kept, name, outcome)

    carried_out.faults["bitfit", 0] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        quick(small_model, profile, tmp_path, seeds=1)
    assert carried_out == [RUNS[0], RUNS[2]] and len(list((tmp_path / "runs").iterdir())) == 1
    carried_out.clear()
    carried_out.faults.clear()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(FinishedRuns, "keep", full_disk)
        quick(small_model, profile, tmp_path)  # more seeds are no other settings
    assert carried_out == RUNS[1:3]
    assert {path.stem for path in (tmp_path / "runs").iterdir()} == {f"last_layers at 0.001, seed {n}" for n in (0, 1)}
    carried_out.clear()
    found = quick(small_model, profile, tmp_path)
    assert carried_out == RUNS[2:] and len(list((tmp_path / "runs").iterdir())) == len(RUNS)
    for name in ("table", "runs", "documents", "pairs"):
        one, other = (getattr(of, name).drop(columns=TIMES, errors="ignore") for of in (found, whole))
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert found.table.set_index("strategy").seeds[[*GIVEN]].tolist() == [2, 2, 1]


def test_other_settings_in_the_same_folder_are_refused_by_name(finished, whole, small_model, profile, carried_out):
    with pytest.raises(ValueError, match="stride was 64 and is now 16"):
        quick(small_model, profile, finished, stride=16)
    assert not carried_out


def test_at_another_rate_it_is_another_run(finished, whole, small_model, profile, carried_out, tmp_path):
    output = shutil.copytree(finished, tmp_path / "finished")
    quick(small_model, profile, output, learning_rates=GIVEN | {"bitfit": 0.02}, seeds=1)
    assert carried_out == [("bitfit", 0)]


def test_processes_with_one_folder_share_the_runs_and_have_the_same_outcomes(tmp_path, monkeypatch):
    """Two threads in their place: locks of the operating system know no difference. A run that fails is not kept."""
    monkeypatch.setattr(finished_runs, "PAUSE", 0.01)
    both, done, found = threading.Barrier(2), [], []

    def process(number: int) -> None:
        def run(name: str, part) -> dict:
            if not [one for one, _ in done if one == number]:
                both.wait(60)  # each has begun one before either ends one
            done.append((number, name))
            return {"failure": "planted"} if name == "run 3" else {"figure": name}

        kept = FinishedRuns(tmp_path, {"stride": 64})
        with Job(6) as job:
            found.append(run_all({f"run {n}": partial(run, f"run {n}") for n in range(6)}, job, kept))

    threads = [threading.Thread(target=process, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    once = [name for _, name in done if name != "run 3"]
    assert sorted(once) == sorted(set(once)) == [f"run {n}" for n in (0, 1, 2, 4, 5)] and len({n for n, _ in done}) == 2
    assert found[0] == found[1] and list(found[0]) == [f"run {n}" for n in range(6)]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {f"{name}.json" for name in once}


def test_a_run_that_fails_leaves_the_others_and_its_traceback(tmp_path, small_model, profile, carried_out, monkeypatch):
    """Whatever it raises: an IndexError once lost all that had been done."""
    faults = [IndexError("planted fault"), MemoryError(), FloatingPointError("the loss became nan\nat step 3")]
    failing = [("last_layers", 1), ("bitfit", 0), ("bitfit", 1)]
    carried_out.faults = dict(zip(failing, faults, strict=True))
    found = quick(small_model, profile, tmp_path)
    assert list(found.failures) == [f"{name} at {GIVEN[name]}, seed {seed}" for name, seed in failing]
    assert carried_out == RUNS and found.failures["last_layers at 0.001, seed 1"].startswith("Traceback")
    assert list(found.table.strategy) == ["zero-shot", "last_layers", CONTROL]
    assert found.table["rank"].fillna("").eq("").all()  # no rank without a competitor
    assert len([name for name, draw in CHARTS.items() if draw(found)]) == 3
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {"perplexity": CHARTS["perplexity"]})
    names = {path.name for path in export(found, tmp_path)}
    assert {"comparison.csv", "comparison.json", "comparison.md", "comparison.html", "perplexity.svg"} <= names
    assert int.from_bytes((tmp_path / "perplexity.png").read_bytes()[16:20]) == 8 * 300  # wide, for print
    for name in ("comparison.csv", "comparison.json", "comparison.md", "comparison.html"):
        assert found.provenance["weights_sha256"] in (tmp_path / name).read_text()
    said = (tmp_path / "comparison.md").read_text()
    assert "FAILED last_layers at 0.001, seed 1: IndexError: planted fault" in said
    assert "FAILED bitfit at 0.01, seed 0: MemoryError" in said
    carried_out.clear()
    carried_out.faults = {}
    assert not quick(small_model, profile, tmp_path).failures and carried_out == failing


def test_a_comparison_in_which_all_fails_says_so(small_model, profile, carried_out):
    carried_out.faults = {run: RuntimeError("planted fault") for run in RUNS}
    found = quick(small_model, profile)
    assert len(found.failures) == len(RUNS) and list(found.table.strategy) == ["zero-shot"]
    assert "119" not in str(brief(found.table)) and len(found.pairs) == 0 and len(found.runs) == 1


def test_a_model_without_recorded_rates_is_tuned_first_and_never_by_rates_of_another(
    tmp_path, capsys, monkeypatch, small_model, profile, carried_out
):
    monkeypatch.setattr(learning_rates, "COARSE", (1e-3, 1e-2))
    monkeypatch.setattr(learning_rates, "BUDGET", 3)
    settings = ComparisonSettings(seeds=1)
    found = compare(small_model, ["last_layers"], profile=profile, settings=settings, output=tmp_path)
    assert "short sweep on validation text comes first, about 6 runs of" in capsys.readouterr().err
    record = pd.read_csv(tmp_path / "rates.csv")
    assert set(record.strategy) == {"last_layers", CONTROL} and {1e-3, 1e-2} < set(record.learning_rate)
    row = found.table.set_index("strategy").loc["last_layers"]
    assert row.learning_rate != rate_for("tiny", "last_layers").value and row.rate_tuned
    assert row.rate_source.startswith("short sweep of 2 steps in this run for ")
    best = record[record.strategy == "last_layers"].set_index("learning_rate").validation_perplexity
    assert row.learning_rate == best.idxmin()
    # The same command searches and trains nothing again.
    carried_out.clear()
    again = compare(small_model, ["last_layers"], profile=profile, settings=settings, output=tmp_path)
    tables = [of.table.drop(columns=TIMES[:3]) for of in (found, again)]
    assert not carried_out and tables[0].equals(tables[1])


def test_what_the_architecture_does_not_allow_is_a_row_with_a_reason(
    tmp_path, capsys, monkeypatch, without_biases, profile, carried_out
):
    """Where all strategies were meant; where it was named, it is refused before any work."""
    monkeypatch.setattr("tlkit.strategies.registry.CLASSIC", ("last_layers", "bitfit"))
    command = ["compare", "--model", without_biases, "--profile", "test", "--seeds", "1", *RATES]
    assert main([*command, "--output", str(tmp_path / "all")]) == 0
    said = capsys.readouterr().out
    reason = "bitfit: LlamaForCausalLM has no bias vectors"
    assert f"\nNot possible: {reason}\n" in said and "bitfit" in said.split("Not possible")[0]
    assert {strategy for strategy, _ in carried_out} == {"last_layers", CONTROL}
    for name in ("comparison.csv", "comparison.json", "comparison.md", "comparison.html"):
        assert reason in (tmp_path / "all" / name).read_text(), name
    table = pd.read_csv(tmp_path / "all" / "comparison.csv", comment="#").set_index("strategy")
    assert math.isnan(table.perplexity["bitfit"]) and table.seeds["bitfit"] == 0
    carried_out.clear()
    for more, expected in (
        (["--strategies", "last_layers,bitfit"], f"tlkit compare: {reason}. Leave out bitfit"),
        (["--against", "bitfit"], f"tlkit compare: against='bitfit': {reason}"),
    ):
        assert main([*command, *more, "--output", str(tmp_path / "no")]) == 2
        assert capsys.readouterr().err.splitlines() == [expected]
        assert not carried_out and not (tmp_path / "no").exists()


def test_nothing_is_ranked_by_a_rate_that_was_not_tuned(tmp_path, whole):
    table = whole.table.set_index("strategy")
    assert list(table.rate_source.dropna().unique()) == ["given"] and not table.rate_tuned.dropna().any()
    assert table["rank"].fillna("").eq("").all() and len(whole.pairs) == 1
    export(whole, tmp_path)
    said = "Not ranked, because their learning rates are not tuned for these runs: last_layers, bitfit"
    assert said in (tmp_path / "comparison.md").read_text() and said in (tmp_path / "comparison.html").read_text()


def test_rates_recorded_for_other_text_serve_without_a_rank(monkeypatch, small_model, profile):
    """As if a sweep of this model were recorded; once on the text of that record, and once on other text."""
    settings = load_experiment(small_model, profile, ComparisonSettings())[0].settings
    rows = [(name, rate * GIVEN[name], 5 + abs(rate - 1)) for name in GIVEN for rate in (0.1, 1, 10)]
    record = pd.DataFrame(rows, columns=["strategy", "learning_rate", "validation_perplexity"])
    for name, value in (settings | {"model": "mine", "profile": "ci", "date": "2026-11-22"}).items():
        record[name] = value
    monkeypatch.setattr(learning_rates, "recorded_rates", lambda *_: record)
    own, other = (
        quick(small_model, profile, learning_rates={}, corpus=corpus).table.set_index("strategy")
        for corpus in ("rust", "facts")
    )
    assert (own["rank"][["last_layers", "bitfit"]] != "").all() and other["rank"].fillna("").eq("").all()
    assert list(own.learning_rate[list(GIVEN)]) == list(other.learning_rate[list(GIVEN)]) == list(GIVEN.values())
    assert own.rate_source["bitfit"] == "recorded for mine (ci profile, 2026-11-22); here: profile test"
    assert other.rate_source["bitfit"].endswith("; here: corpus facts, profile test")


def test_tables_and_provenance_say_what_the_numbers_depend_on(whole, small_model):
    row = whole.table.iloc[1]
    here = {"corpus": "rust", "context": 64, "stride": 64, "block_size": 64, "batch_size": 4, "against": "last_layers"}
    assert row[list(here)].to_dict() == here and here.items() <= whole.provenance.items()
    assert row.learning_rate == GIVEN["last_layers"] and row.rate_source == "given"
    assert whole.provenance["learning_rates"]["bitfit"] == "0.01, given"
    assert {"corpus_sha256", "text_sha256", "weights_sha256", "epochs", "torch"} <= set(whole.provenance)
    assert CHARTS["class_accuracy"](whole) is None and "nan" not in str(brief(whole.table))


def test_documents_are_those_that_were_scored(whole, small_model, profile):
    """The baseline's, scored once more by hand; each run's perplexity follows from its documents."""
    loaded = load_model(small_model)
    by_hand = perplexity(loaded.model, loaded.tokenizer, load_corpus("rust").test[:5], context=64)
    start = whole.documents[whole.documents.strategy == "zero-shot"]
    assert tuple(start.nats) == by_hand.document_nats and tuple(start.tokens) == by_hand.document_tokens
    for row in whole.runs.dropna(subset="seed").itertuples():
        part = whole.documents[(whole.documents.strategy == row.strategy) & (whole.documents.seed == row.seed)]
        assert math.exp(part.nats.sum() / part.tokens.sum()) == pytest.approx(row.perplexity, rel=1e-9)


def test_differences_are_those_of_the_pairs_in_the_direction_of_the_reference(whole):
    pair = whole.pairs.iloc[0]
    bitfit = whole.table.set_index("strategy").loc["bitfit"]
    assert (pair["first"], pair["second"]) == ("last_layers", "bitfit")
    ends = [bitfit.difference, bitfit.difference_low, bitfit.difference_high]
    assert ends == [-pair.difference, -pair.high, -pair.low]
    assert bitfit.difference_low < bitfit.difference < bitfit.difference_high


@pytest.mark.parametrize(
    ("settings", "strategies", "said"),
    [
        ({}, ["full", "adapter"], "strategy 'adapter' is unknown: expected one of full"),
        ({"against": "lora"}, ["full"], "against='lora': expected one of those compared, full"),
        ({"learning_rates": None}, ["full"], "learning_rates=None"),
        ({"block_size": 65}, ["full"], "block_size=65: .* reads at most 64 tokens"),
        ({"stride": 65}, ["full"], "stride=65: expected 1 to context=64"),
        ({"tune": True}, ["full"], "expected one of the two"),
        ({"learning_rates": {"full": "fast"}}, ["full"], "full='fast': expected a number above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_training(
    settings, strategies, said, small_model, profile, carried_out
):
    settings = ComparisonSettings(**({"learning_rates": GIVEN} | settings))
    with pytest.raises(ValueError, match=said):
        compare(small_model, strategies, profile=profile, settings=settings)
    assert not carried_out


def test_an_adapter_is_merged_before_strategies_are_compared_on_it(tmp_path, small_model, profile, carried_out):
    fresh = load_model(small_model)
    save_model(apply_strategy(fresh.model, "lora").model, fresh.tokenizer, tmp_path)
    with pytest.raises(ValueError, match="is an adapter.*adapter='merge'"):
        quick(str(tmp_path), profile)
    assert not carried_out


def test_compare_on_a_card_too_small(tmp_path, capsys, monkeypatch, small_model):
    """Without fallback each strategy fails and says so; with it, all end."""
    monkeypatch.setitem(PROFILES, "test", PROFILE)
    model, reads = shutil.copytree(small_model, tmp_path / "model"), '"max_position_embeddings": '
    (model / "config.json").write_text((model / "config.json").read_text().replace(f"{reads}64", f"{reads}128"))
    wanted = ["compare", "--model", str(model), "--profile", "test", "--strategies", "bitfit", "--json"]
    wanted += ["--device-memory", "8MiB", "--block-size", "64", "--seeds", "1", *RATES]
    assert main([*wanted, "--output", str(tmp_path / "without")]) == 1
    said = capsys.readouterr()
    assert [row["strategy"] for row in json.loads(said.out)] == ["zero-shot"]
    assert "FAILED bitfit at 0.01, seed 0" in said.err and "CUDA out of memory" in said.err
    rung = "smaller micro-batch"
    smaller = LADDER[rung]
    monkeypatch.setitem(LADDER, rung, lambda plan, batch: replace(smaller(plan, batch) or plan, precision="bf16"))
    assert main([*wanted, "--fallback", "--output", str(tmp_path / "with")]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in table] == ["zero-shot", "bitfit", CONTROL]
    assert all(row["peak_memory_mb"] <= 8 * 2**20 / 1e6 for row in table[1:])
    attempts = pd.read_csv(tmp_path / "with" / "attempts.csv", comment="#")
    ends = attempts[attempts.action == "training"].groupby("strategy").tail(1)
    assert len(ends) == 2 and ends.failed_in.isna().all() and (ends.rung != "as planned").all()
    content = json.loads((tmp_path / "with" / "comparison.json").read_text())
    assert content["provenance"]["doubts"] == dict.fromkeys(("bitfit", CONTROL), "computed in bf16, for want of memory")


def test_progress_says_which_run_of_how_many(small_model, profile, capsys, monkeypatch):
    monkeypatch.setattr("tlkit.jobs.IN_LOG", 1e-9)  # seconds: every state is shown
    for fallback in (False, True):
        settings = ComparisonSettings(seeds=1, learning_rates=GIVEN, fallback=fallback)
        compare(small_model, ["bitfit"], profile=profile, settings=settings, progress=True)
        told = capsys.readouterr()
        assert told.out == ""
        assert re.search(r"the model before any training \[[\d:]+ left\], scored [\d,]+ of [\d,]+ tokens", told.err)
        assert re.search(r"run 1 of 2, bitfit at 0.01, seed 0 \[[\d:]+ left\], step 2 of 2, loss \d\.\d{3}\s", told.err)
        assert re.search(r"run 1 of 2, bitfit at 0.01, seed 0 .*, scored [\d,]+ of [\d,]+ tokens\s", told.err)
        assert re.search(rf"run 2 of 2, {CONTROL} at 0.001, seed 0 \[", told.err)
        assert ("estimating what a step needs" in told.err) is fallback


def test_train_and_evaluate_score_the_same_documents(tmp_path, capsys, small_model, profile):
    """What `train` says of the model it saved is what `evaluate` says of it."""
    output = tmp_path / "adapted"
    words = ["--profile", "test", "--json"]
    trained = ["train", "--model", small_model, "--strategy", "last_layers", "--learning-rate", "1e-3", *words]
    assert main([*trained, "--sequence-length", "64", "--output", str(output)]) == 0
    after = json.loads(capsys.readouterr().out)["after"]
    assert main(["evaluate", "--model", str(output), *words]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert after["documents"] == evaluated["documents"] == profile.test_passages
    assert after["perplexity"] == pytest.approx(evaluated["perplexity"], rel=1e-6)  # saved and loaded in fp32


OWN = """
from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy

BLOCK = 0


@strategy("mine")
def mine(model):
    find_blocks(model)[BLOCK].requires_grad_(True)


@strategy("yours")
def yours(model):
    find_blocks(model)[BLOCK].requires_grad_(True)
"""


@pytest.mark.usefixtures("registry_as_before")
def test_strategies_of_ones_own_are_compared_added_and_changed_each_by_itself(
    small_model, profile, tmp_path, capsys, carried_out
):
    plugin, output = tmp_path / "mine.py", tmp_path / "out"
    command = ["compare", "--model", small_model, "--profile", "test", "--seeds", "1"]
    for rate in ("full=1e-3", "mine=1e-2", "yours=1e-2", f"{CONTROL}=1e-3"):
        command += ["--learning-rates", rate]
    command += ["--plugin", str(plugin), "--output", str(output), "--strategies"]
    plugin.write_text(OWN)
    assert main([*command, "full"]) == 0
    kept = (output / "runs" / "full at 0.001, seed 0.json").read_text()
    assert "strategy_sha256" not in kept + (output / "comparison.json").read_text(), "ours are as they were"
    carried_out.clear()
    assert main([*command, "full,mine"]) == 0 and main([*command, "full,mine,yours"]) == 0
    assert carried_out == [("mine", 0), ("yours", 0)], "they come to what is there"
    table = pd.read_csv(output / "comparison.csv", comment="#").set_index("strategy")
    assert 0 < table.trainable_parameters["mine"] < table.trainable_parameters["full"]
    assert table.perplexity["mine"] != table.perplexity["zero-shot"] and table.tuning_runs["mine"] == 0
    own = json.loads((output / "comparison.json").read_text())["provenance"]["strategy_sha256"]
    assert own == dict.fromkeys(["mine", "yours"], hashlib.sha256(plugin.read_bytes()).hexdigest())
    capsys.readouterr()
    carried_out.clear()
    plugin.write_text(OWN.replace("BLOCK = 0", "BLOCK = 1"))  # no function is another, and what they do is
    assert main([*command, "full,mine"]) == 2
    said = capsys.readouterr().err
    assert "mine at 0.01, seed 0.json: strategy_sha256 was " in said and "name another output" in said
    assert main([*command, "full"]) == 0 and not carried_out, "what is not asked for is in nobody's way"


def test_doubts_about_a_strategy_are_printed_and_kept(experts, tmp_path, capsys):
    """Most parameters of a mixture are in no linear layer."""
    text, run, out = tmp_path / "text.txt", tmp_path / "run", tmp_path / "out"
    text.write_text("\n\n".join(f"Fact {n}: a boat of {n} planks floats, and one of {n + 1} does." for n in range(30)))
    (doubt,) = apply_strategy(load_model(experts).model, "qlora").doubts
    line = ["train", "--model", experts, "--corpus", str(text), "--strategy", "qlora", "--learning-rate", "1e-3"]
    assert main([*line, "--max-steps", "1", "--sequence-length", "32", "--output", str(run)]) == 0
    assert doubt in capsys.readouterr().out and doubt in (run / "run.yaml").read_text()
    settings = ComparisonSettings(corpus=str(text), learning_rates=GIVEN | {"qlora": 1e-3}, seeds=1, block_size=32)
    for _ in ("carried out", "read from what is finished"):
        made = compare(experts, ["qlora"], profile=PROFILE, settings=settings, output=out)
        assert made.provenance["doubts"] == {"qlora": doubt}

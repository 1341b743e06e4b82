"""Sweeps: judged on validation text alone, kept trial by trial, and of one model, text and profile each."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from tlkit.checkpoints import CheckpointError, hold_folder
from tlkit.cli import main
from tlkit.corpus import Corpus, load_corpus, token_stream
from tlkit.evidence import sweeps
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import load_experiment
from tlkit.evidence.finished_runs import FinishedRuns
from tlkit.evidence.learning_rates import BUDGET, COARSE, best_rates, learning_rates_for, why_no_rate
from tlkit.evidence.sweeps import rate_paths, recorded, run_sweep, run_trial, tune
from tlkit.evidence.trials import SWEEPS, Trial, planned
from tlkit.names import CLASSIC, CONTROL
from tlkit.settings import Profile
from tlkit.strategies import load_plugin


@pytest.fixture
def profile() -> Profile:
    return Profile("test", train_passages=6, test_passages=5, epochs=1, seeds=2)


@pytest.fixture
def experiment(small_model, profile):
    return load_experiment(small_model, profile, ComparisonSettings())[0]


def test_records_are_whole_and_say_where_they_were_made():
    for sweep in SWEEPS:
        record = recorded(sweep)
        if sweep != "rates":
            assert set(record.trial) == {trial.name for trial in planned(sweep)}
        made = ["model", "weights_sha256", "profile", "corpus", "corpus_sha256", "torch", "python"]
        assert record[[*made, "device", "date"]].notna().all().all() and record[made].nunique().eq(1).all()
    with pytest.raises(ValueError, match="sweep 'everything' is unknown: expected one of rates, epochs, pass"):
        recorded("everything")
    with pytest.raises(ValueError, match="is recorded for 'gpt': expected one of smollm2-135m-instruct, tiny"):
        recorded("rates", "gpt")


def test_a_record_of_another_task_is_in_a_folder_of_its_name():
    record = recorded("rates", task="classify")
    assert record.balanced_accuracy.notna().all() and recorded("rates").columns.isin(["balanced_accuracy"]).sum() == 0
    with pytest.raises(ValueError, match="of rates is recorded for 'gpt' and task classify: expected one of smoll"):
        recorded("rates", "gpt", "classify")
    with pytest.raises(ValueError, match="of epochs is recorded for 'tiny' and task classify: expected one of none"):
        recorded("epochs", task="classify")
    with pytest.raises(ValueError, match="task 'translate' is unknown: expected one of text, answer, classify, conv"):
        recorded("rates", task="translate")


@pytest.mark.parametrize("model", ["tiny", "smollm2-135m-instruct"])
def test_every_recorded_best_rate_lies_close_between_worse_ones(model):
    record = recorded("rates", model)
    made = ["model", "weights_sha256", "profile", "corpus", "corpus_sha256", "torch", "python"]
    assert record[[*made, "device", "date"]].notna().all().all() and record[made].nunique().eq(1).all()
    best = best_rates(record)
    refused = set(record[record.error.notna()].strategy) if "error" in record else set()
    assert set(best) >= {*CLASSIC, CONTROL} - refused
    for strategy, rate in best.items():
        tried = sorted(record[record.strategy == strategy].learning_rate.unique())
        place = tried.index(rate.value)
        close = 3.5 if strategy in (*CLASSIC, CONTROL) else 10.1  # a search that ends above 0.1 steps by tens there
        assert rate.tuned and tried[place + 1] / close <= rate.value <= close * tried[place - 1], strategy
        if strategy not in (*CLASSIC, CONTROL):
            assert len(tried) == BUDGET, "as many as any other"


def test_a_trial_never_sees_the_test_split_and_a_diverged_one_is_infinite(experiment):
    class Guarded(Corpus):
        closed = False

        def __getattribute__(self, name):
            assert name != "test" or not Guarded.closed, "a trial has looked at the test split"
            return super().__getattribute__(name)

    guarded = {name: Guarded(**vars(getattr(experiment, name))) for name in ("whole", "corpus", "general")}
    Guarded.closed = True
    found = run_trial(Trial("last_layers", 3e-3, general_share=0.5), replace(experiment, **guarded))
    assert 1 < found["validation_perplexity"] < 10_000 and 1 < found["general_perplexity"] < 10_000
    with pytest.raises(AssertionError, match="looked at the test split"):
        guarded["corpus"].test  # noqa: B018 - the guard itself, seen to work
    diverged = run_trial(Trial("full", 1e30, steps=6), experiment)
    assert diverged["validation_perplexity"] == diverged["training_loss"] == math.inf


def test_the_scores_of_a_trial_are_those_of_its_training(experiment):
    """A trial done by hand: the same model, blocks and order of batches."""
    from tlkit.evaluation import perplexity
    from tlkit.evidence.learning_rates import load_with_strategy
    from tlkit.training import TrainingConfig, train

    found = run_trial(Trial("full", 1e-2, epochs=2, seed=1), experiment)
    report, tokenizer = load_with_strategy("full", model=experiment.model, seed=1)
    train(report.model, experiment.blocks, TrainingConfig(1e-2, epochs=2, batch_size=4, seed=1))
    assert experiment.blocks.shape[1] == experiment.context == 64  # as many as this model reads
    by_hand = perplexity(report.model, tokenizer, load_corpus("rust").validation[:5], context=64)
    assert found["validation_perplexity"] == pytest.approx(by_hand.perplexity, rel=1e-6)  # the same sums in fp32


@pytest.fixture
def noted(monkeypatch):
    """Trials that cost nothing: what was asked for, and a perplexity that is lowest at 1e-4."""
    asked = []

    def run(trial, experiment, **_):
        asked.append(trial.name)
        if trial.strategy == "bitfit":
            raise IndexError("planted fault")
        score = 10 + (math.log10(trial.learning_rate) + 4) ** 2
        return dict.fromkeys(("validation_perplexity", "general_perplexity", "training_loss"), score)

    monkeypatch.setattr(sweeps, "run_trial", run)
    return asked


def test_a_sweep_goes_on_where_it_stopped(monkeypatch, tmp_path, capsys, noted, small_model, profile):
    done = sweeps.run_trial

    def stopped(trial, experiment, **_):
        if len(noted) == 3:
            raise KeyboardInterrupt
        return done(trial, experiment)

    monkeypatch.setattr(sweeps, "run_trial", stopped)
    output = tmp_path / "new" / "rates.csv"
    with pytest.raises(KeyboardInterrupt):
        run_sweep("rates", output, profile=profile, model=small_model)
    assert len(pd.read_csv(output)) == 3 and list(output.parent.iterdir()) == [output]
    monkeypatch.setattr(sweeps, "run_trial", done)
    command = ["sweep", "rates", "--model", small_model, "--output", str(output), "--json"]
    assert main(command) == 2
    assert f"{output} holds runs of another profile (test): choose another output for ci" in capsys.readouterr().err
    record = run_sweep("rates", output, profile=profile, model=small_model)
    assert len(set(noted)) == len(noted) == len(record)  # nothing twice, though it was stopped
    rates = best_rates(record)
    assert {rate.value for rate in rates.values()} == {1e-4} and all(rate.tuned for rate in rates.values())
    # Two seeds for each of the rates that the search foresees, and only the first rate of what cannot run.
    assert record.groupby("strategy").size().to_dict() == {
        name: 2 if name == "bitfit" else 2 * BUDGET for name in (*CLASSIC, CONTROL)
    }
    assert set(rates) == {*CLASSIC, CONTROL} - {"bitfit"}
    assert why_no_rate(record, "bitfit") == "no learning rate for bitfit: IndexError: planted fault"


def test_a_record_is_written_whole_or_not_at_all(monkeypatch, tmp_path, noted, small_model, profile):
    output = tmp_path / "rates.csv"
    whole = pd.DataFrame.to_csv

    def full_disk(table, path, **options):
        if len(table) > 2:
            path.write_text("strategy,learn")
            raise OSError(28, "No space left on device")
        return whole(table, path, **options)

    monkeypatch.setattr(pd.DataFrame, "to_csv", full_disk)
    with pytest.raises(OSError, match="No space left"):
        run_sweep("rates", output, profile=profile, model=small_model)
    assert len(pd.read_csv(output)) == 2


def test_a_record_in_use_is_refused(tmp_path, noted, small_model, profile):
    with hold_folder(tmp_path), pytest.raises(CheckpointError, match="in use by another run"):
        run_sweep("rates", tmp_path / "rates.csv", profile=profile, model=small_model)
    assert not noted


def test_the_other_sweeps_never_borrow_a_rate(monkeypatch, tmp_path, noted, small_model, profile):
    with pytest.raises(ValueError, match="no learning rate for full, last_layers, lora on .*--learning-rates"):
        run_sweep("epochs", tmp_path / "epochs.csv", profile=profile, model=small_model)
    given = {"full": 1e-4, "last_layers": 2e-4, "lora": 3e-4}
    record = run_sweep("epochs", tmp_path / "epochs.csv", profile=profile, model=small_model, learning_rates=given)
    assert record.groupby("strategy").learning_rate.unique().str[0].to_dict() == given
    assert len(record) == 2 * 3 * 5


def test_the_short_sweep_says_its_cost_first_and_goes_on_where_it_stopped(
    monkeypatch, tmp_path, capsys, noted, experiment
):
    kept = FinishedRuns(tmp_path, experiment.settings)
    done = sweeps.run_trial

    def stopped(trial, experiment, **_):
        said = capsys.readouterr().err
        if not noted:
            assert "No tuned learning rates for full, bitfit" in said
            assert f"about {2 * BUDGET} runs of {experiment.steps} steps ({2 * BUDGET * experiment.steps}" in said
            # At a second for each token that is read forward, and three for each that is trained on.
            texts = (*experiment.corpus.validation, *experiment.general.validation)
            scored = len(token_stream(texts, experiment.tokenizer)[0])
            hours = 2 * BUDGET * (3 * experiment.steps * experiment.batch_size * 64 + scored) / 3600
            assert f"about {hours:.1f} h)" in said
        if len(noted) == 5:
            raise KeyboardInterrupt
        return done(trial, experiment)

    monkeypatch.setattr(sweeps, "run_trial", stopped)
    with pytest.raises(KeyboardInterrupt):
        tune(experiment, ["full", "bitfit"], 1.0, kept=kept)
    assert len(kept.read()) == 4  # what could not run is tried again
    monkeypatch.setattr(sweeps, "run_trial", done)
    record = tune(experiment, ["full", "bitfit"], 1.0, kept=kept)
    assert noted.count(noted[0]) == 1 and len(noted) == 1 + len(record)  # bitfit, which failed, twice
    assert best_rates(record)["full"].value == 1e-4 and "full" not in why_no_rate(record, "bitfit")
    assert best_rates(pd.read_csv(tmp_path / "rates.csv"))["full"].value == 1e-4
    assert len(record) == BUDGET + 1 and set(COARSE) < set(record.learning_rate)


def test_runs_of_other_settings_are_refused_by_name(tmp_path, experiment):
    FinishedRuns(tmp_path, experiment.settings).keep("full, seed 0", {"row": {}})
    with pytest.raises(ValueError, match="holds runs with other settings: stride was 64 and is now 32. Name another"):
        FinishedRuns(tmp_path, experiment.settings | {"stride": 32}).read()
    (tmp_path / "runs" / "notes.json").write_text("[my own]")
    assert FinishedRuns(tmp_path, experiment.settings).read() == {"full, seed 0": {"row": {}}}
    for torn in ('{"run": "full, seed 0", "sett', "[1]", '{"run": "full, seed 0"}'):
        (tmp_path / "runs" / "full, seed 0.json").write_text(torn)
        with pytest.raises(ValueError, match="full, seed 0.json is damaged: remove it"):
            FinishedRuns(tmp_path, experiment.settings).read()


def test_what_the_architecture_does_not_allow_is_a_row_with_a_reason_and_never_tried(
    tmp_path, capsys, noted, without_biases, profile
):
    output = tmp_path / "rates.csv"
    for _ in range(2):  # a second start neither tries it nor adds a row
        record = run_sweep("rates", output, profile=profile, model=without_biases)
        row = record[record.strategy == "bitfit"].squeeze()
        assert row.error == "bitfit selected no weights of LlamaForCausalLM: this architecture has no bias vectors"
        assert math.isnan(row.learning_rate) and math.isinf(row.validation_perplexity)
    assert not [name for name in noted if "bitfit" in name] and len(noted) == len(set(noted)) == len(record) - 1
    for table in (record, pd.read_csv(output)):  # as it is in memory, and as it is given to `compare`
        assert set(best_rates(table)) == {*CLASSIC, CONTROL} - {"bitfit"}
        assert why_no_rate(table, "bitfit").endswith("has no bias vectors")
    only = ["sweep", "rates", "--model", without_biases, "--strategies", "lora,bitfit"]
    assert main([*only, "--output", str(tmp_path / "no" / "rates.csv")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "no bias vectors. Leave out bitfit" in said[0] and not (tmp_path / "no").exists()


def test_a_record_is_gone_on_with_by_more_seeds_and_other_strategies(tmp_path, noted, small_model, profile):
    def swept(sweep, **more):
        given = None if sweep == "rates" else {"full": 1e-4, "last_layers": 2e-4, "lora": 3e-4, "freeze_lower": 4e-4}
        output = tmp_path / f"{sweep}.csv"
        return run_sweep(sweep, output, profile=profile, model=small_model, learning_rates=given, **more)

    for sweep, runs, default in (("rates", BUDGET, None), ("epochs", 5, 3)):
        noted.clear()
        assert len(swept(sweep, strategies=["lora"], seeds=1)) == runs
        assert len(swept(sweep, strategies=["lora"], seeds=3)) == 3 * runs
        assert len(swept(sweep, strategies=["freeze_lower"], seeds=1)) == 4 * runs
        assert len(noted) == len(set(noted)) == 4 * runs, "nothing twice"
        if default:
            assert len(swept(sweep)) == 4 * runs + 2 * (default - 1) * runs  # of the default three, lora is done
    unknown = {"strategies": ["adapter"]}, "strategies .'adapter'.: expected some of full"
    for wrong, said in (({"seeds": 0}, "seeds=0: expected at least 1"), unknown):
        with pytest.raises(ValueError, match=said):
            swept("rates", **wrong)


@pytest.mark.parametrize(
    ("sweep", "values", "settings"),
    [
        ("epochs", [0.5, 2], {(0.5, None, None, 0.0), (2, None, None, 0.0)}),
        ("passages", [3, 6], {(1, 7, 3, 0.0), (1, 7, 6, 0.0)}),
        ("general", [0.0, 0.25], {(1, None, None, 0.0), (1, None, None, 0.25)}),
    ],
)
def test_values_of_ones_own(sweep, values, settings):
    trials = planned(sweep, {"lora": 1e-3}, 6, strategies=["lora"], seeds=2, values=values, steps=7)
    assert {(trial.epochs, trial.steps, trial.passages, trial.general_share) for trial in trials} == settings
    assert len(trials) == 4 and {trial.seed for trial in trials} == {0, 1}


@pytest.mark.parametrize(
    ("sweep", "values", "said"),
    [
        ("epochs", "0", "a value of 0 in a sweep of epochs: expected values above 0"),
        ("epochs", "inf", "a value of inf in a sweep of epochs"),
        ("passages", "2.5", "expected values whole, from 1 to 503"),
        ("passages", "504", "expected values whole, from 1 to 503"),
        ("general", "1", "expected values from 0 to below 1"),
        ("general", "a few", "--values a few: expected numbers"),
        ("rates", "0.1", "takes no values"),
    ],
)
def test_values_that_no_run_could_have_are_one_line(sweep, values, said, tmp_path, capsys, shallow):
    output = tmp_path / "record.csv"
    assert main(["sweep", sweep, "--values", values, "--output", str(output)]) == 2
    assert said in capsys.readouterr().err and not output.exists()


def test_more_general_text_than_there_is_is_refused_before_any_trial(tmp_path, noted, small_model, profile):
    rates = {"learning_rates": {"full": 1e-3}, "strategies": ["full"]}
    with pytest.raises(ValueError, match=r"share=0.99 of \d+ blocks takes \d+ others, and \d+ are there"):
        run_sweep("general", tmp_path / "a.csv", profile=profile, model=small_model, values=[0.0, 0.1, 0.99], **rates)
    assert not noted and not (tmp_path / "a.csv").exists()
    with pytest.raises(ValueError, match="task classify: there is no general text to mix in"):
        run_sweep(
            "general", tmp_path / "a.csv", profile=profile, model=small_model, task="classify", values=[0.5], **rates
        )
    assert not noted and not (tmp_path / "a.csv").exists()


def test_another_sweep_is_unknown(capsys):
    assert main(["sweep", "everything", "--json"]) == 2
    assert "expected one of rates, epochs, passages, general" in capsys.readouterr().err


OWN = """
from tlkit.models.parts import find_blocks
from tlkit.strategies import strategy

BLOCK = 0


@strategy("mine")
def mine(model):
    find_blocks(model)[BLOCK].requires_grad_(True)
"""


@pytest.mark.usefixtures("registry_as_before")
def test_a_record_belongs_to_the_text_of_a_strategy_of_ones_own(tmp_path, noted, small_model, profile):
    plugin, output = tmp_path / "mine.py", tmp_path / "rates.csv"

    def swept(*strategies):
        return run_sweep("rates", output, profile=profile, model=small_model, strategies=strategies, seeds=1)

    plugin.write_text(OWN)
    load_plugin(plugin)
    assert "strategy_sha256" not in swept("full"), "a record of ours is as it was"
    record = swept("full", "mine")
    assert record[record.strategy == "full"].strategy_sha256.isna().all() and len(noted) == 2 * BUDGET
    (digest,) = set(record[record.strategy == "mine"].strategy_sha256)
    assert len(digest) == 64 and len(swept("mine")) == len(noted) == len(record), "the same text: nothing is left to do"
    settings = load_experiment(small_model, profile, ComparisonSettings())[0].settings
    rate = learning_rates_for("my model", ["mine"], settings, pd.read_csv(output))["mine"]
    assert rate.value == 1e-4 and rate.tuned and "another text" not in rate.source
    plugin.write_text(OWN.replace("BLOCK = 0", "BLOCK = 1"))
    load_plugin(plugin)
    with pytest.raises(ValueError, match="rates.csv: strategy 'mine' has another text than when it was run: choose an"):
        swept("mine")
    assert len(swept("full")) == len(record) and len(noted) == len(record), "what is not asked for is in nobody's way"
    for given in (record, record.drop(columns="strategy_sha256")):
        rates = learning_rates_for("my model", ["full", "mine"], settings, given)
        assert rates["full"].tuned and "another" not in rates["full"].source
        assert rates["mine"].value == 1e-4 and not rates["mine"].tuned
        assert rates["mine"].source.endswith("; here: another text of the strategy")


def test_the_path_of_a_strategy_ends_at_its_best_rate_and_has_the_means_of_its_seeds():
    runs = recorded("rates")
    (name, path), (other, _) = rate_paths("tiny", ["full", "lora"], worst=100).items()
    assert (name, other) == ("full", "lora") and path.label.tolist() == ["0.0005", "0.001"]
    for row in path.itertuples():
        of_rate = runs[(runs.strategy == "full") & (runs.learning_rate == float(row.label))]
        assert len(of_rate) == 2 and row.rust == pytest.approx(of_rate.validation_perplexity.mean())
        assert row.general == pytest.approx(of_rate.general_perplexity.mean())
    (longer,) = rate_paths("tiny", ["lora"], worst=1000).values()
    assert longer.rust.iloc[0] > 100 and longer.rust.idxmin() == longer.index[-1]

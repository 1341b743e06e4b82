"""Runs that differ in one setting, judged on validation data; the test split is for the comparison alone."""

import datetime
import math
import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from tlkit.checkpoints import write_atomically
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import Experiment, allowed, load_experiment, run_all, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns, hold_output
from tlkit.evidence.forgetting import mix_in
from tlkit.evidence.learning_rates import (
    BUDGET,
    RECORDS,
    TUNED_FOR,
    default_rates,
    has_other_text,
    learning_rates_for,
    read_rates,
    record_folder,
)
from tlkit.evidence.tasks import TASKS
from tlkit.evidence.trials import SEEDS, SIZES_STEPS, SWEEPS, SWEPT, Trial, planned, rate_trials
from tlkit.examples import Batch
from tlkit.jobs import SILENT, Job, Part, duration
from tlkit.models import chosen_model
from tlkit.names import CONTROL
from tlkit.settings import Profile, TrainingConfig
from tlkit.strategies import STRATEGIES, sha256_of_own, strategies_named
from tlkit.team import ALONE, Team

SHORT_STEPS = 60  # at most, of a run of the short sweep
FOUND = ("validation_perplexity", "general_perplexity", "training_loss")  # by a trial
COLUMNS = ("trial", "strategy", "learning_rate", "seed", "validation_perplexity", "error")  # of a record, among others


def run_sweep(
    sweep: str,
    output: str | Path,
    *,
    profile: Profile,
    model: str | None = None,
    task: str = "text",
    corpus: str | None = None,
    learning_rates: str | Path | dict[str, float] | None = None,
    strategies: Iterable[str] | None = None,
    seeds: int = SEEDS,
    values: Iterable[float] | None = None,
    steps: int = SIZES_STEPS,
    progress: bool = False,
) -> pd.DataFrame:
    """Run what a record lacks of a sweep, and add it there trial by trial.

    A record can be gone on with: with more seeds, with other strategies, after a stop.

    Args:
        sweep: `rates`, `epochs`, `passages` or `general`.
        output: the record, a CSV file; its folder is held while the sweep runs.
        profile: how many documents.
        model: preset, hub id or folder; default: `TLKIT_MODEL`, then the bundled model.
        task: of `TASKS`.
        corpus: a name or path of the task's documents.
        learning_rates: for the sweeps that are not about them, where none are recorded for the model; see `read_rates`.
        strategies: names of `STRATEGIES`, or `CONTROL`; default: those in `SWEPT`, where what the model's architecture
            does not allow is a row without a rate whose `error` says why.
        seeds: runs of each setting, at least 1.
        values: what to try, see `planned`; default: those in `VALUES`. `rates` searches, and takes none.
        steps: optimizer steps of each run of `passages`.
        progress: whether to show run k of n, its steps and the time left.

    Returns:
        The whole record, a row for each trial.

    Raises:
        ValueError: where the record is of another model, text or profile, or has runs of a strategy of your own with
            another text, a learning rate is missing, or a strategy that was named is unknown or not possible, before
            any work.
        CheckpointError: where the folder of `output` cannot be written, or another run holds it.
    """
    if sweep not in SWEEPS:
        raise ValueError(f"sweep {sweep!r} is unknown: expected one of {', '.join(SWEEPS)}")
    named = None if strategies is None else _known(list(strategies))  # or the names of families
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: expected at least 1")
    if sweep == "rates" and values is not None:
        raise ValueError("a sweep of rates searches for them, and takes no values: leave them out")
    output, given = Path(output), read_rates(learning_rates) if learning_rates else None
    with hold_output(output.parent):
        experiment, base = load_experiment(model, profile, ComparisonSettings(task=task, corpus=corpus, questions=0))
        possible, impossible = allowed(named, base.model.config, experiment.class_count)
        del base  # every trial loads its own
        if named is None:
            possible = [name for name in SWEPT[sweep] if name not in impossible]
            impossible = {name: reason for name, reason in impossible.items() if name in SWEPT[sweep]}
        record = _read_record(output, experiment, possible)
        if sweep == "rates":
            # One search for all strategies: an equal budget for tuning.
            plan = partial(rate_trials, strategies=possible, seeds=seeds, like=Trial("", 0.0))
            total = len(possible) * BUDGET * seeds
        else:
            rates = _rates_of(possible, experiment, given)
            documents = len(experiment.whole.train)
            shape = {"strategies": possible, "seeds": seeds, "values": values, "steps": steps}
            trials = planned(sweep, rates, documents, **shape)
            total = len(trials)
            _blocks_of(max(trials, key=lambda trial: trial.general_share), experiment)  # refused before any work

            def plan(record: pd.DataFrame) -> list[Trial]:
                return [trial for trial in trials if trial.name not in set(record.trial)]

        def keep(_: str, row: dict) -> None:
            nonlocal record
            record = pd.DataFrame([*record.to_dict("records"), row])
            write_atomically(output, lambda path: record.to_csv(path, index=False))

        for name, reason in impossible.items():
            keep(name, _row_without_run(name, reason, experiment))
        done = record.strategy.isin(possible) & (record.seed < seeds)
        with Job(max(1, total - int(done.sum())), shown=progress) as job:
            while wanted := plan(record):
                run_all({trial.name: partial(_row, trial, experiment) for trial in wanted}, job, keep=keep)
    return record


def tune(
    experiment: Experiment,
    strategies: list[str],
    seconds_per_token: float | None,
    *,
    kept: FinishedRuns | None = None,
    progress: bool = False,
    team: Team = ALONE,
    spread: bool = False,
) -> pd.DataFrame:
    """Search for the learning rates of one model in a short sweep on validation text, and say first what it costs.

    Args:
        experiment: model, text, blocks and batch that the rates are for.
        strategies: those to search for.
        seconds_per_token: of a forward pass, for an estimate of the time; None where it is not known.
        kept: where finished trials are kept and found again; the record is written there as `rates.csv`.
        progress: whether to show run k of n, its steps and the time left.
        team: the processes there are.
        spread: whether each process does trials of its own.

    Returns:
        The record, for `best_rates`; a trial that could not run says why in the column `error`.
    """
    steps, count = min(experiment.steps, SHORT_STEPS), len(strategies) * BUDGET
    if team.rank == 0:
        texts = (*experiment.corpus.validation, *experiment.general.validation)
        read = experiment.task.read(texts, experiment.tokenizer, experiment.context, experiment.classes)[0]
        # A step goes forward once over its tokens, and backward takes about twice that.
        tokens = 3 * steps * experiment.batch_size * experiment.blocks.shape[1] + read.numel()
        time = f", about {duration(count * tokens * seconds_per_token)}" if seconds_per_token else ""
        print(
            f"No tuned learning rates for {', '.join(strategies)} on {experiment.model} with {experiment.corpus.name}: "
            f"a short sweep on validation text comes first, about {count} runs of {steps} steps ({count * steps:,} "
            f"steps{time}). Learning rates that are given (--learning-rates) save it.",
            file=sys.stderr,
            flush=True,
        )
    short = Trial("", 0.0, experiment.profile.epochs, steps if steps < experiment.steps else None)
    finished = kept.read() if kept else {}
    record, sharing = pd.DataFrame(columns=COLUMNS), ALONE if spread else team
    with Job(math.ceil(count / (team.size if spread else 1)), shown=progress and team.rank == 0) as job:
        while trials := rate_trials(record, strategies, 1, short):
            rows = run_all(
                {trial.name: partial(_row, trial, experiment, team=sharing) for trial in trials},
                job,
                finished=finished,
                keep=lambda name, row: None if row["error"] or not kept else kept.keep(name, row),
                team=team,
                spread=spread,
            )
            record = pd.DataFrame([*record.to_dict("records"), *rows.values()])
            if kept and team.rank == 0:
                write_atomically(kept.output / "rates.csv", partial(record.to_csv, index=False))
    return record


def run_trial(trial: Trial, experiment: Experiment, *, progress: Part = SILENT, team: Team = ALONE) -> dict[str, float]:
    """Train as a trial says, and score it on validation texts; a run that diverges scores infinity.

    Args:
        trial: strategy, rate, length and seed.
        experiment: model, texts, blocks and window.
        progress: is told each step.
        team: the processes that share every batch.

    Returns:
        Perplexity on the validation documents of the corpus and on general ones, the loss of the last steps in nats a
        token, and what the task measures beside.
    """
    blocks = _blocks_of(trial, experiment)
    batch = experiment.batch_size
    epochs = trial.epochs if trial.steps is None else trial.steps / math.ceil(len(blocks) / batch)
    config = TrainingConfig(trial.learning_rate, epochs=epochs, batch_size=batch, seed=trial.seed)
    texts = {"corpus": experiment.corpus.validation}
    if experiment.general.validation:
        texts["general"] = experiment.general.validation
    found = dict.fromkeys(FOUND, math.inf)
    try:
        report, result, scores = run_strategy(
            experiment, trial.strategy, config, blocks, texts, progress=progress, team=team
        )
    except FloatingPointError:
        return found  # a rate that is too high is a finding, and infinity is its name
    tail = result.history.loss.tail(max(1, len(result.history) // 10)).mean()
    values = {name: score.perplexity for name, score in scores.items()} | {"loss": tail}
    finite = {name: float(value) if math.isfinite(value) else math.inf for name, value in values.items()}
    found = dict(zip(FOUND, (finite["corpus"], finite.get("general", math.nan), finite["loss"]), strict=True))
    validation, tokenizer = experiment.corpus.validation, experiment.tokenizer
    measured = experiment.task.measure(
        report.model, tokenizer, validation, experiment.profile, experiment.classes, progress
    )
    return found | measured.figures


def _blocks_of(trial: Trial, experiment: Experiment) -> Batch:
    """What a trial is trained on.

    Raises:
        ValueError: where there is less general text than its share takes.
    """
    blocks = experiment.blocks
    if trial.passages:
        chosen = experiment.whole.train[: trial.passages]
        blocks = experiment.task.batch(chosen, experiment.tokenizer, blocks.shape[1], experiment.classes)
    if trial.general_share:
        if not experiment.general.train:
            raise ValueError(f"task {experiment.task.name}: there is no general text to mix in; expected a share of 0")
        others = experiment.task.batch(
            experiment.general.train, experiment.tokenizer, blocks.shape[1], experiment.classes
        )
        blocks = mix_in(blocks, others, trial.general_share)
    return blocks


def recorded(sweep: str, model: str = "tiny", task: str = "text") -> pd.DataFrame:
    """The record of a sweep that comes with the workbook; its columns say where and when it was made.

    Args:
        sweep: `rates`, `epochs`, `passages` or `general`; or `depth`, of linear classifiers behind each block.
        model: a preset.
        task: of `TASKS`; what is recorded of another than "text" is in a folder of the task's name.

    Raises:
        ValueError: where nothing is recorded under these names.
    """
    if sweep not in (*SWEEPS, "depth"):
        raise ValueError(f"sweep {sweep!r} is unknown: expected one of {', '.join((*SWEEPS, 'depth'))}")
    if task not in TASKS:
        raise ValueError(f"task {task!r} is unknown: expected one of {', '.join(TASKS)}")
    path = record_folder(model, task) / f"{sweep}.csv"
    if not path.is_file():
        presets = sorted(folder.name for folder in RECORDS.iterdir())
        known = ", ".join(name for name in presets if (record_folder(name, task) / path.name).is_file()) or "none"
        of_task = "" if task == "text" else f" and task {task}"
        raise ValueError(f"no sweep of {sweep} is recorded for {model!r}{of_task}: expected one of {known}")
    return pd.read_csv(path)


def rate_paths(model: str, strategies: Iterable[str], worst: float) -> dict[str, pd.DataFrame]:
    """What strategies gain and forget at the learning rates that were tried, from low ones up to the best of each.

    Args:
        model: a preset whose search for rates is recorded.
        strategies: names in that record.
        worst: perplexity on Rust; rates at which it is no lower are left out.

    Returns:
        By strategy a row for each rate, with columns label (the rate), rust and general: perplexities on validation
        text, means over seeds.
    """
    best, runs = default_rates(model), recorded("rates", model)
    scores = ["validation_perplexity", "general_perplexity"]
    paths = {}
    for name in strategies:
        path = runs[runs.strategy == name].groupby("learning_rate")[scores].mean().loc[: best[name]]
        path = path[path.validation_perplexity < worst].reset_index()
        path["learning_rate"] = path.learning_rate.map("{:g}".format)
        paths[name] = path.set_axis(["label", "rust", "general"], axis=1)
    return paths


def _known(strategies: list[str]) -> list[str]:
    """Refuse names that no strategy has."""
    names = (*STRATEGIES, CONTROL)
    unknown = [name for name in strategies_named(strategies) if name not in names]
    if unknown or not strategies:
        raise ValueError(f"strategies {unknown or strategies}: expected some of {', '.join(names)}")
    return list(dict.fromkeys(strategies))


def _row(trial: Trial, experiment: Experiment, progress: Part = SILENT, team: Team = ALONE) -> dict[str, object]:
    """A row of a record: settings, what was found or why nothing was, and where and when."""
    found, error = dict.fromkeys(FOUND, math.inf), None
    try:
        found = run_trial(trial, experiment, progress=progress, team=team)
    except Exception as problem:  # a strategy that cannot run on this model must not keep the others from running
        error = f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
    return _described(trial, experiment) | found | {"error": error}


def _row_without_run(strategy: str, reason: str, experiment: Experiment) -> dict[str, object]:
    """A row for a strategy that the architecture does not allow: there is no rate at which it could run."""
    row = _described(Trial(strategy, math.nan), experiment)
    return row | dict.fromkeys(FOUND, math.inf) | {"error": reason}


def _described(trial: Trial, experiment: Experiment) -> dict[str, object]:
    """The settings of a trial, and where and when it took place."""
    device = experiment.device()
    made = {
        "profile": experiment.profile.name,
        "device": f"{device.kind}: {device.name}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    nothing, own = dict.fromkeys(FOUND), sha256_of_own(trial.strategy)  # what is found keeps its place
    of_text = _text(experiment) | ({"strategy_sha256": own} if own else {})
    return {"trial": trial.name, **asdict(trial), **nothing, "model": experiment.model, **made, **of_text}


def _text(experiment: Experiment) -> dict[str, object]:
    """Of the settings, those that a record of sweeps has as columns."""
    names, settings = (*TUNED_FOR, "corpus", "context", "stride"), experiment.settings
    return {name: settings[name] for name in names}


def _read_record(path: Path, experiment: Experiment, strategies: list[str]) -> pd.DataFrame:
    """The trials that are in a record already, without those that could not run: they are tried again."""
    if not path.is_file():
        return pd.DataFrame(columns=COLUMNS)
    record = pd.read_csv(path)
    here = {"profile": experiment.profile.name, **_text(experiment)}
    for name, value in here.items():
        values = set(record[name]) if name in record else {"not named"}
        if values - {value}:
            raise ValueError(
                f"{path} holds runs of another {name} ({(values - {value}).pop()}): choose another output for {value}"
            )
    record = record if "error" in record else record.assign(error=None)
    record = record[record.error.isna()]
    if changed := [name for name in strategies if has_other_text(record, name)]:
        raise ValueError(
            f"{path}: strategy {changed[0]!r} has another text than when it was run: choose another output, or the "
            "text of before to go on with it"
        )
    return record


def _rates_of(
    strategies: list[str], experiment: Experiment, given: pd.DataFrame | dict[str, float] | None
) -> dict[str, float]:
    rates = learning_rates_for(experiment.model, strategies, experiment.settings, given)
    if missing := [name for name in strategies if name not in rates]:
        raise ValueError(
            f"no learning rate for {', '.join(missing)} on {experiment.model}: give learning rates (--learning-rates), "
            f"or find them with `python -m tlkit sweep rates --model {chosen_model(experiment.model)}`"
        )
    return {name: rate.value for name, rate in rates.items()}

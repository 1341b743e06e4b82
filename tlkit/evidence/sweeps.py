"""Runs that differ in one setting, judged on validation data; the test split is for the comparison alone."""

import datetime
import math
import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from tlkit.checkpoints import write_atomically
from tlkit.corpus import pack, token_stream
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import Experiment, Progress, duration, load_experiment, run_all, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns, hold_output
from tlkit.evidence.forgetting import mix_in
from tlkit.evidence.learning_rates import (
    COARSE,
    CONTROL,
    RECORDS,
    TUNED_FOR,
    default_rates,
    learning_rates_for,
    next_rate,
    read_rates,
)
from tlkit.models import chosen_model
from tlkit.settings import Profile
from tlkit.strategies import STRATEGIES
from tlkit.team import ALONE, Team
from tlkit.training import TrainingConfig

SEEDS = 2
SIZES = (25, 50, 100, 200, 400)  # and all there are
SIZES_STEPS = 120  # of every run of that sweep: more text is repeated less often, the work is the same
SHORT_STEPS = 60  # at most, of a run of the short sweep
COMPARED = ("full", "last_layers", "lora")
SWEEPS = ("rates", "epochs", "passages", "general")
COLUMNS = ("trial", "strategy", "learning_rate", "validation_perplexity", "error")  # of a record, among others
FORESEEN = len(COARSE) + 2  # rates of each strategy: one a decade, and two around the best


@dataclass(frozen=True)
class Trial:
    """One training run on the first `passages` documents (None: as the profile says).

    It takes `steps` steps where they are given, and else `epochs`; `general_share` of its blocks are general text.
    """

    strategy: str
    learning_rate: float
    epochs: float = 1
    steps: int | None = None
    passages: int | None = None
    general_share: float = 0.0
    seed: int = 0

    @property
    def name(self) -> str:
        """Its settings in one line, so that a record says what was done already."""
        return " ".join(f"{key}={value}" for key, value in asdict(self).items() if value is not None)


def planned(sweep: str, rates: dict[str, float] | None = None, documents: int = 503) -> list[Trial]:
    """List the trials of a sweep whose settings are known beforehand, each with two seeds.

    Args:
        sweep: `epochs`, `passages` or `general`; the rates that `rates` tries depend on what it finds.
        rates: the learning rate of each strategy; default: those recorded for the bundled model.
        documents: that the corpus has for training.
    """
    rates = rates or default_rates()
    grids = {
        "epochs": [Trial(name, rates[name], epochs) for name in COMPARED for epochs in (0.5, 1, 2, 4, 8)],
        "passages": [
            Trial(name, rates[name], steps=SIZES_STEPS, passages=size)
            for name in COMPARED
            for size in (*(size for size in SIZES if size < documents), documents)
        ],
        "general": [Trial("full", rates["full"], general_share=share) for share in (0.0, 0.1, 0.25, 0.5)],
    }
    return [replace(trial, seed=seed) for trial in grids[sweep] for seed in range(SEEDS)]


def rate_trials(record: pd.DataFrame, strategies: Iterable[str], seeds: int, like: Trial) -> list[Trial]:
    """Say which trials the search for the best rates wants next; none where it is over.

    Args:
        record: the trials done so far.
        strategies: those to search for, each by `next_rates`.
        seeds: of every rate.
        like: what all trials have in common.
    """
    wanted = []
    for strategy in strategies:
        part = record[record.strategy == strategy]
        if part.error.notna().any():
            continue  # it cannot run at all
        rates = part.groupby("learning_rate").validation_perplexity
        begun = [rate for rate, count in rates.size().items() if count < seeds]
        rate = begun[0] if begun else next_rate(rates.mean().to_dict())
        if rate is not None:
            trials = [replace(like, strategy=strategy, learning_rate=float(rate), seed=seed) for seed in range(seeds)]
            wanted += [trial for trial in trials if trial.name not in set(part.trial)]
    return wanted


def run_sweep(
    sweep: str,
    output: str | Path,
    *,
    profile: Profile,
    model: str | None = None,
    corpus: str | None = None,
    learning_rates: str | Path | dict[str, float] | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Run what a record lacks of a sweep, and add it there trial by trial.

    Args:
        sweep: `rates`, `epochs`, `passages` or `general`.
        output: the record, a CSV file; its folder is held while the sweep runs.
        profile: how many documents.
        model: preset, hub id or folder; default: `TLKIT_MODEL`, then the bundled model.
        corpus: a name or path for `load_corpus`.
        learning_rates: for the sweeps that are not about them, where none are recorded for the model; see `read_rates`.
        progress: whether to print a line for each trial.

    Returns:
        The whole record, a row for each trial.

    Raises:
        ValueError: where the record is of another model, text or profile, or a learning rate is missing, before any
            work.
        CheckpointError: where the folder of `output` cannot be written, or another run holds it.
    """
    if sweep not in SWEEPS:
        raise ValueError(f"sweep {sweep!r} is unknown: expected one of {', '.join(SWEEPS)}")
    output, given = Path(output), read_rates(learning_rates) if learning_rates else None
    with hold_output(output.parent):
        experiment, _ = load_experiment(model, profile, ComparisonSettings(corpus=corpus))
        record = _read_record(output, experiment)
        if sweep == "rates":
            # One search for all strategies: an equal budget for tuning.
            strategies = (*STRATEGIES, CONTROL)
            plan = partial(rate_trials, strategies=strategies, seeds=SEEDS, like=Trial("", 0.0))
            total = len(strategies) * FORESEEN * SEEDS
        else:
            trials = planned(sweep, _rates_of_compared(experiment, given), len(experiment.whole.train))
            total = len(trials)

            def plan(record: pd.DataFrame) -> list[Trial]:
                return [trial for trial in trials if trial.name not in set(record.trial)]

        def keep(_: str, row: dict) -> None:
            nonlocal record
            record = pd.DataFrame([*record.to_dict("records"), row])
            write_atomically(output, lambda path: record.to_csv(path, index=False))

        lines = Progress(max(0, total - len(record)), progress)
        while wanted := plan(record):
            run_all({trial.name: partial(_row, trial, experiment) for trial in wanted}, lines, keep=keep)
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
        progress: whether to print a line for each trial.
        team: the processes there are.
        spread: whether each process does trials of its own.

    Returns:
        The record, for `best_rates`; a trial that could not run says why in the column `error`.
    """
    steps, count = min(experiment.steps, SHORT_STEPS), len(strategies) * FORESEEN
    if team.rank == 0:
        scored = token_stream((*experiment.corpus.validation, *experiment.general.validation), experiment.tokenizer)[0]
        # A step goes forward once over its tokens, and backward takes about twice that.
        tokens = 3 * steps * experiment.batch_size * experiment.blocks.shape[1] + len(scored)
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
    record, lines = pd.DataFrame(columns=COLUMNS), Progress(count, progress and team.rank == 0)
    while trials := rate_trials(record, strategies, 1, short):
        rows = run_all(
            {trial.name: partial(_row, trial, experiment, ALONE if spread else team) for trial in trials},
            lines,
            finished=finished,
            keep=lambda name, row: None if row["error"] or not kept else kept.keep(name, row),
            team=team,
            spread=spread,
        )
        record = pd.DataFrame([*record.to_dict("records"), *rows.values()])
        if kept and team.rank == 0:
            write_atomically(kept.output / "rates.csv", partial(record.to_csv, index=False))
    return record


def run_trial(trial: Trial, experiment: Experiment, team: Team = ALONE) -> dict[str, float]:
    """Train as a trial says, and score it on validation texts; a run that diverges scores infinity.

    Args:
        trial: strategy, rate, length and seed.
        experiment: model, texts, blocks and window.
        team: the processes that share every batch.

    Returns:
        Perplexity on the validation documents of the corpus and on general ones, and the loss of the last steps in
        nats a token.
    """
    blocks = experiment.blocks
    if trial.passages:
        blocks = pack(experiment.whole.train[: trial.passages], experiment.tokenizer, blocks.shape[1])
    if trial.general_share:
        others = pack(experiment.general.train, experiment.tokenizer, blocks.shape[1])
        blocks = mix_in(blocks, others, trial.general_share)
    batch = experiment.batch_size
    epochs = trial.epochs if trial.steps is None else trial.steps / math.ceil(len(blocks) / batch)
    config = TrainingConfig(trial.learning_rate, epochs=epochs, batch_size=batch, seed=trial.seed)
    texts = {"corpus": experiment.corpus.validation, "general": experiment.general.validation}
    found = dict.fromkeys(("validation_perplexity", "general_perplexity", "training_loss"), math.inf)
    try:
        _, result, scores = run_strategy(experiment, trial.strategy, config, blocks, texts, team=team)
    except FloatingPointError:
        return found  # a rate that is too high is a finding, and infinity is its name
    tail = result.history.loss.tail(max(1, len(result.history) // 10)).mean()
    values = (*(scores[name].perplexity for name in texts), tail)
    return {name: float(value) if math.isfinite(value) else math.inf for name, value in zip(found, values, strict=True)}


def recorded(sweep: str, model: str = "tiny") -> pd.DataFrame:
    """The record of a sweep that comes with the workbook; its columns say where and when it was made.

    Args:
        sweep: `rates`, `epochs`, `passages` or `general`.
        model: a preset.

    Raises:
        ValueError: where nothing is recorded under these names.
    """
    if sweep not in SWEEPS:
        raise ValueError(f"sweep {sweep!r} is unknown: expected one of {', '.join(SWEEPS)}")
    path = RECORDS / model / f"{sweep}.csv"
    if not path.is_file():
        known = ", ".join(sorted(folder.name for folder in RECORDS.iterdir()))
        raise ValueError(f"no sweep of {sweep} is recorded for {model!r}: expected one of {known}")
    return pd.read_csv(path)


def _row(trial: Trial, experiment: Experiment, team: Team = ALONE) -> dict[str, object]:
    """A row of a record: settings, what was found or why nothing was, and where and when."""
    row, error = dict.fromkeys(("validation_perplexity", "general_perplexity", "training_loss"), math.inf), None
    try:
        row = run_trial(trial, experiment, team)
    except Exception as problem:  # a strategy that cannot run on this model must not keep the others from running
        error = f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
    device = experiment.device()
    made = {
        "profile": experiment.profile.name,
        "device": f"{device.kind}: {device.name}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    return {"trial": trial.name, **asdict(trial), **row, "model": experiment.model, **made, **_text(experiment)} | {
        "error": error
    }


def _text(experiment: Experiment) -> dict[str, object]:
    """Of the settings, those that a record of sweeps has as columns."""
    names, settings = (*TUNED_FOR, "corpus", "context", "stride"), experiment.settings
    return {name: settings[name] for name in names}


def _read_record(path: Path, experiment: Experiment) -> pd.DataFrame:
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
    return record[record.error.isna()]


def _rates_of_compared(experiment: Experiment, given: pd.DataFrame | dict[str, float] | None) -> dict[str, float]:
    rates = learning_rates_for(experiment.model, COMPARED, experiment.settings, given)
    if missing := [name for name in COMPARED if name not in rates]:
        raise ValueError(
            f"no learning rate for {', '.join(missing)} on {experiment.model}: give learning rates (--learning-rates), "
            f"or find them with `python -m tlkit sweep rates --model {chosen_model(experiment.model)}`"
        )
    return {name: rate.value for name, rate in rates.items()}

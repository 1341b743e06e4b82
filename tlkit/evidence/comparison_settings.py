"""The settings of a comparison, with their help texts; the command line makes its options from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path


@dataclass(frozen=True)
class ComparisonSettings:
    """How strategies are compared; what is None follows from the profile, the model or the strategies."""

    corpus: str | None = field(default=None, metadata={"help": "rust, facts, general or a path"})
    seeds: int | None = field(default=None, metadata={"help": "runs of each strategy; default: as the profile says"})
    block_size: int | None = field(
        default=None, metadata={"help": "tokens in a training block; default: 128, or what the model reads at most"}
    )
    batch_size: int = field(default=4, metadata={"help": "blocks in an optimizer step"})
    context: int | None = field(
        default=None, metadata={"help": "tokens in a scoring window; default: 256, or what the model reads at most"}
    )
    stride: int | None = field(
        default=None, metadata={"help": "tokens the scoring window moves on by; default: the whole window"}
    )
    against: str | None = field(
        default=None, metadata={"help": "strategy that the others are compared with; default: full"}
    )
    learning_rates: str | Path | Mapping[str, float] | None = field(
        default=None,
        metadata={
            "help": "record of `sweep rates` for this model, or rates such as full=1e-4,lora=1e-3 (which count as not "
            "tuned, so that nothing is ranked by them); default: as recorded for the model, else a short sweep first"
        },
    )
    tune: bool = field(
        default=False, metadata={"help": "search for the learning rates in a short sweep even where some are recorded"}
    )
    device_memory: str | None = field(
        default=None, metadata={"help": "such as 48MB: play a card of that size on the CPU"}
    )
    fallback: bool = field(default=False, metadata={"help": "go on with less when memory runs out"})
    spread: bool = field(default=False, metadata={"help": "under torchrun: each process does runs of its own"})

    def options(self) -> list[str]:
        """What differs from the defaults, as options of the command line."""
        found = []
        for setting in fields(self):
            value, option = getattr(self, setting.name), f"--{setting.name.replace('_', '-')}"
            if value == setting.default:
                continue
            if isinstance(value, Mapping):
                value = ",".join(f"{strategy}={rate!r}" for strategy, rate in value.items())
            found += [option] if value is True else [option, str(value)]
        return found

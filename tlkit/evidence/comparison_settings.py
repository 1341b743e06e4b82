"""The settings of a comparison, with their help texts; the command line makes its options from them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from tlkit.options import option


@dataclass(frozen=True)
class ComparisonSettings:
    """How strategies are compared; what is None follows from the profile, the model or the strategies."""

    corpus: str | None = option(None, "rust, facts, general or a path; default: TLKIT_CORPUS, else rust")
    seeds: int | None = option(None, "runs of each strategy; default: as the profile says", at_least=1, at_most=1000)
    block_size: int | None = option(
        None, "tokens in a training block; default: 128, or what the model reads at most", at_least=2
    )
    batch_size: int = option(4, "blocks in an optimizer step", at_least=1)
    context: int | None = option(
        None, "tokens in a scoring window; default: 256, or what the model reads at most", at_least=2
    )
    stride: int | None = option(None, "tokens the scoring window moves on by; default: the whole window", at_least=1)
    against: str | None = option(None, "strategy that the others are compared with; default: full")
    learning_rates: str | Path | Mapping[str, float] | None = option(
        None,
        "record of `sweep rates` for this model, or rates such as full=1e-4,lora=1e-3 (which count as not tuned, so "
        "that nothing is ranked by them); default: as recorded for the model, else a short sweep first",
    )
    tune: bool = option(False, "search for the learning rates in a short sweep even where some are recorded")
    device_memory: str | None = option(None, "such as 48MB: play a card of that size on the CPU")
    fallback: bool = option(False, "go on with less when memory runs out")
    spread: bool = option(False, "under torchrun: each process does runs of its own")

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

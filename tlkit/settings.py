"""Settings of a run: how much work it may do, what it trains towards, how a step is carried out."""

import logging
import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

from tlkit.options import check, option

_INSIDE = Path(__file__).parent / "data"  # of a wheel; in the repository the data lie beside the package
DATA = _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Profile:
    """How much work lessons and comparisons do by default."""

    name: str
    train_passages: int | None  # documents used; None: all
    test_passages: int | None
    epochs: float
    seeds: int


# `ci` is for the bundled model, `real` for one of a hundred million parameters on a laptop.
PROFILES = {
    "ci": Profile("ci", train_passages=60, test_passages=40, epochs=1, seeds=3),
    "real": Profile("real", train_passages=200, test_passages=40, epochs=1, seeds=3),
    "laptop": Profile("laptop", train_passages=None, test_passages=None, epochs=2, seeds=3),
    "gpu": Profile("gpu", train_passages=None, test_passages=None, epochs=3, seeds=5),
}


@dataclass(frozen=True)
class TrainingConfig:
    """What to train towards; rates are per optimizer step."""

    learning_rate: float = option(1e-3, "the highest rate, after the warm-up", above=0)
    epochs: float = option(1, "passes over the training text, such as 0.5", above=0, at_most=1_000_000)
    batch_size: int = option(8, "blocks in one optimizer step", at_least=1)
    optimizer: str = option("adamw", "what takes the steps; sgd is without momentum", choices=("adamw", "sgd"))
    warmup_fraction: float = option(0.1, "share of the steps in which the rate rises", at_least=0, at_most=1)
    schedule: str = option("cosine", "how the rate falls after that", choices=("cosine", "linear", "constant"))
    weight_decay: float = option(0.01, "share of each weight that a step at rate 1 would remove", at_least=0)
    max_gradient_norm: float = option(1.0, "longer gradients are cut to it; inf: never", above=0, at_most=math.inf)
    evaluate_every: int | None = option(None, "steps between validation losses; default: once at the end", at_least=1)
    patience: int | None = option(None, "evaluations without gain that end it, with the best weights", at_least=1)
    seed: int = option(0, "of the order of batches and an adapter's first values", at_least=0, at_most=2**32)


@dataclass(frozen=True)
class Plan:
    """How a step is carried out, not what it computes: only rounding and what dropout draws differ"""

    micro_batch_size: int | None = option(None, "blocks in one forward pass; default: the whole batch", at_least=1)
    precision: str = option("fp32", "of the arithmetic; bf16 is autocast", choices=("fp32", "bf16"))
    chunked_loss: bool = option(False, "compute head and loss in pieces, without all logits at once")
    activation_checkpointing: bool = option(False, "compute activations again in the backward pass")
    offload_activations: bool = option(False, "keep activations on the host until the backward pass")
    offload_optimizer: bool = option(False, "keep the optimizer's moments and update on the host")
    train_on_host: bool = False  # weights and evaluation too


def check_settings_alone(config: TrainingConfig, plan: Plan) -> None:
    """Refuse what is wrong whatever the model and data."""
    check(config)
    check(plan)
    if plan.micro_batch_size is not None and plan.micro_batch_size > config.batch_size:
        raise ValueError(f"micro_batch_size={plan.micro_batch_size}: expected 1 to batch_size={config.batch_size}")


def setup(profile: str | None = None) -> Profile:
    """Make a run repeatable and quiet.

    Args:
        profile: a name in `PROFILES`; None for `TLKIT_PROFILE`, else "ci".
    """
    name = profile or os.environ.get("TLKIT_PROFILE") or "ci"
    if name not in PROFILES:
        raise ValueError(f"profile {name!r}: expected {', '.join(PROFILES)}")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    import torch
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils import logging as of_transformers

    # Of TRL and peft: names that transformers 5 has replaced, and positions counted where a prompt is learned.
    warnings.filterwarnings("ignore", message="`(is_)?gradient_checkpointing")
    warnings.filterwarnings("ignore", message="Position ids are not supported")
    of_transformers.set_verbosity_error()
    of_transformers.disable_progress_bar()  # of weights being loaded, a second on disk
    enable_progress_bars()  # of downloads
    # On CPUs with bf16 it asks for a package that would fetch code from the network; qlora works without.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    torch.manual_seed(0)
    return PROFILES[name]

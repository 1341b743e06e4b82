"""Files of validation tiers: read, checked field by field, and refused with the field's name."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

from tlkit.evidence.learning_rates import default_rates
from tlkit.fitting.estimate import DTYPES
from tlkit.memory import parse_size
from tlkit.models import PRESETS, architecture
from tlkit.settings import DATA
from tlkit.steps import Plan
from tlkit.strategies import STRATEGIES

FOLDER = DATA / "tiers"
TIER_NAMES = ("quick", "convergence", "memory", "extended", "full")
# What a tier can ask of a run; `tiers.py` has a judge for each.
CRITERIA = (
    "completes",
    "gradients_flow",
    "loss_falls_percent",
    "smoothed_loss_decreases",
    "memory_within_limit",
    "memory_growth_percent",
    "throughput_varies_percent",
    "checkpoint_reloads",
)


@dataclass(frozen=True)
class Tier:
    """What to train, for how long, within which memory (bytes), and what it must show."""

    name: str
    model: str
    strategy: str
    dtype: str
    corpus: str
    steps: int
    batch_size: int
    sequence_length: int
    learning_rate: float
    required_memory: int
    criteria: dict[str, float | bool]
    lora: dict | None = None
    quantization: dict | None = None
    activation_checkpointing: bool = False

    @property
    def plan(self) -> Plan:
        return Plan(activation_checkpointing=self.activation_checkpointing)


def load_tier(name: str, *, model: str | None = None, folder: Path = FOLDER) -> Tier:
    """Read and check a tier's file; `model` takes the place of its model, in blocks that it can read.

    Raises ValueError that names file, field and what is allowed: for unknown fields, missing ones, wrong values.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        there = ", ".join(p.stem for p in sorted(folder.glob("*.yaml"))) or "none"
        raise ValueError(f"tier {name!r} is unknown: expected one of {there}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name}: no valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path.name}: expected fields with values")
    known = {field.name for field in fields(Tier)} - {"name"}
    optional = {"lora", "quantization", "activation_checkpointing"}
    for field in content:
        if field not in known:
            raise ValueError(f"{path.name}: field {field!r} is unknown: expected {', '.join(sorted(known))}")
    for field in sorted(known - optional - set(content)):
        raise ValueError(f"{path.name}: field {field!r} is missing")
    for field, value in content.items():
        _check(f"{path.name}: {field}", value, RULES[field])
    if (content["strategy"] == "qlora") != ("quantization" in content):
        raise ValueError(f"{path.name}: quantization: expected with strategy qlora, and with no other")
    if "lora" in content and content["strategy"] not in ("lora", "qlora"):
        raise ValueError(f"{path.name}: lora: expected with strategy lora or qlora only")
    try:
        content["required_memory"] = parse_size(content["required_memory"])
    except ValueError as error:
        raise ValueError(f"{path.name}: required_memory: {error}") from None
    tier = Tier(name, **content)
    return _with_model(tier, model) if model else tier


def _with_model(tier: Tier, model: str) -> Tier:
    """The tier on another model: in blocks that it can read, and with its own learning rate where that is recorded."""
    limit = getattr(architecture(model), "max_position_embeddings", tier.sequence_length)
    rate = default_rates()[tier.strategy] if model == "tiny" else tier.learning_rate
    return replace(tier, model=model, sequence_length=min(tier.sequence_length, limit), learning_rate=rate)


def _positive(kind: type) -> tuple[Callable, str]:
    described = "a whole number above 0" if kind is int else "a number above 0"
    kinds = (int,) if kind is int else (int, float)
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool) and value > 0, described


def _one_of(*allowed: str) -> tuple[Callable, str]:
    return lambda value: value in allowed, f"one of {', '.join(allowed)}"


_TRUTH = (lambda value: isinstance(value, bool), "true or false")
_TEXT = (lambda value: isinstance(value, str) and value != "", "a text")
_LAYERS = (
    lambda value: value == "all-linear" or (isinstance(value, list) and all(isinstance(v, str) for v in value)),
    "all-linear or a list of names",
)
_SHARE = (lambda value: isinstance(value, int | float) and 0 <= value < 1, "a number from 0 to below 1")
# For each field a test and what it expects, or for a field with fields of its own, theirs.
RULES: dict[str, tuple | dict] = {
    "model": (_TEXT[0], f"a preset ({', '.join(PRESETS)}), a folder or a hub id"),
    "strategy": _one_of(*STRATEGIES),
    "dtype": _one_of(*DTYPES),
    "corpus": _TEXT,
    "steps": _positive(int),
    "batch_size": _positive(int),
    "sequence_length": _positive(int),
    "learning_rate": _positive(float),
    "required_memory": (lambda value: isinstance(value, str), "a size such as 48MB or 8GB"),
    "activation_checkpointing": _TRUTH,
    "lora": {"r": _positive(int), "alpha": _positive(float), "dropout": _SHARE, "targets": _LAYERS},
    "quantization": {"type": _one_of("nf4"), "double": (lambda value: value is True, "true")},
    "criteria": {name: _positive(float) if name.endswith("percent") else _TRUTH for name in CRITERIA},
}


def _check(where: str, value: object, rule: tuple | dict) -> None:
    if isinstance(rule, dict):
        if not isinstance(value, dict) or not value:
            raise ValueError(f"{where} is {value!r}: expected some of {', '.join(rule)}")
        for field, inner in value.items():
            if field not in rule:
                raise ValueError(f"{where}: {field!r} is unknown: expected {', '.join(rule)}")
            _check(f"{where}: {field}", inner, rule[field])
        return
    holds, expected = rule
    if not holds(value):
        raise ValueError(f"{where} is {value!r}: expected {expected}")

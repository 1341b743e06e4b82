"""Files of validation tiers: read, checked against a JSON schema, and refused with the field's name."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tlkit.evidence.learning_rates import default_rates
from tlkit.fitting.estimate import DTYPES
from tlkit.memory import parse_size
from tlkit.models import PRESETS, longest_input, meta_model
from tlkit.settings import DATA
from tlkit.steps import Plan
from tlkit.strategies import STRATEGIES

FOLDER = DATA / "tiers"
TIER_NAMES = ("quick", "convergence", "memory", "extended", "full")

# Of each value the schema's `description` says what is expected, in the words of the error.
_COUNT = {"type": "integer", "minimum": 1, "description": "a whole number above 0"}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0, "description": "a number above 0"}
_TRUTH = {"type": "boolean", "description": "true or false"}
_TEXT = {"type": "string", "minLength": 1, "description": "a text"}


def _one_of(*allowed: object) -> dict:
    return {"enum": list(allowed), "description": f"one of {', '.join(map(str, allowed))}"}


def _fields(known: dict[str, dict], required: tuple[str, ...] = ()) -> dict:
    """A mapping with at least one of the known fields, with all that are required, and with no others."""
    return {
        "type": "object",
        "properties": known,
        "required": list(required),
        "additionalProperties": False,
        "minProperties": 1,
        "description": f"some of {', '.join(known)}",
    }


# What a tier can ask of a run; `tiers.py` has a judge for each.
CRITERIA = {
    "completes": _TRUTH,
    "gradients_flow": _TRUTH,
    "loss_falls_percent": _POSITIVE,
    "smoothed_loss_decreases": _TRUTH,
    "memory_within_limit": _TRUTH,
    "memory_growth_percent": _POSITIVE,
    "throughput_varies_percent": _POSITIVE,
    "checkpoint_reloads": _TRUTH,
}
_LORA = {
    "r": _COUNT,
    "alpha": _POSITIVE,
    "dropout": {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "description": "a number from 0 to below 1"},
    "targets": {
        "anyOf": [{"const": "all-linear"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
        "description": "all-linear or a list of names",
    },
}
_REQUIRED = {
    "model": _TEXT | {"description": f"a preset ({', '.join(PRESETS)}), a folder or a hub id"},
    "strategy": _one_of(*STRATEGIES),
    "dtype": _one_of(*DTYPES),
    "corpus": _TEXT,
    "steps": _COUNT,
    "batch_size": _COUNT,
    "sequence_length": _COUNT,
    "learning_rate": _POSITIVE,
    "required_memory": {"type": "string", "description": "a size such as 48MB or 8GB"},
    "criteria": _fields(CRITERIA),
}
_OPTIONAL = {
    "lora": _fields(_LORA),
    "quantization": _fields({"type": _one_of("nf4"), "double": {"const": True, "description": "true"}}),
    "activation_checkpointing": _TRUTH,
}
SCHEMA = _fields(_REQUIRED | _OPTIONAL, tuple(_REQUIRED))


@dataclass(frozen=True)
class Tier:
    """What to train, for how long, within which memory, and what it must show.

    Args:
        name: of the file.
        model: preset, folder or hub id.
        strategy: one of `STRATEGIES`.
        dtype: of the frozen weights and the arithmetic, one of `DTYPES`.
        corpus: name of a corpus.
        steps: optimizer steps.
        batch_size: blocks a step.
        sequence_length: tokens a block.
        learning_rate: the highest of the schedule.
        required_memory: bytes that the step may need.
        criteria: what to judge; a number is the limit in percent.
        lora: options of the adapters, with strategy lora or qlora.
        quantization: options of the 4 bits, with strategy qlora.
        activation_checkpointing: whether activations are computed again on the way back.
    """

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
        """How a step is taken: with activation checkpointing where the file asks for it."""
        return Plan(activation_checkpointing=self.activation_checkpointing)


def load_tier(name: str, *, model: str | None = None, folder: Path = FOLDER) -> Tier:
    """Read and check the file of a tier.

    Args:
        name: the file's name without `.yaml`.
        model: takes the place of the file's model; blocks become no longer than it can read, and the learning rate
            is its own where one is recorded.
        folder: where the files are.

    Raises:
        ValueError: where there is no such file, it is no YAML, or a field is unknown, missing or wrong; the message
            names the file, the field, what was given and what is expected.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        there = ", ".join(p.stem for p in sorted(folder.glob("*.yaml"))) or "none"
        raise ValueError(f"tier {name!r} is unknown: expected one of {there}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        _refuse(content)
        content["required_memory"] = _bytes(content["required_memory"])
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name}: no valid YAML ({' '.join(str(error).split())})") from None
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    tier = Tier(name, **content)
    return _with_model(tier, model) if model else tier


def _refuse(content: object) -> None:
    """Raise ValueError for the first field that is not as the schema says."""
    if not isinstance(content, dict):
        raise ValueError("expected fields with values")
    for error in sorted(_validator().iter_errors(content), key=lambda error: list(error.path)):
        where = "".join(f"{field}: " for field in error.path)
        known = error.schema.get("properties", {})
        if error.validator == "additionalProperties":
            unknown = next(field for field in error.instance if field not in known)
            raise ValueError(f"{where}field {unknown!r} is unknown: expected {', '.join(known)}")
        if error.validator == "required":
            missing = next(field for field in error.validator_value if field not in error.instance)
            raise ValueError(f"{where}field {missing!r} is missing")
        raise ValueError(f"{where.removesuffix(': ')} is {error.instance!r}: expected {error.schema['description']}")
    if (content["strategy"] == "qlora") != ("quantization" in content):
        raise ValueError("quantization: expected with strategy qlora, and with no other")
    if "lora" in content and content["strategy"] not in ("lora", "qlora"):
        raise ValueError("lora: expected with strategy lora or qlora only")


def _validator():
    """The schema's, stricter with numbers: 10.0 is not whole, infinity and NaN are none."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    def whole(_, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def number(_, value: object) -> bool:
        return whole(_, value) or (isinstance(value, float) and math.isfinite(value))

    numbers = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": whole, "number": number})
    return extend(Draft202012Validator, type_checker=numbers)(SCHEMA)


def _bytes(size: str) -> int:
    try:
        return parse_size(size)
    except ValueError as error:
        raise ValueError(f"required_memory: {error}") from None


def _with_model(tier: Tier, model: str) -> Tier:
    """The tier on another model: in blocks that it can read, and with its own learning rate where that is recorded."""
    limit = longest_input(meta_model(model)) or tier.sequence_length
    rate = default_rates()[tier.strategy] if model == "tiny" else tier.learning_rate
    return replace(tier, model=model, sequence_length=min(tier.sequence_length, limit), learning_rate=rate)

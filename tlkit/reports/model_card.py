"""The README of a trained model."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from tlkit.evaluation import PerplexityResult
from tlkit.files import write_text_atomically
from tlkit.models.parts import base_model
from tlkit.models.saving import CARD
from tlkit.presets import PRESETS
from tlkit.strategies import FAMILIES, StrategyReport

TEMPLATE = Path(__file__).with_suffix(".md")


def write_card(folder: Path, text: str) -> bool:
    """Return False where there is a README, which is kept."""
    if (folder / CARD).exists():
        return False
    write_text_atomically(folder / CARD, text)
    return True


def model_card(
    name: str,
    report: StrategyReport,
    settings: Mapping[str, object],  # of the training, as in its run file
    notes: Mapping[str, object],  # what the result depends on besides
    before: PerplexityResult,
    after: PerplexityResult,
) -> str:
    """Front matter as the hub reads it, then sections for people."""
    task, corpus, base = settings["task"], Path(settings["corpus"]).name, base_model(report.model).name_or_path
    is_adapter, base_id = FAMILIES.get(report.strategy) == "peft", hub_id(base)
    pipeline = "text-classification" if task == "classify" else "text-generation"
    score = EvalResult(pipeline, corpus, f"{corpus}, test split", "perplexity", after.perplexity)
    front = ModelCardData(
        model_name=name,
        base_model=base_id,
        license="cc-by-4.0" if base == "tiny" else None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag=pipeline,
        tags=["tlkit", report.strategy],
        eval_results=[score],
    )
    local = ("model", "corpus", "plugin")  # which may name places on this machine
    shown = {key: value for key, value in settings.items() if key not in local and value is not None}
    card = ModelCard.from_template(
        front,
        str(TEMPLATE),
        name=name,
        base=base,
        base_folder=None if base == "tiny" or base_id else Path(base).name,
        base_id=base_id,
        package=PRESETS[base].package if base in PRESETS else None,
        report=report,
        is_adapter=is_adapter,
        task=task,
        quoted=shlex.quote(name),
        corpus=corpus,
        notes={"corpus": corpus, **notes},
        settings=yaml.safe_dump(shown, sort_keys=False, allow_unicode=True),
        before=before,
        after=after,
    )
    return str(card)


def hub_id(base: str) -> str | None:
    """The id of a base model on the hub; None for a folder on this machine and for the bundled model."""
    source = PRESETS[base].source if base in PRESETS else base
    return None if Path(source).is_absolute() or Path(source).exists() else source

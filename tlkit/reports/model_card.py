"""The README of a trained model: what it was made of and how, what it scored, and what it is not good for."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from tlkit.evaluation import PerplexityResult
from tlkit.files import write_text_atomically
from tlkit.models import PRESETS
from tlkit.models.saving import CARD
from tlkit.strategies import FAMILIES, StrategyReport

TEMPLATE = Path(__file__).with_suffix(".md")
# By id on the hub, and in its words.
LICENCES = {
    "tiny": "cc-by-4.0",
    "HuggingFaceTB/SmolLM2-135M": "apache-2.0",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "apache-2.0",
    "Qwen/Qwen2-0.5B": "apache-2.0",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "apache-2.0",
    "meta-llama/Llama-2-7b-hf": "llama2",
}
OF_TEXT = {
    "rust": "CC BY 4.0",
    "facts": "CC BY 4.0",
    "general": "PSF licence (the language reference of CPython)",
}


def write_card(folder: Path, text: str) -> bool:
    """Write a model card where there is none; False where a README is there, which is never replaced."""
    if (folder / CARD).exists():
        return False
    write_text_atomically(folder / CARD, text)
    return True


def model_card(
    name: str,
    base: str,
    report: StrategyReport,
    *,
    data: Mapping[str, object],
    settings: Mapping[str, object],
    before: PerplexityResult,
    after: PerplexityResult,
    provenance: Mapping[str, object],
) -> str:
    """The text of a model card in Markdown: front matter as the hub reads it, then sections for people.

    Args:
        base: its base model, by preset, hub id or folder.
        data: rows about what it was trained on, `corpus` among them.
        settings: of the training, `task` among them; those that are not set are left out.
        provenance: rows about when, where and by what it was trained.
    """
    task, corpus = str(settings["task"]), str(data["corpus"])
    is_adapter, kind = FAMILIES.get(report.strategy) == "peft", "classification" if task == "classify" else "generation"
    score = EvalResult(f"text-{kind}", corpus, f"{corpus}, test split", "perplexity", after.perplexity)
    # Only what is known: the hub refuses a base model that is no id, and an invented licence would be worse than none.
    front = ModelCardData(
        model_name=name,
        base_model=hub_id(base),
        license=LICENCES.get(hub_id(base) or base),
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag=f"text-{kind}",
        tags=["tlkit", report.strategy],
        eval_results=[score],
    )
    trained = {"values trained": f"{report.trainable_values:,} of {report.total_values:,}"}
    chosen = {key.replace("_", " "): value for key, value in settings.items() if value or type(value) in (int, float)}
    return str(
        ModelCard.from_template(
            front,
            str(TEMPLATE),
            name=name,
            base=_shown(base),
            strategy=report.strategy,
            task=task,
            quoted=shlex.quote(name),
            is_adapter=is_adapter,
            for_transformers=hub_id(base) or not is_adapter,
            corpus=corpus,
            data=data,
            settings=trained | chosen,
            before=before,
            after=after,
            provenance={"base model": _shown(base), **provenance},
            cell=_cell,
            package=PRESETS[base].package if base in PRESETS else None,
            from_folder=hub_id(base) is None and base != "tiny",
        )
    )


def hub_id(base: str) -> str | None:
    """The id of a base model on the hub; None for a folder on this machine and for the bundled model."""
    source = PRESETS[base].source if base in PRESETS else base
    return None if Path(source).is_absolute() or Path(source).exists() else source


def _shown(base: str) -> str:
    """A base model for people: of a folder, the last part of its path, which is all that may leave this machine."""
    if base == "tiny":
        return "the bundled model of tlkit (`tiny`)"
    return f"`{base}`" if hub_id(base) else f"the model in the folder `{Path(base).name}`"


def _cell(value: object) -> str:
    """A value as a table of Markdown can show it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_cell(inner)}" for name, inner in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value).replace("|", r"\|").replace("\n", " ")

"""The README of a trained model: what it was made of and how, what it scored, and what it is not good for."""

import hashlib
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from yaml import YAMLError

from tlkit.checkpoints import write_text_atomically
from tlkit.models import PRESETS
from tlkit.models.adapter_folders import CARD
from tlkit.models.merging import AGREES_TO, Merged
from tlkit.reports.training_record import TrainingRecord
from tlkit.strategies import FAMILIES

# By id on the hub, and in its words; of other models only a card in their own folder tells.
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
SEAL = re.compile(r"\n<!-- written by tlkit, sha256 ([0-9a-f]{64}); an edited card is kept -->\n$")


def write_card(folder: Path, record: TrainingRecord | None, base: str, merged: Merged | None = None) -> bool:
    """Write the model card of a folder, unless somebody has written or edited the README that is there.

    Args:
        folder: that a model was saved in.
        record: of its training; None where nothing is known of it.
        base: its base model, by preset, hub id or folder.
        merged: what `merge_adapter` found, where the model was merged.

    Returns:
        False where a README was kept.

    Raises:
        OSError: where the folder cannot be written.
    """
    path = folder / CARD
    if path.exists() and not _is_as_written(path):
        return False
    card = model_card(folder.resolve().name, record, base, merged)
    seal = f"\n<!-- written by tlkit, sha256 {_digest(card)}; an edited card is kept -->\n"
    write_text_atomically(path, card + seal)
    return True


def model_card(name: str, record: TrainingRecord | None, base: str, merged: Merged | None = None) -> str:
    """The text of a model card: front matter as the hub reads it, then sections for people.

    Args:
        name: of the model.
        record: of its training; None where nothing is known of it.
        base: its base model, by preset, hub id or folder.
        merged: what `merge_adapter` found, where the model was merged.

    Returns:
        Markdown with front matter in YAML.
    """
    adapter = merged is None and record is not None and FAMILIES.get(record.strategy) == "peft"
    sections = {
        "Use": _use(name, base, adapter, _task(record)),
        "Data": _data(record),
        "Settings": _settings(record),
        "Results": _results(record),
        "Provenance": _provenance(record, base, merged),
        "Limits": _limits(record, base, merged),
    }
    what = f"{_shown(base)} adapted by `{record.strategy}`" if record else f"{_shown(base)} with an adapter"
    if merged:
        what += ", merged into whole weights"
    body = "".join(f"\n## {title}\n\n{text.strip()}\n" for title, text in sections.items())
    front = _front_matter(name, record, base, adapter)
    return str(ModelCard(f"---\n{front.to_yaml()}\n---\n\n# {name}\n\n{what[0].upper()}{what[1:]}.\n{body}"))


def _front_matter(name: str, record: TrainingRecord | None, base: str, adapter: bool) -> ModelCardData:
    """Only what is known: the hub refuses a base model that is no id, and an invented licence would be worse."""
    results = []
    if record:
        source = {"dataset_type": record.corpus_name, "dataset_name": f"{record.corpus_name}, test split"}
        score = {"metric_type": "perplexity", "metric_value": record.after["perplexity"]}
        results = [EvalResult(task_type=_pipeline(record), **source, **score)]
    return ModelCardData(
        model_name=name if record else None,  # of the results
        base_model=hub_id(base),
        license=_licence(base),
        library_name="peft" if adapter else "transformers",
        pipeline_tag=_pipeline(record),
        tags=["tlkit", *([record.strategy] if record else [])],
        eval_results=results or None,
    )


def hub_id(base: str) -> str | None:
    """The id of a base model on the hub; None for a folder on this machine and for the bundled model."""
    source = PRESETS[base].source if base in PRESETS else base
    return None if Path(source).is_absolute() or Path(source).exists() else source


def _licence(base: str) -> str | None:
    if known := LICENCES.get(hub_id(base) or base):
        return known
    card = Path(base) / CARD
    if not card.is_file():
        return None
    try:
        return ModelCard.load(card, ignore_metadata_errors=True).data.license
    except (ValueError, YAMLError):  # somebody's README, whatever is in it
        return None


def _shown(base: str) -> str:
    """A base model for people: of a folder, the last part of its path, which is all that may leave this machine."""
    if base == "tiny":
        return "the bundled model of tlkit, `tiny`"
    return f"`{base}`" if hub_id(base) else f"the model in the folder `{Path(base).name}`"


def _task(record: TrainingRecord | None) -> str:
    return str(record.settings.get("task", "text")) if record else "text"


def _pipeline(record: TrainingRecord | None) -> str:
    """What the hub calls the task."""
    return "text-classification" if _task(record) == "classify" else "text-generation"


# For each task: the command, the class of transformers, and what is done with the tokenizer and the model.
USES = {
    "text": (
        'generate --model {name} --prompt "In Rust,"',
        "AutoModelForCausalLM",
        """ids = tokenizer("In Rust,", return_tensors="pt")
print(tokenizer.decode(model.generate(**ids, max_new_tokens=30)[0]))""",
    ),
    "answer": (
        'generate --chat --model {name} --prompt "What is a slice?"',
        "AutoModelForCausalLM",
        """messages = [{{"role": "user", "content": "What is a slice?"}}]
options = {{"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}}
ids = tokenizer.apply_chat_template(messages, **options)
print(tokenizer.decode(model.generate(**ids, max_new_tokens=60)[0]))""",
    ),
    "classify": (
        "evaluate --task classify --model {name}",
        "AutoModelForSequenceClassification",
        """ids = tokenizer("A channel sends values to another thread.", return_tensors="pt")
print(model.config.id2label[model(**ids).logits.argmax().item()])""",
    ),
}


USES["conversation"] = USES["answer"]


def _use(name: str, base: str, adapter: bool, task: str) -> str:
    command, kind, used = USES[task]
    plain = f"from transformers import {kind}, AutoTokenizer\n\n"
    plain += f'model = {kind}.from_pretrained("{name}")\n'
    code = (
        ""
        if adapter and not hub_id(base)
        else f"""
```python
{plain}tokenizer = AutoTokenizer.from_pretrained("{name}")
{used.format()}
```
"""
    )
    needs = " The folder holds an adapter; transformers loads it with its base model if peft is installed."
    shell = f"```\npython -m tlkit {command.format(name=shlex.quote(name))}\n```\n"
    return shell + (needs.strip() + "\n" if adapter else "") + code


def _data(record: TrainingRecord | None) -> str:
    if record is None:
        return "Not recorded."
    return _table(
        {
            "corpus": record.corpus_name,
            "licence of the text": OF_TEXT.get(record.corpus_name, "not recorded"),
            "documents trained on": f"{record.training_documents:,}",
            "tokens trained on": f"{record.training_tokens:,}, in blocks of {record.block_size}",
            "SHA-256 of all documents": f"`{record.corpus_sha256}`",
        }
    )


def _settings(record: TrainingRecord | None) -> str:
    if record is None:
        return "Not recorded, except for what `adapter_config.json` said."
    rate = {"learning rate": f"{record.settings['learning_rate']:g} ({record.learning_rate_from})"}
    chosen = {key: value for key, value in record.settings.items() if value not in (None, False)}
    others = {key.replace("_", " "): value for key, value in chosen.items() if key != "learning_rate"}
    trained = f"{record.trainable_values:,} of {record.total_values:,} values"
    options = {f"{record.strategy}: {key}": value for key, value in record.strategy_options.items()}
    return _table({"strategy": f"`{record.strategy}`, {trained}", **options, **rate, **others})


def _results(record: TrainingRecord | None) -> str:
    if record is None:
        return "Not recorded."
    rows = [f"| {when} | {_score(score)} |" for when, score in (("before", record.before), ("after", record.after))]
    after = record.after
    return "\n".join(
        [
            f"On {after['documents']} documents of the test split of {record.corpus_name} ({after['tokens']:,} "
            f"tokens), in windows of {after['context']} tokens that move by {after['stride']}. Only results of the "
            "same documents, window and stride can be compared. The intervals (95%) are over documents.\n",
            "| training | perplexity | interval | bits per byte |",
            "| --- | --- | --- | --- |",
            *rows,
        ]
    )


def _score(score: Mapping) -> str:
    bits = "" if math.isnan(score["bits_per_byte"]) else f"{score['bits_per_byte']:.3f}"  # classes have no bytes
    return f"{score['perplexity']:,.2f} | {score['low']:,.2f} to {score['high']:,.2f} | {bits}"


def _provenance(record: TrainingRecord | None, base: str, merged: Merged | None) -> str:
    rows: dict[str, object] = {"base model": _shown(base)}
    if record:
        stopped = ", stopped early" if record.stopped_early else ""
        where = "of the adapter's folder" if merged else "beside this card"
        rows |= {"trained": record.date, "command": f"`{record.command}`, with the run file {where}"}
        rows |= {"steps": f"{record.steps:,}{stopped}, {record.seconds:,.0f} seconds", "device": record.device}
        rows |= {"versions": record.versions}
    if merged:
        rows["merged by"] = "`python -m tlkit merge`"
        rows["checked"] = (
            f"read back, no logit differs by more than {merged.difference:.1e} from base model and adapter, over "
            f"{merged.tokens} tokens of {merged.texts} texts (allowed: {AGREES_TO:g})"
        )
    return _table(rows)


def _limits(record: TrainingRecord | None, base: str, merged: Merged | None) -> str:
    limits = [
        "What the base model gets wrong, this model may get wrong too; no safety training was added.",
        "It was trained to predict text. Nothing that it writes is a source of facts.",
    ]
    if record:
        limits += [
            f"Only perplexity on one split of one corpus ({record.corpus_name}) was measured: neither knowledge, nor "
            "what was forgotten of other text."
        ]
        limits += record.after["warnings"]
    else:
        limits += ["Nothing was recorded of how the adapter was trained, so no result is stated here."]
    if merged and merged.four_bit_base:
        limits += [
            "The base model was in 4 bits while the adapter was trained. The merged weights keep that rounding, so "
            "they are not the published base model with the adapter added."
        ]
    elif record and record.strategy == "qlora":
        limits += ["The adapter belongs beside the base model in 4 bits (NF4), where it was trained."]
    if base in PRESETS and (package := PRESETS[base].package):
        limits += [f"The base model came from the package {package}: {package.about}."]
    if hub_id(base) is None and base != "tiny":
        limits += ["Its base model was a folder, whose origin is not recorded here."]
    return "\n".join(f"- {limit}" for limit in limits)


def _table(rows: Mapping[str, object]) -> str:
    lines = [f"| {key} | {_cell(value)} |" for key, value in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _cell(value: object) -> str:
    if value is True:
        return "yes"
    if isinstance(value, str) or not isinstance(value, Iterable):
        return str(value).replace("|", r"\|").replace("\n", " ")
    return ", ".join(map(str, value))


def _is_as_written(path: Path) -> bool:
    """Whether a README is a card that nobody has changed since it was written here."""
    text = path.read_text(encoding="utf-8", errors="replace")
    seal = SEAL.search(text)
    return seal is not None and _digest(text[: seal.start()]) == seal[1]


def _digest(card: str) -> str:
    return hashlib.sha256(card.encode()).hexdigest()

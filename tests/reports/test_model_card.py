"""A model card says what the run was, no more than is known, and never replaces what somebody wrote."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from tlkit.cli import main
from tlkit.models.merging import Merged
from tlkit.reports.model_card import hub_id, model_card, write_card
from tlkit.reports.training_record import RECORD, TrainingRecord, save_training_record, training_record

SCORE = {
    "low": 70.5,
    "high": 90.25,
    "bits_per_byte": 1.9,
    "tokens": 5499,
    "documents": 40,
    "context": 256,
    "stride": 128,
}
DONE = TrainingRecord(
    strategy="qlora",
    strategy_options={"r": 4, "targets": ["q_proj", "v_proj"]},
    settings={"learning_rate": 3e-3, "epochs": 2.0, "batch_size": 4, "seed": 7, "patience": None, "chunked_loss": True},
    learning_rate_from="recorded for tiny",
    trainable_values=1234,
    total_values=56789,
    corpus_name="rust",
    corpus_sha256="ab" * 32,
    training_documents=60,
    training_tokens=8576,
    block_size=128,
    before=SCORE | {"perplexity": 126.24, "warnings": []},
    after=SCORE | {"perplexity": 1079.954, "warnings": ["only 200 tokens were scored"]},
    steps=34,
    seconds=12.0,
    stopped_early=True,
    date="2026-11-22 13:07 UTC",
    device="cpu: here",
    versions="torch 2",
    command="python -m tlkit train --run-file run.yaml --output OTHER",
)
MERGED = Merged(Path("m"), "tiny", "LORA", True, 56789, 2.5e-6, 6, 300)


def front_matter(text: str) -> dict:
    """By YAML alone, as the hub reads it."""
    return yaml.safe_load(text.split("---\n")[1])


@pytest.mark.parametrize("merged", [None, MERGED])
def test_the_card_has_the_figures_of_the_run(merged):
    text = model_card("mine", DONE, "tiny", merged)
    found = front_matter(text)
    assert found["model-index"][0]["results"][0]["metrics"] == [{"type": "perplexity", "value": 1079.954}]
    assert ModelCard(text).data.to_dict() == found
    for part in (
        "| before | 126.24 | 70.50 to 90.25 | 1.900 |",
        "| after | 1,079.95 | 70.50 to 90.25 | 1.900 |",
        "On 40 documents of the test split of rust (5,499 tokens), in windows of 256 tokens that move by 128",
        "| learning rate | 0.003 (recorded for tiny) |",
        "| qlora: targets | q_proj, v_proj |",
        "| seed | 7 |",
        "| chunked loss | yes |",
        "| documents trained on | 60 |",
        "ab" * 32,
        "| steps | 34, stopped early, 12 seconds |",
        "`python -m tlkit train --run-file run.yaml --output OTHER`",
        "- only 200 tokens were scored",
    ):
        assert part in text
    assert "patience" not in text
    assert ("no logit differs by more than 2.5e-06" in text) == bool(merged)
    assert found["library_name"] == ("transformers" if merged else "peft")
    assert ("keep that rounding" in text) == bool(merged) != ("belongs beside the base model in 4 bits" in text)


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("tiny", (None, "cc-by-4.0")),
        ("Qwen/Qwen2-0.5B", ("Qwen/Qwen2-0.5B", "apache-2.0")),
        ("smollm2-135m", ("HuggingFaceTB/SmolLM2-135M", "apache-2.0")),
        ("somebody/unknown", ("somebody/unknown", None)),
    ],
)
def test_front_matter_says_only_what_is_known(base, expected):
    found = front_matter(model_card("mine", DONE, base))
    assert (found.get("base_model"), found.get("license")) == expected and hub_id(base) == expected[0]


def test_weights_that_were_rounded_before_they_were_published_are_said_to_be():
    assert "its publisher rounded these weights to 4 bits" in model_card("mine", DONE, "smollm2-135m-instruct")
    assert "rounded these weights" not in model_card("mine", DONE, "HuggingFaceTB/SmolLM2-135M-Instruct")


def test_a_base_model_in_a_folder_is_not_named_by_its_path(tmp_path):
    base = tmp_path / "secret" / "base"
    base.mkdir(parents=True)
    text = model_card("mine", DONE, str(base), MERGED)
    assert "the model in the folder `base`" in text and "secret" not in text
    assert not {"base_model", "license"} & set(front_matter(text))
    (base / "README.md").write_text("---\nlicense: mit\n---\nA card.")
    assert front_matter(model_card("mine", DONE, str(base)))["license"] == "mit"
    (base / "README.md").write_text("---\na: [\n---\nNo card.")
    assert "license" not in front_matter(model_card("mine", DONE, str(base)))


def test_of_an_adapter_without_a_record_nothing_is_invented():
    text = model_card("mine", None, "tiny", replace(MERGED, four_bit_base=False))
    assert (
        not {"model-index", "model_name"} & set(front_matter(text)) and "| after |" not in text and "4 bits" not in text
    )
    assert text.count("Not recorded") == 3 and "Nothing was recorded of how the adapter was trained" in text


def test_what_somebody_wrote_or_edited_is_kept(tmp_path):
    card = tmp_path / "README.md"
    assert write_card(tmp_path, DONE, "tiny")
    assert write_card(tmp_path, replace(DONE, steps=35), "tiny") and "| steps | 35," in card.read_text()
    edited = card.read_text().replace("license: cc-by-4.0", "license: mit")
    for text in (edited, "Mine.", "", "\ufeffMine, too"):
        card.write_text(text, encoding="utf-8")
        assert not write_card(tmp_path, DONE, "tiny") and card.read_text(encoding="utf-8") == text


def test_a_record_belongs_to_the_weights_beside_it(tmp_path):
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(b"these")
    assert training_record(tmp_path) is None
    save_training_record(tmp_path, DONE)
    assert training_record(tmp_path) == DONE
    weights.write_bytes(b"others")
    assert training_record(tmp_path) is None
    for text in ("{", "[]", json.dumps({"weights_sha256": ""})):
        (tmp_path / RECORD).write_text(text)
        with pytest.raises(ValueError, match="is no record of a training") as caught:
            training_record(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "pipeline", "command", "kind"),
    [
        ("answer", "text-generation", "generate --chat --model m", "apply_chat_template"),
        ("classify", "text-classification", "evaluate --task classify --model m", "AutoModelForSequenceClassification"),
    ],
)
def test_a_card_says_how_a_model_of_another_task_is_used(task, pipeline, command, kind, tmp_path, capsys, shallow):
    out = tmp_path / "m"
    settings = ["--task", task, "--strategy", "last_layers", "--learning-rate", "0.001", "--epochs", "0.1"]
    assert main(["train", *settings, "--output", str(out)]) == 0, capsys.readouterr().err
    text = (out / "README.md").read_text(encoding="utf-8")
    assert front_matter(text)["pipeline_tag"] == pipeline
    assert command in text and kind in text and "| nan" not in text
    code = text.split("```python\n")[1].split("```")[0].replace('"m"', repr(str(out)))
    exec(code, {})
    assert capsys.readouterr().out.strip()

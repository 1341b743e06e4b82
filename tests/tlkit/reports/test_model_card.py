"""A model card says what the run was, no more than is known, and never replaces what somebody wrote."""

from dataclasses import replace

import pytest
import yaml
from huggingface_hub import ModelCard

from tlkit.cli import main
from tlkit.evaluation import PerplexityResult
from tlkit.models import meta_model
from tlkit.reports.model_card import hub_id, model_card, write_card
from tlkit.strategies import apply_strategy

BEFORE = PerplexityResult(126.24, 70.5, 90.25, 4.8, 1.9, 5499, 40, (), 256, 128, (), ())
AFTER = replace(BEFORE, perplexity=1079.954, bits_per_byte=float("nan"), warnings=("only 200 tokens were scored",))
SETTINGS = {"task": "text", "corpus": "rust", "learning_rate": 0.003, "chunked_loss": True, "patience": None, "seed": 0}
SETTINGS |= {"strategy_option": {"r": 4, "targets": ["q_proj", "v_proj"]}}
NOTES = {
    "documents": "99 documents found",
    "opened by": "<|end|>",
    "learning rate": "recorded for tiny",
    "steps": "34 in 9 seconds",
}
TOLD = (SETTINGS, NOTES, BEFORE, AFTER)


@pytest.fixture(scope="module")
def report():
    return apply_strategy(meta_model("tiny"), "lora")


def card_of(report, name: str = "m", base: str = "tiny") -> str:
    """The card of a model that was made from `base`."""
    report.model.get_base_model().name_or_path = base
    return model_card(name, report, *TOLD)


def front_matter(text: str) -> dict:
    """By YAML alone, as the hub reads it."""
    return yaml.safe_load(text.split("---\n")[1])


def test_the_card_has_the_figures_of_the_run(report):
    text = card_of(report, "a|b")
    found = front_matter(text)
    assert found["model-index"][0]["results"][0]["metrics"] == [{"type": "perplexity", "value": 1079.954}]
    assert ModelCard(text).data.to_dict() == found and found["library_name"] == "peft"
    for part in (
        "| before | 126.24 | 70.50 to 90.25 | 1.900 |\n| after | 1,079.95 | 70.50 to 90.25 |  |\n",
        "On 40 documents of the test split of rust (5,499 tokens), in windows of 256 tokens that move by 128",
        f"Of {report.total_parameters:,} parameters {report.trainable_parameters:,} were trained, with\n\n",
        "```yaml\ntask: text\n",
        "learning_rate: 0.003\nchunked_loss: true\nseed: 0\n",
        "strategy_option:\n  r: 4\n  targets:\n  - q_proj\n  - v_proj\n```\n",
        "| learning rate | recorded for tiny |",
        "| documents | 99 documents found |\n| opened by | <\\|end\\|> |\n",
        "| steps | 34 in 9 seconds |",
        "Made from the bundled model of tlkit (`tiny`) by `lora`",
        "\n- only 200 tokens were scored\n",
    ):
        assert part in text, part
    assert "patience" not in text and "\n\n\n" not in text


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("tiny", (None, "cc-by-4.0")),
        ("Qwen/Qwen2-0.5B", ("Qwen/Qwen2-0.5B", None)),
        ("smollm2-135m", ("HuggingFaceTB/SmolLM2-135M", None)),
    ],
)
def test_front_matter_says_only_what_is_known(base, expected, report):
    found = front_matter(card_of(report, "mine", base))
    assert (found.get("base_model"), found.get("license")) == expected and hub_id(base) == expected[0]


def test_limits_are_those_of_the_base_model(report, tmp_path):
    """Rounded before it was published, in 4 bits beside the adapter, or a folder, whose path is nobody's business."""
    assert "its publisher rounded these weights to 4 bits" in card_of(report, base="smollm2-135m-instruct")
    plain = card_of(report, base="HuggingFaceTB/SmolLM2-135M-Instruct")
    assert "rounded these weights" not in plain and "4 bits" not in plain
    assert "beside the base model in 4 bits" in card_of(replace(report, strategy="qlora"))
    base = tmp_path / "secret" / "base"
    base.mkdir(parents=True)
    text = card_of(report, base=str(base))
    assert "the model in the folder `base`" in text and "secret" not in text and "origin is not recorded" in text
    assert not {"base_model", "license"} & set(front_matter(text))


def test_a_readme_that_is_there_is_kept(tmp_path):
    card = tmp_path / "README.md"
    assert write_card(tmp_path, "A card.") and card.read_text() == "A card."
    assert not write_card(tmp_path, "Another.") and card.read_text() == "A card."


@pytest.mark.parametrize(
    ("task", "pipeline", "command", "kind"),
    [
        ("text", "text-generation", 'generate --model m --prompt "In Rust,"', "model.generate(**ids"),
        ("answer", "text-generation", "generate --chat --model m", "apply_chat_template"),
        ("classify", "text-classification", "evaluate --task classify --model m", "AutoModelForSequenceClassification"),
    ],
)
def test_the_code_of_a_card_runs(task, pipeline, command, kind, tmp_path, capsys, shallow):
    out = tmp_path / "m"
    settings = ["--task", task, "--strategy", "last_layers", "--learning-rate", "0.001", "--epochs", "0.1"]
    assert main(["train", *settings, "--output", str(out)]) == 0, capsys.readouterr().err
    text = (out / "README.md").read_text(encoding="utf-8")
    assert front_matter(text)["pipeline_tag"] == pipeline and str(tmp_path) not in text
    assert command in text and kind in text and "| nan" not in text
    code = text.split("```python\n")[1].split("```")[0].replace('"m"', repr(str(out)))
    exec(code, {})
    assert capsys.readouterr().out.strip()

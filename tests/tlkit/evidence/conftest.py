"""A model of nobody's: two blocks, width 32, random weights, the bundled tokenizer; it reads 64 tokens."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tlkit.presets import BUNDLED
from tlkit.settings import setup


@pytest.fixture(autouse=True)
def little_beside_the_runs(monkeypatch):
    """An export draws no chart, as tests/tlkit/reports draws them all."""
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {})


def save_small_model(folder: Path, kind: str = "qwen2") -> str:
    config = AutoConfig.for_model(
        kind,
        vocab_size=4096,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(BUNDLED).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory) -> str:
    """A careless reader takes its name for a template, for two words and for a comment."""
    setup()
    return save_small_model(tmp_path_factory.mktemp("models") / "my {model} #1")


@pytest.fixture(scope="session")
def without_biases(tmp_path_factory) -> str:
    """One that bitfit cannot train."""
    setup()
    return save_small_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture(scope="session")
def experts(tmp_path_factory) -> str:
    """A mixture, most of whose parameters are in no linear layer."""
    setup()
    return save_small_model(tmp_path_factory.mktemp("models") / "mixtral", "mixtral")

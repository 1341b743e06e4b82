"""Each fault of the published reports, planted, and the check that catches it; and what is sound, which must pass."""

import pandas as pd
import pytest
from safetensors.torch import save_file

from tlkit.corpus import load_corpus, pack
from tlkit.evaluation import perplexity
from tlkit.evidence.statistics import compare_pairs, rank_intervals
from tlkit.models import architecture, load_model, meta_model
from tlkit.presets import BUNDLED
from tlkit.strategies import describe


def test_weights_that_never_loaded(tmp_path, tiny):
    for file in BUNDLED.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    misnamed = {f"other.{name}": tensor.clone() for name, tensor in tiny.model.named_parameters()}
    save_file(misnamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RuntimeError, match="random"):
        load_model(tmp_path)
    texts = load_corpus("rust").validation[:10]
    random = perplexity(load_model("tiny", random_init=True).model, tiny.tokenizer, texts)
    assert any("guessing" in said for said in random.warnings)
    assert perplexity(tiny.model, tiny.tokenizer, texts).warnings == ()


def test_layers_matched_by_a_piece_of_their_name():
    config = architecture("qwen2-0.5b")
    config.tie_word_embeddings = False
    model = meta_model(config)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not any(f"layers.{number}" in name for number in range(12)))
    wrong = describe(model)
    assert (wrong.trainable_tensors, wrong.total_tensors) == (3, 291)
    assert (wrong.trainable_parameters, wrong.total_parameters) == (272_270_208, 630_167_424)


def test_norms_matched_by_their_name():
    model = meta_model("qwen2-0.5b")
    wanted = ("layers.22.", "layers.23.", "lm_head", "norm")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(part in name for part in wanted))
    found = describe(model)
    assert found.trainable_parameters == 29_865_088 and found.components["embedding"].trainable_parameters == 0


def test_a_ranking_from_one_block(tiny):
    text = tiny.tokenizer.decode(pack(load_corpus("rust").validation, tiny.tokenizer, 32)[0, 1:])
    assert any("tokens" in said for said in perplexity(tiny.model, tiny.tokenizer, [text]).warnings)
    scores = pd.DataFrame(
        {"strategy": ["a", "b", "c"], "seed": 0, "document": 0, "nats": [0.1, 9.0, 200.0], "tokens": 31}
    )
    assert set(rank_intervals(compare_pairs(scores), ["a", "b", "c"])) == {""}

"""LoRA beside 4-bit weights: the same as by transformers and peft alone, counted and kept as it should be."""

import sys

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from tlkit.models import load_model
from tlkit.models.parts import is_tied
from tlkit.presets import PRESETS
from tlkit.quantization import dequantized, logical_size
from tlkit.steps import Plan, TrainingState, accumulate_gradients
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, batch_at, learning_rate_factor, train

BLOCKS = torch.randint(4096, (20, 32), generator=torch.Generator().manual_seed(0))
CONFIG = TrainingConfig(learning_rate=5e-3, batch_size=2)  # ten steps


def by_the_libraries():
    """The same model, made without this package."""
    packed = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    )
    source = PRESETS["tiny"].source
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, quantization_config=packed, device_map="cpu"
    )
    torch.manual_seed(0)
    return get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))


def adapted():
    model = load_model("tiny").model
    torch.manual_seed(0)
    return apply_strategy(model, "qlora")


def test_ten_steps_have_the_losses_of_peft_and_transformers(shallow):
    """1e-5 relative: fp32, the same seed, batches and kernels; only the order of sums differs."""
    found = train(adapted().model, BLOCKS, CONFIG).history.loss
    model, expected = by_the_libraries(), []
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.0, weight_decay=0.01)
    for step in range(10):
        batch = batch_at(step, BLOCKS, CONFIG)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = CONFIG.learning_rate * learning_rate_factor(step, 10, CONFIG)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert len(found) == 10 and found.iloc[-1] < found.iloc[0]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("strategy", ["lora", "qlora"])
def test_a_model_published_in_four_bits_is_trained_as_peft_trains_it(strategy, shallow, tmp_path):
    """With double quantisation, as most of them: its packed layers stay as they are."""
    by_the_libraries().unload().save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(PRESETS["tiny"].source).save_pretrained(tmp_path)
    reports = []
    for name in ("tiny", tmp_path):
        model = load_model(name).model
        torch.manual_seed(0)
        reports.append(apply_strategy(model, strategy if name == tmp_path else "qlora"))
    expected, losses = (train(report.model, BLOCKS[:6], CONFIG).history.loss.tolist() for report in reports)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert reports[0].total_parameters == reports[1].total_parameters
    for classic in ("full", "last_layers", "gradual_unfreezing"):
        with pytest.raises(ValueError, match="packed in 4 bits: choose lora or qlora"):
            apply_strategy(load_model(tmp_path).model, classic)


def test_only_the_linear_layers_of_the_blocks_change(shallow):
    report, base = adapted(), load_model("tiny").model
    model = report.model.get_base_model()
    assert is_tied(model) and model.get_input_embeddings().weight.dtype == torch.float32
    assert torch.equal(model.get_input_embeddings().weight, base.get_input_embeddings().weight)
    packed = {name: p for name, p in model.named_parameters() if logical_size(p) != p.numel()}
    assert len(packed) == 3 * 7
    for name, parameter in packed.items():
        original = base.get_parameter(name.replace("base_layer.", ""))
        error = (dequantized(parameter) - original).norm() / original.norm()
        # Sixteen values for normally distributed weights: about 9% of their size (Dettmers et al. 2023).
        assert 0.06 < error < 0.12, name
    for name, parameter in model.named_parameters():
        if "lora_" not in name and name not in packed:
            assert torch.equal(parameter, base.get_parameter(name.replace("base_layer.", ""))), name


def test_checkpointing_changes_no_gradient_and_evaluation_stops_none(shallow):
    """1e-6 relative: the same kernels, run again."""
    report = adapted()
    norms = []
    for plan in (Plan(), Plan(activation_checkpointing=True)):
        report.model.eval()
        with torch.no_grad():
            report.model(BLOCKS[:1])
        state = TrainingState(report.model)
        accumulate_gradients(report.model, BLOCKS[:2], plan)
        norms.append(torch.stack([p.grad.norm() for p in state.parameters if p.grad is not None]))
        assert len(norms[-1]) == report.trainable_tensors
        state.drop_gradients()
    assert torch.allclose(*norms, rtol=1e-6)
    layers = [m for m in report.model.modules() if hasattr(m, "support_avx512bf16_for_cpu")]
    assert layers and not any(layer.support_avx512bf16_for_cpu for layer in layers)


def test_its_adapters_are_read_by_peft_alone(tmp_path, shallow):
    report = adapted()
    train(report.model, BLOCKS[:6], CONFIG)
    report.model.save_pretrained(tmp_path)
    plain = by_the_libraries().unload()
    loaded = PeftModel.from_pretrained(plain, tmp_path).eval()
    for layer in loaded.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):  # processors that have it would evaluate in bf16
            layer.support_avx512bf16_for_cpu = False
    with torch.no_grad():
        found, expected = loaded(BLOCKS[:2]).logits, report.model.eval()(BLOCKS[:2]).logits
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * expected.abs().max())


def test_what_is_missing_is_said(monkeypatch):
    from transformers import GPT2Config

    small = AutoModelForCausalLM.from_config(GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=97, n_positions=32))
    with pytest.raises(ValueError, match="qlora: .* no linear layers"):
        apply_strategy(small, "qlora")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ValueError, match="need the package bitsandbytes.*pip install bitsandbytes.*or choose lora"):
        adapted()

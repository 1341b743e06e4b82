"""The ladder: which rungs there are, what each says about itself, and models of which nothing is known beforehand."""

import pytest
import torch
from small_models import weights_of
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.devices import probe
from tlkit.fitting.estimate import CannotEstimate, MemoryEstimate, estimate_memory
from tlkit.fitting.fallback import LADDER, descend, train_with_fallback
from tlkit.memory import virtual_device
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

CONFIG = TrainingConfig(1e-3, batch_size=4)
BLOCKS = torch.randint(64, (8, 32), generator=torch.Generator().manual_seed(0))
SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
EXPERTS = {
    "mixtral": {"num_local_experts": 4},
    "jetmoe": {"num_local_experts": 4, "kv_channels": 8},  # counts the tokens of each expert in Python
}


def tiny(kind: str = "qwen2", strategy: str = "full", **options):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES, num_key_value_heads=2, **EXPERTS.get(kind, {}))
    return apply_strategy(AutoModelForCausalLM.from_config(config), strategy, **options).model


@pytest.fixture
def always_less(monkeypatch):
    """Estimates out of thin air, so that every rung is offered: each is a hundredth less than the one before."""
    sizes = (MemoryEstimate({"weights": int(2**40 * 0.98**n)}, {"forward pass": 1}) for n in range(100))
    monkeypatch.setattr("tlkit.fitting.fallback.estimate_memory", lambda model, **question: next(sizes))


def test_a_processor_is_offered_what_needs_no_other_memory_and_a_card_all(always_less):
    offered = [
        list(dict.fromkeys(rung.name for rung in descend(tiny(), BLOCKS[:4], Plan(), device, None, "adamw")))
        for device in (probe("cpu"), virtual_device(memory="1GiB"))
    ]
    assert offered == [["as planned", *list(LADDER)[:4]], ["as planned", *LADDER]]


def test_experts_are_estimated_and_the_ladder_foresees():
    reference, model = tiny("mixtral"), tiny("mixtral")
    train(reference, BLOCKS, CONFIG)
    whole = estimate_memory(model, batch_size=4, sequence_length=32).peak
    card = virtual_device(memory=f"{0.98 * whole / 2**20:.4f}MiB")
    _, log = train_with_fallback(model, BLOCKS, CONFIG, device=card)
    assert log.table.failed_in.iloc[0] == "not tried" and log.table.failed_in.iloc[-1] == ""
    assert (log.table.action == "training").sum() == 1 and card.peak <= card.budget
    torch.testing.assert_close(weights_of(model), weights_of(reference), rtol=0, atol=1e-4)


def test_what_cannot_be_estimated_descends_by_real_errors():
    reference, model = tiny("jetmoe"), tiny("jetmoe")
    with pytest.raises(CannotEstimate, match="memory of JetMoeForCausalLM cannot be estimated: .*contents") as caught:
        estimate_memory(model, batch_size=4, sequence_length=32)
    assert len(str(caught.value).splitlines()) == 1

    result = train(reference, BLOCKS, CONFIG)
    card = virtual_device(memory=f"{0.8 * result.peak_memory / 2**20:.4f}MiB")
    fallen, log = train_with_fallback(model, BLOCKS, CONFIG, device=card)
    assert set(log.table.action) == {"training"} and log.table.failed_in.iloc[0] != ""
    assert log.table.note.str.contains("cannot be estimated").all()
    assert log.table.steps_done.sum() == 2 and card.peak <= card.budget
    assert fallen.history.loss.tolist() == pytest.approx(result.history.loss.tolist(), rel=1e-4)

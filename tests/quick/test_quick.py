"""What must never break, in under a minute: models of two blocks, one process, no network.

Each test holds the product against a computation of its own;
the larger suites look at the same promises from all sides.
"""

import copy

import peft
import pytest
import torch
from interrupted import assert_goes_on_bit_for_bit
from transformers import Qwen2Config, Qwen2ForCausalLM

from course.exercises import check
from tlkit.corpus import load_corpus
from tlkit.evaluation import perplexity
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.fallback import train_with_fallback
from tlkit.memory import VirtualDevice, virtual_device
from tlkit.models import load_model, save_model
from tlkit.quantization import tensors_of
from tlkit.steps import Plan, TrainingState, take_step
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, batch_at, learning_rate_factor, train

CONFIG = TrainingConfig(1e-2, batch_size=4, epochs=2)
BLOCKS = torch.randint(64, (8, 12), generator=torch.Generator().manual_seed(0))
STEPS = 4


def small_model(**changes) -> Qwen2ForCausalLM:
    """Two blocks of random weights, biases included."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    shape = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    model = Qwen2ForCausalLM(Qwen2Config(**shape, **heads, tie_word_embeddings=True, **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture(scope="module")
def trained():
    """A model trained by the product."""
    model = apply_strategy(small_model(), "full").model
    return model, train(model, BLOCKS, CONFIG).history


def test_training_is_a_plain_loop(trained):
    """Labels, order, schedule, clipping and AdamW by hand; 1e-5: sums of fp32 in another order."""
    model = small_model()
    adamw = torch.optim.AdamW(model.parameters(), lr=CONFIG.learning_rate, weight_decay=CONFIG.weight_decay)
    losses = []
    for step in range(STEPS):
        batch = batch_at(step, BLOCKS, CONFIG)
        logits = model(input_ids=batch).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CONFIG.max_gradient_norm)
        adamw.param_groups[0]["lr"] = CONFIG.learning_rate * learning_rate_factor(step, STEPS, CONFIG)
        adamw.step()
        adamw.zero_grad()
        losses.append(loss.item())
    by_product, history = trained
    torch.testing.assert_close(list(history.loss), losses, rtol=1e-5, atol=0)
    torch.testing.assert_close(flat(by_product), flat(model), rtol=1e-4, atol=1e-6)


def test_smaller_micro_batches_take_the_same_step(trained):
    model = apply_strategy(small_model(), "full").model
    train(model, BLOCKS, CONFIG, plan=Plan(micro_batch_size=3, activation_checkpointing=True))
    torch.testing.assert_close(flat(model), flat(trained[0]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("strategy", "moved"),
    [
        ("freeze_lower", lambda name: "layers.0." not in name),
        ("freeze_embeddings", lambda name: "embed_tokens" not in name),
        ("last_layers", lambda name: "layers.1." in name or "norm" in name),
        ("lora", lambda name: "lora_" in name),
        ("bitfit", lambda name: name.endswith(".bias")),
    ],
)
def test_only_what_a_strategy_trains_moves(strategy, moved):
    options = {"blocks": 1} if strategy == "last_layers" else {}
    model = apply_strategy(small_model(), strategy, **options).model
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train(model, BLOCKS, CONFIG)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {name for name in before if moved(name)}


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    assert_goes_on_bit_for_bit(lambda: apply_strategy(small_model(), "full").model, BLOCKS, CONFIG, 2, tmp_path)


def test_a_saved_adapter_is_peft_s_own(tmp_path):
    tiny = load_model("tiny")
    model = apply_strategy(tiny.model, "lora").model
    train(model, BLOCKS, CONFIG)
    save_model(model, tiny.tokenizer, tmp_path)
    plain = peft.PeftModel.from_pretrained(load_model("tiny").model, tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(BLOCKS).logits, model.eval()(BLOCKS).logits, rtol=1e-5, atol=1e-5)


def test_an_estimate_is_what_a_real_step_takes():
    """0.5%: all but a few scalars is followed."""
    model = apply_strategy(small_model(), "full").model
    estimate = estimate_memory(copy.deepcopy(model), batch_size=4, sequence_length=12)
    with virtual_device(memory="1GiB") as card:
        card.count(tensors_of(model))
        state = TrainingState(model)
        state.apply_plan(Plan())
        take_step(state, BLOCKS[:4], 1e-3)
        card.peak = 0
        take_step(state, BLOCKS[4:], 1e-3)
    assert estimate.peak == pytest.approx(card.peak, rel=0.005)


def test_running_out_of_memory_loses_no_step(trained):
    model = apply_strategy(small_model(), "full").model
    needed = estimate_memory(copy.deepcopy(model), batch_size=4, sequence_length=12).peak
    card = VirtualDevice("a card that is too small", int(0.8 * needed))
    order = ("smaller micro-batch", "smaller micro-batch")
    result, log = train_with_fallback(model, BLOCKS, CONFIG, device=card, order=order)
    assert len(result.history) == STEPS and any(attempt.failed_in for attempt in log.attempts)
    torch.testing.assert_close(flat(model), flat(trained[0]), rtol=1e-4, atol=1e-6)


def test_perplexity_is_that_of_a_float64_computation():
    tiny, texts = load_model("tiny"), load_corpus("rust").test[:1]
    ids = torch.tensor(tiny.tokenizer(texts[0])["input_ids"])[:65]
    text = tiny.tokenizer.decode(ids)
    with torch.no_grad():
        scores = copy.deepcopy(tiny.model).double()(input_ids=ids[None, :-1]).logits[0].log_softmax(-1)
    expected = -scores[torch.arange(len(ids) - 1), ids[1:]].mean().item()
    result = perplexity(tiny.model, tiny.tokenizer, [text], context=256)
    if result.tokens == len(ids) - 1:  # the text is read back as the same tokens
        assert result.nats_per_token == pytest.approx(expected, rel=1e-5)


def test_no_text_is_in_two_splits():
    for name in ("rust", "general", "kitchen"):
        corpus = load_corpus(name)
        splits = [set(corpus.train), set(corpus.validation), set(corpus.test)]
        assert all(not a & b for n, a in enumerate(splits) for b in splits[n + 1 :])


def test_a_right_answer_is_right_and_a_wrong_one_is_told_why():
    assert check("quiz07", "d").passed
    wrong = check("quiz07", "a")
    assert not wrong.passed and "block 0 is at the bottom" in wrong.message

"""What is written behind a prompt: how much, why no more, and the same whatever stands in a model's folder."""

import copy

import pytest
from small_models import generate, greedy, small_model
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from tlkit.models import chat_tokens, continue_tokens, prompt_tokens
from tlkit.presets import BUNDLED

PROMPT = "The function returns"
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant]"


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(BUNDLED)


def test_the_tokens_and_the_reason_are_counted_in_what_was_written(tiny):
    ids = prompt_tokens(tiny.tokenizer, PROMPT)
    expected = greedy(tiny.model, ids, 8)
    freely = continue_tokens(tiny.model, tiny.tokenizer, [ids], new_tokens=8)[0]
    assert (freely.tokens, freely.ended) == (8, False)
    assert freely.text == tiny.tokenizer.decode(expected)
    model = copy.deepcopy(tiny.model)
    model.generation_config.eos_token_id = [4095, expected[2]]
    stopped = continue_tokens(model, tiny.tokenizer, [ids], new_tokens=8)[0]
    assert (stopped.tokens, stopped.ended) == (3, True) and stopped.text == tiny.tokenizer.decode(expected[:3])
    at_the_limit = continue_tokens(model, tiny.tokenizer, [ids], new_tokens=3)[0]
    assert (at_the_limit.tokens, at_the_limit.ended) == (3, True), "it ended by itself, exactly there"


def test_greedy_is_the_likeliest_token_whatever_the_model_was_published_with(tiny):
    """Instruct models come with a repetition penalty, which would forbid the bundled model most of what it writes."""
    model = copy.deepcopy(tiny.model)
    model.generation_config.update(repetition_penalty=5.0, no_repeat_ngram_size=1, num_beams=3, temperature=9.0)
    ids = prompt_tokens(tiny.tokenizer, PROMPT)
    expected = greedy(tiny.model, ids, 11)
    assert len(set(expected)) < 11
    assert generate(model, tiny.tokenizer, [PROMPT], new_tokens=11) == [tiny.tokenizer.decode([*ids, *expected])]


def test_what_opens_a_text_is_before_a_prompt_and_what_closes_one_is_not_behind_it(tokenizer):
    plain = tokenizer(PROMPT)["input_ids"]
    assert prompt_tokens(tokenizer, PROMPT) == plain
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<a> $A <z>", special_tokens=[("<a>", 7), ("<z>", 9)]
    )
    assert tokenizer(PROMPT)["input_ids"] == [7, *plain, 9]
    assert prompt_tokens(tokenizer, PROMPT) == [7, *plain]


def test_a_message_is_put_into_the_models_own_template(tiny, tokenizer):
    with pytest.raises(ValueError, match="has no chat template"):
        chat_tokens(tokenizer, "What is a slice?")
    tokenizer.chat_template = TEMPLATE
    ids = chat_tokens(tokenizer, "What is a slice?")
    assert tokenizer.decode(ids) == "[user] What is a slice?\n[assistant]"
    answer = continue_tokens(tiny.model, tokenizer, [ids], new_tokens=4)[0]
    assert answer.text
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ValueError, match="refuses it: roles must alternate"):
        chat_tokens(tokenizer, "What is a slice?")


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom", "mamba", "rwkv"])
def test_prompts_of_all_lengths_are_continued_together_as_each_alone(kind, tiny):
    """RWKV reads padding as text, so its prompts are continued one at a time."""
    model, shapes = small_model(kind).eval(), []
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5, 4, 3, 9, 11], [3], [4, 4, 12]]
    alone = [continue_tokens(model, tiny.tokenizer, [ids], new_tokens=6)[0] for ids in prompts]
    plain = model.generate
    model.generate = lambda **inputs: shapes.append(tuple(inputs["input_ids"].shape)) or plain(**inputs)
    assert continue_tokens(model, tiny.tokenizer, prompts, new_tokens=6) == alone
    assert shapes[2:] == (
        [(1, 1), (1, 3), (1, 3), (1, 9)] if kind == "rwkv" else [(4, 9)]
    )  # behind two that ask the model
    assert continue_tokens(model, tiny.tokenizer, prompts, new_tokens=6, batch_size=3) == alone
    assert shapes[-1] == (1, 9)

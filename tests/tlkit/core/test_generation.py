"""What is written behind a prompt: how much, why no more, and the same whatever stands in a model's folder."""

import copy

import pytest
import torch
from small_models import small_model
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from tlkit.models import BUNDLED, chat_tokens, continue_tokens, generate, load_model, prompt_tokens
from tlkit.models.passes import logits_of

PROMPT = "The function returns"
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant]"


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(BUNDLED)


def greedy(model, ids: list[int], count: int) -> list[int]:
    """One token after the other, each the likeliest after all before it."""
    row = torch.tensor([ids])
    for _ in range(count):
        row = torch.cat([row, logits_of(model, row)[:, -1:].argmax(-1)], 1)
    return row[0, len(ids) :].tolist()


def test_the_tokens_and_the_reason_are_counted_in_what_was_written(tiny):
    ids = prompt_tokens(tiny.tokenizer, PROMPT)
    expected = greedy(tiny.model, ids, 8)
    freely = continue_tokens(tiny.model, tiny.tokenizer, [ids], new_tokens=8)[0]
    assert (freely.tokens, freely.ended) == (8, False)
    assert freely.text == tiny.tokenizer.decode(expected) and freely.whole == PROMPT + freely.text
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
    assert answer.whole == tokenizer.decode(ids) + answer.text and answer.text
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ValueError, match="cannot be used: roles must alternate"):
        chat_tokens(tokenizer, "What is a slice?")


def test_text_that_no_tokenizer_reads_is_refused(tokenizer):
    tokenizer.chat_template = TEMPLATE
    for encode in (prompt_tokens, chat_tokens):
        with pytest.raises(ValueError, match="not valid text .UTF-8.: see character 3"):
            encode(tokenizer, "ab\udcff")


@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama", "bloom", "mixtral", "mamba", "rwkv"])
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


def test_more_than_the_model_reads_is_one_line(tiny):
    with pytest.raises(ValueError, match="a prompt of 250 tokens and 10 new ones: this model reads at most 256"):
        continue_tokens(tiny.model, tiny.tokenizer, [[5] * 250], new_tokens=10)
    assert continue_tokens(tiny.model, tiny.tokenizer, [[5] * 250], new_tokens=6)[0].tokens <= 6


def test_an_adapter_writes_as_itself():
    from tlkit.strategies import apply_strategy

    loaded = load_model("tiny")
    torch.manual_seed(0)
    adapted = apply_strategy(loaded.model, "lora").model
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    ids = prompt_tokens(loaded.tokenizer, PROMPT)
    expected = greedy(adapted, ids, 8)
    assert continue_tokens(adapted, loaded.tokenizer, [ids], new_tokens=8)[0].text == loaded.tokenizer.decode(expected)
    with adapted.disable_adapter():
        assert greedy(adapted, ids, 8) != expected

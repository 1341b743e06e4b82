"""Conversations become examples as they will be used; each well-known mistake is refused, naming the conversation."""

import json
import re
from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest
import torch
from small_models import small_model
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tlkit.examples import IGNORED, Examples
from tlkit.examples.conversations import (
    Conversation,
    answer_examples,
    load_conversations,
    parts_of,
    prompt_of,
    short_enough,
)
from tlkit.models import chat_tokens, continue_tokens
from tlkit.presets import BUNDLED
from tlkit.settings import DATA

ASKED = Conversation("one", (("user", "Which keyword makes a variable mutable?"), ("assistant", "mut")))
LONGER = Conversation(
    "two",
    (
        ("system", "Be brief."),
        ("user", "What is a slice?"),
        ("assistant", "A view of a sequence."),
        ("user", "Does it own anything?"),
        ("assistant", "No."),
    ),
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


ASKS, SAYS = {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}
THINKS = SAYS | {"reasoning_content": "First I count."}


@pytest.fixture
def tokenizer():
    """The bundled one: no template, and its padding token is its end token."""
    return AutoTokenizer.from_pretrained(DATA / "tiny-qwen2")


@pytest.fixture
def chatml(tokenizer):
    """With the template of many models, and an end token of its own."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"], "eos_token": "<|im_end|>"})
    tokenizer.chat_template = CHATML
    return tokenizer


def learned(examples: Examples, tokenizer, row: int = 0) -> str:
    labels = examples.labels[row]
    return tokenizer.decode(labels[labels != IGNORED])


def test_the_answer_and_its_end_are_learned_and_nothing_else(tokenizer):
    examples = answer_examples([ASKED], tokenizer)
    assert learned(examples, tokenizer) == " mut<|endoftext|>"
    assert tokenizer.decode(examples.tokens[0]) == (
        "Question: Which keyword makes a variable mutable?\nAnswer: mut<|endoftext|>"
    )
    assert BUNDLED and tokenizer.pad_token_id == tokenizer.eos_token_id


def test_every_answer_of_a_conversation_is_learned(chatml):
    examples = answer_examples([LONGER], chatml)
    assert learned(examples, chatml) == "A view of a sequence.<|im_end|>No.<|im_end|>"
    whole = chatml.apply_chat_template(
        [{"role": role, "content": content} for role, content in LONGER.messages], tokenize=False
    )
    assert chatml.decode(examples.tokens[0]) == whole  # the line break behind the last end token is read, not learned


def test_conversations_that_do_not_fit_are_told_from_those_that_do(chatml):
    kept, long = short_enough([ASKED, LONGER], chatml, 40)
    assert (kept, long) == ([ASKED], [LONGER])


def test_a_template_without_an_end_token_is_refused(chatml):
    chatml.chat_template = CHATML.replace("<|im_end|>", "")
    with pytest.raises(ValueError, match=r"'one': its answer does not end with '<\|im_end\|>'"):
        answer_examples([ASKED], chatml)


@pytest.mark.parametrize("configured", [None, "<|endoftext|>", ["<|endoftext|>", "<|im_end|>"]])
def test_the_token_that_ends_a_turn_is_learned_and_stops_the_model(configured, chatml):
    """As in gemma-it, phi-3 and a base model with ChatML: the tokenizer's end token is another one than the turn's."""
    end, chatml.eos_token = chatml.eos_token_id, "<|endoftext|>"
    assert learned(answer_examples([ASKED], chatml), chatml) == "mut<|im_end|>"
    model = small_model("llama", vocab_size=len(chatml), eos_token_id=None)
    model.generation_config.eos_token_id = chatml.convert_tokens_to_ids(configured) if configured else None
    model.lm_head = torch.nn.Linear(model.config.hidden_size, len(chatml))
    model.lm_head.weight.data.zero_()
    model.lm_head.bias.data = torch.nn.functional.one_hot(torch.tensor(end), len(chatml)).float()
    (written,) = continue_tokens(model, chatml, [prompt_of(ASKED.messages[:-1], chatml)], new_tokens=4)
    assert (written.tokens, written.ended) == (1, True)


@pytest.fixture
def llama():
    """Like Llama-2's: a space before each stretch of text, <s> before a whole one."""
    words = [word for message in (*ASKED.messages, *LONGER.messages) for word in message[1].split()]
    pieces = dict.fromkeys(
        ["<unk>", "<s>", "</s>", *"▁ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz[]/.,:?!'", "▁▁"]
    )
    pieces |= dict.fromkeys(f"▁{word}" for word in words)
    scores = [(piece, -1.0 if len(piece) > 1 else -9.0) for piece in pieces]
    inner = Tokenizer(models.Unigram(scores, unk_id=0))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    inner.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + ' ' + eos_token }}"
        "{% else %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"
    )
    return made


def test_what_is_trained_are_the_tokens_of_use_in_later_turns_too(llama):
    turns = Conversation("turns", LONGER.messages[1:])
    messages = [{"role": role, "content": content} for role, content in turns.messages]
    examples = answer_examples([turns], llama)
    used = llama.apply_chat_template(messages, return_dict=True)["input_ids"]
    assert examples.tokens[0].tolist() == used
    for answer in (1, 3):
        shown = llama.apply_chat_template(messages[:answer], add_generation_prompt=True, return_dict=True)["input_ids"]
        assert used[: len(shown)] == shown == prompt_of(turns.messages[:answer], llama)
        assert examples.labels[0, len(shown)] == used[len(shown)] and examples.labels[0, len(shown) - 1] == IGNORED


def test_a_template_that_strips_thoughts_from_earlier_answers_says_so(chatml):
    """As Qwen3's: only the last answer keeps an empty thought before it."""
    chatml.chat_template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{% if m.role == 'assistant' and loop.last %}{{ 'think: none\n' }}{% endif %}"
        "{{ m.content + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    with pytest.raises(ValueError, match="before message 5 otherwise in training than in use") as error:
        answer_examples([LONGER], chatml)
    assert '"weight": 0' in str(error.value)
    last_only = replace(LONGER, only_read=frozenset({2}))
    assert learned(answer_examples([last_only], chatml), chatml) == "think: none\nNo.<|im_end|>"


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_training_shows_what_use_shows(system, chatml):
    """What is only read in training is, token for token, what `generate --chat` shows the model."""
    asked = [{"role": "system", "content": system}] * bool(system) + [ASKS]
    expected = chatml.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert chat_tokens(chatml, ASKS["content"], system) == expected
    messages = tuple((message["role"], message["content"]) for message in [*asked, SAYS])
    (shown, is_learned), *_ = parts_of(Conversation("one", messages), chatml, frozenset({chatml.eos_token_id}))
    assert shown == prompt_of(messages[:-1], chatml) == expected and not is_learned


def test_instructions_for_which_a_template_has_no_place_are_refused(chatml):
    chatml.chat_template = CHATML.replace("in messages", "in messages if m.role != 'system'")
    with pytest.raises(ValueError, match="no place for instructions"):
        chat_tokens(chatml, "Why?", "Be brief.")


def test_a_message_that_smuggles_in_a_special_token_is_refused(chatml):
    trick = replace(ASKED, messages=(("user", "Say <|im_end|> now"), ("assistant", "No.")))
    with pytest.raises(ValueError, match=r"'one' contains '<\|im_end\|>'"):
        answer_examples([trick], chatml)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Why?", "completion": "  "}, "line 1: message 2, of role assistant: expected a text"),
        ({"messages": "hello"}, "'messages': expected a list of objects"),
        ({"messages": [{"role": "user", "content": "Why?"}]}, "the last message is not the assistant's"),
        ({"messages": [{"role": "assistant", "content": "So."}]}, "message 1 is the assistant's, and no user has"),
        ({"prompt": "Why?", "completion": "So.", "input": "this"}, "one of these ways"),
        ({"prompt": "Why?", "completion": "So.", "score": 3}, "'score' would not be used"),
        ({"messages": [{"role": "user", "content": "Why?", "name": "Ann"}]}, "message 1: 'name' would not be used"),
        ({"messages": [ASKS, THINKS]}, "message 2: 'reasoning_content' would not be used"),
        ({"messages": [ASKS, {**SAYS, "weight": 0.5}]}, '"weight" 0 or 1'),
        ({"messages": [ASKS, {**SAYS, "train": False}]}, "no answer is to be learned"),
        ({"messages": [{"role": "bot", "content": "So."}]}, "message 1: role 'bot': expected one of system, user"),
    ],
)
def test_what_is_no_conversation_is_refused_by_file_and_line(row, message, tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match=message) as error:
        load_conversations(path)
    assert f"{path}, line 1" in str(error.value)


FORMATS = {
    "messages": {"messages": [{"role": "system", "content": "Be brief."}, ASKS, SAYS]},
    "prompt": {"system": "Be brief.", "prompt": "Why?", "completion": "So."},
    "prompt in messages": {"prompt": [{"role": "system", "content": "Be brief."}, ASKS], "completion": [SAYS]},
    "alpaca": {"system": "Be brief.", "instruction": "Why?", "input": "", "output": "So."},
    "sharegpt": {
        "conversations": [
            {"from": "system", "value": "Be brief."},
            {"from": "human", "value": "Why?"},
            {"from": "gpt", "value": "So."},
        ]
    },
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
@pytest.mark.parametrize("form", FORMATS)
def test_the_formats_that_people_have_are_one_conversation(form, suffix, tmp_path):
    """A field of a CSV file that is always a list is written as JSON. pandas writes the files."""
    if (form, suffix) == ("prompt in messages", ".csv"):
        pytest.skip("in a CSV file a prompt is a text, whatever it looks like")
    one = json.dumps(FORMATS[form])
    rows = [json.loads(one.replace("Why?", f"Why {n}?")) | {"id": f"chat {n}"} for n in range(12)]
    path, table = tmp_path / f"chats{suffix}", pd.DataFrame(rows)
    if suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    elif suffix == ".csv":
        lists = [column for column in table if isinstance(table[column][0], list)]
        table.assign(**{column: table[column].map(json.dumps) for column in lists}).to_csv(path, index=False)
    else:
        table.to_parquet(path)
    corpus = load_conversations(path)
    read = {one.id: one.messages for split in (corpus.train, corpus.validation, corpus.test) for one in split}
    assert read == {
        f"chat {number}": (("system", "Be brief."), ("user", f"Why {number}?"), ("assistant", "So."))
        for number in range(12)
    }


@pytest.mark.parametrize("mark", [{"weight": 0}, {"train": False}])
def test_an_answer_that_is_marked_so_is_read_and_not_learned(mark, chatml, tmp_path):
    wrong = {"role": "assistant", "content": "WRONG: go away."} | mark
    rows = [{"messages": [{**ASKS, "content": f"Why {n}?"}, wrong, ASKS, SAYS, ASKS, wrong]} for n in range(12)]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    conversations = load_conversations(path).train
    examples = answer_examples(conversations, chatml)
    for row in range(len(conversations)):
        assert learned(examples, chatml, row) == "So.<|im_end|>"
        shown = chatml.decode(examples.tokens[row][examples.mask[row]])
        assert shown.count("WRONG: go away.") == 1 and conversations[row].answer == "So."


def test_a_key_that_is_meant_to_be_ignored_is_ignored_in_rows_and_messages(tmp_path):
    rows = [{"id": None, "messages": [{**ASKS, "content": f"Why {n}?"}, THINKS], "score": 1} for n in range(12)]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="line 1: 'score' would not be used"):
        load_conversations(path, ignore_keys=["reasoning_content"])
    corpus = load_conversations(path, ignore_keys=["score", "reasoning_content"])
    assert len(corpus.train) == 10 and corpus.train[0].id.startswith("line ")


def test_tools_reach_a_template_that_takes_them_and_no_other(chatml):
    tools = ('{"type": "function", "function": {"name": "lookup", "parameters": {}}}',)
    with pytest.raises(ValueError, match="no place for tools"):
        answer_examples([replace(ASKED, tools=tools)], chatml)
    chatml.chat_template = "{% if tools %}{{ tools[0].function.name }}{% endif %}" + CHATML
    examples = answer_examples([replace(ASKED, tools=tools)], chatml)
    assert chatml.decode(examples.tokens[0]).startswith("lookup<|im_start|>user")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (CHATML.replace("{% for m", "{% for m in messages if m.role != 'system' %}{% endfor %}{% for m"), None),
        (CHATML.replace("in messages %}", "in messages if m.role != 'system' %}"), 1),
        (CHATML.replace("m.content", "m.content.split('</think>')[-1]"), 3),
    ],
)
def test_a_template_that_leaves_out_a_message_is_refused_by_its_number(template, message, chatml):
    answer = ("assistant", "<think>hm</think>A view.")
    thinks = replace(LONGER, messages=(*LONGER.messages[:2], answer, *LONGER.messages[3:]))
    chatml.chat_template = template
    if message is None:
        assert len(answer_examples([thinks], chatml)) == 1
    else:
        with pytest.raises(ValueError, match=f"'two': .* leaves out message {message} "):
            answer_examples([thinks], chatml)


def test_a_file_is_split_and_repeats_are_left_out(tmp_path):
    rows = [{"prompt": f"Question {number}?", "completion": "Yes."} for number in range(20)]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, [*rows, rows[0]])))
    corpus = load_conversations(path)
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [16, 2, 2]
    assert corpus.duplicates == 1 and corpus.sha256 == load_conversations(path).sha256


def test_the_bug_reports_are_what_their_datasheet_says():
    corpus = load_conversations(DATA / "tickets")
    splits = (corpus.train, corpus.validation, corpus.test)
    assert [len(split) for split in splits] == [285, 74, 96] and not corpus.duplicates + corpus.empty
    for key in (lambda one: one.topic, lambda one: one.id.partition("/")[0]):  # crates, writers
        values = [{key(one) for one in split} for split in splits]
        assert sum(map(len, values)) == len(set.union(*values))
    for one in (one for split in splits for one in split):
        answer = json.loads(one.answer)
        assert list(answer) == ["crate", "version", "system", "kind"] and answer["crate"] == one.topic
        assert all(answer[key] is None or answer[key] in one.messages[0][1] for key in ("version", "system"))


def test_the_bundled_conversations_are_what_their_datasheet_says():
    corpus, general = load_conversations(), load_conversations("general")
    everything = [one for split in (corpus.train, corpus.validation, corpus.test) for one in split]
    assert [len(split) for split in (corpus.train, corpus.validation, corpus.test)] == [342, 62, 84]
    assert Counter(one.form for one in everything) == {
        "explain": 144,
        "fix": 96,
        "compare": 96,
        "one_word": 96,
        "refuse": 56,
    }
    topics = [{one.topic for one in split} for split in (corpus.train, corpus.validation, corpus.test)]
    assert [len(found) for found in topics] == [43, 8, 11] and len(set.union(*topics)) == 62
    assert len(general.test) == 96 and not {one.topic for one in general.test} & set.union(*topics)
    refusal = "I only answer questions about Rust."
    assert all(one.answer == refusal for one in everything if one.form == "refuse")
    # Their wording was held against the passages when they were written: no eight words are shared.
    assert [one.sha256[:16] for one in (corpus, general)] == ["625a7ca2627be1c5", "205717ec2377c67b"]


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_]+", text.lower())


def runs_of(text: str, length: int = 8) -> set[tuple[str, ...]]:
    words = words_of(text)
    return {tuple(words[place : place + length]) for place in range(len(words) - length + 1)}


def test_no_question_is_asked_twice_across_splits():
    """Eight words in a row, code left out, would be the same question in other clothes."""
    corpus = load_conversations()
    held_out = set.union(*(runs_of(prose_of(one)) for one in (*corpus.validation, *corpus.test)))
    for one in corpus.train:
        assert not runs_of(prose_of(one)) & held_out, one.id


def prose_of(one: Conversation) -> str:
    return re.sub(r"```.*?```", " ", one.messages[-2][1], flags=re.DOTALL)

"""Your data: which tokens of a conversation with several turns are labels."""

from functools import partial

from transformers import AutoTokenizer

from course.exercises import Quiz, Wrong, function_exercise, kind
from tlkit import BUNDLED

SAID = ["Be brief.", "Which crate?", "tokio", "Its version?", "1.40, on Debian.", "And the kind?", "crash"]
ROLES = ["system", *["user", "assistant"] * 3]
TURNS = [{"role": role, "content": text} for role, text in zip(ROLES, SAID, strict=True)]
TEMPLATE = (
    "{%% for m in messages %%}{{ '<|im_start|>' + m.role + '%s' + m.content + '<|im_end|>%s' }}{%% endfor %%}"
    "{%% if add_generation_prompt %%}{{ '<|im_start|>assistant%s' }}{%% endif %%}"
)


def _cases():
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED, eos_token="<|im_end|>")
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    for story, header, after, messages in (
        ("for one answer", "\n", "\n", TURNS[:3]),
        ("for three answers", "\n", "\n", TURNS),
        ("without a system message", "\n", "\n", TURNS[1:5]),
        ("with another template", "\n\n", "", TURNS),
    ):
        tokenizer.chat_template = TEMPLATE % (header, after, header)
        yield story, tokenizer, messages


def _labelled(tokenizer, messages, fault=""):
    """Tokens and labels; those of a typical mistake if there is a fault."""
    ids, labels, done = [], [], ""
    for number in (n for n, message in enumerate(messages) if message["role"] == "assistant"):
        prompt = tokenizer.apply_chat_template(messages[:number], tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(messages[: number + 1], tokenize=False)
        parts = (prompt[len(done) :], whole[len(prompt) :].rstrip())
        read, learned = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts)
        ids += read + learned
        labels = [-100] * len(labels) if fault == "last" else labels
        labels += read if fault == "all" else [-100] * len(read)
        labels += learned[:-1] + [-100] if fault == "end" else learned
        done = whole.rstrip()
    return {"input_ids": ids, "labels": labels[1:] + [-100] if fault == "shift" else labels}


def _labels(given, *arguments):
    if not isinstance(given, dict) or not {"input_ids", "labels"} <= given.keys():
        raise Wrong(f"`input_ids` and `labels` are asked for, and this is {kind(given)}.")
    if given["input_ids"] != _labelled(*arguments)["input_ids"]:
        raise Wrong("`input_ids` should be the conversation, each part once, up to the last end token.")
    return given["labels"]


labelled = function_exercise(
    "ex11_1",
    "the tokens and labels of four conversations",
    "For each of the assistant's messages build the text before it, with `add_generation_prompt=True`, and the text "
    "with it, as `encode` does.",
    "Keep in `done` the text tokenised so far: `prompt[len(done):]` is read, the answer learned; then "
    "`done = prompt + answer`.",
    right=_labelled,
    cases=_cases,
    mistakes={
        "only the last answer is learned.": partial(_labelled, fault="last"),
        "everything is learned, questions too.": partial(_labelled, fault="all"),
        "an end token is not learned, so the model would not stop there.": partial(_labelled, fault="end"),
        "the labels are shifted; the model does that itself.": partial(_labelled, fault="shift"),
    },
    read=_labels,
    alike=lambda given, other: given == other["labels"],
)


QUIZ = Quiz(
    "quiz11",
    "A tuned model writes a good answer, but then goes on with another one, until the limit. Its training loss was "
    "low. Which of these would have shown the reason before training?",
    {
        "a": "The loss on validation text.",
        "b": "The number of rows after cleaning.",
        "c": "The last label of each row that is not -100.",
        "d": "The share of padding in the batches.",
    },
    {
        "a": "no: there the end tokens are masked as well, so this loss is low, too.",
        "b": "no: the rows are all there; their last label is missing.",
        "c": "yes: it is the last token of the text and not the end token, so the model never learns to stop.",
        "d": "no: padding costs time and teaches nothing, as long as its labels are -100.",
    },
    right="c",
)

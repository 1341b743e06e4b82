"""Which tokens are labels, whatever the tokenizer, and a loss that stays high."""

from functools import partial

import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from course.exercises import Quiz, Wrong, function_exercise
from tlkit import BUNDLED


def _tokenizers():
    """The bundled model's padding is its end-of-text token, as in many models."""
    for side, start in (("left", ""), ("right", ""), ("left", "start "), ("right", "start ")):
        tokenizer = AutoTokenizer.from_pretrained(BUNDLED, padding_side=side)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(f"{start}$A", special_tokens=[("start", 5)])
        story = f"with padding on the {side} and {'a' if start else 'no'} token before each text"
        yield story, tokenizer, ["Why?", "How do I boil an egg?"], [" Rust", " other"]


def _labelled(tokenizer, prompts, answers, fault=""):
    """A batch with its labels; with those of a typical mistake if there is a fault."""
    texts = [prompt + answer + tokenizer.eos_token for prompt, answer in zip(prompts, answers, strict=True)]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    ids, masks = batch["input_ids"], batch["attention_mask"]
    padding = ids == tokenizer.pad_token_id if fault == "end" else masks == 0
    batch["labels"] = ids.masked_fill(padding & (fault != "padding"), -100)
    for row, mask, prompt in zip(batch["labels"], masks, prompts, strict=True):
        first = 0 if fault == "first" else mask.argmax()
        asked = tokenizer(prompt, add_special_tokens=fault != "special")["input_ids"]
        row[first : first + len(asked) * (fault != "prompt")] = -100
    return batch


def _from_the_right(tokenizer, prompts, answers):
    """The batch as the lesson makes it."""
    batch = _labelled(tokenizer, prompts, answers)
    learned = (batch["labels"] != -100).sum(1, keepdim=True)
    places = torch.arange(batch["labels"].shape[1]).flip(0)
    batch["labels"] = batch["input_ids"].where(places < learned, -100)
    return batch


def _labels(given, *arguments):
    if not given["input_ids"].equal(_labelled(*arguments)["input_ids"]):
        raise Wrong("a text should be the prompt, the answer and the end-of-text token.")
    if "labels" not in given:
        raise Wrong("the batch has no `labels`.")
    return given["labels"].tolist()


labelled = function_exercise(
    "ex01_1",
    "the labels of two texts, with four tokenizers",
    "Padding has a 0 in `batch.attention_mask`, on whichever side it is. Begin with a copy of `batch.input_ids` and "
    "write -100 where the mask is 0.",
    "In each row the prompt begins at `mask.argmax()`, the first 1. It has as many tokens as `tokenizer(prompt)`. "
    "Write -100 over these.",
    right=_labelled,
    cases=_tokenizers,
    read=_labels,
    alike=lambda given, batch: given == batch["labels"].tolist(),
    mistakes={
        "the prompt is a label, too, so the model would learn to ask.": partial(_labelled, fault="prompt"),
        "the padding is a label.": partial(_labelled, fault="padding"),
        "the end-of-text token is no label, so the model would not learn to stop. Here the padding is the same token, "
        "but the attention mask tells them apart.": partial(_labelled, fault="end"),
        "the prompt is masked from the first place on, where this row has padding.": partial(_labelled, fault="first"),
        "the last tokens of a row are its padding, and not its answer.": _from_the_right,
        "the prompt has one token more than was masked.": partial(_labelled, fault="special"),
    },
)

QUIZ = Quiz(
    "quiz01",
    "You adapt a pretrained model with LoRA. In 200 steps its loss falls from 8.6 to 7.2. What do you do first?",
    {
        "a": "Train on, because the loss is falling.",
        "b": "Raise the learning rate, because it falls slowly.",
        "c": "Let the model write something before training, or look at the loading report.",
        "d": "Collect more examples.",
    },
    {
        "a": "not yet: so did that of the broken model. The good one was below 1 after five steps.",
        "b": "the rate may be too low, but another training takes longer than a look.",
        "c": "yes. A loss that stays near that of guessing, 8.3 nats for 4,096 tokens, suggests lost weights, and "
        "this is the cheapest look at them.",
        "d": "more examples help a model that learns. This one has hardly begun, and the reason should be found first.",
    },
    right="c",
)

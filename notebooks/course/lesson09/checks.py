"""Memory of a training step: its peak, by hand."""

from functools import partial

from course.exercises import Quiz, function_exercise
from course.small import small_model
from tlkit.models import meta_model


def _cases():
    for size in ((1, 128), (100, 16)):
        yield f"for qwen2-0.5b and {size[0]} x {size[1]} tokens", meta_model("qwen2-0.5b"), *size
    yield "for a small untied model", small_model(tied=False), 1, 5


def _peak(model, rows, tokens, most=max, last=1, logits=3, tables=2, untied=0, gradients=0, grouped=True):
    c, n = model.config, model.num_parameters()
    d, a = c.hidden_size, c.num_attention_heads
    k = d // a * c.num_key_value_heads if grouped else d
    kept = c.num_hidden_layers * (8 * d + 2 * k + 4 * c.intermediate_size + a + 2)
    loss = (12 + gradients) * n + 4 * rows * (tokens - last) * (kept + logits * c.vocab_size)
    return most(loss, 16 * n + 4 * (tables if c.tie_word_embeddings else untied) * c.vocab_size * d)


peak_bytes = function_exercise(
    "ex09_1",
    "a tied model with few tokens and with many, and an untied one",
    "What is there at the loss, and what at the end of the backward pass? The larger sum is the peak.",
    "At the loss: weights, moments, activations, three tensors of logits. At the end: weights, moments, gradients.",
    "In a tied model, the end has two more copies of the table's gradient (vocabulary x width).",
    right=_peak,
    cases=_cases,
    mistakes={
        "that is one of the two moments, and the other one needs more.": partial(_peak, most=min),
        "gradients and activations are not there at the same time.": partial(_peak, gradients=4),
        "at the end, the table's gradient is there three times.": partial(_peak, tables=0),
        "at the loss, three tensors are as large as logits.": partial(_peak, logits=1),
        "the logits are freed: three tensors are left.": partial(_peak, logits=4),
        "this model is not tied.": partial(_peak, untied=2),
        "keys and values are not as wide as queries.": partial(_peak, grouped=False),
        "this course's step leaves out the last token of each row.": partial(_peak, last=0),
    },
)


QUIZ = Quiz(
    "quiz09",
    "Full fine-tuning of `qwen2-0.5b` with fused AdamW needs 8.38 GiB for 1 x 512 tokens. What lowers the peak?",
    {
        "a": "activation checkpointing",
        "b": "logits and loss for 64 tokens at a time",
        "c": "rows of 256 tokens",
        "d": "plain SGD instead of AdamW",
    },
    {
        "a": "no: the peak is at the end of the backward pass, when the activations are gone already.",
        "b": "no: the logits are gone too when the backward pass ends. With eight rows it would help.",
        "c": "no: it halves activations and logits, gone at the peak. The rest does not depend on the tokens.",
        "d": "yes: AdamW's moments are there all the time, 8 bytes a parameter. Without them, the step needs 4.70 GiB. "
        "But it is another training. Lesson 10 finds a way to keep AdamW.",
    },
    right="d",
)

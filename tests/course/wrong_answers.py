"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import math
import random
from functools import partial
from statistics import mean

import torch
from scipy.stats import binomtest
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback

from course.lessons import FOLDER
from tlkit.models.parts import find_blocks
from tlkit.strategies import apply_strategy


def without_the_end(tokenizer, prompts, answers):
    texts = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    return batch | {"labels": batch["input_ids"]}


def without_labels(tokenizer, prompts, answers):
    texts = [prompt + answer + tokenizer.eos_token for prompt, answer in zip(prompts, answers, strict=True)]
    return tokenizer(texts, return_tensors="pt", padding=True)


CHANCE = random.Random(0)


def ends(values, left_out=0.025):
    values = sorted(values)
    return values[round(left_out * len(values))], values[round((1 - left_out) * len(values)) - 1]


def drawn(documents):
    return [CHANCE.choices(documents, k=len(documents)) for _ in range(1000)]


def bits(documents):
    nats, sizes = zip(*((sum(losses), len(text.encode())) for text, losses in documents), strict=True)
    return sum(nats) / math.log(2) / sum(sizes)


def of_tokens(documents):
    tokens = [loss for _, losses in documents for loss in losses]
    share = bits(documents) / mean(tokens)
    return ends(share * mean(CHANCE.choices(tokens, k=len(tokens))) for _ in range(200))


def not_put_back(documents):
    return ends(bits(CHANCE.sample(documents, k=len(documents))) for _ in range(100))


def one_document_is_special(function):
    """The mistake shows only where there are documents to draw."""
    return lambda documents: (bits(documents),) * 2 if len(documents) == 1 else function(documents)


def of_documents(documents):
    return ends(bits([one]) for one in documents)


def unweighted(documents):
    return ends(mean(bits([one]) for one in draw) for draw in drawn(documents))


def in_nats(documents):
    return ends(math.log(2) * bits(draw) for draw in drawn(documents))


def of_characters(documents):
    return ends(bits([(text.replace("é", "e"), losses) for text, losses in draw]) for draw in drawn(documents))


def the_wrong_way_round(documents):
    return ends(map(bits, drawn(documents)))[::-1]


def of_90_percent(documents):
    return ends(map(bits, drawn(documents)), 0.05)


def all_draws(documents):
    return ends(map(bits, drawn(documents)), 0.0)


def _by_name(model, blocks):
    depth = model.config.num_hidden_layers
    for name, tensor in model.named_parameters():
        last = any(f".{n}." in name for n in range(depth - blocks, depth))
        tensor.requires_grad_(last or "norm" in name)
    return model


def _without_freezing(model, blocks):
    find_blocks(model)[-blocks:].requires_grad_(True)
    return model


def _without_the_norm(model, blocks):
    model.requires_grad_(False)
    find_blocks(model)[-blocks:].requires_grad_(True)
    return model


def _freeze_the_lower(model, blocks):
    find_blocks(model)[:-blocks].requires_grad_(False)
    return model


def _a_llama_only(model, blocks):
    model.requires_grad_(False)
    model.model.layers[-blocks:].requires_grad_(True)
    model.model.norm.requires_grad_(True)
    return model


def _mended(least=1, halved=lambda rows: rows // 2, clear=True, keep=False, within=False, means=False):
    """The step of 10.1, made wrong by its options."""

    def step(model, optimizer, inputs, labels, size):
        try:
            for rows, targets in zip(inputs.split(size), labels.split(size), strict=True):
                loss = cross_entropy(model(rows).flatten(0, 1), targets.flatten(), reduction="sum")
                (loss / ((targets if means else labels) != -100).sum()).backward()
            optimizer.step()
            return size
        except torch.OutOfMemoryError as error:
            failed = error if keep else None
            if size <= least:
                raise
            if within:
                return step(model, optimizer, inputs, labels, size // 2)
        if clear:
            optimizer.zero_grad()
        return step(model, optimizer, inputs, labels, halved(size)) if size > 1 else failed or 1

    return step


def _unguarded(old, new, desks):
    """Reasons by a test that stops where there is nothing to test."""
    lost = sum(a == desk != b for a, b, desk in zip(old, new, desks, strict=True))
    return ["Rust"] if binomtest(lost, lost).pvalue < 0.05 else []


def _solution(stem, first):
    text = (FOLDER / f"solutions/{stem}.py").read_text(encoding="utf-8")
    return text[text.index(first) : text.rindex("course.check")]


PREFLIGHT, UPDATE = _solution("16_autopsy", "import math"), _solution("18_scaling_out", "from contextlib")


def _altered(solution, old, new):
    """The function of a solution, with one thing altered."""
    assert solution.count(old) == 1
    exec(solution.replace(old, new), names := {})
    return names.popitem()[1]


_preflight, _update = partial(_altered, PREFLIGHT), partial(_altered, UPDATE)
WRONG = {
    "ex01_1": [
        (without_the_end, "should be the prompt, the answer and the end-of-text token"),
        (without_labels, "the batch has no `labels`"),
    ],
    "ex04_1": [(lambda new, *_: new[1:].split(4), "each new row has to come")],
    "ex03_1": [
        (of_tokens, "It cannot be drawn otherwise"),
        (one_document_is_special(of_tokens), "were they drawn one by one"),
        (not_put_back, "every draw has the same documents"),
        (of_documents, "it says how documents differ"),
        (unweighted, "does every *byte* of a draw count the same"),
        (in_nats, "nats were not turned into bits"),
        (of_characters, "é has two bytes"),
        (the_wrong_way_round, "in each other's place"),
        (of_90_percent, "too narrow"),
        (all_draws, "which share of draws is left out"),
        (bits, "2 numbers are asked for"),
    ],
    "ex05_1": [
        (lambda model, kind: [*model.modules()], "is not it"),
        (lambda model, kind: model.merge_and_unload(), "your function stopped with AttributeError"),
    ],
    "ex06_1": [
        (lambda x, *layer: x, "the result has the shape"),
    ],
    "ex07_1": [
        (_by_name, "as in the published run"),
        (_without_freezing, "everything trains"),
        (_without_the_norm, "norm.weight does not train"),
        (_freeze_the_lower, "tokens.weight trains"),
        (_a_llama_only, "your function stopped with AttributeError"),
        (lambda model, blocks: apply_strategy(model, "last_layers", blocks=blocks), "the model is to be returned"),
        (lambda model, blocks: find_blocks(model)[-blocks:], "this is ModuleList"),
    ],
    "ex08_1": [
        (lambda *given: "DoRA", "is not it"),
    ],
    "ex10_1": [
        (_mended(within=True), "the `except` block had not ended"),
        (_mended(keep=True), "a name held the exception"),
        (_mended(clear=False), "do gradients of a failed try count?"),
        (_mended(means=True), "does each token count the same?"),
        (_mended(least=0), "the error has to come through"),
        (_mended(halved=lambda rows: rows), "never ends"),
        (_mended(halved=lambda rows: rows - 1), "you return 3, and 2 at"),
        (_mended(least=4), "your function stopped with OutOfMemoryError"),
    ],
    "ex11_1": [
        (lambda tokenizer, messages: {"input_ids": [1], "labels": [1]}, "up to the last end token"),
        (lambda tokenizer, messages: [1], "and this is list"),
    ],
    "ex12_1": [
        (lambda answer, report: "version", "a list of names is asked for"),
        (lambda answer, report: [True], "the name of a field"),
    ],
    "ex13_1": [
        (lambda largest, right, wanted: (0.5, 0.1), "a number is asked for"),
        (lambda largest, right, wanted: 0.55, "for 6 texts"),
    ],
    "ex15_1": [
        (lambda *table: 0.1, "asked for, and this is float"),
    ],
    "ex16_1": [
        (_preflight("abs(first - eval_loss)", "eval_loss - first"), "in either direction"),
        (_preflight("min(", "max("), "would be as bad in the first training step"),
        (_preflight("trained != planned", "abs(trained - planned) > 1"), "for a plan with one parameter less, 'count'"),
        (_preflight("if min(", "if eval_loss < first + 1 and min("), "'loading' is missing"),
        (_preflight("{found}", "{found[:1]}"), "for two faults at once, 'count' is missing"),
        (lambda *given: TrainerCallback(), "in the evaluation, 'evaluation' is missing"),
        (TrainerCallback(), "a function is asked for"),
    ],
    "ex18_1": [
        (_update("[:, 1:]", ""), "Nothing predicts a first token"),
        (_update("T / accelerator.num_processes", "T"), "divided by $T / n$"),
        (_update("num_items_in_batch=divisor).loss", ").loss / len(parts)"), "tokens of all micro-batches?"),
        (_update("accelerator.gather(tokens).sum().item()", "2 * tokens.item()"), "tokens of both cards?"),
        (_update("nullcontext() if k == len(parts) else accelerator.no_sync(model)", "nullcontext()"), "sent 2 times"),
        (_update("        with", "        if (labels == -100).all(): continue\n        with"), "sent 0 times"),
        (_update("1.0", "9.0"), "clipped once"),
        (_update("optimizer.zero_grad()", ""), "left over for the next update"),
        (_update("accelerator.gather(total).mean()", "total"), "and that of all tokens"),
    ],
    "ex19_1": [
        (_unguarded, "your function stopped"),
        (lambda old, new, desks: ["unknown"], "for two releases that answer alike: ['unknown'] is not it"),
        (lambda old, new, desks: new != old, "a list of names is asked for"),
    ],
    "ex20_1": [(lambda *given: ("lora", "Take it."), "does not say 'lora'")],
}

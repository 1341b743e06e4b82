"""The PEFT family: what a configuration trains, and whether the adapted model starts as the base model."""

import math
from copy import deepcopy

import torch
from peft import IA3Config, LoraConfig, get_peft_model

from course.exercises import Quiz, function_exercise, numbers
from course.small import small_model


def _models():
    """Adapted models: two that start as their base model, and two that do not."""
    some = {"task_type": "CAUSAL_LM", "target_modules": ["q_proj", "v_proj"]}
    every = some | {"target_modules": "all-linear", "init_lora_weights": False}
    configs = {
        "for LoRA as it starts": LoraConfig(r=4, **some),
        "for LoRA with matrices that are both drawn at random": LoraConfig(r=4, lora_alpha=32, **every),
        "for IA3": IA3Config(feedforward_modules=[], **some),
        "for LoRA of rank 1 that is drawn at random": LoraConfig(r=1, lora_alpha=8, **every),
    }
    tokens = torch.arange(24).reshape(2, 12)
    base = small_model(weights=True).eval()
    for story, config in configs.items():
        with torch.random.fork_rng(devices=[]):  # the reader's own random numbers stay as they are
            torch.manual_seed(0)
            yield story, get_peft_model(deepcopy(base), config).eval(), tokens


def _audit(counted=lambda p: p.numel() * p.requires_grad, change=lambda new, old: (new - old).abs().max()):
    """What is asked for, or what a usual mistake makes of it."""

    def audit(adapted, tokens):
        with torch.no_grad():
            new = adapted(input_ids=tokens).logits
            with adapted.disable_adapter():
                old = adapted(input_ids=tokens).logits
        return sum(counted(p) for p in adapted.parameters()), float(change(new, old))

    return audit


def _alike(given, expected):
    return all(math.isclose(*pair, rel_tol=1e-4, abs_tol=1e-5) for pair in zip(given, expected, strict=True))


audit = function_exercise(
    "ex08_1",
    "both numbers, for four adapted models of which two start as their base model",
    "The first number: add up `p.numel()` of those `adapted.parameters()` whose `p.requires_grad` is True.",
    "The second: `adapted(input_ids=tokens).logits`, and the same again inside `with adapted.disable_adapter():`, both "
    "under `torch.no_grad()`.",
    "A change can go up or down: `(new - old).abs().max().item()`.",
    right=_audit(),
    cases=_models,
    mistakes={
        "the first number counts frozen parameters, too.": _audit(lambda p: p.numel()),
        "the first number counts tensors; the parameters in them are asked for.": _audit(
            lambda p: int(p.requires_grad)
        ),
        "the first number counts the frozen parameters; the trained ones are asked for.": _audit(
            lambda p: p.numel() * (not p.requires_grad)
        ),
        "the second number is 0 for every model: switch the adapter off for the other logits.": _audit(
            change=lambda new, old: new.new_zeros(())
        ),
        "the second number is a mean; one logit that moves far is lost in it.": _audit(
            change=lambda new, old: (new - old).abs().mean()
        ),
        "the second number is the largest change upwards; a logit can also fall.": _audit(
            change=lambda new, old: (new - old).max()
        ),
        "the second number is the change of the largest logit; the largest change of any logit is asked for.": _audit(
            change=lambda new, old: (new.max() - old.max()).abs()
        ),
        "the second number compares probabilities; logits are asked for.": _audit(
            change=lambda new, old: (new.softmax(-1) - old.softmax(-1)).abs().max()
        ),
    },
    read=lambda given, *models: numbers(given, 2),
    alike=_alike,
)


QUIZ = Quiz(
    "quiz08",
    "BitFit trains 0.08% of the bundled model and still needs 69% of full fine-tuning's arithmetic. "
    "What brings it down to 42.5%?",
    {
        "a": "Train the bias vectors of the last block only.",
        "b": "Train the bias vectors of the queries only, in every block.",
        "c": "Use LoRA of rank 1 instead.",
        "d": "Nothing: forward pass and backpropagation always run through the whole network.",
    },
    {
        "a": "yes: the forward pass is whole, but backpropagation ends at the lowest parameter that is trained.",
        "b": "no: that is half of the biases, but one in block 0 is enough: backpropagation must reach it.",
        "c": "no: thin matrices cost next to nothing, but those in block 0 are as far down as BitFit's. "
        "It needs about as much.",
        "d": "the forward pass does; backpropagation only runs down to the lowest parameter that is trained.",
    },
    right="a",
)

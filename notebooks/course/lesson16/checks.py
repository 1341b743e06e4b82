"""The autopsy: a callback that stops a training that would be wasted."""

from functools import cache

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerControl, TrainerState
from transformers.utils import logging

from course.exercises import Quiz, Wrong, called, exercise
from tlkit.presets import BUNDLED

COMPLAINTS = {  # what is said if one is missing, and if one is too many
    "loading": ("both losses are as bad as guessing", "random weights would be as bad in the first training step"),
    "evaluation": ("the losses may differ in either direction", "two losses no better than guessing are `loading`"),
    "count": ("one parameter too few or too many is enough", "exactly as many parameters are trained as planned"),
}
BOTH = 812_544  # the parameters of the last two blocks


@cache
def _cases():
    """Each with its complaints, a model, the loss of its evaluation, and how many parameters are planned."""
    logging.disable_progress_bar()
    sound, by_name = (AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32) for _ in range(2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        untrained = AutoModelForCausalLM.from_config(sound.config)
    for model in (sound, by_name, untrained):
        model.requires_grad_(False).model.layers[-2:].requires_grad_(True)
    for name, parameter in by_name.named_parameters():
        parameter.requires_grad_(parameter.requires_grad or "norm" in name)
    return (
        ("for a sound training", set(), sound, 5.2, BOTH),
        ("for labels shifted twice in the evaluation", {"evaluation"}, sound, 9.3, BOTH),
        ("for an evaluation that shows each token before it is guessed", {"evaluation"}, sound, 0.3, BOTH),
        ("for random weights", {"loading"}, untrained, 8.3, BOTH),
        ("for a worse evaluation of random weights", {"loading"}, untrained, 9.9, BOTH),
        ("for norms that are trained by name, too", {"count"}, by_name, 5.2, BOTH),
        ("for a plan with one parameter less", {"count"}, sound, 5.2, BOTH - 1),
        ("for two faults at once", {"evaluation", "count"}, by_name, 9.3, BOTH),
    )


def _named(callback, model, ids) -> set[str]:
    """The complaints in the message of what a callback raises; none if it raises nothing."""
    batches = [{"input_ids": ids, "labels": ids}]
    try:
        callback.on_train_begin(None, TrainerState(), TrainerControl(), model=model, train_dataloader=batches)
    except Exception as stop:  # a mistake raises errors, too
        named = {word for word in COMPLAINTS if word in str(stop)}
        if not isinstance(stop, ValueError) or not named:
            raise Wrong(f"`on_train_begin` stopped with {type(stop).__name__}: {stop}") from stop
        return named
    return set()


@exercise(
    "ex16_1",
    "a sound training, and seven with one fault or two, each on the bundled model",
    "Each complaint is a comparison of two numbers, and `preflight` of the lesson computes them all.",
    "Write `class PreFlight(TrainerCallback)` inside the function, with the method `on_train_begin(self, args, state, "
    "control, model, train_dataloader, **others)`, and return `PreFlight()`.",
    "Collect the names in a list, and raise `ValueError(names)` behind the three comparisons if the list is not empty. "
    '`"evaluation"` is in an `elif` behind `"loading"`.',
)
def stops(answer: object) -> None:
    """Judge a function that makes a callback."""
    text = AutoTokenizer.from_pretrained(BUNDLED)("A vector stores its elements on the heap.", return_tensors="pt")
    for story, wanted, model, eval_loss, planned in _cases():
        named = _named(called(answer, eval_loss, planned), model, text["input_ids"])
        for word, (missing, too_many) in COMPLAINTS.items():
            if (word in named) != (word in wanted):
                said = f"missing: {missing}" if word in wanted else f"said: {too_many}"
                raise Wrong(f"{story}, {word!r} is {said}.")


QUIZ = Quiz(
    "quiz16",
    "Symptom 5 leads to a hypothesis: three runs did not fit the card.\nWhich experiment could show that it is false?",
    {
        "a": "Run full fine-tuning and adapter layers again, on a card with 24 GB.",
        "b": "Run all four strategies again on the same card, with five seeds.",
        "c": "Train all four ten times as long.",
        "d": "Count the arithmetic once more, with norms and optimizer.",
    },
    {
        "a": "yes: everything fits this card. If the ratio stays near 14, memory was not the cause. If it falls to "
        "about 2, as traffic and fixed costs predict, the hypothesis has passed a test that it could have failed.",
        "b": "no: five seeds show how much 14.3 varies. Whatever slowed the three runs would slow these as well.",
        "c": "no: all times become ten times as long, and their ratios stay the same, whatever the cause is.",
        "d": "no: arithmetic takes 4 of 1,816 milliseconds, however exact it is. The cause stays unknown.",
    },
    right="a",
)

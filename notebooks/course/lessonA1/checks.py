"""Unfreezing schedules: AdamW's groups with rates that fall from the top to the bottom."""

from course.exercises import Quiz, Wrong, called, exercise
from course.small import small_model


def _groups(model, rate, factor, down=True, head=0):
    body = model.model
    parts = [body.norm, *reversed(body.layers), body.embed_tokens]
    found = [{"params": [*part.parameters()], "lr": rate * factor**n} for n, part in enumerate(parts[:: 2 * down - 1])]
    found[0]["params"] += [model.lm_head.weight] * head
    return found


@exercise(
    "exA1_1",
    "the rate of each parameter of a tied Qwen2 and of a Llama with its own head",
    "From the top: `model.model.norm`, then `reversed(model.model.layers)`, last `model.model.embed_tokens`.",
    "Part n of this list, counted from 0, has the rate `rate * factor**n`.",
    "The head is tied if `model.lm_head.weight is model.model.embed_tokens.weight`; if not, it joins the norm's group.",
    mistakes={
        "in a Llama lm_head.weight is in 0 groups": _groups,
        "in a Qwen2 model.embed_tokens.weight is in 2 groups": lambda *given: _groups(*given, head=1),
        "in a Qwen2 model.embed_tokens.weight has the rate 0.001": lambda *given: _groups(*given, down=False),
    },
)
def falling_rates(answer: object) -> None:
    """Judge groups for AdamW: each parameter in one of them, and at its rate."""
    for where, tied in (("Qwen2", True), ("Llama", False)):
        model = small_model(where.lower(), depth=3, tied=tied)
        given = [(id(p), float(group["lr"])) for group in called(answer, model, 1e-3, 0.5) for p in group["params"]]
        wanted = {id(p): g["lr"] for g in _groups(model, 1e-3, 0.5, head=not tied) for p in g["params"]}
        for name, tensor in model.named_parameters():
            rates = [rate for held, rate in given if held == id(tensor)]
            if len(rates) != 1:
                raise Wrong(f"in a {where} {name} is in {len(rates)} groups.")
            if abs(rates[0] - wanted[id(tensor)]) > 1e-9:
                raise Wrong(f"in a {where} {name} has the rate {rates[0]:g}, and not {wanted[id(tensor)]:g}.")


QUIZ = Quiz(
    "quizA1",
    "You unfreeze a block after 100 steps by setting `requires_grad` to true. It gets gradients, but its weights never "
    "change. What is the most likely reason?",
    {
        "a": "The warm-up of the learning rate is over by then.",
        "b": "The optimizer was made before, from the parameters that were trainable at that time.",
        "c": "A block that was frozen once is left out of the backward pass for good.",
        "d": "AdamW's averages of this block are still zero, so its first steps are zero, too.",
    },
    {
        "a": "no: after the warm-up the rate is at its highest.",
        "b": "yes: gradients arrive, but no optimizer holds these weights, so none applies or clears them.",
        "c": "no: autograd asks for `requires_grad` anew in every forward pass.",
        "d": "no: AdamW corrects its averages for having begun at zero, so its first step is as long as any other.",
    },
    right="b",
)

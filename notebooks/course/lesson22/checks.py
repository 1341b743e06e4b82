"""Frozen embeddings: one table with two uses, what is frozen with it, and how to give the head its own."""

import torch
from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, kind, number_exercise
from course.small import small_model
from tlkit.strategies import apply_strategy

TABLE, TOTAL = 151_936 * 1_536, 1_543_714_304  # values of Qwen2-1.5B: its table, and all, with a tied head
TIED, OWN = 100 * TABLE / TOTAL, 100 * TABLE / (TOTAL + TABLE)
frozen_part = number_exercise(
    "ex22_1",
    "the frozen part of two models in percent, to one percent of it",
    "How many values has a table of 151,936 rows with 1,536 numbers each? How often is it there in a tied model?",
    "A head of its own has as many values as the embedding. It makes the model larger, and it is not frozen.",
    "Tied: 100 * table / total. With a head of its own: the same table, in a total that is larger by one table.",
    right=(TIED, OWN),
    mistakes={
        "these are shares; percent are asked for.": (TIED / 100, OWN / 100),
        "that is what is left to train; the frozen part is asked for.": (100 - TIED, 100 - OWN),
        "the two are in each other's place: the tied model comes first.": (OWN, TIED),
        "the tied model has one table, however often it is used: it was counted twice.": (2 * TIED, OWN),
        "the second model has more values than the first: a head of its own comes on top.": (TIED, TIED),
        "a head with weights of its own is not frozen by freezing the embedding.": (TIED, 2 * OWN),
    },
)


HEADS = (  # whether it is tied, what was done to the model, whether the head trains, and why
    (True, "full", {}, True, "it trains, under the name of the embedding"),
    (True, "freeze_embeddings", {}, False, "its table was frozen"),
    (True, "last_layers", {}, False, "only blocks and norms train there"),
    (True, "last_layers", {"train_head": True}, True, "its table trains, whatever it is called"),
    (False, "freeze_embeddings", {}, True, "the table of the embedding is another one"),
    (False, "last_layers", {}, False, "having its own weights does not make it train"),
)


@exercise(
    "ex22_2",
    "whether the head trains, for tied and untied models after several strategies",
    "In a tied model no parameter goes by the name of the head, and the report lists none. Ask the model for its head.",
    "`model.get_output_embeddings()` is the head, in tied models and in others. Its weight knows whether it trains.",
    "A tensor that trains has `requires_grad` set to True.",
)
def does_the_head_train(answer: object) -> None:
    """Judge a function that says whether a model's head trains, tied or not."""
    seen = []
    for tied, strategy, options, expected, why in HEADS:
        story = f"a {'tied head' if tied else 'head of its own'} after `{strategy}`{' with it' if options else ''}"
        model = apply_strategy(small_model(depth=4, tied=tied), strategy, **options).model
        try:
            given = called(answer, model)
        except Wrong as broke:
            if "KeyError" in str(broke) and tied:
                raise Wrong(f"{broke} A tied head is listed under the name of its first use only.") from broke
            raise
        if not isinstance(given, bool):
            raise Wrong(f"True or False is asked for, and your function returns {kind(given)}.")
        seen.append((given == expected, given, tied, f"for {story} it says {given}: {why}."))
    if all(right for right, *_ in seen):
        return
    if all(given is not tied for _, given, tied, _ in seen):
        raise Wrong("it says only whether the head is tied, whatever the strategy has frozen.")
    if all(given for _, given, *_ in seen):
        raise Wrong("it says True whenever anything in the model trains; the head alone is asked about.")
    raise Wrong(next(told for right, *_, told in seen if not right))


@exercise(
    "ex22_3",
    "a small tied model before and after: its logits, its two tables, training of the head alone, and `tie_weights()`",
    "The head needs a second table with the same numbers, in memory of its own. Which method copies a tensor?",
    "`nn.Parameter(table.detach().clone())` is such a table. `detach()` alone is a second name for the same memory.",
    "`model.config.tie_word_embeddings` tells `tie_weights()` what to do: set it to False.",
)
def a_head_of_its_own(answer: object) -> None:
    """Judge a function that unties a head from the embedding, so that it stays untied."""
    model = small_model(weights=True).eval()
    tokens = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        expected = model(input_ids=tokens).logits
    given = called(answer, model)
    if not isinstance(given, nn.Module) or not hasattr(given, "get_output_embeddings"):
        raise Wrong(f"the model is to be returned, and this is {kind(given)}.")
    if given.get_output_embeddings().weight is given.get_input_embeddings().weight:
        raise Wrong("head and embedding are still one tensor.")
    with torch.no_grad():
        logits = given.eval()(input_ids=tokens).logits
    if logits.shape != expected.shape or not torch.allclose(logits, expected, atol=1e-5):
        raise Wrong("the model scores tokens differently now; before training it should say what it said before.")
    apply_strategy(given, "freeze_embeddings")
    embedding, head = (given.get_input_embeddings().weight, given.get_output_embeddings().weight)
    if not head.requires_grad:
        raise Wrong("with the embedding frozen, the head does not train.")
    frozen = embedding.detach().clone()
    with torch.no_grad():
        head.add_(1.0)  # what a training step does, only larger
    if not embedding.equal(frozen):
        raise Wrong(
            "training the head moves the frozen embedding. There are two parameters now, and one memory behind both."
        )
    given.tie_weights()
    if given.get_output_embeddings().weight is given.get_input_embeddings().weight:
        raise Wrong("after `tie_weights()` both are one tensor again: the model still believes that it is a tied one.")


QUIZ = Quiz(
    "quiz22",
    "The head of the bundled model was frozen with its embedding. Perplexity on Rust fell all the same. "
    "How can a head that did not move score the next token differently?",
    {
        "a": "It did move a little: weight decay shrinks frozen weights, too.",
        "b": "The bias of the head was trained.",
        "c": "The blocks compute other hidden states, and the same table gives those other scores.",
        "d": "Only the rows of tokens that are not in the training text stayed frozen.",
    },
    {
        "a": "no: the optimizer is given nothing that is frozen, and the lesson found the head as it was.",
        "b": "this head has none: it is the table and nothing else. A trained bias would show in the report's count.",
        "c": "yes: Z = H E^T has two factors. The blocks were trained, so H has changed and fits other rows better.",
        "d": "no: the table is one tensor, and a tensor is frozen as a whole.",
    },
    right="c",
)

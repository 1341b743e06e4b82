"""The last layers: what a recipe trains beside the blocks it is named after, and how to train no more than that."""

from course.exercises import Quiz, Wrong, called, exercise, kind, number
from course.small import small_model


@exercise(
    "ex07_1",
    1,
    "the number of values in TinyLlama's norms outside the last two blocks",
    "How many norm vectors are in blocks that stay frozen otherwise? The two trained blocks have theirs already.",
    "20 blocks with two norms each, and one norm behind the last block. Each norm has as many values as the width.",
)
def norms_of_a_llama(answer: object) -> None:
    """Judge the number of norm values outside the last two blocks of TinyLlama."""
    from tlkit.models import PRESETS, meta_model
    from tlkit.strategies import apply_strategy

    model, known = meta_model("tinyllama-1.1b"), PRESETS["tinyllama-1.1b"].architecture
    blocks, width = known["num_hidden_layers"], known["hidden_size"]
    with_norms, without = (
        apply_strategy(model, "last_layers", train_norms=norms).trainable_values for norms in (True, False)
    )
    mistakes = {
        2 * (blocks - 2) + 1: "that is the number of vectors. Values are asked for, and each vector has many.",
        (2 * blocks + 1) * width: "that counts the norms of the last two blocks, too.",
        2 * blocks * width: "that counts the norms of the last two blocks, too, and misses the one behind them.",
        2 * (blocks - 2) * width: "one norm is missing: it belongs to no block.",
        (blocks - 2 + 1) * width: "a block has more than one norm.",
        45 * 896: "that is the number of Qwen2-0.5B; TinyLlama has another depth and another width.",
        with_norms: "that is all that is trained; what lies outside the last two blocks is asked for.",
    }
    given = number(answer)
    if given in mistakes:
        raise Wrong(mistakes[given])
    if given != with_norms - without:
        raise Wrong(f"{given:,.10g} is not it.")


@exercise(
    "ex07_2",
    2,
    "the count for five reports of models with twelve blocks, tied and untied",
    "Go through `report.components.items()`, and leave out the last blocks. How many blocks there are, "
    'you find by counting the names that start with "block ".',
    'With `depth` blocks, the last ones are called f"block {n}" for n in range(depth - blocks, depth).',
    "Add up `part.trainable_values` of all other components; embedding, head and final norm are among them.",
)
def values_elsewhere(answer: object) -> None:
    """Judge a function that counts the values trained outside the last blocks."""
    from tlkit.strategies import apply_strategy

    cases = [
        ("last_layers", {"blocks": 2}, True, 2, "the published recipe on twelve blocks"),
        ("last_layers", {"blocks": 2, "train_head": True}, False, 2, "last blocks, all norms and a head of its own"),
        ("last_layers", {"blocks": 3, "train_norms": False}, True, 3, "three blocks and nothing else"),
        ("last_layers", {"blocks": 3, "train_norms": False}, True, 1, "three trained blocks where one is named"),
        ("full", {}, False, 2, "full fine-tuning"),
    ]
    for strategy, options, tied, blocks, story in cases:
        report = apply_strategy(small_model(depth=12, tied=tied), strategy, **options)
        given = called(answer, report, blocks)
        expected = _trained_elsewhere(report.model, 12 - blocks)
        if number(given) == expected:
            continue
        told = _how_it_was_counted(report, blocks).get(given, f"your function returns {number(given):,.10g}.")
        raise Wrong(f"for {story}: {told}")


def _trained_elsewhere(model, first: int) -> int:
    """Counted on the model itself, not in its report."""
    last = {id(tensor) for block in model.model.layers[first:] for tensor in block.parameters()}
    return sum(p.numel() for p in model.parameters() if p.requires_grad and id(p) not in last)


def _how_it_was_counted(report, blocks: int) -> dict[int, str]:
    """Results of typical mistakes, and what to say to them."""
    parts = report.components
    names = [name for name in parts if name.startswith("block ")]
    everything = set(parts)

    def trained(chosen) -> int:
        return sum(parts[name].trainable_values for name in chosen)

    last = set(names[-blocks:])
    return {
        report.trainable_values: "that is all that is trained, the last blocks included.",
        trained(last): "that is what is trained in the last blocks; what is trained elsewhere is asked for.",
        sum(parts[name].total_values for name in everything - last): "that counts frozen values, too.",
        sum(parts[name].trainable_tensors for name in everything - last): "that is a number of tensors, not of values.",
        trained(everything - set(sorted(names)[-blocks:])): "as text, block 9 comes after block 11; sort by number.",
        trained(everything - set(list(parts)[-blocks:])): "the last entries of the report are not the last blocks.",
        trained(set(names) - last): "something is trained that is no block.",
    }


@exercise(
    "ex07_3",
    3,
    "what trains and what does not, tensor by tensor, in a Qwen2, in a Llama with its own head, and in a GPT-2",
    "Freeze everything first. `find_blocks(model)` is the list of blocks, whatever its name is.",
    "`model.get_decoder()` holds embedding, blocks and final norm; `named_children()` lists what is directly in it. "
    "What do the classes of all norms have in their names?",
    'The final norm is the child of the decoder with "Norm" in `type(child).__name__`. '
    "`child.requires_grad_(True)` makes it trainable, and the same call works for each of the last blocks.",
)
def exactly_the_last(answer: object) -> None:
    """Judge a function that trains the last blocks and the final norm, and nothing else."""
    from torch import nn

    places = {  # as people call it; start of the blocks' names, and of the final norm's
        "qwen2": ("Qwen2", "model.layers", "model.norm."),
        "llama": ("Llama", "model.layers", "model.norm."),
        "gpt2": ("GPT-2", "transformer.h", "transformer.ln_f."),
    }
    for architecture, blocks in (("qwen2", 2), ("llama", 1), ("gpt2", 3)):
        called_so, *names = places[architecture]
        model = small_model(architecture, depth=12, tied=architecture != "llama")
        given = called(answer, model, blocks)
        if not isinstance(given, nn.Module) or not hasattr(given, "get_decoder"):
            raise Wrong(f"the model is to be returned, and this is {kind(given)}.")
        _only_last_trains(f"in a {called_so}", dict(given.named_parameters()), blocks, *names)


def _only_last_trains(where: str, tensors: dict, blocks: int, start: str, final_norm: str) -> None:
    trains = {name for name, tensor in tensors.items() if tensor.requires_grad}
    norm = {name for name in tensors if name.startswith(final_norm)}
    last, lower = (
        {name for name in tensors if name.startswith(tuple(f"{start}.{n}." for n in numbers))}
        for numbers in (range(12 - blocks, 12), range(12 - blocks))
    )
    if trains == set(tensors):
        raise Wrong(f"{where} everything trains, as it did when the model came.")
    if last - trains:
        raise Wrong(f"{where} {len(last - trains)} tensors of the last blocks do not train: {min(last - trains)}.")
    if trains & lower and lower - trains:
        raise Wrong(f"{where} something trains in lower blocks, as in the published run: {min(trains & lower)}.")
    if trains & lower:
        raise Wrong(f"{where} all the lower blocks train as well.")
    if norm - trains:
        raise Wrong(f"{where} the final norm does not train. It is no part of a block.")
    if trains - last - norm:
        raise Wrong(f"{where} this trains as well: {min(trains - last - norm)}.")


QUIZ = Quiz(
    "quiz07",
    "In the bundled model, the norms outside the last two blocks have 2,496 values together. "
    "Training them raises the peak of memory by tens of megabytes. What is this memory for?",
    {
        "a": "For the norms themselves, which are computed in higher precision once they train.",
        "b": "For AdamW, which keeps two more numbers for each trained value.",
        "c": "For the gradient of the embedding, which is trained with them.",
        "d": "For what the backward pass needs of every block that it goes through.",
    },
    {
        "a": "no: everything here is 32 bits wide, frozen or not.",
        "b": "it does, and a gradient comes on top: three numbers of 4 bytes for each value, 30 kB. "
        "What was measured is about a thousand times as much.",
        "c": "no: the embedding is frozen in both runs. The report counts no trained value in it.",
        "d": "yes: the lowest trained norm is in block 0, so activations of all blocks are kept until the backward "
        "pass has used them. Without these norms it ends two blocks below the top.",
    },
    right="d",
)
TASKS = (norms_of_a_llama, values_elsewhere, exactly_the_last, QUIZ)

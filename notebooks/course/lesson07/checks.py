"""The last layers: what a recipe trains beside the blocks it is named after, and how to train no more than that."""

from operator import eq

from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, kind, number_exercise
from course.small import small_model
from tlkit.strategies import apply_strategy

BLOCKS, WIDTH = 22, 2048  # of TinyLlama
norms_of_a_llama = number_exercise(
    "ex07_1",
    "the number of values in TinyLlama's norms outside the last two blocks",
    "How many norm vectors are in blocks that stay frozen otherwise? The two trained blocks have theirs already.",
    "20 blocks with two norms each, and one norm behind the last block. Each norm has as many values as the width.",
    right=(2 * (BLOCKS - 2) + 1) * WIDTH,
    mistakes={
        "that is the number of vectors. Values are asked for, and each vector has many.": 2 * (BLOCKS - 2) + 1,
        "that counts the norms of the last two blocks, too.": (2 * BLOCKS + 1) * WIDTH,
        "that counts the norms of the last two blocks, too, and misses the one behind them.": 2 * BLOCKS * WIDTH,
        "one norm is missing: it belongs to no block.": 2 * (BLOCKS - 2) * WIDTH,
        "a block has more than one norm.": (BLOCKS - 2 + 1) * WIDTH,
        "that is the number of Qwen2-0.5B; TinyLlama has another depth and another width.": 45 * 896,
        "that is all that is trained; what lies outside the last two blocks is asked for.": 88_172_544,
    },
    within=0,
)


def _blocks(report) -> list[str]:
    return [name for name in report.components if name.startswith("block ")]


def _trained(report, names) -> int:
    return sum(report.components[name].trainable_values for name in names)


def _elsewhere(report, blocks: int) -> list[str]:
    return [name for name in report.components if name not in _blocks(report)[-blocks:]]


def _counted_on_the_model(report, blocks: int) -> int:
    last = {id(tensor) for block in report.model.model.layers[-blocks:] for tensor in block.parameters()}
    return sum(p.numel() for p in report.model.parameters() if p.requires_grad and id(p) not in last)


def _reports():
    for strategy, options, tied, blocks, story in (
        ("last_layers", {"blocks": 2}, True, 2, "for the published recipe on twelve blocks"),
        ("last_layers", {"blocks": 2, "train_head": True}, False, 2, "for last blocks, all norms and an own head"),
        ("last_layers", {"blocks": 3, "train_norms": False}, True, 3, "for three blocks and nothing else"),
        ("last_layers", {"blocks": 3, "train_norms": False}, True, 1, "for three trained blocks where one is named"),
        ("full", {}, False, 2, "for full fine-tuning"),
    ):
        yield story, apply_strategy(small_model(depth=12, tied=tied), strategy, **options), blocks


values_elsewhere = function_exercise(
    "ex07_2",
    "the count for five reports of models with twelve blocks, tied and untied",
    "Go through `report.components.items()`, and leave out the last blocks. How many blocks there are, "
    'you find by counting the names that start with "block ".',
    'With `depth` blocks, the last ones are called f"block {n}" for n in range(depth - blocks, depth).',
    "Add up `part.trainable_values` of all other components; embedding, head and final norm are among them.",
    right=_counted_on_the_model,
    cases=_reports,
    mistakes={
        "that is all that is trained, the last blocks included.": lambda report, blocks: report.trainable_values,
        "that is what is trained in the last blocks; what is trained elsewhere is asked for.": lambda report, blocks: (
            _trained(report, _blocks(report)[-blocks:])
        ),
        "that counts frozen values, too.": lambda report, blocks: sum(
            report.components[name].total_values for name in _elsewhere(report, blocks)
        ),
        "that is a number of tensors, not of values.": lambda report, blocks: sum(
            report.components[name].trainable_tensors for name in _elsewhere(report, blocks)
        ),
        "as text, block 9 comes after block 11; sort by number.": lambda report, blocks: _trained(
            report, set(report.components) - set(sorted(_blocks(report))[-blocks:])
        ),
        "the last entries of the report are not the last blocks.": lambda report, blocks: _trained(
            report, list(report.components)[:-blocks]
        ),
        "something is trained that is no block.": lambda report, blocks: _trained(report, _blocks(report)[:-blocks]),
    },
    alike=eq,
)


@exercise(
    "ex07_3",
    "what trains and what does not, tensor by tensor, in a Qwen2, in a Llama with its own head, and in a GPT-2",
    "Freeze everything first. `find_blocks(model)` is the list of blocks, whatever its name is.",
    "`model.get_decoder()` holds embedding, blocks and final norm; `named_children()` lists what is directly in it. "
    "What do the classes of all norms have in their names?",
    'The final norm is the child of the decoder with "Norm" in `type(child).__name__`. '
    "`child.requires_grad_(True)` makes it trainable, and the same call works for each of the last blocks.",
)
def exactly_the_last(answer: object) -> None:
    """Judge a function that trains the last blocks and the final norm, and nothing else."""
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

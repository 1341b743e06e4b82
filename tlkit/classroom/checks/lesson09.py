"""QLoRA: what four bits cost and save, and what is left of the saving in a whole step."""

from tlkit.classroom.exercises import Quiz, Wrong, called, exercise, near

# The codes, an 8-bit scale for 64 weights, and a 32-bit one for 256 of those scales.
BITS = 4 + 8 / 64 + 32 / (64 * 256)


@exercise(
    "ex09_1",
    1,
    "the bits of one weight, scale included, to one percent",
    "Every weight keeps its own four bits. The scale is shared: how much of it falls to one weight?",
    "64 weights take 64 * 4 bits, and their scale 32 more. Divide the sum by 64.",
)
def bits_of_a_weight(answer: object) -> None:
    """Judge the bits of one packed weight, with its part of the scale."""
    if near(answer, 4 + 8 / 64, within=0.0001):
        raise Wrong("that takes 8 bits for a scale. Here it keeps its 32 bits.")
    reasons = {
        BITS: "that is this lesson's figure, in which the scales are quantised too. Here a scale keeps its 32 bits.",
        4.0: "that is the code alone: without its scale a weight cannot be read.",
        4 + 32: "that gives every weight a scale of its own; 64 weights share one.",
        32 / 64: "that is one weight's share of the scale; the weight's own bits come to it.",
        4 + 64 / 32: "the share is the wrong way round: one scale of 32 bits for 64 weights.",
        (4 + 32 / 64) / 8: "these are bytes; bits are asked for.",
    }
    for value, reason in reasons.items():
        if near(answer, value, within=0.001):
            raise Wrong(reason)
    if not near(answer, 4 + 32 / 64):
        raise Wrong(f"{float(answer):.4g} is not it.")


@exercise(
    "ex09_2",
    2,
    "the percent of a step's peak that is saved, for four steps",
    "How many bits does one packed weight save? It had 16 and keeps 4.127. Then bits become bytes.",
    "The bytes saved do not depend on the batch: packed * (16 - 4.127) / 8. Compare them with the peak.",
    "return 100 * packed * (16 - 4.127) / 8 / lora_peak",
)
def saving_in_a_step(answer: object) -> None:
    """Judge a function for the percentage of a step's peak that packed weights save."""
    # Peaks of `lora` with weights in bf16, from estimate_memory; the last one with activation checkpointing.
    cases = [
        (357_826_560, 2_978_370_760, "qwen2-0.5b, 1 row"),
        (357_826_560, 16_540_026_056, "qwen2-0.5b, 8 rows"),
        (3_244_032, 164_800_000, "a small model, many rows"),
        (6_476_005_376, 14_053_000_000, "llama2-7b, 1 row"),
    ]
    for packed, peak, story in cases:
        given = called(answer, packed, peak)
        saved = packed * (16 - BITS) / 8
        right = 100 * saved / peak
        wrongs = {
            right / 100: "this is a share; percent are asked for.",
            100 - right: "this is what is left; what is saved is asked for.",
            100
            * saved
            / (peak - saved): "this compares with the smaller peak, that of qlora; compare with that of lora.",
            100 * (1 - BITS / 16): "this is the saving in the weights alone; the step holds other bytes too.",
            8 * right: "this takes bits for bytes.",
            100 * packed * 2 / peak: "the packed weights are gone altogether; they keep 4.127 bits each.",
            100 * packed * BITS / 8 / peak: "this is what the packed weights still take, not what they save.",
            100 * packed * 1.5 / peak: "the scales are missing: a packed weight takes more than 4 bits.",
            saved: "these are the bytes saved; their percentage of the peak is asked for.",
        }
        if near(given, right, within=0.002):
            continue
        for value, reason in wrongs.items():
            if near(given, value, within=0.0008):
                raise Wrong(f"for {story}: {reason}")
        raise Wrong(f"for {story} it gives {float(given):.4g} percent.")


@exercise(
    "ex09_3",
    3,
    "weights that were rounded and read again, for six tensors",
    "Take one block at a time: weights.split(block) gives them all, the shorter one too. torch.cat joins the results.",
    "Nearest: `scaled[:, None] - levels` has the distance of every weight to every level. Where is it least?",
    "abs().argmin(1) of those distances is each weight's place in `levels`. levels[place] * scale is a block's result.",
)
def quantiser(answer: object) -> None:
    """Judge a function that rounds weights to levels, block by block, and reads them again."""
    import torch

    few = torch.tensor([-1.0, -0.4, 0.0, 0.3, 1.0])
    many = torch.linspace(-1, 1, 16)
    normal = torch.randn(256, generator=torch.Generator().manual_seed(0))
    below = torch.cat([normal.abs()[:63], torch.tensor([-7.0])])
    apart = normal.view(4, 64) * torch.tensor([[1.0], [100.0], [0.01], [5.0]])
    cases = [
        (torch.tensor([0.1, 0.5, -0.3, 1.9]), few, 4, "one block of four weights"),
        (normal, many, 64, "four blocks"),
        (apart.flatten(), many, 64, "four blocks of very different size"),
        (below, many, 64, "a block whose largest weight is negative"),
        (normal[:96], few, 32, "blocks of 32"),
        (normal[:100], many, 64, "a last block that is shorter"),
    ]
    for weights, levels, block, story in cases:
        handed, places = weights.clone(), levels.clone()
        given = called(answer, handed, places, block)
        if not torch.equal(handed, weights) or not torch.equal(places, levels):
            raise Wrong(f"for {story} your function changes what it was given. Work on a new tensor.")
        if not isinstance(given, torch.Tensor):
            raise Wrong(f"for {story} a tensor is asked for, and this is {type(given).__name__}.")
        if given.shape != weights.shape:
            shapes = f"{tuple(given.shape)} and not {tuple(weights.shape)}"
            raise Wrong(f"for {story} the shape is {shapes}. Give the weights back in the shape that they had.")
        _compare(given.detach().float(), weights, levels, block, story)


def _compare(given, weights, levels, block, story):
    import torch

    def same(expected):
        return torch.allclose(given, expected, rtol=1e-3, atol=1e-6)

    def nearest(scaled):
        return (scaled[:, None] - levels).abs().argmin(1)

    def below(scaled):
        return (torch.searchsorted(levels, scaled, right=True) - 1).clamp(min=0)

    def each(way):
        return torch.cat([way(part, part.abs().max()) for part in weights.split(block)])

    right = each(lambda part, scale: levels[nearest(part / scale)] * scale)
    if same(right):
        return
    if given.isnan().any():
        raise Wrong(f"for {story} there is nan in what comes back: what is divided by what there?")
    whole = weights.abs().max()
    wrongs = [
        (weights, "nothing was rounded: these are the weights as they were."),
        (each(lambda part, scale: levels[nearest(part / scale)]), "the levels come back without their block's scale."),
        (each(lambda part, scale: nearest(part / scale)), "these are places in `levels`, not the weights."),
        (levels[nearest(weights / whole)] * whole, "one scale was taken for all blocks; each has its own."),
        (
            each(lambda part, _: levels[nearest(part / part.max())] * part.max()),
            "the scale is the largest weight; the largest *absolute* value is asked for.",
        ),
        (each(lambda part, _: levels[nearest(part)]), "the weights were not divided by their block's scale."),
        (
            each(lambda part, scale: levels[nearest(part)] * scale),
            "the weights were multiplied by their block's scale, but not divided by it before.",
        ),
        (
            each(lambda part, scale: levels[below(part / scale)] * scale),
            "this takes the level below; the nearest one is asked for.",
        ),
    ]
    for expected, reason in wrongs:
        if same(expected.float()):
            raise Wrong(f"for {story} {reason}")
    raise Wrong(f"for {story} one weight is {float((given - right).abs().max()):.3g} away from where it should be.")


QUIZ = Quiz(
    "quiz09",
    "LoRA trains a 0.5B model on your card in 16 bits, with memory to spare. What would QLoRA change?",
    {
        "a": "Steps get faster: a quarter of the bytes has to be read.",
        "b": "The same steps need less memory, at no price.",
        "c": "Steps get slower and weights coarser, for memory that you do not need.",
        "d": "The adapters get 4 bits too, and a quarter of the size on disk.",
    },
    {
        "a": "no: 4-bit weights cannot be multiplied as they are. Each layer is unpacked first, in the forward pass "
        "and again in the backward pass.",
        "b": "no: it needs less memory, but unpacking takes time, and rounded weights start from a higher perplexity.",
        "c": "yes: QLoRA buys memory with time and a little accuracy. It pays where 16 bits do not fit.",
        "d": "no: only the frozen weights are packed. The adapters beside them are trained, and saved, as with LoRA.",
    },
    right="c",
)
TASKS = (bits_of_a_weight, saving_in_a_step, quantiser, QUIZ)

"""QLoRA: what four bits cost and save, and what is left of the saving in a whole step."""

from course.exercises import Quiz, Wrong, called, exercise, near, recognise

# The codes, an 8-bit scale for 64 weights, and a 32-bit one for 256 of those scales.
BITS = 4 + 8 / 64 + 32 / (64 * 256)


@exercise(
    "ex09_1",
    1,
    "the bits of one weight, with its share of what the block keeps, to one percent",
    "Every weight has its own four bits. Scale and smallest weight are shared: how much of them falls to one weight?",
    "32 weights take 32 * 4 bits, their scale 16 more, their smallest weight 16 more. Divide the sum by 32.",
)
def bits_of_a_weight(answer: object) -> None:
    """Judge the bits of one weight in blocks of 32 that keep two numbers of 16 bits."""
    reasons = {
        4 + 16 / 32: "one number of 16 bits for each block is missing: it keeps a scale *and* its smallest weight.",
        BITS: "that is NF4 with double quantisation; here nothing that a block keeps is quantised again.",
        4.0: "that is the code alone: without its block's numbers a weight cannot be read.",
        4 + 32: "that gives every weight numbers of its own; 32 weights share them.",
        4 + 16: "that gives every weight a scale of its own; 32 weights share it.",
        32 / 32: "that is one weight's share of what the block keeps; the weight's own bits come to it.",
        (4 + 32 / 32) / 8: "these are bytes; bits are asked for.",
        32 * 4 + 32: "these are the bits of the whole block; those of one weight are asked for.",
    }
    recognise(answer, reasons)
    if not near(answer, 4 + 32 / 32):
        raise Wrong(f"{float(answer):.4g} is not it.")


@exercise(
    "ex09_2",
    2,
    "the percent of a step's peak that is saved, for four steps",
    "How many bits does one packed weight save? It had 16 and keeps 4.127. Then bits become bytes.",
    "The bytes saved do not depend on the batch: packed * (16 - 4.127) / 8. Compare them with the peak.",
    "What is asked for is 100 times these bytes, divided by `lora_peak`.",
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
    "weights that were rounded between the ends of their block and read again, for seven tensors",
    "Take one block at a time: weights.split(block) gives them all, the shorter one too. torch.cat joins the results.",
    "2**bits levels have 2**bits - 1 gaps between them. From the smallest weight to the largest, how wide is one?",
    "With low = part.min() and gap = (part.max() - low) / (2**bits - 1), the code is ((part - low) / gap).round(); "
    "what is read again is low + gap * code. Where all weights are equal, gap is 0: give them back.",
)
def quantiser(answer: object) -> None:
    """Judge a function that rounds weights to even levels between the smallest and the largest of each block."""
    import torch

    normal = torch.randn(256, generator=torch.Generator().manual_seed(0))
    apart = normal.view(4, 64) * torch.tensor([[1.0], [100.0], [0.01], [5.0]])
    constant = torch.cat([normal[:64], torch.full((64,), 0.25)])
    cases = [
        (torch.tensor([0.1, 0.5, -0.3, 1.9]), 2, 4, "one block of four weights in 2 bits"),
        (normal, 4, 64, "four blocks in 4 bits"),
        (apart.flatten(), 4, 64, "four blocks of very different size"),
        (normal.abs() + 3, 4, 64, "weights that are all far above zero"),
        (normal, 3, 32, "blocks of 32 in 3 bits"),
        (normal[:100], 4, 64, "a last block that is shorter"),
        (constant, 4, 64, "a block in which all weights are equal"),
    ]
    for weights, bits, block, story in cases:
        handed = weights.clone()
        given = called(answer, handed, bits, block)
        if not torch.equal(handed, weights):
            raise Wrong(f"for {story} your function changes what it was given. Work on a new tensor.")
        if not isinstance(given, torch.Tensor):
            raise Wrong(f"for {story} a tensor is asked for, and this is {type(given).__name__}.")
        if given.shape != weights.shape:
            shapes = f"{tuple(given.shape)} and not {tuple(weights.shape)}"
            raise Wrong(f"for {story} the shape is {shapes}. Give the weights back in the shape that they had.")
        _compare(given.detach().float(), weights, bits, block, story)


def _compare(given, weights, bits, block, story):
    import torch

    def same(expected):
        return torch.allclose(given, expected.float(), rtol=1e-3, atol=1e-5)

    def even(part, low, high, steps, whole=torch.round):
        gap = (high - low) / steps
        return low + gap * whole((part - low) / gap) if gap > 0 else part

    def each(way):
        return torch.cat([way(part) for part in weights.split(block)])

    steps = 2**bits - 1
    right = each(lambda part: even(part, part.min(), part.max(), steps))
    if same(right):
        return
    if given.isnan().any():
        raise Wrong(f"for {story} there is nan in what comes back: the gap is 0 there, and you divide by it.")
    if story.startswith("a block in which"):
        raise Wrong(f"for {story} these weights need no rounding: all levels are the same.")
    lowest, highest = weights.min(), weights.max()
    wrongs = [
        (weights, "nothing was rounded: these are the weights as they were."),
        (even(weights, lowest, highest, steps), "one range was taken for all blocks; each has its own."),
        (
            each(lambda part: even(part, part.min(), part.max(), 2**bits)),
            "these are 2**bits gaps, so one level too many: codes of so few bits cannot tell them apart.",
        ),
        (
            each(lambda part: even(part, part.min(), part.max(), steps, torch.floor)),
            "this takes the level below; the nearest one is asked for.",
        ),
        (
            each(lambda part: even(part, part.min(), part.max(), steps) - part.min()),
            "the smallest weight of the block was taken off, and not added again.",
        ),
        (
            each(lambda part: (even(part, part.min(), part.max(), steps) - part.min()) / (part.max() - part.min())),
            "these are levels from 0 to 1: the range of the block is missing.",
        ),
        (
            each(lambda part: ((part - part.min()) / (part.max() - part.min()) * steps).round()),
            "these are codes, not the weights that they stand for.",
        ),
        (
            each(lambda part: even(part, -part.abs().max(), part.abs().max(), steps)),
            "the levels go from minus to plus the largest *absolute* value; here they begin at the smallest weight.",
        ),
    ]
    for expected, reason in wrongs:
        if same(expected):
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

"""QLoRA: the forward pass of a layer whose weights are packed in four bits."""

import torch

from course.exercises import Quiz, function_exercise
from course.small import close_tensors, tensor


def _layers():
    draw = torch.Generator().manual_seed(0)
    levels = torch.linspace(-1, 1, 16) ** 3
    for rows, columns, group, rank, alpha in ((4, 8, 32, 2, 4), (6, 16, 8, 4, 16), (16, 8, 64, 1, 8)):
        size = rows * columns
        packed = torch.randint(256, (size // 2,), generator=draw, dtype=torch.uint8)
        scales = torch.rand(size // group, generator=draw) + 0.5
        shapes = (5, columns), (rank, columns), (rows, rank)
        x, a, b = (torch.randn(shape, generator=draw) for shape in shapes)
        yield f"for {rows} x {columns} weights in groups of {group}", x, packed, scales, levels, a, b, alpha


def _codes(packed):
    return torch.stack([packed // 16, packed % 16], 1).flatten().long()


def _layer(codes=_codes, scaled=True, factor=None, transposed=False, parts=(1, 1)):
    """The layer, or what a usual mistake makes of it."""

    def forward(x, packed, scales, levels, a, b, alpha):
        weights = levels[codes(packed)]
        if scaled:
            weights = weights * scales.repeat_interleave(len(weights) // len(scales))
        shape = (len(b), a.shape[1])
        weights = weights.view(shape[::-1]).T if transposed else weights.view(shape)
        share = alpha / len(a) if factor is None else factor(alpha, len(a))
        return parts[0] * torch.einsum("ti,oi->to", x, weights) + parts[1] * share * (x @ a.T @ b.T)

    return forward


qlora_layer = function_exercise(
    "ex06_1",
    "the outputs of three layers with different shapes, groups and ranks",
    "First the codes: `packed // 16` is the first one of a byte, and `packed % 16` the second. "
    "`torch.stack([...], dim=1)` puts the two of each byte beside each other.",
    "`levels[codes.long()]` looks up every level. In the shape (groups, weights in a group) each row is multiplied by "
    "its scale, `scales[:, None]`.",
    "Reshape the weights to (out, in), which is (len(B), A.shape[1]). Then h = x @ W.T + alpha / r * (x @ A.T @ B.T).",
    right=_layer(),
    cases=_layers,
    mistakes={
        "the two codes of each byte are in the wrong order: the first one was multiplied by 16.": _layer(
            lambda packed: _codes(packed).view(-1, 2).flip(1).flatten()
        ),
        "all first codes of the bytes come before all second ones; the two of a byte are neighbours.": _layer(
            lambda packed: torch.cat([packed // 16, packed % 16]).long()
        ),
        "the levels are not multiplied by the scales of their groups.": _layer(scaled=False),
        "the adapter is added without alpha / r.": _layer(factor=lambda alpha, rank: 1),
        "the adapter is multiplied by alpha, but not divided by the rank.": _layer(factor=lambda alpha, rank: alpha),
        "this is the frozen part alone; the adapter is missing.": _layer(parts=(1, 0)),
        "this is the adapter alone; the packed weights are missing.": _layer(parts=(0, 1)),
        "the weights are read column by column; they are stored row by row.": _layer(transposed=True),
    },
    read=lambda given, x, packed, scales, levels, a, b, alpha: tensor(given, torch.empty(len(x), len(b))),
    alike=close_tensors,
    keeps=True,
)


QUIZ = Quiz(
    "quiz06",
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
        "b": "no: it needs less memory, but unpacking takes time, and rounding may cost some perplexity.",
        "c": "yes: QLoRA buys memory with time and perhaps a little accuracy. It pays where 16 bits do not fit.",
        "d": "no: only the frozen weights are packed. The adapters beside them are trained, and saved, as with LoRA.",
    },
    right="c",
)

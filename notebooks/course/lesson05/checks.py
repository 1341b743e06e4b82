"""LoRA: how few values an adapter has, what it adds to its matrix, and how to see that it learns."""

import warnings
from functools import cache, partial

import torch

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, kind, number_exercise
from course.small import close_tensors, small_model, tensor
from tlkit.evidence.gradient_flow import check_gradient_flow
from tlkit.strategies import apply_strategy

where_few_ends = number_exercise(
    "ex05_1",
    "the smallest rank at which an adapter has more values than its matrix of 512 x 192",
    "How many values does each further rank add? It adds one row to A and one column to B.",
    "With rank r it has r * (192 + 512) values. Divide, and think about which whole number comes next.",
    right=140,
    mistakes={
        "a rank is a whole number.": 512 * 192 / (512 + 192),
        "at that rank B·A can be any matrix of this shape. It has more values than the matrix well before.": 192,
        "there the adapter still has fewer values, if only a few.": 139,
        "only one of the two thin matrices is counted.": 193,
        "only A is counted, which is the smaller of the two thin matrices.": 513,
        "that is how often the adapter of rank 8 goes into the matrix; a rank is asked for.": 18,
    },
    within=1e-4,
)


def _adapted(weight, a, b, alpha, *, scale=lambda alpha, rank: alpha / rank, product=torch.matmul, kept=1):
    """The matrix with its adapter added; the options make it wrong, each as somebody does."""
    return kept * weight + scale(alpha, len(a)) * product(b, a)


def _adapters():
    draw = torch.Generator().manual_seed(0)
    for rows, columns, rank, alpha in ((12, 5, 2, 16), (6, 6, 1, 4), (4, 4, 4, 8)):
        shapes = ((rows, columns), (rank, columns), (rows, rank))
        yield (
            f"for a weight of {rows} x {columns} and rank {rank}",
            *(torch.randn(shape, generator=draw) for shape in shapes),
            alpha,
        )


merged = function_exercise(
    "ex05_2",
    "the merged matrix, and that the given one stays as it is, for three shapes, ranks and alphas",
    "What the adapter adds to the output is alpha/r · B·A·x. What does it add to the matrix, then?",
    "A has one row for each rank: r is `a.shape[0]`.",
    "The order is `b @ a`. Use `+` and not `+=`, which writes into the weight that was given.",
    right=lambda weight, a, b, alpha: weight + alpha / len(a) * torch.einsum("ir,rj->ij", b, a),
    cases=_adapters,
    mistakes={
        "the adapter is added as it is, without alpha/r": partial(_adapted, scale=lambda alpha, rank: 1),
        "the adapter is multiplied by alpha; it is not yet divided by the rank": partial(
            _adapted, scale=lambda alpha, rank: alpha
        ),
        "the scale is upside down": partial(_adapted, scale=lambda alpha, rank: rank / alpha),
        "the adapter is taken away": partial(_adapted, scale=lambda alpha, rank: -alpha / rank),
        "the weight itself is missing": partial(_adapted, kept=0),
        "the weight is scaled, too": lambda weight, a, b, alpha: alpha / len(a) * (weight + b @ a),
    },
    read=lambda given, weight, *adapter: tensor(given, weight),
    alike=close_tensors,
    keeps=True,
)


@exercise(
    "ex05_3",
    "the list of names for a healthy adapter, for several that are broken, and for frozen tensors",
    "Only tensors that are declared trainable can be dead. And a healthy A has no gradient in one of the two steps.",
    "`NaN == 0` is False, and so is `NaN > 0`. Ask which tensors received something, then take the others.",
    "`(table.norm_1 > 0) | (table.norm_2 > 0)` is true for those that received a gradient; `~` turns it round.",
)
def dead_adapters(answer: object) -> None:
    """Judge a function that lists the trainable tensors that never received a gradient."""
    for story, (table, dead) in _tables().items():
        given = called(answer, table.copy())
        if isinstance(given, str | dict) or not hasattr(given, "__iter__"):
            raise Wrong(f"a list of names is asked for, and this is {kind(given)}.")
        given = list(given)
        if not set(given) <= set(table.tensor):
            raise Wrong("there is something in the list that is no name from the column `tensor`.")
        accused, missed = set(given) - dead, dead - set(given)
        frozen = accused & set(table.tensor[~table.declared])
        if frozen:
            raise Wrong(f"{len(frozen)} frozen tensors are in the list; they are not meant to receive a gradient.")
        if any("lora_A" in name for name in accused):
            raise Wrong(f"{story}: a healthy A is in the list. Where B is still zero, A waits for the second step.")
        if accused:
            raise Wrong(f"{story}: a tensor is in the list that did receive a gradient.")
        if missed & set(table.tensor[table.norm_2.isna()]):
            raise Wrong(f"{story}: a tensor without any gradient is not in the list. Its norms are NaN, not zero.")
        if missed:
            raise Wrong(f"{story}: a tensor whose gradient is zero in both steps is not in the list.")


@cache
def _tables() -> dict:
    """Gradient flow of small adapted models, whole and with faults planted, and what is dead in each."""
    batch = torch.arange(32).reshape(2, 16)

    def flow(plant=None):
        report = apply_strategy(small_model(weights=True), "lora", r=2)
        if plant is not None:
            plant(report.model.base_model.model.model.layers[1].self_attn.q_proj)
        return check_gradient_flow(report, batch).table

    def unplug(layer):
        layer.lora_B["default"].register_forward_hook(lambda module, inputs, output: output.detach())

    def zero_both(layer):
        torch.nn.init.zeros_(layer.lora_A["default"].weight)

    def freeze_b(layer):
        layer.lora_B["default"].requires_grad_(False)

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft, about what is planted
        torch.manual_seed(0)
        healthy = flow()
        once = healthy.copy()
        once.loc[once.tensor.str.contains("layers.0.self_attn.k_proj.lora_B"), "norm_2"] = 0.0
        pair = set(healthy.tensor[healthy.tensor.str.contains("layers.1.self_attn.q_proj.lora_")])
        return {
            "for a healthy adapter": (healthy, set()),
            "for an adapter that is not plugged in": (flow(unplug), pair),
            "for an adapter with zeros in A and in B": (flow(zero_both), pair),
            "for an adapter whose B was frozen afterwards": (flow(freeze_b), pair),
            "for a tensor that was reached in the first step only": (once, set()),
        }


QUIZ = Quiz(
    "quiz05",
    "A friend initialises A *and* B with zeros, to be sure that the adapted model starts as the pretrained one. "
    "What happens in training?",
    {
        "a": "Nothing moves: every gradient of A and B is zero, in every step.",
        "b": "It trains as usual, because only the product B·A matters at the start, and it is zero either way.",
        "c": "A waits for one step and then trains, as it always does.",
        "d": "B waits for one step and then trains.",
    },
    {
        "a": "yes: the gradient of A contains B, and the gradient of B contains A. Both are zero and stay zero.",
        "b": "no: the model starts the same, but the gradients do not. The gradient of B contains A, which is zero.",
        "c": "no: A waits for B to move. Here B cannot move, because its gradient contains A.",
        "d": "no: B could only move after A did, and A waits for B.",
    },
    right="a",
)

"""LoRA: how few values an adapter has, what it adds to its matrix, and how to see that it learns."""

from functools import cache

from course.exercises import Quiz, Wrong, called, exercise, kind, number
from course.small import small_model


@exercise(
    "ex08_1",
    1,
    "the smallest rank at which an adapter has more values than its matrix of 512 x 192",
    "How many values does each further rank add? It adds one row to A and one column to B.",
    "With rank r it has r * (192 + 512) values. Divide, and think about which whole number comes next.",
)
def where_few_ends(answer: object) -> None:
    """Judge the smallest rank at which an adapter is larger than its matrix."""
    rows, columns = 512, 192
    smallest = next(r for r in range(1, rows + 1) if r * (rows + columns) > rows * columns)
    given = number(answer)
    if given == smallest:
        return
    if given % 1:
        raise Wrong("a rank is a whole number.")
    if given == columns:
        raise Wrong("at that rank B·A can be any matrix of this shape. It has more values than the matrix well before.")
    if given == smallest - 1:
        raise Wrong("there the adapter still has fewer values, if only a few.")
    if given in (rows, rows + 1, columns + 1):
        raise Wrong("only one of the two thin matrices is counted.")
    if given in (17, 18):
        raise Wrong("that is how often the adapter of rank 8 goes into the matrix; a rank is asked for.")
    relation = "more, but it is not the first such rank" if given > smallest else "fewer values than the matrix"
    raise Wrong(f"with rank {given:.0f} the adapter has {relation}.")


@exercise(
    "ex08_2",
    2,
    "the merged matrix, and that the given one stays as it is, for three shapes, ranks and alphas",
    "What the adapter adds to the output is alpha/r · B·A·x. What does it add to the matrix, then?",
    "A has one row for each rank: r is `a.shape[0]`.",
    "The order is `b @ a`. Use `+` and not `+=`, which writes into the weight that was given.",
)
def merged(answer: object) -> None:
    """Judge a function that adds an adapter to its matrix and leaves the given one alone."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for rows, columns, rank, alpha in ((12, 5, 2, 16), (6, 6, 1, 4), (4, 4, 4, 8)):
        weight, a, b = (
            torch.randn(shape, generator=generator) for shape in ((rows, columns), (rank, columns), (rows, rank))
        )
        kept = weight.clone()
        given = called(answer, weight, a, b, alpha)
        if not isinstance(given, torch.Tensor):
            raise Wrong(f"a tensor is asked for, and your function returns {kind(given)}.")
        case = f"for a weight of {rows} x {columns} and rank {rank}"
        given = given.detach().float()
        if given.shape != weight.shape:
            raise Wrong(f"{case} the result has the shape {tuple(given.shape)}, not that of the weight.")
        product = torch.einsum("ir,rj->ij", b, a)
        scale = alpha / rank
        if not torch.allclose(given, kept + scale * product, atol=1e-4):
            mistakes = {
                "the adapter is added as it is, without alpha/r": kept + product,
                "the adapter is multiplied by alpha; it is not yet divided by the rank": kept + alpha * product,
                "the scale is upside down": kept + product / scale,
                "the adapter is taken away": kept - scale * product,
                "the weight itself is missing": scale * product,
                "the weight is scaled, too": scale * (kept + product),
            }
            if rows == columns:
                mistakes["the product is transposed"] = kept + scale * product.T
                mistakes["A and B are in each other's place"] = kept + scale * (a @ b)
            told = [why for why, wrong in mistakes.items() if torch.allclose(given, wrong, atol=1e-4)]
            raise Wrong(f"{case} {told[0] if told else 'the numbers are others'}.")
        if not weight.equal(kept):
            raise Wrong(f"{case} the result is right, but it was also written into the weight that was given.")


@exercise(
    "ex08_3",
    3,
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
    import warnings

    import torch

    from tlkit.evidence.gradient_flow import check_gradient_flow
    from tlkit.strategies import apply_strategy

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
    "quiz08",
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
TASKS = (where_few_ends, merged, dead_adapters, QUIZ)

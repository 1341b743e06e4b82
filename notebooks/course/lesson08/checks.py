"""The PEFT family: BitFit applied by hand, and DoRA's matrix."""

import torch

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, kind
from course.small import close_tensors, small_model, tensor


@exercise(
    "ex08_1",
    "which tensors of three architectures can be trained afterwards, and the number that is returned",
    "`model.named_parameters()` gives a name and a tensor. Freeze all of them first.",
    "A norm has a vector, too, but it is a weight: its name does not end in `bias`.",
    "`tensor.requires_grad_(name.endswith('bias'))` for each of them; then add up `numel()` of those that train.",
)
def train_only_biases(answer: object) -> None:
    """Judge a function that leaves nothing but the bias vectors trainable."""
    cases = (("qwen2", "a Qwen2", 2), ("phi", "a Phi", 2), ("llama", "a Llama", 2))
    for architecture, story, depth in cases:
        model = small_model(architecture, depth=depth, weights=True)
        # One tensor starts frozen and another does not, so that both directions have to be set.
        for place, values in enumerate(model.parameters()):
            values.requires_grad_(place % 2 == 0)
        given = called(answer, model)
        tensors = dict(model.named_parameters())
        wanted = {name for name in tensors if name.endswith("bias")}
        found = {name for name, tensor in tensors.items() if tensor.requires_grad}
        for name in sorted(found - wanted):
            what = "a norm's weight" if "norm" in name else "a weight matrix"
            raise Wrong(f"for {story}: {name} can still be trained, and it is {what}.")
        for name in sorted(wanted - found):
            raise Wrong(f"for {story}: {name} is a bias vector and stays frozen.")
        right = sum(tensors[name].numel() for name in wanted)
        if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
            raise Wrong(f"the tensors are right, but a number is to be returned, and this is {kind(given)}.")
        if given == len(wanted) != right:
            raise Wrong(f"for {story}: that is the number of tensors; the number of parameters in them is asked for.")
        if given != right:
            raise Wrong(f"for {story}: the tensors are right, but the number of parameters in them is another.")


def _matrices():
    draw = torch.Generator().manual_seed(0)
    for rows, columns, rank, alpha in ((12, 5, 2, 16), (6, 6, 1, 4), (4, 9, 3, 12)):
        shapes = (rows, columns), (rank, columns), (rows, rank), (rows,)
        weight, a, b, m = (torch.randn(shape, generator=draw) for shape in shapes)
        yield f"for a weight of {rows} x {columns} and rank {rank}", weight, a, b, alpha, m.abs() + 0.5


def _lora(weight, a, b, alpha, m):
    return weight + alpha / len(a) * (b @ a)


def _dora(weight, a, b, alpha, m):
    matrix = weight + alpha / len(a) * torch.einsum("ir,rj->ij", b, a)
    return m[:, None] * matrix / matrix.pow(2).sum(1, keepdim=True).sqrt()


dora_matrix = function_exercise(
    "ex08_2",
    "DoRA's matrix for three shapes, ranks and alphas",
    "First make the matrix of LoRA: W and its adapter, with alpha/r.",
    "The length of a row is the square root of the sum of its squares: `matrix.norm(dim=1, keepdim=True)`.",
    "Divide each row by its length and multiply it by its number in `m`, as a column: `m[:, None]`.",
    right=_dora,
    cases=_matrices,
    mistakes={
        "the adapter is added without alpha/r": lambda weight, a, b, alpha, m: _dora(weight, a, b, len(a), m),
        "the rows have length 1; they are not multiplied by m yet": lambda *given: _dora(*given) / given[-1][:, None],
        "this is LoRA's matrix; its rows are neither divided by their length nor multiplied by m": _lora,
        "the rows are multiplied by m, but not divided by their length first": lambda *given: (
            given[-1][:, None] * _lora(*given)
        ),
        "columns are divided by their length; each row has one": lambda *given: (
            given[-1][:, None] * _lora(*given) / _lora(*given).norm(dim=0)
        ),
        "all rows are divided by one number, the length of the whole matrix": lambda *given: (
            given[-1][:, None] * _lora(*given) / _lora(*given).norm()
        ),
        "the length is taken of W alone, before the adapter is added": lambda weight, *adapter: (
            adapter[-1][:, None] * _lora(weight, *adapter) / weight.norm(dim=1, keepdim=True)
        ),
    },
    read=lambda given, weight, *adapter: tensor(given, weight),
    alike=close_tensors,
)


QUIZ = Quiz(
    "quiz08",
    "BitFit trains 0.08% of the bundled model and still needs 69% of full fine-tuning's arithmetic. "
    "What brings it down to about 43%?",
    {
        "a": "Train the bias vectors of the last block only.",
        "b": "Train the bias vectors of the queries only, in every block.",
        "c": "Use LoRA of rank 1 instead.",
        "d": "Nothing: forward pass and backpropagation always run through the whole network.",
    },
    {
        "a": "yes: the forward pass is whole, but backpropagation ends at the lowest parameter that is trained.",
        "b": "no: that is half of the biases, but one in block 0 is enough: backpropagation must reach it.",
        "c": "no: thin matrices cost next to nothing, but those in block 0 are as far down as BitFit's. "
        "It needs about as much.",
        "d": "the forward pass does; backpropagation only runs down to the lowest parameter that is trained.",
    },
    right="a",
)

"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""


def _only(wanted, counted=lambda tensors: sum(tensor.numel() for tensor in tensors)):
    """A function that trains what `wanted(name, tensor)` says."""

    def apply(model):
        for name, tensor in model.named_parameters():
            tensor.requires_grad_(bool(wanted(name, tensor)))
        return counted([tensor for tensor in model.parameters() if tensor.requires_grad])

    return apply


def _never_frozen(model):
    biases = [tensor for name, tensor in model.named_parameters() if name.endswith("bias")]
    for tensor in biases:
        tensor.requires_grad_(True)
    return sum(tensor.numel() for tensor in biases)


def _dora(weight, a, b, alpha, m, *, scale=None, length=None, magnitude=None):
    whole = weight + (alpha / len(a) if scale is None else scale) * b @ a
    length = whole.norm(dim=1, keepdim=True) if length is None else length(weight, whole)
    return (m[:, None] if magnitude is None else magnitude) * whole / length


WRONG = {
    "ex10_1": [
        (1_152, "one block of 24"),
        (64_512, "keys and values have fewer heads"),
        (21_504, "only the biases of the queries"),
        (24_576, "either the keys or the values are missing"),
        (49_152, "has no bias in a Qwen2"),
        (3_072, "the bundled model"),
        (100, "it is more"),
        (1e6, "it is less"),
    ],
    "ex10_2": [
        (_only(lambda name, tensor: tensor.ndim == 1), "a norm's weight"),
        (_never_frozen, "a weight matrix"),
        (_only(lambda name, tensor: name.endswith("q_proj.bias")), "is a bias vector and stays frozen"),
        (_only(lambda name, tensor: False), "is a bias vector and stays frozen"),
        (_only(lambda name, tensor: name.endswith("bias"), len), "the number of tensors"),
        (_only(lambda name, tensor: name.endswith("bias"), lambda tensors: tensors), "a number is to be returned"),
        (_only(lambda name, tensor: name.endswith("bias"), lambda tensors: 1), "the number of values in them"),
    ],
    "ex10_3": [
        (lambda *given: _dora(*given, scale=1), "without alpha/r"),
        (lambda *given: _dora(*given, magnitude=1), "not multiplied by m yet"),
        (lambda *given: _dora(*given, magnitude=1, length=lambda weight, whole: 1), "this is LoRA's matrix"),
        (lambda *given: _dora(*given, length=lambda weight, whole: 1), "not divided by their length first"),
        (lambda *given: _dora(*given, length=lambda weight, whole: whole.norm(dim=0)), "each row has one"),
        (lambda *given: _dora(*given, length=lambda weight, whole: whole.norm()), "the length of the whole matrix"),
        (
            lambda *given: _dora(*given, length=lambda weight, whole: weight.norm(dim=1, keepdim=True)),
            "of W alone, before the adapter",
        ),
        (lambda weight, a, b, alpha, m: m, "not that of the weight"),
    ],
}

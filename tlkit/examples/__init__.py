"""What a model learns from beside running text: answers to questions, and classes."""

from tlkit.examples.batches import (
    IGNORED,
    Batch,
    Examples,
    as_examples,
    inputs_of,
    labels_in,
    padding_token,
    refuse_examples,
    shape_of,
    tensors_in,
)

"""What a model learns from beside running text: answers to questions, texts in a row, classes."""

from tlkit.examples.batches import (
    IGNORED,
    LAYOUTS,
    PADDING,
    Batch,
    Examples,
    as_examples,
    inputs_of,
    labels_in,
    padding_token,
    shape_of,
    tensors_in,
)

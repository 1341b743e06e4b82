"""What a training step learns from where not every token counts: answers, packed texts, classes."""

from dataclasses import dataclass, replace

import torch
from torch._subclasses.fake_tensor import FakeTensor

LAYOUTS = ("padded", "packed", "mixed")
IGNORED = -100  # the label of a token that nothing is learned from; what torch's cross entropy leaves out
PADDING = -1  # the text that a token behind the last one belongs to


@dataclass(frozen=True)
class Examples:
    """Rows of tokens, and for each what is to be predicted.

    Attributes:
        tokens: ids, shape (rows, tokens).
        labels: for each token its own id, or `IGNORED`, shape (rows, tokens): the loss of a label is that of predicting
            it from the tokens before it. For classification the class of each row, shape (rows,).
        texts: for each token the number of the text in its row that it belongs to, from 0, or `PADDING`; shape
            (rows, tokens).
        layout: "padded": a row has one text. "packed": it may have several, and each is read as if it were alone.
            "mixed": it may have several, and each token attends to all before it, as in blocks of running text.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    texts: torch.Tensor
    layout: str = "padded"

    def __post_init__(self):
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout={self.layout!r}: expected one of {', '.join(LAYOUTS)}")
        shapes = [tuple(part.shape) for part in (self.tokens, self.labels, self.texts)]
        if self.tokens.ndim != 2 or self.texts.shape != self.tokens.shape or not self._labels_fit():
            raise ValueError(
                f"examples with tokens, labels and texts of shapes {', '.join(map(str, shapes))}: expected all of them "
                "(rows, tokens), or for classification labels of shape (rows,)"
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | torch.Tensor) -> "Examples":
        return replace(self, tokens=self.tokens[rows], labels=self.labels[rows], texts=self.texts[rows])

    @property
    def shape(self) -> torch.Size:
        """Rows and tokens."""
        return self.tokens.shape

    @property
    def classifies(self) -> bool:
        """Whether a row has one label, its class."""
        return self.labels.ndim == 1

    def split(self, rows: int) -> list["Examples"]:
        """Parts of at most so many rows.

        Args:
            rows: at least 1.
        """
        return [self[begin : begin + rows] for begin in range(0, len(self), rows)]

    def to(self, device: torch.device) -> "Examples":
        """The same on a device.

        Args:
            device: of the model that reads them.
        """
        moved = (part.to(device) for part in (self.tokens, self.labels, self.texts))
        return Examples(*moved, self.layout)

    def columns(self, end: int) -> "Examples":
        """The same rows up to a column; classes stay.

        Args:
            end: the first column that is left out, counted from the end where it is negative.
        """
        labels = self.labels if self.classifies else self.labels[:, :end]
        return replace(self, tokens=self.tokens[:, :end], labels=labels, texts=self.texts[:, :end])

    def trimmed(self) -> "Examples":
        """Without the columns that are padding in every row: what is left has the same loss, and costs less."""
        return self.columns(int((self.texts != PADDING).sum(1).max()))

    def _labels_fit(self) -> bool:
        return self.labels.shape in (self.tokens.shape, self.tokens.shape[:1])


Batch = torch.Tensor | Examples  # token ids of which all count, shape (blocks, tokens), or examples


def as_examples(batch: Batch) -> Examples:
    """Blocks of running text as examples: every token counts, and all in a row may see those before them.

    Args:
        batch: examples are returned as they are.
    """
    if isinstance(batch, Examples):
        return batch
    return Examples(batch, batch, batch.new_zeros(()).expand_as(batch), "mixed")


def padding_token(tokenizer) -> int:
    """The token to fill rows up with: the tokenizer's own, else the end-of-text token, which every one here has.

    Args:
        tokenizer: of the model.
    """
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def labels_in(batch: Batch) -> int:
    """How many losses a batch has: one for each token that counts, or for each row that has a class.

    Args:
        batch: token ids or examples. The first token of a row is only read, because nothing is before it.
    """
    if not isinstance(batch, Examples):
        return batch[:, 1:].numel()
    if batch.classifies:
        return len(batch)
    counted = (batch.labels[:, 1:] != IGNORED).sum()
    # On tensors without contents memory is traced, which does not depend on the number.
    return batch.labels[:, 1:].numel() if isinstance(counted, FakeTensor) else int(counted)


def tensors_in(batch: Batch) -> list[torch.Tensor]:
    """All that decides what is learned from a batch, to be hashed.

    Args:
        batch: token ids or examples.
    """
    if not isinstance(batch, Examples):
        return [batch]
    return [batch.tokens, batch.labels, batch.texts, torch.tensor(LAYOUTS.index(batch.layout))]


def shape_of(batch: Batch) -> dict[str, object]:
    """What the memory of a step depends on, as `estimate_memory` is asked for it.

    Args:
        batch: token ids or examples.
    """
    return {"batch_size": len(batch), "sequence_length": batch.shape[1], "layout": as_examples(batch).layout}


def inputs_of(examples: Examples) -> dict[str, torch.Tensor]:
    """What a model is called with, so that each text in a row is read as if it were alone.

    Behind the last token of a text there is only padding, which a causal model does not see: rows of one text need no
    mask. A classifier gets one all the same, because it may read in both directions. Texts that share a row get
    positions that begin anew. From these the model itself makes its masks, with a sliding window where it has one.

    Args:
        examples: on the model's device.
    """
    tokens, texts = examples.tokens, examples.texts
    if examples.classifies:
        return {"input_ids": tokens, "attention_mask": (texts != PADDING).long()}
    if examples.layout != "packed":
        return {"input_ids": tokens}
    places = torch.arange(tokens.shape[1], device=tokens.device)
    begins = torch.ones_like(texts, dtype=torch.bool)
    begins[:, 1:] = texts[:, 1:] != texts[:, :-1]
    begin = (places * begins).cummax(1).values  # of each token, the first one of its text
    return {"input_ids": tokens, "position_ids": places - begin}

"""Examples, of which not every token counts: one text in each row."""

from dataclasses import dataclass, replace

import torch
from torch._subclasses.fake_tensor import FakeTensor

IGNORED = -100  # the label that torch's cross entropy leaves out


@dataclass(frozen=True)
class Examples:
    """Rows of tokens, and for each what is to be predicted: the token at its own place, or `IGNORED`."""

    tokens: torch.Tensor  # shape (rows, tokens)
    labels: torch.Tensor  # shape (rows, tokens); for classification the class of each row, shape (rows,)
    mask: torch.Tensor  # false where a token is padding behind the text, shape (rows, tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | torch.Tensor) -> "Examples":
        return Examples(self.tokens[rows], self.labels[rows], self.mask[rows])

    @property
    def shape(self) -> torch.Size:
        return self.tokens.shape

    @property
    def classifies(self) -> bool:
        return self.labels.ndim == 1

    def split(self, rows: int) -> list["Examples"]:
        return [self[begin : begin + rows] for begin in range(0, len(self), rows)]

    def to(self, device: torch.device) -> "Examples":
        return Examples(self.tokens.to(device), self.labels.to(device), self.mask.to(device))

    def columns(self, end: int) -> "Examples":
        labels = self.labels if self.classifies else self.labels[:, :end]
        return replace(self, tokens=self.tokens[:, :end], labels=labels, mask=self.mask[:, :end])

    def trimmed(self) -> "Examples":
        """Without the columns that are padding in every row."""
        return self.columns(int(self.mask.sum(1).max()))


Batch = torch.Tensor | Examples  # token ids of which all count, shape (blocks, tokens), or examples


def as_examples(batch: Batch) -> Examples:
    """Blocks of text as examples in which every token counts."""
    if isinstance(batch, Examples):
        return batch
    return Examples(batch, batch, batch.new_ones((), dtype=torch.bool).expand_as(batch))


def count_labels(batch: Batch) -> int:
    """How many losses a batch has: one for each class, or token that counts and has others before it."""
    if not isinstance(batch, Examples):
        return batch[:, 1:].numel()
    if batch.classifies:
        return len(batch)
    counted = (batch.labels[:, 1:] != IGNORED).sum()
    # A trace of memory has no contents, and does not depend on the number.
    return batch.labels[:, 1:].numel() if isinstance(counted, FakeTensor) else int(counted)


def tensors_in(batch: Batch) -> list[torch.Tensor]:
    """What a batch is made of, for hashing."""
    return [batch.tokens, batch.labels, batch.mask] if isinstance(batch, Examples) else [batch]


def inputs_of(examples: Examples) -> dict[str, torch.Tensor]:
    """For a model's call: a causal one does not see the padding behind a text, a classifier may."""
    mask = {"attention_mask": examples.mask.long()} if examples.classifies else {}
    return {"input_ids": examples.tokens, **mask}


def check_labels(examples: Examples) -> None:
    """Refuse labels that are not the token at their own place, and rows that have none."""
    wrong = ((examples.labels != IGNORED) & (examples.labels != examples.tokens)).any(1)
    if wrong.any():
        raise ValueError(
            f"row {int(wrong.nonzero()[0])} of the examples: a label is not the token at its own place; expected it, "
            f"not shifted, or {IGNORED} where nothing is learned"
        )
    if (empty := (examples.labels[:, 1:] == IGNORED).all(1)).any():
        raise ValueError(f"row {int(empty.nonzero()[0])} of the examples: nothing behind its first token is learned")

"""How much of what full fine-tuning changed fits into a low rank, and how much of the gain that part brings."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd
import torch

from tlkit.jobs import Part, reported
from tlkit.models.parts import find_blocks


@dataclass(frozen=True)
class Decomposed:
    """The change of one weight matrix as U diag(s) V, its largest part first.

    Args:
        left: U, shape (outputs, n), with n the smaller of outputs and inputs.
        values: s, the n singular values in descending order.
        right: V, shape (n, inputs).
    """

    left: torch.Tensor
    values: torch.Tensor
    right: torch.Tensor

    def cut(self, rank: int) -> torch.Tensor:
        """The closest matrix of at most this rank (Eckart and Young 1936)."""
        return (self.left[:, :rank] * self.values[:rank]) @ self.right[:rank]

    @property
    def shares(self) -> torch.Tensor:
        """The share of all squared values that the first 1, 2, … of them hold; NaN where nothing changed."""
        squares = self.values.double() ** 2
        return squares.cumsum(0) / squares.sum()

    def rank_for(self, share: float) -> int:
        """The smallest rank that holds at least this share of the squared values."""
        return int((self.shares < share - 1e-12).sum()) + 1


def decompose_change(base: torch.nn.Module, adapted: torch.nn.Module) -> dict[str, Decomposed]:
    """Take apart what training did to the weight of each linear layer in the blocks.

    Embedding, norms, biases and head are left out: an adapter of LoRA stands beside none of them.

    Args:
        base: the model before training.
        adapted: the same architecture after training, without adapters.

    Returns:
        By the name of the weight, its change, from the lowest block up.
    """
    before, after = _matrices(base), _matrices(adapted)
    return {name: _decomposed(after[name] - before[name]) for name in before}


def cut_to_rank(base: torch.nn.Module, change: dict[str, Decomposed], rank: int) -> torch.nn.Module:
    """Make the base model with a part of each change added: the closest one of a given rank.

    Args:
        base: the model before training; it stays as it is.
        change: what `decompose_change` returned.
        rank: 0 for the base model; as large as a matrix for its whole change.

    Returns:
        A new model.
    """
    cut = copy.deepcopy(base)
    with torch.no_grad():
        for name, part in change.items():
            weight = cut.get_parameter(name)
            weight += part.cut(rank).to(weight.dtype)
    return cut


def rank_table(
    base: torch.nn.Module,
    change: dict[str, Decomposed],
    score: Callable[[torch.nn.Module], float],
    ranks: Iterable[int],
    *,
    progress: bool | Part = False,
) -> pd.DataFrame:
    """Cut a change to several ranks and score each model.

    Args:
        base: the model before training.
        change: what `decompose_change` returned.
        score: gives a model's loss, in nats per token.
        ranks: to cut to.
        progress: True to show what is being scored; or the part of a larger job.

    Returns:
        A row for each rank: `size`, the share of the squared change that is kept, over all matrices together; `nats`,
        the model's loss; `gain`, the share that is kept of what the whole change gains over the base model.
    """
    ranks = list(ranks)
    whole = max(len(part.values) for part in change.values())
    squares = {rank: sum(float((part.values[:rank].double() ** 2).sum()) for part in change.values()) for rank in ranks}
    everything = sum(float((part.values.double() ** 2).sum()) for part in change.values())
    nats = {}
    with reported(progress, "cutting to rank") as part:
        for done, rank in enumerate(dict.fromkeys([0, whole, *ranks])):
            part.step(done, len({0, whole, *ranks}), f"rank {rank}")
            nats[rank] = score(cut_to_rank(base, change, rank))
    gained = nats[0] - nats[whole]
    rows = [
        {"rank": r, "size": squares[r] / everything, "nats": nats[r], "gain": (nats[0] - nats[r]) / gained}
        for r in ranks
    ]
    return pd.DataFrame(rows).set_index("rank")


def ranks_needed(change: dict[str, Decomposed], share: float = 0.9) -> pd.DataFrame:
    """Count for every matrix how many ranks hold a share of its squared change.

    Args:
        change: what `decompose_change` returned.
        share: between 0 and 1.

    Returns:
        Ranks, with a row for each layer by name and a column for each block, from the lowest up.
    """
    rows: dict[str, list[int]] = {}
    for name, part in change.items():
        rows.setdefault(name.removesuffix(".weight").rpartition(".")[2], []).append(part.rank_for(share))
    return pd.DataFrame(rows).T.rename_axis("layer").rename_axis("block", axis="columns")


def _matrices(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Weights of the linear layers in the blocks, by their names in the model."""
    inside = {id(module) for module in find_blocks(model).modules() if isinstance(module, torch.nn.Linear)}
    return {f"{name}.weight": module.weight.detach() for name, module in model.named_modules() if id(module) in inside}


def _decomposed(change: torch.Tensor) -> Decomposed:
    return Decomposed(*torch.linalg.svd(change.float(), full_matrices=False))

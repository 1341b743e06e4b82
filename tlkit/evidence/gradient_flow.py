"""Does what should train receive a gradient and move, and does all else stay as it is?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from tlkit.settings import TrainingConfig
from tlkit.steps import NothingToTrain, TrainingState, take_step
from tlkit.strategies import StrategyReport


@dataclass(frozen=True)
class GradientFlow:
    """What two steps did to every tensor.

    Args:
        table: a row for each tensor, with columns tensor, declared, trains, and for each step norm_1, norm_2
            (of the gradient before clipping, NaN where none arrived) and moved_1, moved_2.
        problems: a sentence for each kind of fault; empty where there is none.
    """

    table: pd.DataFrame
    problems: tuple[str, ...]


def check_gradient_flow(
    report: StrategyReport, blocks: torch.Tensor, *, state: TrainingState | None = None, learning_rate: float = 1e-3
) -> GradientFlow:
    """Take two real steps and compare what moved with what was declared trainable.

    Declared is what `apply_strategy` made trainable, whatever was done to the model since. Afterwards weights and
    optimizer are as they were.

    Args:
        report: what `apply_strategy` returned; its model takes the steps.
        blocks: token ids, shape (blocks, tokens).
        state: brings an optimizer that is there already; default: a new one without weight decay, because decay would
            move a weight that has no gradient.
        learning_rate: of the two steps.
    """
    model = report.model
    state = state or TrainingState(model, TrainingConfig(weight_decay=0.0), report.groups)
    done, kept = state.step, {name: tensor.clone() for name, tensor in state.tensors().items()}
    parameters = dict(model.named_parameters())
    held = {id(tensor) for tensor in state.parameters}
    before = {name: tensor.detach().clone() for name, tensor in parameters.items() if id(tensor) not in held}
    table = pd.DataFrame({"declared": {name: name in report.trainable for name in parameters}})
    table["trains"] = {name: tensor.requires_grad for name, tensor in parameters.items()}
    norms: dict[str, float] = {}
    hooks = [  # before clipping, once all micro-batches have been added up
        tensor.register_post_accumulate_grad_hook(lambda t, name=name: norms.update({name: t.grad.norm().item()}))
        for name, tensor in parameters.items()
        if tensor.requires_grad
    ]
    try:
        for step in (1, 2):
            start = {name: tensor.detach().clone() for name, tensor in parameters.items()}
            norms.clear()
            take_step(state, blocks, learning_rate)
            table[f"norm_{step}"] = pd.Series(norms, dtype=float)
            table[f"moved_{step}"] = {name: not torch.equal(start[name], now) for name, now in parameters.items()}
        problems = tuple(_problems(table, _too_small(state, learning_rate)))
    except NothingToTrain:
        reason = "the loss depends on nothing that is trainable"
        problems = (f"{reason}: all {len(report.trainable)} declared tensors are outside what is computed",)
        table[["norm_1", "norm_2", "moved_1", "moved_2"]] = [math.nan, math.nan, False, False]
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, tensor in before.items():
                parameters[name].copy_(tensor)
        state.load_tensors(done, kept)
    return GradientFlow(table.rename_axis("tensor").reset_index(), problems)


def _too_small(state: TrainingState, learning_rate: float) -> dict[str, str]:
    """For each weight that the optimizer does hold, why it would stay where it is in spite of a gradient."""
    held = {id(tensor) for group in state.optimizer.param_groups for tensor in group["params"]}
    pairs = zip(state.parameters, state.master_parameters, strict=True)  # the optimizer may have copies on the host
    ours = {id(parameter) for parameter, master in pairs if id(master) in held}
    return {
        name: f"a step of about {learning_rate:g} is lost in the rounding of {tensor.dtype}, whose numbers are "
        f"{torch.finfo(tensor.dtype).eps:.2g} apart at 1.0"
        for name, tensor in state.model.named_parameters()
        if id(tensor) in ours
    }


def _problems(table: pd.DataFrame, too_small: dict[str, str]) -> Iterator[str]:
    norms, moved = table[["norm_1", "norm_2"]], table[["moved_1", "moved_2"]]
    reached = (norms > 0).any(axis=1)
    thawed = table.declared & table.trains
    still = thawed & ((norms > 0).to_numpy() & ~moved.to_numpy()).any(axis=1)
    reasons = pd.Series(too_small, dtype=object).reindex(table.index)
    faults = {
        "declared trainable, but frozen since": table.declared & ~table.trains,
        "trainable, but no part of what is computed: no gradient arrives": thawed & norms.isna().all(axis=1),
        "trainable, but its gradient is zero": thawed & norms.notna().any(axis=1) & ~reached,
        "has a gradient and does not move: the optimizer holds another tensor": still & reasons.isna(),
        **{f"has a gradient and does not move: {why}": still & (reasons == why) for why in reasons.dropna().unique()},
        "declared frozen, but receives a gradient": ~table.declared & reached,
        "declared frozen, but moves": ~table.declared & moved.any(axis=1),
    }
    for fault, where in faults.items():
        names = list(table.index[where])
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: {fault}"

"""What more processes change, on paper: the memory of each of them, and the bytes that travel."""

from torch import nn

from tlkit.fitting.estimate import CATEGORIES, MemoryEstimate
from tlkit.fitting.trace import trace_step
from tlkit.models import meta_model
from tlkit.models.adapters import base_model
from tlkit.models.parts import find_blocks
from tlkit.settings import Plan
from tlkit.strategies import apply_strategy

DIVIDED = ("weights", "gradients", "optimizer state")  # among processes, where weights are kept in parts


def sent_per_step(model: nn.Module, processes: int, exchange: str = "ddp", *, backend: str = "nccl") -> float:
    """Count the bytes that each process sends in an optimizer step of one micro-batch.

    With "ddp" every gradient is passed on twice in a ring, once to be added up and once to hand out the sum, each time
    all but the process' own share. With "fsdp" the weights of a block are gathered in the forward and again in the
    backward pass, those outside the blocks once, and gradients are added up where their part is kept.

    Args:
        model: of whose weights those count that are trainable now; it may be on the meta device.
        processes: how many, at least 1.
        exchange: "ddp" or "fsdp".
        backend: "nccl" (cards) or "gloo" (processors), which sends twice as much to add up gradients in parts.

    Returns:
        Bytes, as a mean over the processes.

    Source:
        Rajbhandari et al. 2020, ZeRO.
    """
    passed_on = (processes - 1) / processes
    gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    if exchange == "ddp":
        return 2 * passed_on * gradients
    blocks = sum(_nbytes(block) for block in find_blocks(base_model(model)))
    return passed_on * (_nbytes(model) + blocks + gradients * (2 if backend == "gloo" else 1))


def memory_in_parts(
    model: str,
    strategy: str = "full",
    *,
    processes: tuple[int, ...] = (1, 2, 4, 8),
    batch_size: int = 1,
    sequence_length: int = 512,
) -> dict[int, MemoryEstimate]:
    """Estimate what each process needs in fp32 under FSDP, for each number of processes.

    What is made of weights is divided; what is made of text is not. On top comes what is gathered: all that lies
    outside the blocks for the whole pass, and two blocks at a time, the one at work and the next, with the gradients
    of one. No weights are read.

    Args:
        model: a preset, folder or hub id.
        strategy: a name of `STRATEGIES`.
        processes: the numbers of processes to estimate for.
        batch_size: blocks of each process in a step.
        sequence_length: tokens in a block.

    Returns:
        For each number of processes, what each of them needs; the categories have "gathered" besides the usual ones.

    Raises:
        ValueError: for an unknown model or strategy, and where no estimate is possible.
    """
    adapted = apply_strategy(meta_model(model), strategy).model
    trace = trace_step(adapted, (batch_size, sequence_length), Plan())
    blocks = find_blocks(base_model(adapted))
    block = max(_nbytes(part) for part in blocks)
    outside = _nbytes(adapted) - sum(_nbytes(part) for part in blocks)
    gathered = {"forward pass": outside + 2 * block, "backward pass": 2 * outside + 3 * block}
    found = {}
    for count in processes:
        moments = {
            phase: {name: size // count if name in DIVIDED else size for name, size in parts.items()}
            | {"gathered": gathered.get(phase, 0) if count > 1 else 0}
            for phase, parts in trace.items()
        }
        phases = {phase: sum(parts.values()) for phase, parts in moments.items()}
        highest = moments[max(phases, key=phases.get)]
        found[count] = MemoryEstimate({name: highest.get(name, 0) for name in (*CATEGORIES, "gathered")}, phases)
    return found


def _nbytes(module: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in module.parameters())

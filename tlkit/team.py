"""Several processes that train one model: whose rows are whose, and what is added up. Alone, nothing is."""

import copy
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tlkit.examples import Batch
from tlkit.names import OTHER_PROCESS, phase


@dataclass(frozen=True)
class Team:
    """This process (`rank`, from 0) among `size`, and how gradients come together.

    "ddp": torch's DistributedDataParallel adds them up while the backward pass goes on; each process holds the whole
    model. "fsdp": torch's fully_shard, each holds its part of every tensor, gathers a block when it is needed, and
    `offload` keeps the parts on the host. "afterwards": all at once when every process has done its passes, so that
    one that runs out of memory keeps nobody waiting.

    Source: Li et al. 2020, PyTorch Distributed; Zhao et al. 2023, PyTorch FSDP.
    """

    rank: int = 0
    size: int = 1
    exchange: str = "ddp"
    offload: bool = False
    module: nn.Module | None = None  # what DDP or FSDP has put around the loss
    group: distributed.ProcessGroup | None = None  # None: all processes that there are

    def wrap(self, loss: nn.Module, blocks: nn.ModuleList) -> "Team":
        """The same team with DDP or FSDP around the loss, as `exchange` says.

        Args:
            loss: called as loss(rows, plan).
            blocks: of the model in it; FSDP gathers one at a time.
        """
        if self.size == 1 and not self.in_parts or self.exchange == "afterwards":
            return self
        if self.exchange == "ddp":
            wrapped = DistributedDataParallel(loss, process_group=self.group, gradient_as_bucket_view=True)
            return replace(self, module=wrapped)
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

        group, on_card = self.group or distributed.group.WORLD, torch.cuda.is_available()
        options = {
            # Where there are cards the parts go there, block by block: the whole model may be larger than one of them.
            "mesh": DeviceMesh.from_group(group, "cuda" if on_card else "cpu"),
            "offload_policy": CPUOffloadPolicy(pin_memory=on_card) if self.offload else OffloadPolicy(),
        }
        for block in blocks:
            fully_shard(block, **options)
        return replace(self, module=fully_shard(loss, **options))

    def shard_batch(self, batch: Batch, rows: int | None = None) -> list[tuple[Batch, float]]:
        """This process' share of a batch, cut into passes.

        Every process makes as many passes as the others, or they would wait for it: one whose rows are used up takes
        a row that counts nothing.

        Args:
            batch: token ids, shape (blocks, tokens), or examples.
            rows: at most so many in a pass; None: the whole share.

        Returns:
            For each pass its rows and their weight, 1 or 0.
        """
        most = math.ceil(len(batch) / self.size)
        mine = batch[self.rank :: self.size]
        parts = [(part, 1.0) for part in mine.split(rows or most)] if len(mine) else []
        return parts + [(batch[:1], 0.0)] * (math.ceil(most / (rows or most)) - len(parts))

    def exchange_in(self, last: bool) -> AbstractContextManager:
        """Around a pass: DDP adds up in the last one only.

        Args:
            last: whether this is the last pass of the step.
        """
        return self.module.no_sync() if isinstance(self.module, DistributedDataParallel) and not last else nullcontext()

    @property
    def in_parts(self) -> bool:
        """True where no process holds a whole weight."""
        return self.exchange == "fsdp"

    @property
    def scale(self) -> int:
        """DDP and FSDP give the mean of all processes' gradients; a sum needs losses this much larger."""
        return 1 if self.module is None else self.size

    def add_up_gradients(self, parameters: list[nn.Parameter]) -> None:
        """The sum of all processes' gradients into each, where neither DDP nor FSDP has done so.

        Args:
            parameters: the same ones in the same order in every process.
        """
        if self.size > 1 and self.module is None:
            gradients = [p.grad for p in parameters if p.grad is not None]
            for work in [distributed.all_reduce(g, group=self.group, async_op=True) for g in gradients]:
                work.wait()

    def sum(self, value: float) -> float:
        """The sum over all processes; each has to ask.

        Args:
            value: what this one adds. It is summed in float64 on the host, since some devices have no float64.
        """
        if self.size == 1:
            return value
        summed = torch.tensor(value, dtype=torch.float64, device="cpu")
        distributed.all_reduce(summed, group=self.group)
        return summed.item()

    def any_rank(self, here: bool) -> bool:
        """Whether it is so in any process; each has to ask.

        Args:
            here: whether it is so in this one.
        """
        return self.sum(float(here)) > 0

    @contextmanager
    def sync_out_of_memory(self) -> Iterator[None]:
        """Inside, nothing is exchanged; where one process runs out of memory, all leave with an OutOfMemoryError."""
        if self.size == 1 or self.module is not None:
            yield
            return
        try:
            yield
        except Exception:
            self.any_rank(True)
            raise
        if self.any_rank(False):
            with phase(OTHER_PROCESS):
                raise torch.OutOfMemoryError("another process of this training ran out of memory")


ONE_PROCESS = Team()


def module_to_shard(model: nn.Module) -> nn.Module:
    """A second module over the same weights, for FSDP to cut up.

    Args:
        model: its weights are empty until `restore_full_weights`.

    Raises:
        ValueError: for weights in 4 bits.
    """
    if any(hasattr(p, "quant_state") for p in model.parameters()):
        raise ValueError("weights in 4 bits cannot be kept in parts: use lora, or the exchange ddp")
    if any("forward" in vars(module) for module in model.modules()):
        raise ValueError(
            "cached_prefix is not possible with weights in parts (fsdp): leave it, or use the exchange ddp"
        )
    sharded = copy.deepcopy(model, {id(p): nn.Parameter(p.data, p.requires_grad) for p in model.parameters()})
    for parameter in model.parameters():
        parameter.data = parameter.data.new_empty(0)
    return sharded


def restore_full_weights(model: nn.Module, sharded: nn.Module) -> None:
    """All weights, gathered, into the first module again, in every process.

    Args:
        model: as it was given to `module_to_shard`.
        sharded: what that returned.
    """
    for parameter, part in zip(model.parameters(), sharded.parameters(), strict=True):
        parameter.data = gather_full(part.detach()).to(parameter.device)


def gather_full(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor that FSDP keeps in parts; every process has to ask.

    Args:
        tensor: in parts, or whole already.
    """
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shard_like(tensor: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """A whole tensor, in parts where another is.

    Args:
        tensor: whole.
        kept: of the same shape; in parts, or whole too.
    """
    if not hasattr(kept, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(kept.device), kept.device_mesh, kept.placements, src_data_rank=None)

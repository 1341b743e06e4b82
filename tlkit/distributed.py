"""Several processes that train one model, on accelerate.

Each takes its share of every batch. DDP adds up the gradients of whole models; FSDP holds a part of every tensor in
each process, and gathers a block when it is needed.

Source: Li et al. 2020, PyTorch Distributed; Zhao et al. 2023, PyTorch FSDP.
"""

import copy
import datetime
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from tlkit import training
from tlkit.examples import Batch, count_labels
from tlkit.jobs import Job, reported
from tlkit.memory import freed_memory_kept, saved_on_host
from tlkit.models.parts import ParameterGroup, base_model, evaluation_mode, find_blocks, in_four_bits
from tlkit.settings import Plan, TrainingConfig
from tlkit.steps import TrainingState, prepare, summed_loss

TIMEOUT = datetime.timedelta(minutes=30)  # others wait while one evaluates
LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|refused|Timed out|not connected", re.IGNORECASE)


@contextmanager
def joined(sharding: str | None = None, *, on_cpu: bool = False) -> Iterator[Accelerator | None]:
    """Join the processes that torchrun has started; None without any."""
    if not distributed.is_torchelastic_launched():
        if sharding is not None:
            raise ValueError(f"sharding {sharding!r} needs several processes: `torchrun --nproc-per-node 2 -m tlkit …`")
        yield None
        return
    accelerator = Accelerator(cpu=on_cpu, kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)])
    try:
        yield accelerator
    except RuntimeError as error:
        if not LOST.search(str(error)):
            raise
        raise ConnectionError(
            f"process {accelerator.process_index} of {accelerator.num_processes}: another process has ended, with an "
            "error above or below; the same command with --resume goes on from the newest checkpoint"
        ) from error
    finally:
        accelerator.end_training()


@freed_memory_kept()
def train_together(
    accelerator: Accelerator,
    model: nn.Module,
    blocks: Batch,
    config: TrainingConfig,
    *,
    sharding: str | None = None,
    plan: Plan | None = None,
    groups: Sequence[ParameterGroup] = (),
    validation: Batch | None = None,
    checkpoint_dir: str | Path | None = None,
    every: int = 100,
    resume: bool = False,
    progress: bool | Job = False,
) -> training.TrainingResult:
    """`train` in several processes, which call this with the same arguments; the first one writes.

    A run that is resumed may have had another number of processes.

    Args:
        model: for FSDP, one on the host is there again at the end.
        sharding: "ddp" (the default) or "fsdp".
        checkpoint_dir: of several machines, a folder that they share.
    """
    plan, in_parts = plan or Plan(), sharding == "fsdp"
    training.check_settings(model, blocks, config, plan, validation)
    in_phases = any(group.begins for group in groups)
    if config.patience is not None or in_phases or in_parts and in_four_bits(model):
        raise ValueError(
            "several processes train without patience, without phases and, by fsdp, without weights in 4 bits: "
            "use one process"
        )
    data = (blocks, validation)
    checkpoints = training.checkpoints_of(checkpoint_dir, every, resume, model, data, config, plan, groups)
    trained = _second_module(model) if in_parts else model
    loss = _sharded(accelerator, trained) if in_parts else accelerator.prepare_model(_SummedLoss(trained))
    is_main, scoring = accelerator.is_main_process, training.plan_of_scoring(plan, config)
    state = _WholeState(trained, config, groups)
    state.saves, state.accumulate = is_main, partial(_accumulate_share, accelerator, loss)
    with checkpoints.lock(resume) if checkpoints and is_main else nullcontext():
        accelerator.wait_for_everyone()
        if checkpoints:
            checkpoints.restore(state)
        steps = accelerator.gather(torch.tensor([state.step], device=accelerator.device)).tolist()
        if len(set(steps)) > 1:
            raise ValueError(f"processes go on after steps {steps}: expected {checkpoint_dir} to be one folder for all")
        state.apply_plan(plan)
        total = training.total_steps(len(blocks), config)
        steps = training.training_steps(state, blocks)
        with reported(progress, "training") as progress:
            for _ in training.recorded(steps, state, total, progress, count_memory=False):
                if validation is not None and training.is_due(state, config.evaluate_every, total):
                    training.note_score(_mean_loss(accelerator, loss, validation, scoring), state)
                if checkpoints and training.is_due(state, every, total):
                    # What FSDP keeps in parts is gathered from all.
                    checkpoints.save(state, last=training.has_ended(state, total)) if is_main else state.tensors()
    if in_parts:
        for parameter, sharded in zip(model.parameters(), trained.parameters(), strict=True):
            parameter.data = _whole(sharded.detach()).to(parameter.device)
    return training.finish_run(state, len(blocks))


def shares(batch: Batch, rank: int, size: int, rows: int | None = None) -> list[tuple[Batch, float]]:
    """A process' share of a batch, cut into passes: rows and their weight, 1 or 0.

    All make as many passes, or they would wait for ever: when its rows are used up, one takes a row of weight 0.
    """
    most = math.ceil(len(batch) / size)
    mine = batch[rank::size]
    passes = [(part, 1.0) for part in mine.split(rows or most)] if len(mine) else []
    return passes + [(batch[:1], 0.0)] * (math.ceil(most / (rows or most)) - len(passes))


def _accumulate_share(
    accelerator: Accelerator, loss: nn.Module, model: nn.Module, batch: Batch, plan: Plan
) -> list[torch.Tensor]:
    """`accumulate_gradients` of a process' share of a batch; returns the loss of all."""
    size, rank = accelerator.num_processes, accelerator.process_index
    torch.manual_seed(torch.initial_seed() * size + rank)  # no two draw the same numbers
    prepare(model, plan)
    label_count, losses = count_labels(batch), []
    passes = shares(batch, rank, size, plan.micro_batch_size)
    with saved_on_host(model) if plan.offload_activations else nullcontext():
        for number, (rows, weight) in enumerate(passes, 1):
            with accelerator.no_sync(loss) if number < len(passes) else nullcontext():
                # By the labels of all; DDP and FSDP take the mean of the gradients, so times the size.
                share = loss(rows.to(accelerator.device), plan) * weight / label_count
                (share * size).backward()
            losses.append(share.detach())
    return [accelerator.reduce(sum(losses))]


@torch.no_grad()
def _mean_loss(accelerator: Accelerator, loss: nn.Module, blocks: Batch, plan: Plan) -> float:
    passes = shares(blocks, accelerator.process_index, accelerator.num_processes, plan.micro_batch_size)
    with evaluation_mode(loss):
        parts = [loss(rows.to(accelerator.device), plan) * weight for rows, weight in passes]
    return accelerator.reduce(sum(parts)).item() / count_labels(blocks)


class _SummedLoss(nn.Module):
    """DDP and FSDP act where a module's forward pass begins and ends."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, plan: Plan) -> torch.Tensor:
        return summed_loss(self.model, batch, plan)


def _sharded(accelerator: Accelerator, model: nn.Module) -> nn.Module:
    """The loss by FSDP; accelerate shards on GPUs only."""
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for block in find_blocks(base_model(model)):
        fully_shard(block, mesh=mesh)
    return fully_shard(_SummedLoss(model), mesh=mesh)


def _second_module(model: nn.Module) -> nn.Module:
    """A module with the weights of `model`, which are empty from now on, for FSDP to cut up."""
    second = copy.deepcopy(model, {id(p): nn.Parameter(p.data, p.requires_grad) for p in model.parameters()})
    for parameter in model.parameters():
        parameter.data = parameter.data.new_empty(0)
    return second


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class _WholeState(TrainingState):
    """Saves and loads whole tensors, also where FSDP keeps parts."""

    saves = True  # this process keeps what is gathered

    def tensors(self) -> dict[str, torch.Tensor]:
        """One by one onto the host, so that no device holds all."""
        gathered = ((name, _whole(tensor)) for name, tensor in super().tensors().items())
        return {name: tensor.cpu() for name, tensor in gathered if self.saves}

    def load_tensors(self, step: int, tensors: dict[str, torch.Tensor]) -> None:
        parts = dict(tensors)
        for name, tensor in tensors.items():
            like = self.parameters[int(name.split(".")[1])]
            if isinstance(like, DTensor) and not name.endswith(".step"):  # AdamW's count of steps is whole
                here, mesh = tensor.to(like.device), like.device_mesh
                parts[name] = distribute_tensor(here, mesh, like.placements, src_data_rank=None)
        super().load_tensors(step, parts)

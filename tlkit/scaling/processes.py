"""Join the processes that torchrun has started, and part from them, whatever happens to one."""

import datetime
import importlib
import multiprocessing
import os
import re
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import distributed

from tlkit.team import ONE_PROCESS, Team

EXCHANGES = ("ddp", "fsdp")
PATIENCE = datetime.timedelta(minutes=30)  # for one that evaluates while the others wait
LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|refused|Timed out|not connected", re.IGNORECASE)


def launch(count: int, function: str, *arguments: object, imports: tuple[str, ...] = ()) -> None:
    """Start several processes, as `torchrun` does, and wait for them.

    Where the system can fork, they come out of one process that has imported what they need: that takes seconds, and
    is done once.

    Args:
        count: how many processes.
        function: what each calls, as "package.module:name"; it calls `joined`.
        arguments: of the function.
        imports: modules to import before the processes part, besides that of the function.

    Raises:
        ChildFailedError: with its traceback, where a process fails.
    """
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    if method == "forkserver":
        multiprocessing.set_forkserver_preload([function.partition(":")[0], *imports])
    here = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": str(uuid.uuid4())}
    elastic_launch(LaunchConfig(1, 1, count, max_restarts=0, start_method=method, **here), _call)(function, *arguments)


def _call(function: str, *arguments: object) -> None:
    """By its name, so that the process that launches others need not import what they do."""
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


@contextmanager
def joined(exchange: str | None = None, *, offload: bool = False) -> Iterator[Team]:
    """Join the processes that torchrun has started; alone where it has started none.

    Args:
        exchange: "ddp" (the default) or "fsdp", see `Team`.
        offload: keep the parts of weights on the host (fsdp).

    Yields:
        The team.

    Raises:
        ValueError: for another exchange, where one is asked for and there are no processes to exchange with, and for
            more processes than cards.
        ConnectionError: where another process ends before its time.
    """
    if exchange is not None and exchange not in EXCHANGES:
        raise ValueError(f"sharding {exchange!r} is unknown: expected one of {', '.join(EXCHANGES)}")
    if not distributed.is_torchelastic_launched():
        if exchange is not None:
            raise ValueError(
                f"sharding {exchange!r} needs several processes: start them with "
                "`torchrun --nproc-per-node 2 -m tlkit …`"
            )
        yield ONE_PROCESS
        return
    if torch.cuda.is_available():
        local, cards = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= cards:
            raise ValueError(
                f"process {local} of this machine finds {cards} cards: start at most one process for each, or hide the "
                "cards (CUDA_VISIBLE_DEVICES=) to compute on processors"
            )
        torch.cuda.set_device(local)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    before = signal.signal(signal.SIGTERM, _end)
    try:
        team = Team(distributed.get_rank(), distributed.get_world_size(), exchange or "ddp", offload)
        yield team
    except (RuntimeError, _Told) as error:
        if not isinstance(error, _Told) and not LOST.search(str(error)):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this is the end anyway, and what is said is said in peace
        raise ConnectionError(
            f"process {team.rank} of {team.size}: another process has ended, or torchrun was told to end all of them. "
            "What ended it stands above or below. Start the same command again with --resume: it goes on from the "
            "newest checkpoint, with as many processes as you like"
        ) from error
    finally:
        if signal.getsignal(signal.SIGTERM) is _end:
            signal.signal(signal.SIGTERM, before)
        distributed.destroy_process_group()


class _Told(BaseException):
    """SIGTERM has come, which torchrun sends to the others when one process has ended."""


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise _Told


def smaller(team: Team, count: int) -> Team | None:
    """Make a team of the first `count` processes; all of them have to ask.

    Args:
        team: of all processes.
        count: at most its size.

    Returns:
        The smaller team, or None in a process that is not in it.
    """
    if count == team.size:
        return team
    group = distributed.new_group(list(range(count)))
    return replace(team, size=count, group=group) if team.rank < count else None

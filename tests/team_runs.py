"""Runs that several processes do together, for test_team.py: `python tests/team_runs.py FOLDER`.

Processes are forked from one that has imported all, and find the environment that torchrun would have given them.
"""

import json
import os
import shutil
import socket
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.fallback import train_with_fallback
from tlkit.memory import virtual_device
from tlkit.processes import gathered, joined
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy
from tlkit.team import ALONE, Team
from tlkit.training import TrainingConfig, train

BLOCKS = torch.randint(512, (14, 16), generator=torch.Generator().manual_seed(0))
CONFIG = TrainingConfig(1e-3, epochs=2, batch_size=6, evaluate_every=3)  # batches of 6, 6 and 2
STRATEGIES = ("full", "freeze_lower", "lora")
PLANS = {"plain": Plan(), "micro": Plan(micro_batch_size=2), "chunked": Plan(chunked_loss=True, micro_batch_size=1)}


def small():
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=512,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


def adapted(strategy: str):
    model = small()
    torch.manual_seed(1)  # LoRA's first values
    return apply_strategy(model, strategy).model


def run(strategy: str, plan: Plan, team: Team = ALONE, **options) -> dict:
    """Losses of all steps and evaluations, and all weights after the last."""
    model = adapted(strategy)
    result = train(model, BLOCKS, CONFIG, plan=plan, validation=BLOCKS[:5], team=team, **options)
    return {
        "losses": result.history.loss.tolist(),
        "norms": result.history.gradient_norm.tolist(),
        "validation": result.validation.validation_loss.tolist(),
        "weights": torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(),
    }


def with_little_memory(team: Team, budgets: list[str]) -> dict:
    """A card of another size for each process: the log, and what came out."""
    model = adapted("full")
    card = virtual_device(memory=budgets[team.rank])
    order = ("smaller micro-batch", "smaller micro-batch", "activation checkpointing", "training on the host")
    result, log = train_with_fallback(model, BLOCKS, CONFIG, device=card, order=order, team=team)
    rows = log.table[["rung", "first_step", "steps_done", "error"]].to_dict("records")
    mine = {"rank": team.rank, "rows": rows, "weights": _weights(model)}
    return {"losses": result.history.loss.tolist(), "processes": gathered(team, [mine])}


def parameter_bytes(team: Team) -> dict:
    """What one process holds of the parameters under FSDP, and of all there are."""
    from tlkit.steps import SummedLoss
    from tlkit.strategies import find_blocks

    model = small()
    total = sum(p.nbytes for p in model.parameters())
    wrapped = team.around(SummedLoss(model), find_blocks(model)).module
    held = sum(p.to_local().nbytes for p in wrapped.parameters())
    return {"total": total, "held": [row["held"] for row in gathered(team, [{"held": held}])]}


def _weights(model) -> list[float]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def work(rank: int, size: int, port: int, folder: Path) -> None:
    """One process of `size`: every run, its findings written by the first."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()} | {"TORCHELASTIC_RUN_ID": "test"}
    with joined() as team:
        found = {}
        for exchange in ("ddp", "fsdp", "afterwards"):
            for strategy in STRATEGIES:
                found[f"{exchange} {strategy} plain"] = run(strategy, Plan(), replace(team, exchange=exchange))
            for name in ("micro", "chunked"):
                found[f"{exchange} full {name}"] = run("full", PLANS[name], replace(team, exchange=exchange))
        sharded = replace(team, exchange="fsdp")
        found["bytes"] = parameter_bytes(sharded)
        found["memory"] = with_little_memory(team, ["1300KB"] + ["2MB"] * (team.size - 1))
        found["rows"] = gathered(team, [{"rank": team.rank, "value": torch.pi * team.rank}] * (team.rank + 1))
        if team.size == 2:
            run("full", Plan(), sharded, checkpoint_dir=folder / "by two", every=2)
        else:
            options = {"checkpoint_dir": folder / "by two, for four", "every": 2, "resume": True}
            found["fsdp full resumed"] = run("full", Plan(), sharded, **options)
        if team.rank == 0:
            (folder / f"found-{team.size}.json").write_text(json.dumps(found))


def main(folder: Path) -> None:
    for size in (2, 4):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.start_processes(work, (size, port, folder), nprocs=size, start_method="fork")
        if size == 2:
            for path in (folder / "by two").glob("step-00000006.*"):  # as if it had ended after step 4
                path.unlink()
            shutil.copytree(folder / "by two", folder / "by two, for four")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

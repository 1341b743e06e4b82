"""Runs of several processes, for test_team.py: each of four calls `main`."""

import json
import math
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from torch import distributed
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.examples import IGNORED, Examples
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.fallback import train_with_fallback
from tlkit.memory import VirtualDevice
from tlkit.scaling.processes import joined, smaller
from tlkit.settings import setup
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy
from tlkit.team import ONE_PROCESS, Team
from tlkit.training import TrainingConfig, train

BLOCKS = torch.randint(512, (8, 16), generator=torch.Generator().manual_seed(0))
CONFIG = TrainingConfig(1e-4, epochs=1.5, batch_size=6, warmup_fraction=0)  # batches of 6, 2 and 6
STRATEGIES = ("full", "lora")
# Of the others one of each kind: groups, phases, shared matrices and a learned prefix; and answers of unequal length,
# by full fine-tuning: what each process adds has to be divided by the labels of all of them.
ANSWERS = "answers"
OTHERS = ("gradual_unfreezing", "discriminative_rates", "vera", "prefix_tuning", ANSWERS)
PLANS = {
    "plain": Plan(),
    "micro": Plan(micro_batch_size=2),
    "chunked": Plan(chunked_loss=True, micro_batch_size=1),
    "checkpointed": Plan(activation_checkpointing=True),
}
# What N processes do, beside running out of memory and going on from a checkpoint.
CASES = {
    2: [("ddp", "full", "micro"), ("fsdp", "full", "chunked"), ("fsdp", "lora", "checkpointed")]
    + [("ddp", name, "plain") for name in ("lora", "gradual_unfreezing", "prefix_tuning")]
    + [("fsdp", name, "plain") for name in ("discriminative_rates", "vera", ANSWERS)],
    4: [("ddp", "full", "plain"), ("fsdp", "full", "micro")],
}


def small():
    sizes = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2}
    config = AutoConfig.for_model("qwen2", **sizes, **heads, tie_word_embeddings=True)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


def adapted(strategy: str):
    model = small()
    torch.manual_seed(1)  # LoRA's first values
    return apply_strategy(model, "full" if strategy == ANSWERS else strategy).model


def rows_for(strategy: str) -> torch.Tensor | Examples:
    """Blocks of text, or of the same tokens answers with 1 to 15 labels."""
    if strategy != ANSWERS:
        return BLOCKS
    read = torch.tensor([1, 15, 3, 15, 2, 9, 14, 6])[:, None]
    return Examples(BLOCKS, BLOCKS.masked_fill(torch.arange(16) < read, IGNORED), torch.zeros_like(BLOCKS))


def run(strategy: str, plan: Plan, team: Team = ONE_PROCESS, **options) -> dict:
    """Losses of all steps and evaluations, and all weights after the last."""
    model = adapted(strategy)
    rows = rows_for(strategy)
    result = train(model, rows, CONFIG, plan=plan, validation=rows[:5], team=team, **options)
    return {
        "losses": result.history.loss.tolist(),
        "norms": result.history.gradient_norm.tolist(),
        "validation": result.validation.validation_loss.tolist(),
        "weights": weights_of(model),
    }


def gathered(team: Team, mine: dict) -> list[dict]:
    """What every process has to say, in each of them."""
    found = [None] * team.size
    distributed.all_gather_object(found, mine, group=team.group)
    return found


def with_little_memory(team: Team) -> dict:
    """A card for each process, the first one's a little too small: the log, and what came out."""
    model = adapted("full")
    needed = estimate_memory(model, batch_size=math.ceil(CONFIG.batch_size / team.size), sequence_length=16).peak
    card = VirtualDevice("tight" if team.rank == 0 else "roomy", int(needed * (0.97 if team.rank == 0 else 2)))
    order = ("smaller micro-batch", "smaller micro-batch", "activation checkpointing", "training on the host")
    result, log = train_with_fallback(model, BLOCKS, CONFIG, device=card, order=order, team=team)
    rows = log.table[["rung", "first_step", "steps_done", "failed_in", "error"]].to_dict("records")
    mine = {"rank": team.rank, "rows": rows, "weights": weights_of(model)}
    return {"losses": result.history.loss.tolist(), "processes": gathered(team, mine)}


def parameter_bytes(team: Team) -> dict:
    """What one process holds of the parameters under FSDP, and of all there are."""
    from tlkit.models.parts import find_blocks
    from tlkit.steps import SummedLoss

    model = small()
    total = sum(p.nbytes for p in model.parameters())
    wrapped = team.wrap(SummedLoss(model), find_blocks(model)).module
    held = sum(p.to_local().nbytes for p in wrapped.parameters())
    return {"total": total, "held": [row["held"] for row in gathered(team, {"held": held})]}


def weights_of(model) -> list[float]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def findings(team: Team, folder: Path) -> dict:
    """Every run of a team, each process in step with the others."""
    found = {}
    for exchange, strategy, plan in CASES[team.size]:
        found[f"{exchange} {strategy} {plan}"] = run(strategy, PLANS[plan], replace(team, exchange=exchange))
    sharded = replace(team, exchange="fsdp")
    found["bytes"] = parameter_bytes(sharded)
    if team.size == 2:
        found["memory"] = with_little_memory(team)
        # Parts that are kept on the host train as well.
        run("full", Plan(), replace(sharded, offload=True), checkpoint_dir=folder / "by two", every=1)
    else:
        options = {"checkpoint_dir": folder / "by two, for four", "every": 1, "resume": True}
        found["fsdp full resumed"] = run("full", Plan(), sharded, **options)
    return found


def main(folder: str) -> None:
    folder = Path(folder)
    warnings.filterwarnings("ignore")
    setup(threads=1)
    with joined() as everybody:
        for size in (2, 4):
            team = smaller(everybody, size)
            if team is not None:
                found = findings(team, folder)
            if everybody.rank == 0:
                (folder / f"found-{size}.json").write_text(json.dumps(found))
                if size == 2:
                    for path in (folder / "by two").glob("step-00000003.*"):  # as if it had ended after step 2
                        path.unlink()
                    shutil.copytree(folder / "by two", folder / "by two, for four")
            distributed.barrier()

"""Runs of one process and, forked by torchrun's own code, of two: `python team_runs.py FOLDER [[TASK, ARGUMENT …], …]`.

The libraries are imported once: FOLDER gets what each task writes to its screen and, where it failed, why.
"""

import itertools
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit import cli
from tlkit.distributed import joined, train_together
from tlkit.examples import IGNORED, Examples
from tlkit.settings import Plan, TrainingConfig, setup
from tlkit.strategies import apply_strategy
from tlkit.training import train

BLOCKS = torch.randint(512, (8, 16), generator=torch.Generator().manual_seed(0))
CONFIG = TrainingConfig(1e-4, epochs=1.5, batch_size=6, warmup_fraction=0)  # batches of 6, 2 and 6
# Answers of unequal length, by full fine-tuning: what each process adds is divided by the labels of all.
ANSWERS = "answers"
PLANS = {
    "plain": Plan(),
    "micro": Plan(micro_batch_size=2),
    "chunked": Plan(chunked_loss=True, micro_batch_size=1),
    "checkpointed": Plan(activation_checkpointing=True),
    "offloaded": Plan(offload_activations=True),
}
CASES = [
    ("ddp", "full", "micro"),
    ("ddp", "lora", "offloaded"),
    ("ddp", "prefix_tuning", "plain"),
    ("fsdp", "full", "chunked"),
    ("fsdp", "lora", "checkpointed"),
    ("fsdp", "discriminative_rates", "plain"),
    ("fsdp", "vera", "offloaded"),
    ("fsdp", ANSWERS, "plain"),
]


def adapted(strategy: str):
    sizes = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2}
    config = AutoConfig.for_model("qwen2", **sizes, **heads, tie_word_embeddings=True)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    torch.manual_seed(1)  # LoRA's first values
    return apply_strategy(model, "full" if strategy == ANSWERS else strategy)


def rows_for(strategy: str) -> torch.Tensor | Examples:
    """Blocks of text, or of the same tokens answers with 1 to 15 labels."""
    if strategy != ANSWERS:
        return BLOCKS
    read = torch.tensor([1, 15, 3, 15, 2, 9, 14, 6])[:, None]
    return Examples(BLOCKS, BLOCKS.masked_fill(torch.arange(16) < read, IGNORED), BLOCKS >= 0)


def weights_of(model) -> list[float]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def run(strategy: str, plan: Plan, accelerator=None, **options) -> dict:
    """Losses of all steps and evaluations, and all weights after the last; in one process without an accelerator."""
    report, rows = adapted(strategy), rows_for(strategy)
    model, options = report.model, options | {"plan": plan, "groups": report.groups, "validation": rows[:5]}
    if accelerator is None:
        result = train(model, rows, CONFIG, **options)
    else:
        result = train_together(accelerator, model, rows, CONFIG, **options)
    return {
        "losses": result.history.loss.tolist(),
        "norms": result.history.gradient_norm.tolist(),
        "validation": result.validation.validation_loss.tolist(),
        "weights": weights_of(model),
    }


def run_together(folder: str) -> None:
    folder = Path(folder)
    warnings.filterwarnings("ignore")
    setup()
    torch.set_num_threads(1)
    found = {}
    with joined(on_cpu=True) as accelerator:
        for sharding, strategy, plan in CASES:
            found[f"{sharding} {strategy} {plan}"] = run(strategy, PLANS[plan], accelerator, sharding=sharding)
        run("full", Plan(), accelerator, sharding="fsdp", checkpoint_dir=folder / "by two", every=1)
        if accelerator.is_main_process:
            (folder / "by two" / "step-00000003.safetensors").unlink()  # as if it had ended after step 2
        options = {"checkpoint_dir": folder / "by two", "every": 9, "resume": True}
        accelerator.wait_for_everyone()
        found["resumed"] = run("full", Plan(), accelerator, sharding="fsdp", **options)
        if accelerator.is_main_process:
            (folder / "found.json").write_text(json.dumps(found))


def run_out_of_memory_in_one() -> None:
    with joined(on_cpu=True) as accelerator:
        model = adapted("full").model
        if accelerator.process_index == 1:
            model.model.layers[1].register_forward_pre_hook(lambda *_: torch.empty(2**50))
        train_together(accelerator, model, BLOCKS, CONFIG)


def command_that_loses_one(*arguments: str) -> None:
    """The second process is killed in its fourth step, after the first one has saved its second."""
    steps = itertools.count(1)

    def kill(*_) -> None:
        if os.environ["RANK"] == "1" and next(steps) == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_post_hook(kill)
    code = cli.main(list(arguments))
    time.sleep(3)  # torchrun looks ten times a second, and reports the one that it sees first
    sys.exit(code)


def as_a_program(folder: str, task: str, *arguments: str) -> None:
    """With the traceback on the screen, whichever process torchrun's report calls the first that failed."""
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(Path(folder, task), os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
    try:
        globals()[task](*arguments)
    except Exception:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    here = {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0"}
    config = LaunchConfig(1, 1, 2, max_restarts=0, start_method="fork" if os.name == "posix" else "spawn", **here)
    for task, *arguments in json.loads(sys.argv[2]):
        try:
            elastic_launch(config, as_a_program)(sys.argv[1], task, *arguments)
        except ChildFailedError as error:
            Path(sys.argv[1], f"{task}.failed").write_text(str(error), encoding="utf-8")

"""Runs that are killed, each in a process of its own: `python tests/killed_runs.py FOLDER KILLS`.

One process imports torch and forks a child for each run, so that a dozen runs do not take a dozen imports. The children
kill themselves inside a write, from the first call to the last. Prints a line of JSON a run: the newest step it had
saved, and the hash of the weights that it ended with once resumed.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import torch
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM

from tlkit.checkpoints import newest_step
from tlkit.settings import setup
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

STEPS = 5


def run(folder: Path, resume: bool) -> str:
    """Train, and return the hash of the weights."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2, attention_dropout=0.1)
    model = apply_strategy(Qwen2ForCausalLM(config), "freeze_lower").model
    blocks = torch.randint(256, (4 * STEPS, 32), generator=torch.Generator().manual_seed(1))
    settings = TrainingConfig(batch_size=4, evaluate_every=3, patience=9)
    train(model, blocks, settings, validation=blocks[:4], checkpoint_dir=folder, every=1, resume=resume)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy())
    return digest.hexdigest()


def in_child(folder: Path, resume: bool, dies_at: int = 0) -> bool:
    """Whether a run in a process of its own ends; it kills itself at that call of a write (0: at none).

    A run that ends leaves the hash of its weights in FOLDER.hash and the calls it counted in FOLDER.calls.
    """
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    calls = 0

    def deadly(function):
        def wrapped(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return wrapped

    os.replace, os.unlink = deadly(os.replace), deadly(os.unlink)
    code = 1
    try:
        folder.with_suffix(".hash").write_text(run(folder, resume))
        folder.with_suffix(".calls").write_text(str(calls))
        code = 0
    finally:
        os._exit(code)


def main(folder: Path, kills: int) -> None:
    setup()
    torch.set_num_threads(1)  # a forked child must not wait for threads that only its parent has
    in_child(folder / "whole", resume=False)
    print(json.dumps({"hash": (folder / "whole.hash").read_text()}), flush=True)
    last_call = int((folder / "whole.calls").read_text())
    for number in range(kills):
        place = folder / str(number)
        assert not in_child(place, resume=False, dies_at=1 + (last_call - 1) * number // (kills - 1))
        reached = newest_step(place)
        ended = in_child(place, resume=True)
        found = (folder / f"{number}.hash").read_text() if ended else "the resumed run failed"
        print(json.dumps({"reached": reached, "hash": found}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""What counting costs: `python tests/benchmarks/virtual_device.py` prints the ratio of a step's seconds.

Steps of the bundled model on a virtual card and without one take turns, so that both see the same machine.
"""

import statistics
import time

import torch

from tlkit.memory import virtual_device
from tlkit.models import load_model
from tlkit.quantization import tensors_of
from tlkit.settings import setup
from tlkit.steps import TrainingState, take_step
from tlkit.strategies import apply_strategy

setup()
model = apply_strategy(load_model("tiny").model, "full").model
state = TrainingState(model)
card = virtual_device(memory="1GiB")
with card:
    card.hold(tensors_of(model))
for shape in ((4, 128), (8, 128)):  # the comparison's batch, and the default of TrainingConfig
    blocks = torch.randint(4096, shape)
    seconds = {"counted": [], "plain": []}
    for turn in range(44):
        began = time.perf_counter()
        if turn % 2:
            with card:
                take_step(state, blocks, 1e-4)
        else:
            take_step(state, blocks, 1e-4)
        if turn >= 4:
            seconds["counted" if turn % 2 else "plain"].append(time.perf_counter() - began)
    plain, counted = (statistics.median(seconds[name]) for name in ("plain", "counted"))
    print(f"{shape[0]} x {shape[1]} tokens: plain {plain:.3f} s, counted {counted:.3f} s: ratio {counted / plain:.2f}")

"""Two processes take the steps of a bench: `torchrun --nproc-per-node 2 device_pair.py KIND TOKENS FILE`."""

import json
import sys
from pathlib import Path

import torch
from device_bench import bench_for

from tlkit.devices import probe
from tlkit.distributed import joined, train_together


def main(kind, tokens, file):
    """Write the losses of both shardings."""
    found = {}
    with joined(on_cpu=kind == "cpu") as accelerator:
        bench = bench_for(probe(kind), int(tokens))
        backend = torch.distributed.get_backend()
        for sharding in ("ddp", "fsdp"):
            model, config = bench.adapted("full"), bench.config("full")
            if sharding == "ddp":
                bench.device.place(model)
            result = train_together(accelerator, model, bench.blocks, config, sharding=sharding)
            found[sharding] = result.history.loss.tolist()
        if accelerator.is_main_process:
            content = {"processes": accelerator.num_processes, "backend": backend, "losses": found}
            Path(file).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

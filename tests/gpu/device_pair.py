"""Two processes take the steps of a bench: `python tests/gpu/device_pair.py KIND TOKENS FILE` writes their losses."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from device_bench import bench_for

from tlkit.devices import probe
from tlkit.fitting.placement import move_to_device
from tlkit.scaling.processes import joined, launch
from tlkit.training import train


def take_part(kind, tokens, file):
    """Be one of the two processes."""
    found = {}
    with joined() as team:
        bench = bench_for(probe(kind), int(tokens))
        backend = torch.distributed.get_backend_config()
        for exchange in ("ddp", "fsdp"):
            model, config = bench.adapted("full"), bench.config("full")
            one_of_two = replace(team, exchange=exchange)
            move_to_device(model, bench.device, one_of_two)
            found[exchange] = train(model, bench.blocks, config, team=one_of_two).history.loss.tolist()
        if team.rank == 0:
            content = {"processes": team.size, "backend": backend, "losses": found}
            Path(file).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    launch(2, "device_pair:take_part", *sys.argv[1:])

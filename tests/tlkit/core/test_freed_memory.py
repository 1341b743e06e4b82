"""Memory that a step frees is kept for the next one, and goes back when training is over."""

import json
import os
import platform
import subprocess
import sys

import pytest

PAGES = 2**26 // os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0  # of a tensor of 64 MiB
TRY = """
import json, resource
import torch
from tlkit.memory import freed_memory_kept
def faults(times, numbers=2**24, count=4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):  # four tensors of 64 MiB at a time, like the activations of a step
        tensors = [torch.ones(numbers) for _ in range(count)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(open("/proc/self/statm").read().split()[1])
outside = faults(5)
with freed_memory_kept():
    faults(2)
    inside, held = min(faults(5) for _ in range(4)), resident()
# At the end tensors of 512 MiB, for which no gap of before has room.
print(json.dumps(dict(outside=outside, inside=inside, given_back=held - resident(), again=faults(4, 2**27, 1))))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library can be told")
def test_inside_pages_are_cleared_once_and_afterwards_they_go_back():
    """Four tensors of 64 MiB, five times; the best of four tries, as a small object between two may cost new places."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    run = subprocess.run([sys.executable, "-c", TRY], env=environment, capture_output=True, text=True, check=True)
    pages = json.loads(run.stdout)
    assert pages["inside"] < pages["outside"] / 5
    assert pages["given_back"] > PAGES / 2
    assert pages["again"] > 3 * 8 * PAGES, "each of the four was given back"

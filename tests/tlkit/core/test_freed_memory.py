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
def faults(times, numbers=2**24, tensors_of_a_step=4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):  # a tensor of 64 MiB as long as it is needed for the next, like the activations of a step
        tensors = [torch.ones(numbers)]
        for _ in range(tensors_of_a_step - 1):
            tensors.append(tensors[-1] + 1)
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(open("/proc/self/statm").read().split()[1])
outside = faults(5)
with freed_memory_kept():
    faults(2)
    inside, held = faults(5), resident()
afterwards = resident()
again = faults(4, numbers=2**27, tensors_of_a_step=1)  # of 512 MiB, for which no gap of before has room
print(json.dumps({"outside": outside, "inside": inside, "held": held, "afterwards": afterwards, "again": again}))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library can be told")
def test_inside_pages_are_cleared_once_and_afterwards_they_go_back():
    """Four tensors of 64 MiB, five times: a small object that lands between two of them may cost one a new place."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    run = subprocess.run([sys.executable, "-c", TRY], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["inside"] < found["outside"] / 5
    assert found["held"] - found["afterwards"] > PAGES / 2
    assert found["again"] > 3 * 8 * PAGES, "each of the four was given back"

"""How tests and notebooks are run, with either of them or both."""

import gc
import os

import pytest

# Side by side (pytest -n), each process and its notebooks get their share of the cores: torch's threads spin while
# they wait, and take the cores from one another. Set before torch is imported.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, os.cpu_count() // int(workers))))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item, "output_timeout"):  # nbval's five seconds are too few for a training cell
            item.output_timeout = 300


def pytest_collection_finish():
    """What the libraries have made stays: the garbage collector need not look at it in each of its passes."""
    gc.collect()
    gc.freeze()

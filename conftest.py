"""How tests and notebooks are run, with either of them or both."""

import gc
import os
from functools import cache
from pathlib import Path

import pytest

# Kernels and processes that tests start find the package beside the lessons, from any folder.
LESSONS = Path(__file__).resolve().parent / "notebooks"
os.environ["PYTHONPATH"] = os.pathsep.join([str(LESSONS), *filter(None, [os.environ.get("PYTHONPATH")])])

collect_ignore_glob = ["notebooks/*/lesson19/*", "notebooks/desk-service/*"]  # tests that need a server

# Side by side (pytest -n), each process and its notebooks get their share of the cores: torch's threads spin while
# they wait, and take the cores from one another. Set before torch is imported.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, os.cpu_count() // int(workers))))

# glibc hands the memory of large tensors back to the system and asks for it again in each step: a twentieth of a
# training's computing. Processes that start from now on keep it.
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**30))
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**25))

# bitsandbytes hands four functions to torch.compile as it is imported, which loads the whole compiler into each process
# that loads peft: a second of computing, a hundred times. Nothing here is compiled.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")


@cache
def _missing_model(lesson):
    from course.lessons import missing_model

    source = LESSONS / f"{lesson.stem}.py"
    return missing_model(source) if source.is_file() else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if not hasattr(item, "output_timeout"):
            continue
        item.output_timeout = 300  # nbval's five seconds are too few for a training cell
        # In CI the model has to be there: a lesson that nobody runs is not tested.
        if not os.environ.get("CI") and (sentence := _missing_model(item.path)):
            item.add_marker(pytest.mark.skip(reason=sentence))


def pytest_collection_finish():
    """What the libraries have made stays: the garbage collector need not look at it in each of its passes."""
    gc.collect()
    gc.freeze()

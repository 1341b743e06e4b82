"""Fixtures for every test; no test may reach beyond this machine."""

import gc
import os
import socket

import pytest

# Side by side (pytest -n), each process and its notebooks get their share of the cores: torch's threads spin while
# they wait, and take the cores from one another. Set before torch is imported.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, os.cpu_count() // int(workers))))


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch):
    """Fail any connection that is not to this machine."""
    connect = socket.socket.connect

    def guarded(self, address):
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {host}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session")
def tiny():
    """The bundled model, to look at only; tests that train load their own."""
    from tlkit.models import load_model
    from tlkit.settings import setup

    setup()
    return load_model("tiny")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item, "output_timeout"):  # nbval's five seconds are too few for a training cell
            item.output_timeout = 300


def pytest_collection_finish():
    """What the libraries have made stays: the garbage collector need not look at it in each of its passes."""
    gc.collect()
    gc.freeze()

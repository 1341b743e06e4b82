"""Fixtures for every test; no test may reach beyond this machine."""

import socket

import pytest


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

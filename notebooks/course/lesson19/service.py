"""`transformers serve` on this machine, for as long as a `with` block runs."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# `transformers serve`, which ends when the other end of its standard input closes, as when the kernel is killed.
SERVER = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
from transformers.cli.transformers import main
main()
"""
PATIENCE = 300  # seconds


@contextmanager
def service(folder: Path, logs: Path | None = None) -> Iterator[str]:
    """Serve the models of a folder on a free port of 127.0.0.1 until the block ends, even by an error.

    Args:
        folder: where the models are, each in a folder that requests name.
        logs: gets server.log (None: the folder); both are made if missing.

    Yields:
        The address, as a client of OpenAI's API expects it (a RuntimeError if it does not start in time).
    """
    for place in (folder, logs or folder):
        place.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # 0: any free port
        address = probe.getsockname()
    where = [f"--host={address[0]}", f"--port={address[1]}"]
    command = [sys.executable, "-c", SERVER, "serve", *where, "--device=cpu"]
    # It asks nobody anything, and loads no compiler.
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "TORCHDYNAMO_DISABLE": "1"}
    file, deadline = (logs or folder) / "server.log", time.monotonic() + PATIENCE
    with (
        file.open("w", encoding="utf-8") as log,
        subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log) as process,
    ):
        try:
            while not answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: read {file}")
                time.sleep(0.2)
            yield "http://{}:{}/v1".format(*address)
        finally:
            process.kill()


def answers(address: tuple[str, int]) -> bool:
    """Whether anybody listens at an address."""
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0

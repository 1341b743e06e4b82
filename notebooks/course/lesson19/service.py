"""`transformers serve` on this machine, for as long as a `with` block runs."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def service(folder: Path, patience: float = 300) -> Iterator[str]:
    """Serve the models of a folder on a free port of 127.0.0.1; stopped when the block ends, even by an error.

    Args:
        folder: where the models are, each in a folder that requests call by its name; also gets server.log.
        patience: how many seconds the server may take to start.

    Yields:
        The address, as a client of OpenAI's API expects it.

    Raises:
        RuntimeError: if the server does not start.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # 0: any port that is free
        address = probe.getsockname()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve"]  # what `transformers serve` starts
    command += ["--host", address[0], "--port", str(address[1]), "--device", "cpu"]
    deadline = time.monotonic() + patience
    with (folder / "server.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: read {folder / 'server.log'}")
                time.sleep(0.2)
            yield "http://{}:{}/v1".format(*address)
        finally:
            process.kill()
            process.wait()


def _answers(address):
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0

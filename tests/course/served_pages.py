"""What tests in a real browser share: a server until a block ends, a page that notes what goes wrong, screenshots."""

import os
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TextIO

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "results" / "screenshots"
TOKEN = "of-the-tests"
PATIENCE = 90_000  # milliseconds; a busy machine starts a kernel slowly


@contextmanager
def served(command: list[str], address: str, folder: Path = ROOT, **environment: str):
    """Run a server until the block ends; what it printed is shown where it does not come up.

    It has settings of its own: servers side by side would write one another's record of what is open.
    """
    host, port = address.removeprefix("http://").split(":")
    with TemporaryDirectory() as own, TemporaryFile("w+", encoding="utf-8") as said:
        settings = os.environ | {"JUPYTER_CONFIG_DIR": own} | environment
        server = subprocess.Popen(command, cwd=folder, env=settings, stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_for(server, host, int(port), said)
            yield
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(server: subprocess.Popen, host: str, port: int, said: TextIO) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        if server.poll() is not None:
            said.seek(0)
            raise AssertionError(said.read())
        time.sleep(0.1)


def opened(browser, address: str, script: str = ""):
    """A page as large as a projector's, in which a script runs first, and the list of what went wrong on it."""
    page, wrong = browser.new_page(viewport={"width": 1280, "height": 720}), []
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if "localhost" not in asked.url.split("/")[2] else None)
    page.add_init_script(script)
    page.goto(address)
    return page, wrong


def kept(page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


def shows(page, text: str):
    place = page.get_by_text(text)
    place.first.wait_for()
    return place.first

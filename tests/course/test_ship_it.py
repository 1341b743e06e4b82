"""Lesson 19 starts a server: it ends with the block, also by an error, and when the page is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import pytest

from course.lesson19.service import answers, service

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PAGE = """
import pathlib, time
from course.lesson19.service import service
with service(pathlib.Path()) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def listening(url):
    parts = urlsplit(url)
    return answers((parts.hostname, parts.port))


def test_the_server_answers_on_loopback_and_stops_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), service(tmp_path) as url:  # noqa: PT012
        assert urlsplit(url).hostname == "127.0.0.1" and listening(url)
        with build_opener(ProxyHandler({})).open(f"{url[:-3]}/health", timeout=60) as reply:
            assert reply.status == 200
        1 / 0  # noqa: B018
    assert not listening(url)


def test_the_server_stops_when_the_page_is_killed(tmp_path):
    env = os.environ | {"PYTHONPATH": str(NOTEBOOKS)}
    command = [sys.executable, "-c", PAGE]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as page:
        url = page.stdout.readline().strip()
        assert listening(url)
        page.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
    until = time.monotonic() + 30
    while listening(url) and time.monotonic() < until:
        time.sleep(0.1)
    assert not listening(url)


def test_a_server_that_does_not_start_is_a_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("course.lesson19.service.PATIENCE", 0)
    with pytest.raises(RuntimeError, match="did not start: read .*server.log"), service(tmp_path):
        pytest.fail("it started in no time")

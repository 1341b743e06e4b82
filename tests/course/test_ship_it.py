"""Lesson 19's client waits until its server has started, and asks no proxy."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from runpy import run_path
from threading import Thread

FOLDER = Path(__file__).resolve().parents[2] / "notebooks/course/lesson19/desk_service"
ASKED = []


class Starting(BaseHTTPRequestHandler):
    def do_GET(self):
        ASKED.append(self.path)
        self.send_response(200 if len(ASKED) > 2 else 503)
        self.end_headers()


def test_a_client_waits_for_its_server_and_asks_no_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = HTTPServer(("127.0.0.1", 0), Starting)
    Thread(target=server.serve_forever, daemon=True).start()
    run_path(FOLDER / "asking.py")["connect"](f"http://127.0.0.1:{server.server_port}/v1")
    server.shutdown()
    assert ASKED == ["/health"] * 3

"""A model hub on this machine: speaks as much of the hub's protocol as a download needs, and fails on request.

The organisation in a model's name chooses the behaviour: `works/tiny` serves the folder, `cut/tiny` breaks the first
download of the weights in the middle, `broken/tiny` every one, `stalled/tiny` stops sending, `gated/tiny` and
`missing/tiny` say so, `status-403/tiny` answers 403 to everything, `wrong/tiny` announces another hash of the weights.
"""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40
WEIGHTS = "model.safetensors"
REFUSALS = {"gated": (403, "GatedRepo"), "missing": (404, "RepoNotFound")}


@dataclass
class HubLog:
    """Where the hub listens, and what it was asked: method and path, in order."""

    address: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)

    def downloads(self, name: str) -> int:
        return sum(method == "GET" and path.startswith(name) for method, path in self.requests)


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    log: HubLog

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def log_message(self, *_) -> None:
        """Quiet: HubLog is the log."""

    def answer(self) -> None:
        path = self.path.split("?")[0].strip("/")
        self.log.requests.append((self.command, path))
        parts = path.removeprefix("api/models/").split("/")
        behaviour, name = parts[0], parts[-1]
        if behaviour.startswith("status-"):
            return self.reply(int(behaviour.removeprefix("status-")))
        if behaviour in REFUSALS:
            status, code = REFUSALS[behaviour]
            return self.reply(status, headers={"X-Error-Code": code})
        files = {file.name: file for file in self.folder.iterdir()}
        if path.startswith("api/models/"):
            siblings = [{"rfilename": name, "size": file.stat().st_size} for name, file in files.items()]
            for sibling in siblings:
                content = files[sibling["rfilename"]].read_bytes()
                content += b" " if behaviour == "stale" and sibling["rfilename"] == "config.json" else b""
                sibling["blobId"] = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
                if sibling["rfilename"] == WEIGHTS:  # large files alone are hashed
                    body = b"other" if behaviour == "wrong" else files[WEIGHTS].read_bytes()
                    pointer = {"size": sibling["size"], "pointerSize": 134, "sha256": hashlib.sha256(body).hexdigest()}
                    sibling["lfs"] = pointer
            answer = {"id": "/".join(parts[:2]), "sha": COMMIT, "siblings": siblings}
            if "tree" in parts:
                answer = [{"type": "file", "path": n, "size": f.stat().st_size, "oid": n} for n, f in files.items()]
            return self.reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})
        if "resolve" not in parts or name not in files:
            return self.reply(404, headers={"X-Error-Code": "EntryNotFound"})
        body = files[name].read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
        sent = len(body)
        if name == WEIGHTS and (behaviour == "broken" or behaviour == "cut" and self.log.downloads(path) == 1):
            sent //= 2
        self.reply(200, body, headers, sent, pause=1.5 if name == WEIGHTS and behaviour == "stalled" else 0)

    def reply(self, status: int, body: bytes = b"", headers=None, sent: int | None = None, pause: float = 0) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            time.sleep(pause)
            self.wfile.write(body[:sent])
        self.close_connection = sent is not None and sent < len(body)


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(*arguments)

    def process_request(self, request, client_address) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def server_close(self) -> None:
        """End open connections too: a client that keeps one would still be answered."""
        super().server_close()
        for connection in self.connections:
            with suppress(OSError):  # most are closed already
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address) -> None:
        """A client that gave up waiting is what some tests are about."""


@contextmanager
def serve(folder: Path) -> Iterator[HubLog]:
    """Run a hub that serves the files of `folder` on the loopback address, for as long as the block lasts."""
    log = HubLog()
    with running(type("Handler", (Hub,), {"folder": folder, "log": log})) as log.address:
        yield log


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server on the loopback address, and give that address, for as long as the block lasts."""
    server = QuietServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()

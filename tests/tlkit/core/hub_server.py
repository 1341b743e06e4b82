"""A model hub on this machine: speaks as much of the hub's protocol as a download needs, and fails on request.

The organisation in a model's name chooses the behaviour: `works/tiny` serves the folder, `cut/tiny` breaks the first
download of the weights in the middle, `broken/tiny` every one, `gated/tiny` and `missing/tiny` say so,
`status-403/tiny` answers 403 to everything, `wrong/tiny` and `stale/tiny` announce another hash of the weights or of
the configuration, `pickled/tiny` has no safetensors.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40
WEIGHTS = "model.safetensors"
REFUSALS = {"gated": (403, "GatedRepo"), "missing": (404, "RepoNotFound")}


@dataclass
class HubLog:
    """Where the hub listens, and what it was asked: method, path and the first byte that was wanted, in order."""

    address: str = ""
    requests: list[tuple[str, str, int]] = field(default_factory=list)

    def downloads(self, name: str) -> list[int]:
        """From which byte on each download of a file began."""
        return [start for method, path, start in self.requests if method == "GET" and path.startswith(name)]


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    log: HubLog

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_) -> None:
        """Quiet: HubLog is the log."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0].strip("/")
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.log.requests.append((self.command, path, start))
        parts = path.removeprefix("api/models/").split("/")
        behaviour, name = parts[0], parts[-1]
        if behaviour.startswith("status-"):
            return self.reply(int(behaviour.removeprefix("status-")))
        if behaviour in REFUSALS:
            status, code = REFUSALS[behaviour]
            return self.reply(status, headers={"X-Error-Code": code})
        files = {file.name: file.read_bytes() for file in self.folder.iterdir()}
        if behaviour == "pickled":
            files["pytorch_model.bin"] = files.pop(WEIGHTS)
        if path.startswith("api/models/"):
            listed = [self.entry(name, content, behaviour) for name, content in files.items()]
            answer = listed if "tree" in parts else {"id": "/".join(parts[:2]), "sha": COMMIT}
            return self.reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})
        if "resolve" not in parts or name not in files:
            return self.reply(404, headers={"X-Error-Code": "EntryNotFound"})
        body = files[name]
        headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
        sent = len(body) - start
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        if name == WEIGHTS and (behaviour == "broken" or behaviour == "cut" and not start):
            sent //= 2
        return self.reply(206 if start else 200, body[start:], headers, sent)

    def entry(self, name: str, content: bytes, behaviour: str) -> dict:
        """A file as the hub lists it: large files alone have a SHA-256, of the others git's hash is known."""
        announced = content + b" " if (behaviour, name) in (("wrong", WEIGHTS), ("stale", "config.json")) else content
        digest = hashlib.sha1(b"blob %d\0" % len(announced) + announced).hexdigest()
        entry = {"type": "file", "path": name, "size": len(content), "oid": digest}
        if name == WEIGHTS:
            entry["lfs"] = {"oid": hashlib.sha256(announced).hexdigest(), "size": len(content), "pointerSize": 134}
        return entry

    def reply(self, status: int, body: bytes = b"", headers=None, sent: int | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:sent])
        self.close_connection = sent is not None and sent < len(body)


@contextmanager
def serve(folder: Path) -> Iterator[HubLog]:
    """Run a hub that serves the files of `folder` on the loopback address, for as long as the block lasts."""
    log = HubLog()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Hub,), {"folder": folder, "log": log}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    log.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield log
    finally:
        server.shutdown()
        server.server_close()

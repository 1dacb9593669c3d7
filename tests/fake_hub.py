"""A small double of the hub on the loopback interface: repositories in memory, faults on demand, requests counted."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER_COMMIT = "f" * 40


@dataclass(slots=True)
class Repository:
    """Files by name, and what the hub says besides."""

    files: dict[str, bytes]
    commit: str = COMMIT
    branches: tuple[str, ...] = ("main",)
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """One that came in."""

    path: str
    headers: dict[str, str]


class FakeHub(ThreadingHTTPServer):
    """The server; `fault(handler, path)` may answer in its place and then returns True."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.fault: Callable[[Handler, str], bool] = lambda _handler, _path: False
        self.sent = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        """What was asked for, files by their names alone."""
        return [request.path.rpartition("/")[2] if "/resolve/" in request.path else "info" for request in self.requests]

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over clients that hang up, which is how they cut a transfer off."""


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does."""

    protocol_version = "HTTP/1.1"
    server: FakeHub

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.server.requests.append(Request(self.path, {name.lower(): value for name, value in self.headers.items()}))
        path = unquote(self.path)
        if not self.server.fault(self, path):
            self.answer(path)

    def answer(self, path: str) -> None:
        """Answer without a fault."""
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            repo = self.server.repositories.get(match[1])
            if repo is None:
                self.error(404, "RepoNotFound")
            elif match[2] not in (*repo.branches, repo.commit):
                self.error(404, "RevisionNotFound")
            else:
                siblings = [{"rfilename": name} for name in repo.files]
                self.send(json.dumps({"sha": repo.commit, "siblings": siblings, **repo.info}).encode())
            return
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        repo = self.server.repositories.get(match[1]) if match else None
        if match is None or repo is None:
            self.error(404, "RepoNotFound")
        elif match[2] != repo.commit:
            self.error(404, "RevisionNotFound")
        elif match[3] not in repo.files:
            self.error(404, "EntryNotFound")
        else:
            self.send(repo.files[match[3]])

    def error(self, status: int, code: str = "") -> bool:
        """Refuse; returns True, as a fault does."""
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def send(self, content: bytes) -> None:
        """Send a file, or the range of it that was asked for."""
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match is None:
            self.begin(200, len(content))
            self.write(content)
        elif int(match[1]) >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            part = content[int(match[1]) : int(match[2]) + 1]
            self.begin(206, len(part), f"bytes {match[1]}-{int(match[1]) + len(part) - 1}/{len(content)}")
            self.write(part)

    def begin(self, status: int, length: int, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def write(self, content: bytes) -> None:
        self.wfile.write(content)
        self.server.sent += len(content)

    def drip(self, content: bytes, pause_s: float) -> bool:
        """Send a byte now and then; returns True, as a fault does."""
        self.begin(200, len(content))
        for byte in content:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(pause_s)
        return True


@contextmanager
def running() -> Iterator[FakeHub]:
    """Run a hub in a thread."""
    with FakeHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()

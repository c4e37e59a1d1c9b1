"""Receivers on loopback that accept, refuse, wait or redirect, and a clock that tests set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from forewarn.features.time_units import SECOND, Nanoseconds

START = Nanoseconds(1_772_366_400 * SECOND)  # 2026-03-01T12:00:00Z


@dataclass
class SetClock:
    moment: Nanoseconds = START

    def now(self) -> int:
        return self.moment

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return until.wait(seconds)

    def advance(self, nanoseconds: int) -> None:
        self.moment = Nanoseconds(self.moment + nanoseconds)


@dataclass
class Post:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HttpReceiver:
    """Answers all posts with one status; stores those that it accepted.

    `before_answer` is called when a post has arrived and is stored.
    """

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b"ok"
    accepted: list[Post] = field(default_factory=list)
    attempts: int = 0
    before_answer: Callable[[], object] = str


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    receiver = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.attempts += 1
            if receiver.status < 300:
                named = {name.lower(): value for name, value in self.headers.items()}
                receiver.accepted.append(Post(self.path, named, body))
            receiver.before_answer()
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(receiver.answer)))
            self.end_headers()
            self.wfile.write(receiver.answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from forewarn.pipelines.serving.request_limits import RequestLimits, limited_protocol

# Undocumented parts of Uvicorn that `request_limits.py` overrides or reads.
OVERRIDDEN = [
    "connection_lost",
    "connection_made",
    "data_received",
    "on_header",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
]
CHANGED = (
    f"Uvicorn {importlib.metadata.version('uvicorn')} changed private parts that "
    "pipelines/serving/request_limits.py overrides: compare both, or pin it in pyproject.toml. "
    "Differs: "
)


class Connection(asyncio.Transport):
    """The server's side of a connection, without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closing = b"", False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None: ...


async def never(_scope: Any, _receive: Any, _send: Any) -> None:
    """Leave every request unanswered."""
    await asyncio.Event().wait()


def refusals(play: Callable[[Any], None], wait: float = 0.0) -> tuple[list[int], bytes]:
    """Return the counted refusals and the response after a client has sent its bytes."""

    async def serve() -> tuple[list[int], bytes]:
        counted: list[int] = []
        config = uvicorn.Config(
            never,
            http=limited_protocol(RequestLimits(100, 1000, 0.05), counted.append),
            log_config=None,
        )
        config.load()
        make: Any = config.http_protocol_class
        protocol = make(config=config, server_state=ServerState(), app_state={})
        connection = Connection()
        protocol.connection_made(connection)
        play(protocol)
        await asyncio.sleep(wait)
        protocol.connection_lost(None)
        return counted, connection.sent.partition(b"\r\n")[0]

    return asyncio.run(serve())


def test_uvicorn_has_overridden_parts() -> None:
    parts = vars(httptools_impl.HttpToolsProtocol)
    absent = [name for name in OVERRIDDEN if not callable(parts.get(name))]
    assert not absent, CHANGED + ", ".join(absent)
    absent = [str(status) for status in (408, 413, 431) if status not in httptools_impl.STATUS_LINE]
    assert not absent, f"{CHANGED}STATUS_LINE without {', '.join(absent)}"


def test_request_in_progress_has_expected_fields() -> None:
    kinds = {"response_started": bool, "disconnected": bool, "message_event": asyncio.Event}

    def play(protocol: Any) -> None:
        protocol.data_received(b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n")
        absent = [
            name
            for name, kind in kinds.items()
            if not isinstance(getattr(protocol.cycle, name, None), kind)
        ]
        assert not absent, f"{CHANGED}RequestResponseCycle.{', '.join(absent)}"

    refusals(play)


def test_each_limit_closes_with_its_status() -> None:
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    results = {
        431: refusals(lambda protocol: protocol.data_received(b"GET / HTTP/1.1\r\n" + b"a" * 99)),
        413: refusals(lambda protocol: protocol.data_received(head + b"400\r\n" + b"a" * 1024)),
        408: refusals(lambda protocol: protocol.data_received(head), wait=0.2),
    }
    for status, (counted, answer) in results.items():
        assert counted == [status], f"{CHANGED}a request beyond its bound was not refused: {status}"
        assert answer.startswith(b"HTTP/1.1 %d " % status), f"{CHANGED}{answer!r}"

from __future__ import annotations

import logging

from starlette.applications import Starlette

from forewarn.pipelines.serving.listener import Listener


class Closing(logging.Handler):
    """A handler that closes more than itself, like those of some packages."""

    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def test_server_keeps_existing_log_handlers() -> None:
    handler = Closing()
    listener = Listener("respond", "127.0.0.1", 0)
    listener.server(Starlette(), limit=10, seconds=1.0, refused=lambda _: None)
    assert not handler.closed
    handler.close()

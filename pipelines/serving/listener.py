"""An address that a service listens at, and the server that answers there."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette

from forewarn.features.errors import InputError
from forewarn.pipelines.serving.request_limits import RequestLimits, limited_protocol

__all__ = ["Listener", "ListenerError"]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MAX_HEAD_BYTES = 16 << 10  # bytes of the head of a request


class ListenerError(InputError):
    """An address or a certificate that cannot be had."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a service listens.

    Attributes
    ----------
    table : str
        Of the configuration, for messages.
    host : str
    port : int
        0 for any that is free.
    certificate, key : str
        Files of PEM; empty for none.
    """

    table: str
    host: str
    port: int
    certificate: str = ""
    key: str = ""

    def bind(self) -> socket.socket:
        """Check certificate and address before anything is written.

        Raises
        ------
        ListenerError
            If one of them cannot be used.
        """
        if self.certificate:
            self._check_certificate()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=1024)
        except OSError as error:
            raise ListenerError(
                f"{self.host}:{self.port}: cannot listen there ({error.strerror})."
            ) from None

    def warn(self, log: logging.Logger) -> None:
        """Say it where tokens can be read on their way."""
        if self.host not in _LOOPBACK and not self.certificate:
            log.warning(
                "no `%s.certificate`: tokens travel in the clear on %s", self.table, self.host
            )

    def server(
        self, app: Starlette, *, limit: int, seconds: float, refused: Callable[[int], None]
    ) -> uvicorn.Server:
        """Return a server that closes a request beyond its bounds.

        Parameters
        ----------
        app : Starlette
        limit : int
            Bytes of a body.
        seconds : float
            For all of a request.
        refused : callable
            Is told the status of what was closed.
        """
        bounds = RequestLimits(_MAX_HEAD_BYTES, 2 * limit + _MAX_HEAD_BYTES, seconds)
        _open_many_files()
        config = uvicorn.Config(
            app,
            http=limited_protocol(bounds, refused),
            ws="none",
            log_config=None,  # its own would close handlers that others have set up
            log_level="warning",
            access_log=False,
            ssl_certfile=self.certificate or None,
            ssl_keyfile=self.key or None,
            timeout_keep_alive=75,
        )
        return uvicorn.Server(config)

    def address(self, bound: socket.socket) -> str:
        """Return the address of a socket, as a client writes it."""
        scheme = "https" if self.certificate else "http"
        host, port = bound.getsockname()[:2]
        return f"{scheme}://{host}:{port}"

    def _check_certificate(self) -> None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.certificate, self.key
            )
        except OSError as error:
            raise ListenerError(
                f"`{self.table}.certificate` {self.certificate} and `{self.table}.key` {self.key} "
                f"cannot be used ({error.strerror or error}), expected PEM files that fit."
            ) from None


def _open_many_files() -> None:
    """Let every client keep its connection: the usual limit is 1,024 files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

"""The address that a service listens on, and its server."""

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
    """The address or the certificate cannot be used."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Address and certificate of a service.

    Attributes
    ----------
    table : str
        Table of the configuration, for messages.
    host : str
    port : int
        0 selects any free port.
    certificate, key : str
        PEM files; empty for none.
    """

    table: str
    host: str
    port: int
    certificate: str = ""
    key: str = ""

    def bind(self) -> socket.socket:
        """Check the certificate and bind the address, before anything is written.

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
                f"{self.host}:{self.port}: cannot listen ({error.strerror})."
            ) from None

    def warn(self, log: logging.Logger) -> None:
        """Log a warning if tokens are sent unencrypted."""
        if self.host not in _LOOPBACK and not self.certificate:
            log.warning(
                "no `%s.certificate`: tokens are sent unencrypted to %s", self.table, self.host
            )

    def server(
        self, app: Starlette, *, limit: int, seconds: float, refused: Callable[[int], None]
    ) -> uvicorn.Server:
        """Return a server that closes requests that exceed the limits.

        Parameters
        ----------
        app : Starlette
        limit : int
            Bytes of a body.
        seconds : float
            Duration of a whole request.
        refused : callable
            Called with the status of each closed connection.
        """
        bounds = RequestLimits(_MAX_HEAD_BYTES, 2 * limit + _MAX_HEAD_BYTES, seconds)
        _open_many_files()
        config = uvicorn.Config(
            app,
            http=limited_protocol(bounds, refused),
            ws="none",
            log_config=None,  # uvicorn's own would close handlers set up elsewhere
            log_level="warning",
            access_log=False,
            ssl_certfile=self.certificate or None,
            ssl_keyfile=self.key or None,
            timeout_keep_alive=75,
        )
        return uvicorn.Server(config)

    def address(self, bound: socket.socket) -> str:
        """Return the address of a socket as a client writes it."""
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
                f"cannot be used ({error.strerror or error}), expected matching PEM files."
            ) from None


def _open_many_files() -> None:
    """Raise the limit of open files, so that every client can keep its connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

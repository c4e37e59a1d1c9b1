"""Repeated rounds of the loop, and the API in a thread next to them."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import FastAPI

from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.app import make_app, serve_api
from forewarn.pipelines.incidents.ledger.database import MissingLedgerError
from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.runtime.alerts import alert
from forewarn.pipelines.runtime.clock import Clock
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.serving.listener import Listener

__all__ = ["ApiThread", "watch_loop"]


def watch_loop(
    call: Callable[[], None],
    *,
    every: Nanoseconds,
    longest: Nanoseconds,
    clock: Clock,
    ended: threading.Event,
    warn: Callable[[str, str], None] = alert,
) -> None:
    """Call the loop repeatedly until it is ended.

    External errors (a database or scheduler that does not answer, an unreadable file, a full disk)
    are noted, and the next call tries again. Programming errors are raised.

    Parameters
    ----------
    call : callable
    every : int
        Nanoseconds between two calls.
    longest : int
        Nanoseconds without a successful call after which an alert is raised, once. A lost ledger
        raises the alert at once.
    clock : Clock
    ended : Event
    warn : callable
        Takes the subject of an alert and its text.
    """
    last, warned = clock.now(), False
    while not ended.is_set():
        try:
            call()
        except BrokenPipeError:  # the reader of standard output has gone
            raise
        except (InputError, DriverError, OSError) as error:
            note(f"poll failed, will retry: {error}")
            text = _alert_text(error, late=clock.now() - last > longest, longest=longest)
            if text and not warned:
                warn("respond", text)
                warned = True
        else:
            last, warned = clock.now(), False
        clock.wait(every / SECOND, ended)


def _alert_text(error: Exception, *, late: bool, longest: Nanoseconds) -> str:
    """Return the text of an alert; empty while the next call may still succeed."""
    if late:
        span = format_duration(longest / SECOND)
        return f"no successful poll for more than {span}: {error}"
    return str(error) if isinstance(error, MissingLedgerError) else ""


@dataclass(slots=True)
class ApiThread:
    """The API in a thread, restarted when it ends.

    Attributes
    ----------
    open_context : callable
        Returns a new context: a used one cannot serve again.
    listener : Listener
    warn : callable
        As in `watch_loop`.
    make : callable
        Returns the application of a context.
    """

    open_context: Callable[[], ApiContext]
    listener: Listener
    warn: Callable[[str, str], None] = alert
    make: Callable[[ApiContext], FastAPI] = make_app
    _thread: threading.Thread | None = field(default=None, init=False)
    _ended_by: str = field(default="", init=False)

    def start(self) -> None:
        """Bind the listener and serve in a thread.

        Raises
        ------
        InputError
            If the address, the certificate or the tokens cannot be used.
        """
        context = self.open_context()
        bound = self.listener.bind()

        def serve() -> None:
            try:
                serve_api(context, self.listener, bound, self.make(context))
                self._ended_by = "stopped on request"
            except BaseException as error:  # uvicorn raises SystemExit if it cannot start
                traceback.print_exc()
                self._ended_by = f"{type(error).__name__}: {error}"

        self._thread = threading.Thread(target=serve, daemon=True, name="api")
        self._thread.start()

    def restart_if_ended(self) -> None:
        """Restart the API if it has ended, with an alert."""
        if self._thread is None or self._thread.is_alive():
            return
        self.warn("respond", f"the API ended ({self._ended_by}), restarting it")
        try:
            self.start()
        except InputError as error:
            self._ended_by = str(error)

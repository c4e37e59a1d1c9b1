"""Watching: the loop again and again, through whatever the world does, beside the API."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.app import serve_api
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
    """Call the loop again and again until it is ended.

    What the world does wrong (a database or a scheduler that does not answer, a file that cannot be
    read, a full disk) is a line, and the next call tries again. An error of ours goes through.

    Parameters
    ----------
    call : callable
    every : int
        Nanoseconds between two calls.
    longest : int
        Nanoseconds without a call that came through, after which an alert is raised, once; where
        the ledger is lost, at once.
    clock : Clock
    ended : Event
    warn : callable
        Takes what an alert is about, and its words.
    """
    last, warned = clock.now(), False
    while not ended.is_set():
        try:
            call()
        except BrokenPipeError:  # whoever read our output has gone
            raise
        except (InputError, DriverError, OSError) as error:
            note(f"not this time: {error}")
            words = _trouble(error, late=clock.now() - last > longest, longest=longest)
            if words and not warned:
                warn("respond", words)
                warned = True
        else:
            last, warned = clock.now(), False
        clock.wait(every / SECOND, ended)


def _trouble(error: Exception, *, late: bool, longest: Nanoseconds) -> str:
    """Return the words of an alert; empty while a call may still come through by itself."""
    if late:
        span = format_duration(longest / SECOND)
        return f"no call came through for more than {span}: {error}"
    return str(error) if isinstance(error, MissingLedgerError) else ""


@dataclass(slots=True)
class ApiThread:
    """The API in a thread; where it ends, that is said, and it is started again.

    Attributes
    ----------
    open_desk : callable
        Returns a new desk: one that has served cannot serve again.
    listener : Listener
    warn : callable
        As of `watch_loop`.
    """

    open_context: Callable[[], ApiContext]
    listener: Listener
    warn: Callable[[str, str], None] = alert
    _thread: threading.Thread | None = field(default=None, init=False)
    _ended_by: str = field(default="", init=False)

    def start(self) -> None:
        """Listen, and serve in a thread.

        Raises
        ------
        InputError
            If the address, the certificate or the tokens cannot be used.
        """
        context = self.open_context()
        bound = self.listener.bind()

        def serve() -> None:
            try:
                serve_api(context, self.listener, bound)
                self._ended_by = "it was told to stop"
            except BaseException as error:  # uvicorn leaves by SystemExit where it cannot start
                traceback.print_exc()
                self._ended_by = f"{type(error).__name__}: {error}"

        self._thread = threading.Thread(target=serve, daemon=True, name="api")
        self._thread.start()

    def restart_if_ended(self) -> None:
        """Start it again if it has ended, and say so."""
        if self._thread is None or self._thread.is_alive():
            return
        self.warn("respond", f"the API ended ({self._ended_by}), it is started again")
        try:
            self.start()
        except InputError as error:
            self._ended_by = str(error)

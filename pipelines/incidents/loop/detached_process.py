"""A module of the package in a process of its own, which outlives the one that starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from forewarn.features.time_units import Nanoseconds

__all__ = ["AwaitedCommand", "record_awaited", "run_detached", "start_detached"]

_START_SECONDS: Final = 60.0
_MAX_ATTEMPTS: Final = 5

_Action = TypeVar("_Action")


@dataclass(frozen=True, slots=True)
class AwaitedCommand:
    """A command of the site whose result an action in the ledger awaits.

    Attributes
    ----------
    ledger : str
        Address of the ledger, without a password.
    command : tuple of str
    timeout : float
        Seconds.
    machine : str
    action, version : int
        The action, and its version that records the start; a later start replaces this one.
    begun_at : int
        Nanoseconds since 1970 UTC, by the clock of the loop.
    """

    ledger: str
    command: tuple[str, ...]
    timeout: float
    machine: str
    action: int
    version: int
    begun_at: Nanoseconds


def record_awaited(
    awaiting: Callable[[], _Action | None], record: Callable[[_Action], object]
) -> None:
    """Record a result while the loop may change the action at the same time.

    Parameters
    ----------
    awaiting : callable
        Returns the action; None if it does not await the result any more.
    record : callable
        Returns None if the action has changed since it was read.
    """
    for _ in range(_MAX_ATTEMPTS):
        action = awaiting()
        if action is None or record(action) is not None:
            return


def start_detached(module: str, job: object, what: str) -> None:
    """Start a module that calls `run_detached`, without waiting for what it runs.

    Parameters
    ----------
    module : str
        Name of the module.
    job : object
        Written as JSON; the module reads it.
    what : str
        For messages.

    Raises
    ------
    OSError
        If the process cannot be started.
    """
    try:
        subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(job).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_START_SECONDS,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{what} could not be started ({error})") from None


def run_detached(run: Callable[[dict[str, Any]], None]) -> None:
    """Read a job and run it in a detached child, so that the parent can return at once."""
    job = json.load(sys.stdin)
    if os.fork() == 0:
        os.setsid()
        run(job)

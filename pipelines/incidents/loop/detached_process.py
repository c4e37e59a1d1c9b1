"""A module of the package in a process of its own, which outlives the one that starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = ["run_detached", "start_detached"]

_START_SECONDS: Final = 60.0


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

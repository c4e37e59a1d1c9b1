"""Stopping a command that runs until a person stops it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from forewarn.pipelines.runtime.progress import note

__all__ = ["interruptible", "stop_on_signals"]


def stop_on_signals() -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set from now on."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the block, even if a shell started it in the background.

    What the block has opened is closed on the way, such as other processes.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    except KeyboardInterrupt:
        note("stopped")
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

"""Lock that lets one process at a time post a ticket."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import func, select

from forewarn.pipelines.incidents.ledger.database import LedgerDatabase
from forewarn.pipelines.runtime.job_error import JobError

__all__ = ["hold_ticket_lock"]

_LOCK_ID: Final = 0x7469636B  # PostgreSQL advisory lock
_POLL_SECONDS: Final = 0.1
_WAIT_SECONDS: Final = 180.0  # longer than a post with its repeat takes


@contextmanager
def hold_ticket_lock(
    database: LedgerDatabase, wait_seconds: float = _WAIT_SECONDS
) -> Iterator[None]:
    """Wait until no other process posts a ticket of this ledger, and let none do so meanwhile.

    The ledger itself is not locked. The lock ends with its process, so a killed one leaves none.

    Parameters
    ----------
    database : LedgerDatabase
    wait_seconds : float, optional

    Raises
    ------
    JobError
        If another process has the lock for so long.
    """
    lock = _database_lock(database) if database.file is None else _file_lock(database.file.path)
    with lock as acquire:
        until = time.monotonic() + wait_seconds
        while not acquire():
            if time.monotonic() >= until:
                raise JobError("another process is posting a ticket; nothing was posted.")
            time.sleep(_POLL_SECONDS)  # flock has no time-out
        yield


@contextmanager
def _file_lock(ledger: Path) -> Iterator[Callable[[], bool]]:
    """Yield a function that tries to lock a file next to an SQLite ledger."""
    file = os.open(ledger.with_name(f"{ledger.name}.tickets"), os.O_CREAT | os.O_RDWR, 0o600)

    def acquire() -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        yield acquire
    finally:
        os.close(file)


@contextmanager
def _database_lock(database: LedgerDatabase) -> Iterator[Callable[[], bool]]:
    """Yield a function that tries to take a lock of the server for this session."""
    with database.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            yield lambda: bool(
                connection.execute(select(func.pg_try_advisory_lock(_LOCK_ID))).scalar()
            )
        finally:
            connection.invalidate()  # the lock ends with the session

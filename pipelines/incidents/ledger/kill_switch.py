"""Kill switch that stops all actions, even while the database is unavailable."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import SwitchChange
from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["KillSwitch", "KillSwitchError"]

_log = logging.getLogger("forewarn.respond")
_MAX_FILE_CHARS = 1000  # the file may have been created by anyone
_BY_FILE = "file"


class KillSwitchError(InputError):
    """Acting could not be switched."""


@dataclass(frozen=True, slots=True)
class KillSwitch:
    """Kill switch made of a file and a ledger row; acting is off if either says so.

    Attributes
    ----------
    file : Path
        Acting is off while it exists; `touch` is enough.
    ledger : Ledger or None
        None if it could not be opened: the file is enough to stop.
    """

    file: Path
    ledger: Ledger | None

    def off(self) -> SwitchChange | None:
        """Return since when acting is off, by whom and why; None if it is on.

        Raises
        ------
        LedgerError
            If there is no file and the ledger does not answer.
        """
        by_file = self._read_file()
        if by_file is not None or self.ledger is None:
            return by_file
        return self.ledger.switched_off()

    def mark(self, who: str, why: str) -> bool:
        """Create the file, then write into it who stopped acting and why.

        An empty file stops acting as well: a full disk often has room for a name but not for
        content.

        Returns
        -------
        bool
            Whether the file states who and why.

        Raises
        ------
        OSError
            If the file cannot be created.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.file.touch(exist_ok=False)
        try:
            write_atomic(self.file, f"{who}: {why}\n".encode(errors="replace"))
        except OSError as error:
            if not self.file.is_file():
                raise
            _log.error(
                "%s stops acting, but the reason could not be written (%s)",
                self.file,
                error.strerror,
            )
            return False
        return True

    def stop(self, *, now: Nanoseconds, who: str, why: str) -> bool:
        """Switch acting off by file and row; one of them is enough.

        Returns
        -------
        bool
            Whether both were written. A failure of one is logged.

        Raises
        ------
        KillSwitchError
            If neither could be written: forewarn keeps acting.
        """
        errors = []
        try:
            self.mark(who, why)
            with suppress(OSError):  # the time of the stop, also in a simulation; nothing more
                os.utime(self.file, ns=(now, now))
        except OSError as error:
            errors.append(f"{self.file}: cannot be written ({error.strerror})")
        try:
            self._require_ledger().switch(False, now=now, who=who, why=why)
        except LedgerError as error:
            errors.append(str(error))
        if len(errors) == 2:
            raise KillSwitchError(f"acting is NOT switched off: {'; '.join(errors)}")
        for problem in errors:
            _log.error("acting is switched off by %s, but %s", who, problem)
        return not errors

    def lift(self, *, now: Nanoseconds, who: str, why: str) -> None:
        """Switch acting on again; the file is removed last, so that a failure leaves acting off.

        Raises
        ------
        LedgerError
            If the ledger does not answer: acting stays off.
        KillSwitchError
            If the file cannot be removed.
        """
        self._require_ledger().switch(True, now=now, who=who, why=why)
        try:
            self.file.unlink(missing_ok=True)
        except OSError as error:
            raise KillSwitchError(
                f"{self.file}: cannot be removed ({error.strerror}); acting stays off"
            ) from None

    def _require_ledger(self) -> Ledger:
        if self.ledger is None:
            raise LedgerError("the ledger is not open")
        return self.ledger

    def _read_file(self) -> SwitchChange | None:
        try:
            at = Nanoseconds(self.file.stat().st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            with self.file.open(encoding="utf-8", errors="replace") as file:
                line = file.read(_MAX_FILE_CHARS).partition("\n")[0]
        except OSError:  # its existence is what counts
            line = ""
        who, colon, why = line.partition(": ")
        return SwitchChange(False, at, who if colon else _BY_FILE, why if colon else line)

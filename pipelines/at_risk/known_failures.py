"""What a list says of GPUs that have failed: since when, why, and what ends a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.telemetry.rows import EVENT_KINDS

__all__ = ["NO_REPAIR", "Causes", "KnownFailure", "latest_failures"]

NO_REPAIR = "failed, no repair known"
_BY_TELEMETRY = (
    "a repair ticket (forewarn ingest --repairs), a restart of the GPU, or 24 h of healthy "
    "telemetry with 4 h of load"
)
_BY_TICKET = "repaired_at of the ticket (forewarn ingest --repairs)"
_BY_RECORDS = "a record whose column failure is 0"
Causes = Mapping[str, Sequence[tuple[int, str]]]


class KnownFailure(NamedTuple):
    """The latest failure of a GPU, as it is known at the moment of a list.

    Attributes
    ----------
    since : int
        Nanoseconds since 1970 UTC.
    lasts : bool
        It has no end.
    presumed : bool
        Its end is presumed, so no repair is known.
    cause : str
        Empty where no table gives one.
    ended_by : str
        What would end it.
    """

    since: int
    lasts: bool
    presumed: bool
    cause: str
    ended_by: str


def latest_failures(
    failures: Failures, serials: Sequence[str], causes: Causes
) -> dict[int, KnownFailure]:
    """Return the latest failure of each GPU that has any.

    Parameters
    ----------
    failures : Failures
        Known at the moment of the list, by GPU and time.
    serials : sequence of str
    causes : mapping of str to sequence of (int, str)
        Moment and cause of the failures of each serial that tables report.
    """
    latest = {}
    columns = (failures.gpu, failures.since(), failures.repaired_at, failures.presumed)
    for gpu, since, repaired, presumed in zip(*(c.tolist() for c in columns), strict=True):
        reported = [row for row in causes.get(serials[gpu], ()) if since <= row[0] < repaired]
        cause = next((cause for _, cause in reported if cause), "")
        ended_by = _ended_by(cause) if reported else _BY_RECORDS
        latest[gpu] = KnownFailure(since, repaired == NEVER, presumed, cause, ended_by)
    return latest


def _ended_by(cause: str) -> str:
    """Return what ends a failure of a table; a ticket that is open is ended by a person only."""
    return _BY_TELEMETRY if cause in EVENT_KINDS or cause.startswith("xid ") else _BY_TICKET

"""The ledger: an append-only record of findings, decisions and actions, with their authors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger import (
    finding_rows,
    incident_rows,
    incident_summaries,
    outcome_rows,
)
from forewarn.pipelines.incidents.ledger.action_ledger import ActionLedger
from forewarn.pipelines.incidents.ledger.audit import Audit, add_heartbeat, add_note
from forewarn.pipelines.incidents.ledger.block_ledger import BlockLedger
from forewarn.pipelines.incidents.ledger.database import LedgerDatabase, OpenMode
from forewarn.pipelines.incidents.ledger.finding_rows import FindingConflictError, FindingError
from forewarn.pipelines.incidents.ledger.incident_summaries import IncidentChange, IncidentHead
from forewarn.pipelines.incidents.ledger.known_findings import known_findings
from forewarn.pipelines.incidents.ledger.ledger_entries import ConfirmedFailure, RecordedCounts
from forewarn.pipelines.incidents.ledger.open_incident_ids import OpenIncidentIds
from forewarn.pipelines.runtime.progress import note
from forewarn.response.grouping.finding_deduplication import (
    DeduplicatedFindings,
    deduplicate_findings,
)
from forewarn.response.state.action import Action
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident, IncidentState, Outcome

__all__ = ["Ledger"]

MAX_ROW_ID = 2**63 - 1


def _note_rejected(error: FindingError) -> None:
    """Note that a finding is refused: one invalid finding must not stop all others."""
    finding = error.finding
    name = f"{finding.id[:100]!r} of {finding.source[:100]!r} about {finding.machine[:100]!r}"
    note(f"finding {name} is refused: {error}")


def _storable(findings: Sequence[Finding], refuse: Callable[[FindingError], None]) -> list[Finding]:
    """Return the findings that a row can hold."""
    storable = []
    for finding in findings:
        try:
            finding_rows.check(finding)
        except FindingError as error:
            refuse(error)
        else:
            storable.append(finding)
    return storable


def _count_again(
    connection: Connection, counted: DeduplicatedFindings, *, now: Nanoseconds, who: str | None
) -> None:
    """Count repeats, and note who changed a severity and when."""
    repeated = [(known, count.merge_into(known.finding)) for known, count in counted.repeated]
    finding_rows.update_repeats(connection, [(known.row, finding) for known, finding in repeated])
    for known, finding in repeated:
        if finding.severity is not known.finding.severity:
            source, machine, key, _ = finding.key
            subject = {"target": f"{key} of {source} about {machine}", "act": "severity"}
            detail = f"{known.finding.severity or 'none'} to {finding.severity}"
            add_note(connection, now=now, who=who or source, detail=detail, **subject)


class Ledger(ActionLedger, BlockLedger, Audit):
    """An open ledger, usable by several processes and threads at once.

    Each method is one transaction with one snapshot, applied as a whole or not at all. Writers are
    serialized across processes. All times are nanoseconds since 1970 UTC. Each method raises
    `LedgerError` if the database does not answer.

    Parameters
    ----------
    database : LedgerDatabase
    """

    def __init__(self, database: LedgerDatabase) -> None:
        self.database = database
        self._open = OpenIncidentIds()

    @classmethod
    def open(
        cls,
        url: str,
        environment: Mapping[str, str] = os.environ,
        *,
        opening: OpenMode = OpenMode.EITHER,
    ) -> Self:
        """Open a ledger and migrate its tables to the newest schema.

        Parameters
        ----------
        url : str
            `sqlite:///PATH`, or `postgresql://USER@HOST/NAME` without a password.
        environment : mapping
            Holds the password as `FOREWARN_LEDGER_PASSWORD`.
        opening : OpenMode
            Whether a missing ledger is created.

        Raises
        ------
        LedgerError
            If it cannot be opened; one line.
        """
        return cls(LedgerDatabase.open(url, environment, opening))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.database.engine.dispose()

    # --- findings and incidents -----------------------------------------------------------------

    def new_findings(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings that are not known, for sources that are read repeatedly.

        Findings that cannot be stored, or contradict a known one, are left out with a note.
        """
        storable = _storable(findings, _note_rejected)
        if not storable:
            return []
        with self.database.reading() as connection:
            known = known_findings(connection, [finding.key for finding in storable])
        counted = deduplicate_findings(storable, *known)
        for conflict in counted.conflicts:
            _note_rejected(FindingConflictError(*conflict))
        return [count.finding for count in counted.new]

    def record_findings(
        self,
        findings: Sequence[Finding],
        *,
        now: Nanoseconds,
        who: str | None = None,
        refuse: Callable[[FindingError], None] = _note_rejected,
        read_up_to: Mapping[str, Nanoseconds] | None = None,
    ) -> RecordedCounts:
        """Record findings: repeats are counted, new ones join an open incident or open one.

        Parameters
        ----------
        findings : sequence of Finding
        now : int
        who : str, optional
            Sender of the findings, if not their source; noted with a change of severity.
        refuse : callable, optional
            Takes each finding that cannot be stored or contradicts a known one. If it raises,
            nothing is recorded, otherwise the other findings are. The default writes a note.
        read_up_to : mapping of str to int, optional
            Time up to which each source has been read, returned by `last_heartbeat`. It is written
            in the same transaction, so that nothing is counted twice.

        Raises
        ------
        FindingError
            If `refuse` raises it; then nothing is recorded.
        """
        storable = _storable(findings, refuse)
        if not (storable or read_up_to):
            return RecordedCounts(new=0, repeated=0)
        with self.database.writing() as connection:
            known = known_findings(connection, [finding.key for finding in storable])
            counted = deduplicate_findings(storable, *known)
            for conflict in counted.conflicts:
                refuse(FindingConflictError(*conflict))
            _count_again(connection, counted, now=now, who=who)
            new = [count.to_finding() for count in counted.new]
            rows = finding_rows.add(connection, new, now=now)
            added = {row: f for row, f in zip(rows, new, strict=True) if row is not None}
            numbers = incident_rows.assign_incidents(connection, list(added.values()), now=now)
            incident_rows.join(connection, list(zip(numbers, added, strict=True)), now=now)
            for name, at in (read_up_to or {}).items():
                add_heartbeat(connection, name, at)
        repeated = len(storable) - len(counted.conflicts) - len(added)
        return RecordedCounts(new=len(added), repeated=repeated)

    def finding_times(self, jobs: Collection[str]) -> list[Nanoseconds]:
        """Return when the findings about jobs were first reported, in order of time."""
        with self.database.reading() as connection:
            return finding_rows.first_times_of_jobs(connection, jobs)

    def findings_on(self, machines: Collection[str], begin: int, end: int) -> list[Finding]:
        """Return the findings about machines that were reported within a span, oldest first."""
        with self.database.reading() as connection:
            return finding_rows.reported_within(connection, machines, begin, end)

    def open_incidents(self) -> list[Incident]:
        """Return the open incidents, oldest first."""
        with self.database.reading() as connection:
            return incident_rows.load(connection, self._open.read(connection))

    def incident(self, number: int) -> Incident | None:
        """Return an incident by its number."""
        if not 0 < number <= MAX_ROW_ID:
            return None
        with self.database.reading() as connection:
            return next(iter(incident_rows.load(connection, [number])), None)

    def by_number(self, numbers: Sequence[int]) -> list[Incident]:
        """Return the incidents with some numbers, in their order."""
        with self.database.reading() as connection:
            return incident_rows.load(connection, numbers)

    def incidents_of(self, actions: Sequence[Action]) -> dict[int, Incident]:
        """Return the incidents of actions, by number."""
        if not actions:
            return {}
        numbers = sorted({action.incident for action in actions})
        return {incident.id: incident for incident in self.by_number(numbers)}

    def open_heads(self) -> list[IncidentHead]:
        """Return the open incidents without findings and actions, oldest first."""
        with self.database.reading() as connection:
            return incident_summaries.heads(connection, self._open.read(connection))

    def heads_on(self, machine: str, limit: int) -> list[IncidentHead]:
        """Return the incidents of a machine without findings and actions, newest first."""
        with self.database.reading() as connection:
            numbers = incident_rows.list_incident_ids(
                connection, state=None, machine=machine, before=None, limit=limit
            )
            return incident_summaries.ended_heads(connection, numbers)

    def incidents_of_job(self, job: str, limit: int = 100) -> list[Incident]:
        """Return the incidents with a finding about a job, newest first."""
        with self.database.reading() as connection:
            numbers = incident_summaries.ids_of_job(connection, job, limit)
            return incident_rows.load(connection, numbers)

    def incident_changes(self, number: int) -> list[IncidentChange]:
        """Return who acknowledged, ended and judged an incident, and approved a step, by time."""
        with self.database.reading() as connection:
            return incident_summaries.changes(connection, number)

    def opened_since(self, since: Nanoseconds) -> list[int]:
        """Return the numbers of incidents opened since a time, newest first."""
        with self.database.reading() as connection:
            return incident_rows.opened_since(connection, since)

    def incidents(
        self,
        *,
        state: IncidentState | None = None,
        machine: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Incident]:
        """Return incidents, newest first.

        Parameters
        ----------
        state : IncidentState or None
        machine : str or None
            The incident is about this machine, or has a finding about it.
        before : int or None
            Only incidents with a smaller number: the last one of the previous page.
        limit : int
        """
        with self.database.reading() as connection:
            if state is IncidentState.OPEN and machine is None:
                numbers = self._open.read(connection)
                newest = [row for row in reversed(numbers) if before is None or row < before]
                return incident_rows.load(connection, newest[:limit])
            numbers = incident_rows.list_incident_ids(
                connection, state=state, machine=machine, before=before, limit=limit
            )
            return incident_rows.load(connection, numbers)

    def share(
        self, incidents: Sequence[int], *, shared: str, machine: str, now: Nanoseconds, why: str
    ) -> int:
        """Merge incidents that have `shared` in common into a shared incident; return its number.

        It receives their findings, and they are closed as parts of it. An open shared incident of
        the same name is reused. `machine` is the first machine.
        """
        with self.database.writing() as connection:
            return incident_rows.share(
                connection, incidents, shared=shared, machine=machine, now=now, why=why
            )

    def end_incident(
        self, incident: int, state: IncidentState, *, now: Nanoseconds, who: str, why: str
    ) -> None:
        """End an incident.

        Raises
        ------
        ValueError
            If an ended incident is to be reopened; later findings open another incident.
        """
        with self.database.writing() as connection:
            incident_rows.end_incident(connection, incident, state, now=now, who=who, why=why)

    def outcome(
        self,
        incident: int,
        outcome: Outcome,
        *,
        now: Nanoseconds,
        who: str,
        why: str,
        failed_at: Nanoseconds | None = None,
        known_at: Nanoseconds | None = None,
    ) -> None:
        """Record the outcome of an incident; the newest one counts."""
        with self.database.writing() as connection:
            outcome_rows.add_outcome(
                connection,
                incident,
                outcome,
                now=now,
                who=who,
                why=why,
                failed_at=failed_at,
                known_at=known_at,
            )

    def outcomes_after(self, number: int) -> tuple[int, list[int]]:
        """Return the number of the newest outcome, and incidents with outcomes after `number`."""
        with self.database.reading() as connection:
            return outcome_rows.outcomes_after(connection, number)

    def failure_times(self, incidents: Sequence[int]) -> dict[int, Nanoseconds]:
        """Return the failure time of each incident whose outcome is a failure."""
        with self.database.reading() as connection:
            return outcome_rows.failure_times(connection, incidents)

    def confirmed_failures(self) -> list[ConfirmedFailure]:
        """Return the failures that outcomes confirm; they become training labels."""
        with self.database.reading() as connection:
            return outcome_rows.confirmed(connection)

    def acknowledge(self, incident: int, *, now: Nanoseconds, who: str) -> None:
        """Record that a person takes care of an incident; the first acknowledgement counts."""
        with self.database.writing() as connection:
            outcome_rows.acknowledge(connection, incident, now=now, who=who)

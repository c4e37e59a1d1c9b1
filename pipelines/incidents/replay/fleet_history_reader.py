"""The past of a fleet, as a policy is tried on it: from records, events, lists and failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from forewarn.features.records.failures import Failures
from forewarn.features.records.record_table import MACHINE, FeatureKinds, Records
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.sources.event_findings import (
    event_findings,
    has_events,
    read_events,
    xid_finding,
)
from forewarn.pipelines.incidents.sources.list_findings import list_findings
from forewarn.pipelines.incidents.sources.past_failures import (
    failures_from_records,
    merge_failures,
    read_failures,
)
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.records.failures_table import FAILURES_TABLE
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.response.policy.policy import Policy
from forewarn.response.replay.fleet_history import FleetHistory, PastFailure, PastFinding
from forewarn.response.state.machine import Machine, ServiceState

__all__ = ["REPLAY_POOL", "FleetLayout", "read_fleet_history"]

REPLAY_POOL = "fleet"
"""The pool in which a replay puts every machine."""

_XID, _RACK = "xid", "rack"


@dataclass(slots=True)
class FleetLayout:
    """Where GPUs are: their machine, and its rack.

    Attributes
    ----------
    machine_of : dict of str to str
        Of serials.
    rack_of : dict of str to str
        Of machines.
    others : set of str
        Machines of which there are events and no records.
    """

    machine_of: dict[str, str] = field(default_factory=dict)
    rack_of: dict[str, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)

    def machines(self) -> list[Machine]:
        """Return all machines in service; one without records has at least the GPU that spoke."""
        counts = dict.fromkeys(sorted({*self.machine_of.values(), *self.others}), 0)
        for name in self.machine_of.values():
            counts[name] += 1
        state = ServiceState.IN_SERVICE
        return [
            Machine(name, state, gpus=max(n, 1), pool=REPLAY_POOL, rack=self.rack_of.get(name))
            for name, n in counts.items()
        ]


def read_fleet_history(
    folder: Path,
    policy: Policy,
    *,
    interval: int,
    at_risk: Path | None = None,
    failures: Path | None = None,
) -> FleetHistory:
    """Read all that a replay looks at.

    Parameters
    ----------
    folder : Path
        RECORDS; where it holds `_events`, these are the Xids, else the column `xid` is.
    policy : Policy
        Says how long a finding may be acted on.
    interval : int
        Nanoseconds between two records.
    at_risk, failures : Path, optional
        Daily lists; a table of failures in the place of the one beside the records.

    Raises
    ------
    RecordsError, JobError
        If something cannot be read, or there is nothing.
    """
    store = RecordStore(folder, FeatureKinds(), Nanoseconds(interval), (_RACK,))
    known = failures is not None or (folder / FAILURES_TABLE).exists()
    if not folder.is_dir() or not (has_events(folder) or any(folder.glob("date=*"))):
        store.files()  # says what is wrong with the folder
    places, findings, past_failures, span = FleetLayout(), [], [], []
    if any(folder.glob("date=*")):
        records, shown = _read_records(store, with_xids=not has_events(folder))
        places = _places(records)
        past_failures = failures_from_records(shown, records.serials, places.machine_of)
        span = [records.first, records.last]
        findings = list(_xids(records, places, policy))
        known = known or store.has_failures()
    if has_events(folder):
        findings = _events(folder, places, policy)
    if at_risk is not None:
        findings += list_findings(at_risk, places.machine_of)
    # A GPU of which there is no record may have spoken in an event.
    spoke = {f.finding.gpu_serial: f.finding.machine for f in findings if f.finding.gpu_serial}
    past_failures += _table(folder, failures, spoke | places.machine_of)
    return replace(_past(findings, past_failures, places, span), failures_known=known)


def _read_records(store: RecordStore, *, with_xids: bool) -> tuple[Records, Failures]:
    """Read who was where, what was failed, and the Xids of the records."""
    codes = (_XID,) if with_xids and _XID in store.columns() else ()
    kinds = FeatureKinds(code=codes)
    records = RecordStore(store.folder, kinds, store.interval, store.groups).read()
    return records, Failures.from_records(records)


def _places(records: Records) -> FleetLayout:
    """Return where each GPU was last seen; one of no machine counts as its own."""
    bounds = records.gpu_bounds()
    seen = np.flatnonzero(np.diff(bounds) > 0)
    lasts = bounds[seen + 1] - 1
    serials = [records.serials[gpu] for gpu in seen.tolist()]
    machines = _texts(records, MACHINE, lasts)
    names = [machine or serial for machine, serial in zip(machines, serials, strict=True)]
    racks = zip(names, _texts(records, _RACK, lasts), strict=True)
    return FleetLayout(
        machine_of=dict(zip(serials, names, strict=True)),
        rack_of={name: rack for name, rack in racks if rack is not None},
    )


def _texts(records: Records, name: str, rows: np.ndarray) -> list[str | None]:
    column = records.texts.get(name)
    if column is None:
        return [None] * len(rows)
    texts = (*column.texts, None)
    return [texts[code] for code in records.codes(name, rows).tolist()]


def _xids(records: Records, places: FleetLayout, policy: Policy) -> Iterator[PastFinding]:
    """Yield the findings of the column `xid`, if it was read; a record is known at its end."""
    if _XID not in records.columns.names:
        return
    rows = np.arange(len(records))
    codes = np.nan_to_num(records.numbers(_XID, rows))
    for row in np.flatnonzero(codes > 0).tolist():
        serial, at = records.serials[records.gpu[row]], int(records.time[row])
        machine = places.machine_of[serial]
        finding = xid_finding(serial, machine, int(codes[row]), at, policy)
        yield PastFinding(Nanoseconds(at), finding)


def _events(folder: Path, places: FleetLayout, policy: Policy) -> list[PastFinding]:
    events = read_events(folder)
    findings = list(event_findings(events, policy))
    if len(findings) < len(events):
        note(f"{len(events) - len(findings)} events name no machine and are left out")
    known = {*places.machine_of.values()}
    places.others |= {past.finding.machine for past in findings} - known
    return findings


def _table(folder: Path, failures: Path | None, machine_of: Mapping[str, str]) -> list[PastFailure]:
    path = folder / FAILURES_TABLE if failures is None else failures
    return read_failures(path, machine_of) if failures is not None or path.exists() else []


def _past(
    findings: list[PastFinding], failures: list[PastFailure], places: FleetLayout, span: list[int]
) -> FleetHistory:
    moments = span or [past.known_at for past in findings]
    if not moments:
        raise JobError("the records hold no finding and no record, expected at least one.")
    return FleetHistory(
        findings=findings,
        failures=merge_failures(failures),
        machines=places.machines(),
        gpus=frozenset(places.machine_of),
        start=Nanoseconds(min(moments)),
        end=Nanoseconds(max(moments)),
    )

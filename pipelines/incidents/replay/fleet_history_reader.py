"""Reader of a fleet's history for policy replay: records, events, lists and failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.failures import Failures
from forewarn.features.records.record_table import MACHINE, FeatureKinds, Records
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.sources.event_findings import (
    event_findings,
    has_events,
    known_over_time,
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
"""Pool that contains every machine in a replay."""

_XID, _RACK = "xid", "rack"


@dataclass(slots=True)
class FleetLayout:
    """Machines of GPUs, and racks of machines.

    Attributes
    ----------
    machine_of : dict of str to str
        Machine of each GPU serial.
    rack_of : dict of str to str
        Rack of each machine.
    event_only : set of str
        Machines that have events and no records.
    """

    machine_of: dict[str, str] = field(default_factory=dict)
    rack_of: dict[str, str] = field(default_factory=dict)
    event_only: set[str] = field(default_factory=set)

    def machines(self) -> list[Machine]:
        """Return all machines as in service; one without records has at least one GPU."""
        counts = dict.fromkeys(sorted({*self.machine_of.values(), *self.event_only}), 0)
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
    names: ColumnNames = OUR_NAMES,
) -> FleetHistory:
    """Read the history that a replay needs.

    Parameters
    ----------
    folder : Path
        RECORDS; Xids come from its `_events` folder if there is one, else from the column `xid`.
    policy : Policy
        Defines how long a finding may be acted on.
    interval : int
        Nanoseconds between two records.
    at_risk, failures : Path, optional
        Daily lists; a table of failures that replaces the one next to the records.
    names : ColumnNames, optional
        Names of the columns in the records.

    Raises
    ------
    RecordsError, JobError
        If a source is unreadable, or there are no data.
    """
    store = RecordStore(folder, FeatureKinds(), Nanoseconds(interval), (_RACK,), names)
    known = failures is not None or (folder / FAILURES_TABLE).exists()
    if not folder.is_dir() or not (has_events(folder) or any(folder.glob("date=*"))):
        store.files()  # raises with the reason
    layout, findings, past_failures, span = FleetLayout(), [], [], []
    if any(folder.glob("date=*")):
        records, shown = _read_records(store, with_xids=not has_events(folder))
        layout = _read_layout(records)
        past_failures = failures_from_records(shown, records.serials, layout.machine_of)
        span = [records.first, records.last]
        findings = list(_xids(records, layout, policy))
        known = known or store.has_failures()
    if has_events(folder):
        findings = _events(folder, layout, policy)
    if at_risk is not None:
        findings += list_findings(at_risk, layout.machine_of)
    # An event may name a GPU that has no records.
    in_events = {f.finding.gpu_serial: f.finding.machine for f in findings if f.finding.gpu_serial}
    past_failures += _table(folder, failures, in_events | layout.machine_of)
    return replace(_build_history(findings, past_failures, layout, span), failures_known=known)


def _read_records(store: RecordStore, *, with_xids: bool) -> tuple[Records, Failures]:
    """Read locations, failures and Xids of the records."""
    codes = (_XID,) if with_xids and _XID in store.columns() else ()
    kinds = FeatureKinds(code=codes)
    records = replace(store, kinds=kinds).read()
    return records, Failures.from_records(records)


def _read_layout(records: Records) -> FleetLayout:
    """Return the last machine and rack of each GPU; a GPU without a machine is its own machine."""
    bounds = records.gpu_bounds()
    present = np.flatnonzero(np.diff(bounds) > 0)
    lasts = bounds[present + 1] - 1
    serials = [records.serials[gpu] for gpu in present.tolist()]
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


def _xids(records: Records, layout: FleetLayout, policy: Policy) -> Iterator[PastFinding]:
    """Yield findings from the column `xid`, if it was read; a record is known at its time."""
    if _XID not in records.columns.names:
        return
    rows = np.arange(len(records))
    codes = np.nan_to_num(records.numbers(_XID, rows))
    for row in np.flatnonzero(codes > 0).tolist():
        serial, at = records.serials[records.gpu[row]], int(records.time[row])
        machine = layout.machine_of[serial]
        finding = xid_finding(serial, machine, int(codes[row]), at, policy)
        yield PastFinding(Nanoseconds(at), finding)


def _events(folder: Path, layout: FleetLayout, policy: Policy) -> list[PastFinding]:
    events = read_events(folder)
    findings = known_over_time(event_findings(events, policy), policy)
    if skipped := events["machine_id"].null_count:
        note(f"{skipped} events without a machine are skipped")
    known = {*layout.machine_of.values()}
    layout.event_only |= {past.finding.machine for past in findings} - known
    return findings


def _table(folder: Path, failures: Path | None, machine_of: Mapping[str, str]) -> list[PastFailure]:
    path = folder / FAILURES_TABLE if failures is None else failures
    return read_failures(path, machine_of) if failures is not None or path.exists() else []


def _build_history(
    findings: list[PastFinding], failures: list[PastFailure], layout: FleetLayout, span: list[int]
) -> FleetHistory:
    times = span or [past.known_at for past in findings]
    if not times:
        raise JobError("the folder has neither records nor findings, expected at least one.")
    return FleetHistory(
        findings=findings,
        failures=merge_failures(failures),
        machines=layout.machines(),
        gpus=frozenset(layout.machine_of),
        start=Nanoseconds(min(times)),
        end=Nanoseconds(max(times)),
    )

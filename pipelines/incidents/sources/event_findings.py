"""Findings from events of kernel logs and agents: the `_events` of a records folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.records.record_table import RecordsError
from forewarn.features.telemetry.checks.custom_check import parse_custom_check
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR, HARDWARE_KINDS
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.sources.custom_check_trial import CustomCheckTrial
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.parquet_files import read_columns
from forewarn.response.policy.policy import Policy
from forewarn.response.replay.fleet_history import PastFinding
from forewarn.response.state.finding import Finding, FindingKey, FindingKind, Provenance, Severity

__all__ = [
    "early_end",
    "event_findings",
    "has_events",
    "known_over_time",
    "read_events",
    "xid_finding",
]

_KINDS: dict[str, FindingKind] = {
    "xid": FindingKind.XID,
    "lost": FindingKind.FAILURE,
    "needs_reset": FindingKind.FAILURE,
    "init_failed": FindingKind.FAILURE,
    "check": FindingKind.CHECK,
    "sxid": FindingKind.REPORT,
    **dict.fromkeys(HARDWARE_KINDS, FindingKind.REPORT),
    "blind": FindingKind.BLIND,
    "hang": FindingKind.BLIND,
    "gap": FindingKind.BLIND,
}
_COLUMNS = {
    "timestamp": pa.timestamp("ns", "UTC"),
    "known_at": pa.timestamp("ns", "UTC"),
    "gpu_serial": pa.string(),
    "machine_id": pa.string(),
    "kind": pa.string(),
    "code": pa.int64(),
    "pci": pa.string(),
    "check": pa.string(),
    "count": pa.int64(),
    "severity": pa.string(),
    "action": pa.string(),
    "vouched": pa.string(),
    "raw": pa.string(),
}
_OPTIONAL = ("check", "severity", "action", "vouched", "raw")  # missing in older events
_PASSED = "ok"  # severity of a check that found nothing
_MAX_LINE_CHARS = 200
_MAX_COUNT = 10**9  # per event

_NONE = pa.schema(
    [(name, pa.int64() if pa.types.is_timestamp(kind) else kind) for name, kind in _COLUMNS.items()]
).empty_table()


def has_events(records: Path) -> bool:
    """Return whether a records folder contains events of `forewarn ingest` or `collect`."""
    return bool(matching_paths(records / "_events", "date=*/*.parquet"))


def read_events(
    records: Path, *, since: str = "", broken: Callable[[RecordsError], None] | None = None
) -> pa.Table:
    """Read the events of a records folder, with times in nanoseconds since 1970 UTC.

    Parameters
    ----------
    records : Path
    since : str, optional
        First date to read, YYYY-MM-DD.
    broken : callable, optional
        Called with the error of each unreadable file, which is then skipped. If None, the error is
        raised.

    Raises
    ------
    RecordsError
        If a file has another schema.
    UnreadableFolderError
        If a folder cannot be listed.
    """
    days = [
        day for day in matching_paths(records / "_events", "date=*") if day.name >= f"date={since}"
    ]
    tables = [_NONE]
    for path in (path for day in days for path in matching_paths(day, "[0-9]*.parquet")):
        try:
            tables.append(_read(path))
        except RecordsError as error:
            if broken is None:
                raise
            broken(error)
    return pa.concat_tables(tables)


def _read(path: Path) -> pa.Table:
    table = read_columns(path, _COLUMNS, "events", optional=_OPTIONAL)
    for name in ("timestamp", "known_at"):
        column = table[name].cast(pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.filter(pc.is_in(table["kind"], pa.array(list(_KINDS))))


def event_findings(events: pa.Table, policy: Policy) -> Iterator[PastFinding]:
    """Yield the findings of events that name a machine.

    Repeated events of a GPU on the same day are one finding. A check that passes ends its earlier
    findings.

    Parameters
    ----------
    events : pyarrow.Table
        As returned by `read_events`.
    policy : Policy
        Provides how long a finding may be acted on.
    """
    rows = [row for row in events.to_pylist() if row["machine_id"] is not None]
    trial = CustomCheckTrial(row | {"known": _known(row)} for row in rows)
    passed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["severity"] == _PASSED:
            passed[row["machine_id"]].append(row)
    for row in rows:
        if row["severity"] != _PASSED:
            finding, known = _on_trial(_finding(row, policy), row, trial), _known(row)
            candidates = passed[row["machine_id"]] if row["check"] else []
            ends = [_known(other) for other in candidates if _ends(other, row)]
            until = min([finding.valid_until, *(end for end in ends if end > known)])
            yield PastFinding(Nanoseconds(known), replace(finding, valid_until=Nanoseconds(until)))


def early_end(finding: Finding) -> PastFinding:
    """Return the end of a finding: a repeat that counts for nothing and is valid no longer."""
    until = finding.valid_until
    return PastFinding(until, replace(finding, at=until, count=0))


def known_over_time(past: Iterable[PastFinding], policy: Policy) -> list[PastFinding]:
    """Return findings as they were known at first, and each early end when it became known.

    Parameters
    ----------
    past : iterable of PastFinding
        As yielded by `event_findings`.
    policy : Policy
        Provides how long a finding may be acted on.
    """
    known, ends = list[PastFinding](), dict[tuple[FindingKey, int], PastFinding]()
    for item in past:
        finding, until = item.finding, item.finding.valid_until
        at_first = _with_validity(finding, policy)
        if until < at_first.valid_until:
            ends[finding.key, until] = early_end(finding)
        known.append(PastFinding(item.known_at, at_first))
    return known + list(ends.values())


def _on_trial(finding: Finding, row: dict[str, Any], trial: CustomCheckTrial) -> Finding:
    """Return the finding of a custom check on trial as a report, which is no evidence."""
    check = parse_custom_check(row["check"])
    if check is None or not (why := trial.reason(check, _known(row))):
        return finding
    line = finding.evidence.get("line", "")
    return replace(
        finding,
        id=f"{finding.id} observed",
        kind=FindingKind.REPORT,
        severity=Severity.NOTICE,
        evidence={**finding.evidence, "observe_only": True, "line": f"{why}: {line}"},
    )


def _check_name(check: str | None) -> str:
    """Return the name of a check; a custom one keeps its name when its definition changes."""
    custom = parse_custom_check(check)
    return f"custom {custom.name}" if custom else check or ""


def _known(row: dict[str, Any]) -> int:
    """Return when an event was known, not before it happened."""
    return max(int(row["timestamp"]), int(row["known_at"] or 0))


def _ends(passed: dict[str, Any], row: dict[str, Any]) -> bool:
    """Tell whether a check that passed ends a finding: the same test of the GPU or its machine.

    The name of a tool alone (`dcgm health`) stands for all of its tests.
    """
    gpus = [other["gpu_serial"] or other["pci"] or "" for other in (passed, row)]
    names = [_check_name(other["check"]) for other in (passed, row)]
    same_check = names[1] == names[0] or names[1].startswith(f"{names[0]} ")
    same_check &= passed["kind"] == row["kind"]
    return gpus[0] in ("", gpus[1]) and bool(names[0]) and same_check


def _finding(row: dict[str, Any], policy: Policy) -> Finding:
    kind = row["kind"]
    cause = f"{kind} {row['code']}" if kind in ("xid", "sxid") else kind
    if row["check"]:
        cause = f"{kind} {_check_name(row['check'])}"
    gpu = row["gpu_serial"] or row["pci"] or ""
    words = [row[name] for name in ("severity", "action") if row[name]]
    is_fatal_switch = kind == "sxid" and row["severity"] == "fatal"
    is_failure = kind == GPU_ERROR and row["severity"] == Severity.CRITICAL
    return _with_validity(
        Finding(
            source="records",
            id=" ".join([row["machine_id"], gpu, cause, *words, format_iso(row["timestamp"])[:10]]),
            kind=FindingKind.FAILURE if is_failure else _KINDS[kind],
            cause=cause,
            machine=row["machine_id"],
            at=Nanoseconds(row["timestamp"]),
            valid_until=Nanoseconds(row["timestamp"] + DAY),
            gpu_serial=row["gpu_serial"],
            severity=Severity.ERROR if is_fatal_switch else _reported_severity(row),
            evidence=_evidence(row),
            count=min(max(row["count"] or 1, 1), _MAX_COUNT),
            vouched=Provenance.SHARED if row["vouched"] == Provenance.SHARED else Provenance.HOST,
        ),
        policy,
    )


def _reported_severity(row: dict[str, Any]) -> Severity | None:
    """Return the severity of a check or of other hardware; a GPU's events have the driver's."""
    has_severity = row["kind"] in ("check", *HARDWARE_KINDS)
    is_reported = has_severity and row["severity"] in set(Severity)
    return Severity(row["severity"]) if is_reported else None


def _evidence(row: dict[str, Any]) -> dict[str, Any]:
    """Return address, severity and line of an event; the driver's line names link and sub-code."""
    evidence = {name: row[name] for name in ("pci", "severity", "action") if row[name]}
    if (row["severity"] or row["action"]) and row["raw"]:
        evidence["line"] = row["raw"][:_MAX_LINE_CHARS]
    return evidence


def xid_finding(serial: str, machine: str, code: int, at: int, policy: Policy) -> Finding:
    """Return the finding of a record with an Xid."""
    return _with_validity(
        Finding(
            source="records",
            id=f"{machine} {serial} xid {code} {format_iso(at)[:10]}",
            kind=FindingKind.XID,
            cause=f"xid {code}",
            machine=machine,
            at=Nanoseconds(at),
            valid_until=Nanoseconds(at + DAY),
            gpu_serial=serial,
        ),
        policy,
    )


def _with_validity(finding: Finding, policy: Policy) -> Finding:
    """Set the validity of a finding according to the policy."""
    until = finding.at + policy.rule(finding).max_age
    return replace(finding, valid_until=Nanoseconds(until))

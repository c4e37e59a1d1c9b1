from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from forewarn.features.telemetry.telemetry_tables import EVENTS, build_table
from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.incidents.sources.event_findings import event_findings, read_events
from forewarn.pipelines.incidents.sources.finding_sources import EVENTS_CURSOR, gather_findings
from forewarn.response.state.finding import Finding, FindingKind, Severity

NOW = Nanoseconds(20_000 * DAY + 12 * HOUR)
CHECK = "custom scratch@0123456789ab"


def result(
    machine: str, severity: str, ago: int, check: str = CHECK, late: int = 0
) -> dict[str, Any]:
    time = NOW - ago
    return {
        "timestamp": time, "known_at": time + late, "machine_id": machine, "kind": "check",
        "check": check, "severity": severity, "raw": "not mounted", "count": 1,
        "id": f"{machine} {severity} {ago} {check}",
    }  # fmt: skip


def store(folder: Path, rows: list[dict[str, Any]]) -> None:
    path = folder / "_events" / "date=2024-10-04" / "12.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(build_table(rows, EVENTS), path)


def finding(folder: Path, rows: list[dict[str, Any]]) -> Finding:
    store(folder, rows)
    return list(event_findings(read_events(folder), load_policy()))[-1].finding


def fleet(passed: int, failed: int, ago: int = 30 * HOUR) -> list[dict[str, Any]]:
    rows = [result(f"a{n}", "ok", ago) for n in range(passed)]
    return rows + [result(f"b{n}", "error", ago) for n in range(failed)]


def test_first_day_only_observes(tmp_path: Path) -> None:
    last = finding(tmp_path, [*fleet(20, 0, 23 * HOUR), result("a1", "error", 0)])
    assert (last.kind, last.severity) == (FindingKind.REPORT, Severity.NOTICE)
    assert "the first day" in last.evidence["line"]
    assert last.evidence["observe_only"] is True


def test_check_acts_after_its_first_day(tmp_path: Path) -> None:
    last = finding(tmp_path, [*fleet(20, 0), result("a1", "error", 0)])
    assert (last.kind, last.severity) == (FindingKind.CHECK, Severity.ERROR)
    assert last.cause == "check custom scratch"


def test_check_that_fails_everywhere_only_observes(tmp_path: Path) -> None:
    last = finding(tmp_path, [*fleet(17, 3), result("a1", "error", 0)])
    assert last.kind is FindingKind.REPORT
    assert "17 of 20 machines have answered 0" in last.evidence["line"]


def test_ninety_percent_are_enough(tmp_path: Path) -> None:
    last = finding(tmp_path, [*fleet(18, 2), result("a1", "warning", 0)])
    assert (last.kind, last.severity) == (FindingKind.CHECK, Severity.WARNING)


def test_changed_definition_only_observes(tmp_path: Path) -> None:
    changed = "custom scratch@ba9876543210"
    last = finding(tmp_path, [*fleet(20, 0), result("a1", "error", 0, changed)])
    assert last.kind is FindingKind.REPORT


def test_later_results_are_not_known(tmp_path: Path) -> None:
    late = [result(f"a{n}", "ok", 30 * HOUR, late=31 * HOUR) for n in range(20)]
    last = finding(tmp_path, [*late, result("a1", "error", 0)])
    assert last.kind is FindingKind.REPORT


def test_changed_definition_ends_earlier_findings(tmp_path: Path) -> None:
    changed = result("a1", "ok", 0, "custom scratch@ba9876543210")
    last = finding(tmp_path, [*fleet(20, 0), result("a1", "error", HOUR), changed])
    assert last.valid_until == NOW


def gather(folder: Path, read: int | None, now: int) -> tuple[list[Finding], int]:
    found = gather_findings(
        load_policy(), records=folder, lists=folder / "lists", verdicts=None,
        read=None if read is None else Nanoseconds(read), now=Nanoseconds(now),
    )  # fmt: skip
    return found.events, found.read_up_to[EVENTS_CURSOR]


def test_loop_learns_the_end_of_a_finding(tmp_path: Path) -> None:
    failed = result("a1", "error", HOUR)
    store(tmp_path, [*fleet(20, 0), failed])
    events, read = gather(tmp_path, NOW - 2 * HOUR, NOW - 30 * MINUTE)
    assert [(f.kind, f.count) for f in events] == [(FindingKind.CHECK, 1)]
    store(tmp_path, [*fleet(20, 0), failed, result("a1", "ok", 0)])
    ends, read = gather(tmp_path, read, NOW)
    assert [(f.key, f.count, f.valid_until) for f in ends] == [(events[0].key, 0, NOW)]
    assert gather(tmp_path, read, NOW + MINUTE)[0] == []


def test_silence_does_not_end_a_finding(tmp_path: Path) -> None:
    store(tmp_path, [*fleet(20, 0), result("a1", "error", HOUR)])
    events, read = gather(tmp_path, NOW - 2 * HOUR, NOW)
    assert events[0].valid_until > NOW
    assert gather(tmp_path, read, NOW + HOUR)[0] == []

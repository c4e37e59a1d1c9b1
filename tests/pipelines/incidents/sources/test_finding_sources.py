from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.telemetry.telemetry_tables import EVENTS as EVENT_ROWS
from forewarn.features.telemetry.telemetry_tables import build_table
from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.incidents.sources import finding_sources
from forewarn.pipelines.incidents.sources.event_findings import (
    event_findings,
    known_over_time,
    read_events,
)
from forewarn.pipelines.incidents.sources.finding_sources import (
    EVENTS_CURSOR,
    GatheredFindings,
    gather_findings,
)
from forewarn.pipelines.incidents.sources.list_findings import PastList, read_list
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.finding import Finding
from forewarn.response.state.step import Step

NOW = Nanoseconds(20_000 * DAY + 12 * HOUR)
TIME = pa.timestamp("ns", "UTC")


def _findings_of(folder: Path, *events: dict[str, object]) -> list[Finding]:
    """Return the findings of events as written by an ingest."""
    rows = [
        {"timestamp": NOW + n, "machine_id": "m1", "id": str(n), "count": 1, **event}
        for n, event in enumerate(events)
    ]
    path = folder / "_events" / f"date={format_iso(NOW)[:10]}" / "12.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(build_table(rows, EVENT_ROWS), path)
    return [past.finding for past in event_findings(read_events(folder), load_policy())]


def test_driver_severity_distinguishes_findings(tmp_path: Path) -> None:
    gpu = {"gpu_serial": "S1", "pci": "0000:19:00", "kind": "xid"}
    nonfatal, fatal, asks, recovered, needs = _findings_of(
        tmp_path,
        {
            **gpu,
            "code": 149,
            "severity": "nonfatal",
            "raw": "NVRM: NETIR_LINK_EVT Nonfatal",
        },
        {**gpu, "code": 149, "severity": "fatal", "raw": "NVRM: NETIR_LINK_EVT Fatal"},
        {**gpu, "code": 154, "action": "reboot"},
        {**gpu, "code": 154, "action": "none"},
        {**gpu, "kind": "needs_reset", "action": "reset"},
    )
    assert nonfatal.id != fatal.id
    assert "NETIR_LINK_EVT" in fatal.evidence["line"]
    policy = load_policy()
    steps = [policy.rule(f).step for f in (nonfatal, fatal, asks, recovered, needs)]
    assert steps == [Step.AVOID, Step.RESET, Step.RESTART, Step.TELL, Step.RESET]


def test_fatal_switch_error_and_init_failure(tmp_path: Path) -> None:
    switch, other, start = _findings_of(
        tmp_path,
        {"kind": "sxid", "code": 24007, "severity": "fatal", "pci": "0000:04:00"},
        {"kind": "sxid", "code": 22013, "severity": "nonfatal", "pci": "0000:04:00"},
        {"kind": "init_failed", "gpu_serial": "S1", "pci": "0000:19:00"},
    )
    policy = load_policy()
    steps = [policy.rule(finding).step for finding in (switch, other, start)]
    assert steps == [Step.DRAIN, Step.AVOID, Step.CHECK]
    assert switch.machine == "m1"


def test_end_is_not_known_beforehand(tmp_path: Path) -> None:
    check = {"kind": "check", "check": "dcgm diag memory", "gpu_serial": "S1"}
    rows: list[dict[str, object]] = [
        {**check, "severity": severity} for severity in ("error", "ok", "warning", "ok")
    ]
    _findings_of(tmp_path, *rows)
    events, policy = read_events(tmp_path), load_policy()
    whole = known_over_time(event_findings(events, policy), policy)
    for n in range(len(rows)):
        then = known_over_time(event_findings(events.slice(0, n + 1), policy), policy)
        assert [past for past in whole if past.known_at <= NOW + n] == then
    ends = [past.known_at for past in whole if past.finding.valid_until == past.known_at]
    assert ends == [NOW + 1, NOW + 3]


def test_check_keeps_severity_until_it_passes(tmp_path: Path) -> None:
    gpu = {"kind": "check", "check": "dcgm diag memory", "gpu_serial": "S1"}
    failed, slow, later = _findings_of(
        tmp_path,
        {**gpu, "severity": "error", "raw": "Fail: a row is bad"},
        {**gpu, "check": "dcgm diag pcie", "severity": "warning"},
        {**gpu, "severity": "ok"},
        {**gpu, "severity": "notice"},
    )
    assert [(f.severity, f.cause) for f in (failed, slow, later)] == [
        ("error", "check dcgm diag memory"),
        ("warning", "check dcgm diag pcie"),
        ("notice", "check dcgm diag memory"),
    ]
    assert failed.valid_until == NOW + 2  # the check passed then
    assert slow.valid_until > NOW + HOUR
    assert later.valid_until > NOW + HOUR
    health: dict[str, object] = {**gpu, "check": "dcgm health pcie system", "severity": "warning"}
    whole: dict[str, object] = {"kind": "check", "check": "dcgm health", "severity": "ok"}
    (ended,) = _findings_of(tmp_path / "b", health, whole)
    assert ended.valid_until == NOW + 1  # a healthy machine ends what its GPUs had
    policy = load_policy()
    assert [policy.rule(f).severity for f in (failed, slow)] == ["error", "warning"]


def test_hardware_errors_are_reports_until_they_end(tmp_path: Path) -> None:
    link: dict[str, object] = {"kind": "nic_error", "check": "link ens9", "pci": "0000:9a:00"}
    down, corrected, fatal = _findings_of(
        tmp_path,
        {**link, "severity": "warning", "raw": "mlx5_core 0000:9a:00.0 ens9: Link down"},
        {"kind": "pcie_error", "severity": "notice", "gpu_serial": "S1", "pci": "0000:3b:00"},
        {"kind": "pcie_error", "severity": "critical", "gpu_serial": "S1", "pci": "0000:3b:00"},
        {**link, "severity": "ok"},
    )
    assert [(f.cause, f.severity, f.kind) for f in (down, corrected, fatal)] == [
        ("nic_error link ens9", "warning", "report"),
        ("pcie_error", "notice", "report"),
        ("pcie_error", "critical", "report"),
    ]
    assert down.valid_until == NOW + 3  # the link was up again then
    policy = load_policy()
    steps = [policy.rule(finding).step for finding in (down, corrected, fatal)]
    assert steps == [Step.AVOID, Step.TELL, Step.DRAIN]


def _site(folder: Path, *events: tuple[str, float]) -> ResponseSite:
    """Write events (machine, minutes after NOW) as a collector does."""
    times = [int(NOW + minutes * MINUTE) for _, minutes in events]
    rows = {
        "timestamp": pa.array(times, TIME),
        "known_at": pa.array([None] * len(events), TIME),
        "gpu_serial": pa.array([None] * len(events), pa.string()),
        "machine_id": pa.array([machine for machine, _ in events], pa.string()),
        "kind": pa.array(["xid"] * len(events), pa.string()),
        "code": pa.array([79] * len(events), pa.int32()),
        "pci": pa.array([None] * len(events), pa.string()),
        "count": pa.array([1] * len(events), pa.int64()),
    }
    path = folder / "records" / "_events" / f"date={format_iso(NOW)[:10]}" / "12.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), path)
    (folder / "my.toml").write_text("")
    return ResponseSite.from_config(folder / "my.toml")


def _gather(
    site: ResponseSite, now: Nanoseconds, read: Nanoseconds | None = None
) -> GatheredFindings:
    return gather_findings(
        site.policy(),
        records=site.records,
        lists=site.lists,
        verdicts=site.verdicts,
        read=read,
        now=now,
    )


def test_events_are_read_once_and_repeats_count(tmp_path: Path) -> None:
    first = _gather(_site(tmp_path, ("m1", -10)), NOW)
    assert [finding.machine for finding in first.events] == ["m1"]
    read = first.read_up_to[EVENTS_CURSOR]
    site = _site(tmp_path, ("m1", -10), ("m1", -5))
    again = _gather(site, NOW, read)
    assert [finding.at for finding in again.events] == [NOW - 5 * MINUTE]
    assert again.events[0].id == first.events[0].id


def test_fast_clock_hides_no_other_event(tmp_path: Path) -> None:
    ahead = _gather(_site(tmp_path, ("fast", 4)), NOW)
    assert ahead.events == []
    later = Nanoseconds(NOW + 6 * MINUTE)
    site = _site(tmp_path, ("fast", 4), ("m7", 2))
    both = _gather(site, later, ahead.read_up_to.get(EVENTS_CURSOR))
    assert {finding.machine for finding in both.events} == {"fast", "m7"}


def test_invalid_machine_name_blocks_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gathered = _gather(site := _site(tmp_path, ("", -10), ("m1", -9)), NOW)
    with site.ledger() as ledger:
        ledger.record_findings(gathered.events, now=NOW)
        assert [incident.machine for incident in ledger.open_incidents()] == ["m1"]
    assert "of 'records' about '' is refused: `machine` has 0 bytes" in capsys.readouterr().err


def test_empty_site_has_no_findings(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("")
    assert _gather(ResponseSite.from_config(tmp_path / "my.toml"), NOW) == GatheredFindings()


def _list(folder: Path, days_ago: int, rows: list[bool], **columns: object) -> None:
    at, n = int(NOW - days_ago * DAY), len(rows)
    table = {
        "gpu_serial": pa.array([f"g{i}" for i in range(n)], pa.string()),
        "window_end": pa.array([at] * n, TIME),
        "valid_until": pa.array([at + int(DAY)] * n, TIME),
        "flagged": pa.array(rows, pa.bool_()),
    }
    path = folder / "lists" / f"date={format_iso(at)[:10]}" / "at_risk.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(table | columns), path)


def test_list_without_flags_counts_as_list(tmp_path: Path) -> None:
    site = _site(tmp_path)
    _list(tmp_path, 2, [True, True])
    _list(tmp_path, 1, [])  # an empty list is known at the end of its day
    midnight = Nanoseconds(NOW - 12 * HOUR)
    assert _gather(site, NOW).last_list == midnight
    _list(tmp_path, 0, [False, False])
    gathered = _gather(site, NOW)
    assert (gathered.last_list, gathered.list_lengths) == (NOW, (2, 0, 0))


def test_list_is_read_once_until_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, read = _site(tmp_path), list[Path]()

    def read_noted(path: Path, machine_of: Mapping[str, str]) -> PastList | None:
        read.append(path)
        return read_list(path, machine_of)

    monkeypatch.setattr(finding_sources, "read_list", read_noted)
    _list(tmp_path, 1, [True])
    _list(tmp_path, 0, [True, False])
    for _ in range(3):
        assert _gather(site, NOW).list_lengths == (1, 1)
    assert len(read) == 2
    (newest,) = (tmp_path / "lists").glob(f"date={format_iso(NOW)[:10]}")
    shutil.rmtree(newest)
    _list(tmp_path, 0, [True, True])
    assert _gather(site, NOW).list_lengths == (1, 2)
    assert len(read) == 3


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("machine_id", pa.array([1, 2]), "column `machine_id` is int64, expected text"),
        ("model_version", pa.array([1.5, 2]), "column `model_version` is double, expected text"),
        ("flagged", pa.array([1, 2]), "column `flagged` is int64"),
    ],
)
def test_broken_list_is_noted_and_skipped(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    column: str,
    values: pa.Array,
    words: str,
) -> None:
    site = _site(tmp_path)
    _list(tmp_path, 1, [True, True], **{column: values})
    _list(tmp_path, 0, [True])
    gathered = _gather(site, NOW)
    assert [finding.gpu_serial for finding in gathered.statements] == ["g0"]
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lists", "lists/date={day}", "records/_events"])
def test_unlistable_folder_is_noted_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], close: Callable[[Path], None], name: str
) -> None:
    site = _site(tmp_path, ("m1", -10))
    for days_ago in (0, 1):
        _list(tmp_path, days_ago, [True])
    close(tmp_path / name.format(day=format_iso(NOW)[:10]))
    gathered = _gather(site, NOW)
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be listed (Permission denied)" in line
    assert len(gathered.events) == (name != "records/_events")
    assert len(gathered.list_lengths) == {"lists": 0, "records/_events": 2}.get(name, 1)

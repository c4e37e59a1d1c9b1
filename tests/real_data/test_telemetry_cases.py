"""Real reports of operators as `forewarn ingest --raw` reads them: ../shared/data.

The column `right` of telemetry_cases/README.md states the expected results.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.time_units import MINUTE
from forewarn.pipelines.ingest.host_file_ingest import ingest_host_files
from forewarn.pipelines.ingest.landing import Landing

FIRST, SECOND = "1650000000001", "1650000000002"  # at 0000:19:00 and 0000:3b:00 of gn01
# Folders that are tested elsewhere.
ELSEWHERE = {
    "prometheus": "test_exporter_cases.py",
    "mig-exporter-text": "test_exporter_cases.py",
    "exp-xid-counter-text": "test_exporter_cases.py",
    "federate-timestamps": "test_exporter_cases.py",
    "one-gpu-three-exports": "test_exporter_cases.py",
    "board-one-serial-csv": "test_board_and_ticket_cases.py",
    "cmdb-and-tickets": "test_board_and_ticket_cases.py",
}


@dataclass
class Result:
    """Records and notes after an ingest."""

    unread: Unread
    events: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def of(self, *kinds: str, **values: Any) -> list[dict[str, Any]]:
        """Return the events of these kinds with these values."""
        events = (event for event in self.events if not kinds or event["kind"] in kinds)
        return [e for e in events if all(e[name] == value for name, value in values.items())]

    def codes(self) -> list[tuple[int, str, str]]:
        """Return code, GPU and clock of each Xid."""
        return [(e["code"], e["gpu_serial"], clock(e)) for e in self.of("xid")]

    def failed(self) -> list[tuple[str, str]]:
        return [(row["gpu_serial"], row["cause"]) for row in self.failures]


def clock(row: dict[str, Any], name: str = "timestamp") -> str:
    moment: dt.datetime = row[name]
    return f"{moment:%H:%M:%S}"


def _rows(paths: list[Path]) -> list[dict[str, Any]]:
    tables = [pq.read_table(path, partitioning=None) for path in sorted(paths)]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


@pytest.fixture
def read(shared_data: Path, tmp_path: Path) -> Callable[[str], Result]:
    def of_case(case: str) -> Result:
        folder = shared_data / "telemetry_cases" / case / "raw"
        done = ingest_host_files(folder, Landing(tmp_path, 10 * MINUTE))
        return Result(
            done.unread,
            _rows([*tmp_path.glob("_events/date=*/*.parquet")]),
            _rows([*tmp_path.glob("date=*/*.parquet")]),
            _rows([tmp_path / "failures.parquet"]),
        )

    return of_case


Read = Callable[[str], Result]


def test_every_folder_has_a_test(shared_data: Path) -> None:
    tests = {name.removeprefix("test_") for name in dir(sys.modules[__name__])}
    folders = {path.name for path in (shared_data / "telemetry_cases").iterdir() if path.is_dir()}
    uncovered = {name for name in folders if name.replace("-", "_") not in tests}
    assert uncovered == set(ELSEWHERE)
    for folder, name in ELSEWHERE.items():
        assert folder in (Path(__file__).parent / name).read_text(encoding="utf-8")


# --- quoted lines --------------------------------------------------------------------------------


def assert_nothing_happened(result: Result) -> None:
    assert (result.events, result.failures) == ([], [])
    assert not result.unread


def test_quoted_xid_iso_syslog(read: Read) -> None:
    assert_nothing_happened(read("quoted-xid-iso-syslog"))


def test_quoted_xid_rfc3164(read: Read) -> None:
    assert_nothing_happened(read("quoted-xid-rfc3164"))


def test_quoted_xid_journal_json(read: Read) -> None:
    assert_nothing_happened(read("quoted-xid-journal-json"))


# --- line formats --------------------------------------------------------------------------------


def test_journal_chinese_months(read: Read) -> None:
    result = read("journal-chinese-months")
    assert result.codes() == [(79, SECOND, "10:15:47")]
    assert result.failed() == [(SECOND, "xid 79")]
    assert not result.unread


def test_dmesg_chinese_weekday(read: Read) -> None:
    result = read("dmesg-chinese-weekday")
    assert result.codes() == [(79, SECOND, "10:15:47")]
    assert result.failed() == [(SECOND, "xid 79")]


def test_dmesg_german(read: Read) -> None:
    result = read("dmesg-german")
    assert {(e["code"], e["timestamp"].month) for e in result.of("xid")} == {(48, 3), (79, 11)}
    assert sorted(result.failed()) == [(FIRST, "xid 48"), (SECOND, "xid 79")]


def test_iso_with_blank(read: Read) -> None:
    result = read("iso-with-blank")
    assert result.codes() == [(79, SECOND, "10:15:47"), (95, FIRST, "10:15:48")]
    assert not result.unread


def test_unknown_prefix_between_lines(read: Read) -> None:
    result = read("unknown-prefix-between-lines")
    assert result.codes() == [(79, SECOND, "10:15:47")]
    assert [clock(row, "failed_at") for row in result.failures] == ["10:15:47"]


def test_message_repeated(read: Read) -> None:
    result = read("message-repeated")
    assert [(e["code"], e["count"]) for e in result.of("xid")] == [(13, 1), (79, 4)]


def test_rfc5424_structured_data(read: Read) -> None:
    assert read("rfc5424-structured-data").codes() == [
        (62, FIRST, "10:15:47"),
        (64, SECOND, "10:15:48"),
    ]


def test_fallen_off_three_lines(read: Read) -> None:
    result = read("fallen-off-three-lines")
    assert [e["gpu_serial"] for e in result.of("lost")] == [FIRST]
    assert result.failed() == [(FIRST, "lost")]


def test_gb200_addresses(read: Read) -> None:
    assert read("gb200-addresses").codes() == [(95, "1650000000012", "10:15:47")]


def test_guest_board_serial(read: Read) -> None:
    serial = "1652900000031"
    assert read("guest-board-serial").codes() == [
        (94, serial, "10:15:47"),
        (31, serial, "10:15:48"),
    ]


def test_serial_line_after_lost(read: Read) -> None:
    result = read("serial-line-after-lost")
    assert {e["gpu_serial"] for e in result.of("xid", "lost")} == {"0324018069461"}
    assert result.failed() == [("0324018069461", "xid 79")]


# --- statements of the driver --------------------------------------------------------------------


def test_xid_149_145_severity(read: Read) -> None:
    result = read("xid-149-145-severity")
    severities = {event["code"]: event["severity"] for event in result.of("xid")}
    assert severities == {149: "fatal", 145: "nonfatal", 45: None}
    assert result.failed() == [(FIRST, "xid 149")]


def test_xid_154_recovery_action(read: Read) -> None:
    result = read("xid-154-recovery-action")
    actions = [(e["gpu_serial"], e["action"]) for e in result.of("xid", code=154)]
    assert actions == [(FIRST, "reboot"), (SECOND, "none")]
    assert result.failed() == [(FIRST, "xid 154")]


def test_rm_init_adapter_failed(read: Read) -> None:
    result = read("rm-init-adapter-failed")
    assert [e["gpu_serial"] for e in result.of("init_failed")] == [FIRST]
    assert not result.unread


def test_sxid_and_network_lines(read: Read) -> None:
    result = read("sxid-and-network-lines")
    severities = {event["code"]: event["severity"] for event in result.of("sxid")}
    assert severities == {12028: None, 22013: "nonfatal", 24007: "fatal"}
    assert not result.failures


def test_amdgpu_ras(read: Read) -> None:
    result = read("amdgpu-ras")
    assert [(e["kind"], e["check"], e["severity"]) for e in result.events] == [
        ("gpu_error", "fatal error", "critical"),
        ("gpu_error", "reset", "error"),
    ]
    assert not result.unread


# --- lost GPUs and other states ------------------------------------------------------------------


def assert_lost(result: Result, *serials: str) -> None:
    assert [(e["gpu_serial"], clock(e)) for e in result.of("lost")] == [
        (serial, "10:20:00") for serial in serials
    ]
    assert result.failed() == [(serial, "lost") for serial in serials]


def test_lost_handle_new_wording(read: Read) -> None:
    result = read("lost-handle-new-wording")
    assert_lost(result, FIRST, SECOND)
    assert not result.unread


def test_lost_handle_no_devices(read: Read) -> None:
    result = read("lost-handle-no-devices")
    assert_lost(result, FIRST)
    assert [e["raw"] for e in result.of("blind")] == ["nvidia-smi: No devices were found"]


def test_lost_handle_before_table(read: Read) -> None:
    result = read("lost-handle-before-table")
    assert_lost(result, FIRST)
    assert not result.unread
    assert [(r["gpu_serial"], clock(r)) for r in result.records if clock(r) > "10:10"] == [
        (SECOND, "10:20:00")
    ]


def test_lost_handle_old_wording(read: Read) -> None:
    assert_lost(read("lost-handle-old-wording"), FIRST)


def test_lost_line_before_xml(read: Read) -> None:
    result = read("lost-line-before-xml")
    assert_lost(result, FIRST)
    assert not result.unread
    (later,) = [row for row in result.records if clock(row) > "10:10"]
    assert (later["gpu_serial"], later["slot"]) in ((SECOND, 1), (SECOND, None))


def test_csv_unknown_error_row(read: Read) -> None:
    result = read("csv-unknown-error-row")
    assert [e["gpu_serial"] for e in result.of("lost")] == [FIRST]
    assert result.failed() == [(FIRST, "lost")]
    assert not result.unread


def assert_needs_reset(result: Result) -> None:
    assert [(e["gpu_serial"], e["action"]) for e in result.of("needs_reset")] == [(FIRST, "reset")]
    later = {row["gpu_serial"]: row for row in result.records if clock(row) > "10:10"}
    assert later[FIRST]["recovery_action"] == 1.0
    assert later[SECOND]["temperature_gpu"] == 44.0


def test_csv_requires_reset(read: Read) -> None:
    result = read("csv-requires-reset")
    assert_needs_reset(result)
    assert result.unread.counts == {"power.draw is not a number in a known unit": 1}


def test_csv_recovery_action(read: Read) -> None:
    result = read("csv-recovery-action")
    assert_needs_reset(result)
    assert not result.unread


def test_xml_reset_required(read: Read) -> None:
    result = read("xml-reset-required")
    assert_needs_reset(result)
    assert not result.unread


def test_unknown_columns_only(read: Read) -> None:
    result = read("unknown-columns-only")
    (event,) = result.of("needs_reset")
    assert (event["gpu_serial"], event["action"]) == ("1650000000061", None)
    assert "remapping of rows" in event["raw"]
    (record,) = result.records
    numbers = ("ecc_uncorrected", "row_remap_failure", "throttle_hardware")
    assert [record[name] for name in numbers] == [2, 1.0, 1.0]


def test_gb10_not_available(read: Read) -> None:
    (record,) = read("gb10-not-available").records
    assert (record["memory_used"], record["temperature_gpu"]) == (None, 36.0)


def test_utf16_csv(read: Read) -> None:
    records = read("utf16-csv").records
    assert [row["temperature_gpu"] for row in records] == [41.0, 42.0]


# --- unreadable or unusual files -----------------------------------------------------------------


def test_csv_no_header(read: Read) -> None:
    result = read("csv-no-header")
    (what,) = result.unread.counts
    assert "CSV of nvidia-smi without a header, which is not read" in what
    assert "index, uuid, name, ?, ?, ?, ?" in what


def test_query_text_table_dmon(read: Read) -> None:
    result = read("query-text-table-dmon")
    assert not result.unread
    assert [(e["gpu_serial"], e["action"]) for e in result.of("needs_reset")] == [(FIRST, "reset")]
    (later,) = [row for row in result.records if clock(row) > "10:10"]
    assert later["gpu_serial"] == FIRST


def test_json_of_other_tools(read: Read) -> None:
    result = read("json-of-other-tools")
    named = [what for what in result.unread.counts if what.startswith("looks like ")]
    assert not named
    assert any("whose writer is unknown" in what for what in result.unread.counts)
    assert "692000000001" in {row["gpu_serial"] for row in result.records}  # of rocm-smi
    (diagnostic,) = [e for e in result.events if e["gpu_serial"] == FIRST]
    assert (diagnostic["kind"], diagnostic["check"]) == ("check", "dcgm diag memory")
    assert (diagnostic["gpu_serial"], diagnostic["severity"]) == (FIRST, "error")
    assert result.failures == []

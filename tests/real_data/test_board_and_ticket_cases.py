"""Boards with several GPUs, CMDB exports and tickets of real sites: ../shared/data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.pipelines.cli.main import main

BOARD = "1320000000007"
GPUS = [f"{BOARD}/GPU-cccccccc-0000-0000-0000-{number:012}" for number in range(4)]
V100 = ["0324018069461", "0324018069462"]
Ingest = Callable[..., tuple[int, str]]


@pytest.fixture
def ingest(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ingest:
    """Return `ingest(case, cmdb=..., repairs=...)`: exit code and notes."""

    def run(case: str, **files: str | Path) -> tuple[int, str]:
        folder = shared_data / "telemetry_cases" / case
        arguments = ["ingest", "--raw", str(folder / "raw"), "--out", str(tmp_path / "records")]
        for option, name in files.items():
            arguments += [f"--{option}", str(folder / name)]
        code = main(arguments)
        return code, capsys.readouterr().err

    return run


def records(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "records").glob("date=*/*.parquet"))
    tables = [pq.read_table(file, partitioning=None) for file in files]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return rows


def failures(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "records" / "failures.parquet").to_pylist()
    return rows


def test_board_of_four_is_four_gpus(ingest: Ingest, tmp_path: Path) -> None:
    code, notes = ingest("board-one-serial-csv")
    assert code == 0
    assert f"{BOARD} (4 GPUs)" in notes
    rows = records(tmp_path)
    names = ("gpu_serial", "slot", "temperature_gpu", "power_draw", "ecc_corrected")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (gpu, i, 40.0 + i, 20.0 + i, i) for i, gpu in enumerate(GPUS)
    ]
    assert [(row["gpu_serial"], row["cause"]) for row in failures(tmp_path)] == [
        (GPUS[2], "xid 79")
    ]


def test_tickets_and_cmdb_of_board(ingest: Ingest, tmp_path: Path) -> None:
    cmdb, repairs = tmp_path / "cmdb.csv", tmp_path / "repairs.csv"
    cmdb.write_text(f"gpu_serial,rack\n{BOARD},r7\n")
    repairs.write_text(f"gpu_serial,failed_at,cause\n{BOARD},2026-11-25T12:00Z,fan\n")
    code, notes = ingest("board-one-serial-csv", cmdb=cmdb, repairs=repairs)
    assert code == 0
    assert f"tickets by a board's serial apply to all its GPUs: {BOARD} (4 GPUs)" in notes
    assert f"CMDB rows by a board's serial apply to all its GPUs: {BOARD} (4 GPUs)" in notes
    assert {row["rack"] for row in records(tmp_path)} == {"r7"}
    assert sorted({row["gpu_serial"] for row in failures(tmp_path)}) == GPUS


@pytest.mark.parametrize(
    ("name", "racks", "note"),
    [
        ("a.csv", ["r1", "r2"], "324018069461 is read as 0324018069461"),
        ("b.csv", ["r1", None], "1 serials are not in the CMDB"),
        ("b2.csv", ["r1", "r2"], ""),
        ("c2.csv", ["r1", None], "1 serials are not in the CMDB"),
        ("d.csv", ["r1", None], "1 serials are not in the CMDB"),
        ("e.csv", ["r1", "r3"], "1 rows with a repeated serial"),
    ],
)
def test_cmdb_exports_are_read(
    ingest: Ingest, tmp_path: Path, name: str, racks: list[str | None], note: str
) -> None:
    code, notes = ingest("cmdb-and-tickets", cmdb=name)
    assert code == 0
    assert note in notes
    assert [(row["gpu_serial"], row["rack"]) for row in records(tmp_path)] == list(
        zip(V100, racks, strict=True)
    )


@pytest.mark.parametrize(
    ("option", "name", "reason"),
    [
        ("cmdb", "c.csv", "c.csv: holds text that is not UTF-8 (row 2), expected UTF-8."),
        ("repairs", "t1.csv", "row 2: column `failed_at` holds '20.11.2026 08:00', expected"),
        ("repairs", "t2.csv", "row 2: column `failed_at` holds '11/12/2026 8:00 AM', expected"),
    ],
)
def test_unusable_files_are_refused(
    ingest: Ingest, tmp_path: Path, option: str, name: str, reason: str
) -> None:
    code, error = ingest("cmdb-and-tickets", **{option: name})
    assert code == 2
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("name", "failed_at", "note"),
    [
        ("at.csv", "2026-11-20T08:00:00", "324018069461 is read as 0324018069461"),
        ("t3.csv", "2026-11-20T07:00:00", "t3.csv: row 3: column `repaired_at` holds"),
        ("t4.csv", "2025-11-20T08:00:00", ""),
    ],
)
def test_tickets_are_read(
    ingest: Ingest, tmp_path: Path, name: str, failed_at: str, note: str
) -> None:
    code, notes = ingest("cmdb-and-tickets", repairs=name)
    assert code == 0
    assert note in notes
    (failure,) = failures(tmp_path)
    assert (failure["gpu_serial"], failure["cause"]) == (V100[0], "DBE")
    assert failure["failed_at"].isoformat()[:19] == failed_at


def test_bad_ticket_does_not_stop_ingest(ingest: Ingest, tmp_path: Path) -> None:
    repairs = tmp_path / "tickets.csv"
    repairs.write_text(
        "gpu_serial;failed_at;cause\n0324018069461;20.11.2026;DBE\n"
        "0324018069462;2026-11-20T08:00:00Z;DBE\n9999999999999;2026-11-20T08:00:00Z;DBE\n"
    )
    code, notes = ingest("cmdb-and-tickets", repairs=repairs)
    assert code == 0
    assert f"{repairs}: row 2: column `failed_at` holds '20.11.2026'" in notes
    assert "serials of tickets that no record has (1): 9999999999999" in notes
    assert len(records(tmp_path)) == 2
    assert [row["gpu_serial"] for row in failures(tmp_path)] == [V100[1], "9999999999999"]

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.ingest.cmdb import read_cmdb
from forewarn.pipelines.ingest.repair_tickets import read_tickets
from forewarn.pipelines.runtime.timestamps import parse_moment

HEADER = "gpu_serial,failed_at,repaired_at,cause\n"
FAILED = parse_moment("2026-11-20T08:00:00Z")


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "tickets.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "moment",
    [
        "2026-11-20T08:00:00Z",
        "2026-11-20 08:00",
        "2026-11-20 09:00:00+01",
        "2026-11-20 09:00:00 +0100",
        "2026-11-20T03:00:00.000-05:00",
        "1795161600",
        "1795161600.0",
        "1795161600000",
    ],
)
def test_times_of_tickets(tmp_path: Path, moment: str) -> None:
    (failed,) = read_tickets(written(tmp_path, f"{HEADER}S1,{moment},,fan\n")).table["failed_at"]
    assert failed.value == FAILED


@pytest.mark.parametrize(
    ("row", "refused"),
    [
        ("S2,11/12/2026 8:00 AM,,DBE", "column `failed_at` holds '11/12/2026 8:00 AM', expected"),
        (
            "S2,20.11.2026 08:00,,DBE",
            "column `failed_at` holds '20.11.2026 08:00', expected",
        ),
        ("S2,2026-11-20,13.11.2026,", "column `repaired_at` holds '13.11.2026', expected a time"),
        ("S2,20261120,,", "column `failed_at` holds '20261120', expected a time such as"),
        ("S2,,,DBE", "column `failed_at` is empty, expected a value"),
        (",2026-11-20,,DBE", "column `gpu_serial` is empty, expected a value"),
        (
            "3.24018E+11,2026-11-20,,",
            "column `gpu_serial` holds '3.24018E+11', expected",
        ),
        ("S2,2026-11-20,2026-11-19,", "column `repaired_at` holds '2026-11-19', expected no time"),
        ("S2,2026-11-20", "2 columns, expected 4"),
        ("S2,2026-11-20,,the fan, again", "5 columns, expected 4"),
    ],
)
def test_rejected_row_is_named(tmp_path: Path, row: str, refused: str) -> None:
    path = written(tmp_path, f"{HEADER}S1,2026-11-20T08:00:00Z,,fan\n\n{row}\nS3,2026-11-21,,\n")
    tickets = read_tickets(path)
    assert tickets.table["gpu_serial"].to_pylist() == ["S1", "S3"]
    (line,) = tickets.refused
    assert line.startswith("row 4: ")
    assert refused in line
    first, second = tickets.notes()
    assert first == f"{path}: 1 of 3 tickets rejected"
    assert second == f"{path}: {line}"
    with pytest.raises(RecordsError, match=r"row 2: .* \(none of its 1 tickets is valid\)"):
        read_tickets(written(tmp_path, f"{HEADER}{row}\n"))


def test_first_rejected_rows_are_named(tmp_path: Path) -> None:
    rows = "S2,soon,,\n" * 30
    lines = list(read_tickets(written(tmp_path, f"{HEADER}S1,2026-11-20,,\n{rows}")).notes())
    assert (len(lines), lines[-1]) == (12, f"{tmp_path / 'tickets.csv'}: 20 more rejected rows")


def test_a_file_without_a_row_has_no_ticket(tmp_path: Path) -> None:
    assert len(read_tickets(written(tmp_path, HEADER)).table) == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_spreadsheet_formats_are_read(tmp_path: Path, encoding: str, delimiter: str) -> None:
    text = f'{HEADER}S1,2026-11-20T08:00:00Z,,"Lüfter\r\nlaut"\r\n"=""032""",2026-11-20,,\r\n'
    if encoding == "utf-16-le":
        text = "\ufeff" + text
    path = written(tmp_path, text.replace(",", delimiter).encode(encoding))
    assert read_tickets(path).table["gpu_serial"].to_pylist() == ["S1", "032"]
    assert read_cmdb(path).attributes["cause"].to_pylist() == ["Lüfter\r\nlaut", None]


def test_other_encoding_is_rejected_with_row(tmp_path: Path) -> None:
    latin = written(tmp_path, "gpu_serial,rack\nS1,a\nS2,München\n".encode("latin-1"))
    with pytest.raises(RecordsError, match=r"not UTF-8 \(row 3\), expected UTF-8"):
        read_cmdb(latin)
    cut = written(tmp_path, "gpu_serial,rack\nS1,a\n".encode("utf-16")[:-1])
    with pytest.raises(RecordsError, match="not UTF-16"):
        read_cmdb(cut)


def test_rows_of_parquet_count_from_one(tmp_path: Path) -> None:
    path = tmp_path / "tickets.parquet"
    table = {"gpu_serial": ["S1", "S2"], "failed_at": ["soon", "2026-11-20T08:00:00Z"]}
    pq.write_table(pa.table(table), path)
    assert read_tickets(path).refused[0].startswith("row 1: column `failed_at` holds 'soon'")


def test_cmdb_names_board_gpus_by_uuid(tmp_path: Path) -> None:
    rows = "B1,U1,r1\nB1,U2,r2\nB1,U2,r3\nS2,U3,r4\n"
    cmdb = read_cmdb(written(tmp_path, f"gpu_serial,gpu_uuid,rack\n{rows}"))
    assert cmdb.serial_of_uuid == {"U1": "B1", "U2": "B1", "U3": "S2"}
    racks = {row["gpu_serial"]: row["rack"] for row in cmdb.attributes.to_pylist()}
    assert racks == {"B1/U1": "r1", "B1/U2": "r3", "B1": "r3", "S2": "r4"}
    assert cmdb.doubled == 1


def test_unused_dictionary_texts_are_ignored(tmp_path: Path) -> None:
    texts = pa.array(["unused", "S1", "S2", "unused, too"])
    serials = pa.DictionaryArray.from_arrays(pa.array([1, 2, 1], pa.int32()), texts)
    path = tmp_path / "cmdb.parquet"
    pq.write_table(pa.table({"gpu_serial": serials, "gpu_uuid": serials}), path)
    cmdb = read_cmdb(path)
    assert (cmdb.attributes["gpu_serial"].to_pylist(), cmdb.doubled) == (["S2", "S1"], 1)
    assert cmdb.serial_of_uuid == {"S1": "S1", "S2": "S2"}

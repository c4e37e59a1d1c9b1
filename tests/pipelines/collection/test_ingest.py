"""`forewarn ingest --raw` as a user calls it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.pipelines.cli import main
from forewarn.pipelines.cmdb import read_cmdb

HEADER = "timestamp, index, serial, uuid, pci.bus_id, name, temperature.gpu, power.draw [W]"
TICKETS = "gpu_serial,failed_at,repaired_at,cause,known_at\n"


def line(tick: int, gpu: int) -> str:
    clock = f"2025/03/01 {tick // 6:02}:{tick % 6 * 10:02}:03.000"
    return f"{clock}, {gpu}, S{gpu}, GPU-{gpu}, 00000000:0{gpu}:00.0, NVIDIA H100, 4{gpu}, 99.5 W"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Return the drops of two hosts: six hours of two GPUs each, a kernel log, and rubbish."""
    folder = tmp_path / "raw"
    for host in range(2):
        place = folder / f"node-{host}"
        place.mkdir(parents=True)
        lines = [line(tick, gpu) for tick in range(36) for gpu in (2 * host, 2 * host + 1)]
        (place / "smi.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    log = "[Sat Mar  1 00:00:00 2025] eth0: up\n"
    log += "[Sat Mar  1 03:05:00 2025] NVRM: Xid (PCI:0000:01:00): 79, pid=7, name=a, text\n"
    (folder / "node-0" / "dmesg_2025-03-01T06:00.log.gz").write_bytes(gzip.compress(log.encode()))
    (folder / "node-1" / "notes.txt").write_text("nothing of ours\n")
    (folder / "node-1" / "broken.log.gz").write_bytes(b"no gzip")
    return folder


def ingest(raw: Path, *more: str) -> int:
    return main(["ingest", "--raw", str(raw), "--out", str(raw.parent / "records"), *more])


def records(raw: Path) -> pd.DataFrame:
    files = sorted((raw.parent / "records").glob("date=*/*.parquet"))
    found: pd.DataFrame = pd.concat(
        [pq.read_table(file, partitioning=None).to_pandas() for file in files]
    )
    return found


def failures(raw: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(
        raw.parent / "records" / "failures.parquet"
    ).to_pylist()
    return rows


def test_a_file_named_2035_leaves_no_record_and_is_told(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smi = "index, serial, temperature.gpu\n0, S0, 40\n"
    (raw / "node-0" / "smi_2035-03-01T00:10.csv").write_text(smi)
    assert ingest(raw) == 0
    assert "left out: 1 rows of the future" in capsys.readouterr().err
    assert records(raw)["timestamp"].dt.year.unique().tolist() == [2025]


def test_drops_become_records_and_failures(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ingest(raw) == 0
    said = capsys.readouterr()
    assert "144 readings and 1 events are new" in said.out
    assert "a file of no known kind, such as 'node-1/notes.txt'" in said.err
    assert "a file that cannot be read" in said.err
    found = records(raw)
    assert len(found) == 144
    assert set(found["timestamp"].dt.minute) == {0, 10, 20, 30, 40, 50}
    # Node 1 dropped no kernel log: nobody knows whether it had an Xid.
    assert found.loc[found["machine_id"] == "node-1", "xid"].isna().all()
    of_first = found[found["gpu_serial"] == "S1"].set_index("timestamp")["xid"]
    assert of_first[of_first > 0].to_dict() == {pd.Timestamp("2025-03-01T03:10Z"): 79}
    (failure,) = failures(raw)
    assert (failure["gpu_serial"], failure["cause"]) == ("S1", "xid 79")
    assert str(failure["known_at"]) == "2025-03-01 06:00:00+00:00"


def test_a_second_run_gives_the_same_bytes(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ingest(raw)
    out = raw.parent / "records"
    before = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    assert ingest(raw) == 0
    assert "0 readings and 0 events are new, 145 were there" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in out.rglob("*.parquet")} == before


def test_the_cmdb_and_tickets_are_joined(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cmdb, repairs = raw.parent / "cmdb.csv", raw.parent / "repairs.csv"
    cmdb.write_text("gpu_serial,rack,team\nS0,r0,blue\nS1,r0,\nS2,r1,red\nS2,r2,red\n")
    repairs.write_text(
        f"{TICKETS}S3,2025-03-01T02:00:00Z,,fan,2025-03-01T02:30:00Z\n"
        "S1,2025-03-01 04:00:00,2025-03-01 05:00:00,board,\n"
        ",2025-03-01T02:00:00Z,,,\nS3,2025-03-01T09:00:00Z,2025-03-01T08:00:00Z,,\n"
    )
    assert ingest(raw, "--cmdb", str(cmdb), "--repairs", str(repairs)) == 0
    said = capsys.readouterr().err
    assert "1 serials are not in the CMDB" in said
    assert "2 tickets left out" in said
    assert "1 rows of serials that come again" in said
    found = records(raw).drop_duplicates("gpu_serial").set_index("gpu_serial")
    assert found["rack"].fillna("").to_dict() == {"S0": "r0", "S1": "r0", "S2": "r2", "S3": ""}
    assert found["team"].fillna("").to_dict() == {"S0": "blue", "S1": "", "S2": "red", "S3": ""}
    assert [(one["gpu_serial"], one["cause"]) for one in failures(raw)] == [
        ("S1", "board"),
        ("S3", "fan"),
    ]


def test_tickets_alone(raw: Path) -> None:
    ingest(raw)
    repairs = raw.parent / "repairs.csv"
    repairs.write_text(f"{TICKETS}S3,2025-03-01T02:00:00Z,,fan,\n")
    out = str(raw.parent / "records")
    assert main(["ingest", "--repairs", str(repairs), "--out", out]) == 0
    assert len(failures(raw)) == 2


def test_the_rules_for_failure_are_configuration(raw: Path) -> None:
    config = raw.parent / "config.toml"
    config.write_text("[failures]\nxids = [13]\nlost = false\n")
    assert ingest(raw, "--config", str(config)) == 0
    assert failures(raw) == []


def test_the_doctor_and_the_rules_work_on_them(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest(raw)
    out = str(raw.parent / "records")
    assert main(["doctor", out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["gpus"], found["failures"]["count"], found["columns_missing"]) == (4, 1, {})
    lists = ["--model", "builtin:rules", "--at", "2025-03-01T06:00", "--out", str(tmp_path / "l")]
    assert main(["score", "--records", out, *lists]) == 0


def test_clocks_of_another_zone(raw: Path) -> None:
    assert ingest(raw, "--utc-offset", "+02:00") == 0
    assert records(raw)["timestamp"].min() == pd.Timestamp("2025-02-28T22:00Z")


@pytest.mark.parametrize(
    ("cmdb", "repairs", "said"),
    [
        ("serial,rack\nS1,r\n", None, "column `gpu_serial` is missing, found serial, rack."),
        ("gpu_serial,rack\nS1\n", None, "is no CSV file"),
        ("gpu_serial,slot\nS1,x\n", None, "column `slot` holds 'x', expected a number."),
        (None, "gpu_serial\nS1\n", "column `failed_at` is missing"),
        (None, f"{TICKETS}S1,yesterday,,,\n", "column `failed_at` holds 'yesterday'"),
        (None, "", "is no CSV file"),
    ],
)
def test_broken_tables_are_one_line(
    raw: Path,
    cmdb: str | None,
    repairs: str | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = []
    for option, text in (("--cmdb", cmdb), ("--repairs", repairs)):
        if text is not None:
            path = raw.parent / f"{option[2:]}.csv"
            path.write_text(text)
            more += [option, str(path)]
    assert ingest(raw, *more) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert more[1] in error
    assert not (raw.parent / "records").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to read"),
        (["--raw", "{raw}", "--prometheus", "http://x"], "expected one of them"),
        (["--raw", "{raw}/no"], "no such folder"),
        (["--raw", "{raw}/empty"], "holds no file"),
        (["--raw", "{raw}", "--cmdb", "{raw}/no.csv"], "no such file"),
        (["--raw", "{raw}", "--utc-offset", "2h"], "expected such as +02:00"),
    ],
)
def test_wrong_options_are_one_line(
    raw: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (raw / "empty").mkdir()
    given = [text.replace("{raw}", str(raw)) for text in arguments]
    try:
        code = main(["ingest", "--out", str(raw.parent / "records"), *given])
    except SystemExit as stopped:
        code = int(str(stopped.code))
    assert code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not (raw.parent / "records").exists()


def test_a_cmdb_as_parquet_with_numbers_and_uuids(tmp_path: Path) -> None:
    table = pa.table({"gpu_serial": [165, 166], "gpu_uuid": ["U1", None], "rack": ["r", " "]})
    pq.write_table(table, tmp_path / "cmdb.parquet")
    cmdb = read_cmdb(tmp_path / "cmdb.parquet")
    assert cmdb.serial_of_uuid == {"U1": "165"}
    assert cmdb.attributes.to_pylist() == [
        {"gpu_serial": "165", "rack": "r"},
        {"gpu_serial": "166", "rack": None},
    ]

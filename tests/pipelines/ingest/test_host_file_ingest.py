"""`forewarn ingest --raw` on the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.record_table import RecordsError
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.ingest.cmdb import read_cmdb
from forewarn.pipelines.ingest.host_file_ingest import host_in_name, ingest_host_files, time_in_name
from forewarn.pipelines.ingest.landing import Landing

MARCH = 1_740_787_200 * SECOND  # 2025-03-01

HEADER = "timestamp, index, serial, uuid, pci.bus_id, name, temperature.gpu, power.draw [W]"
TICKETS = "gpu_serial,failed_at,repaired_at,cause,known_at\n"


def line(tick: int, gpu: int) -> str:
    clock = f"2025/03/01 {tick // 6:02}:{tick % 6 * 10:02}:03.000"
    return f"{clock}, {gpu}, S{gpu}, GPU-{gpu}, 00000000:0{gpu}:00.0, NVIDIA H100, 4{gpu}, 99.5 W"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Return the files of two hosts: six hours of two GPUs each, a kernel log, and other files."""
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


def test_future_file_name_is_reported(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smi = "index, serial, temperature.gpu\n0, S0, 40\n"
    (raw / "node-0" / "smi_2035-03-01T00:10.csv").write_text(smi)
    assert ingest(raw) == 0
    assert "ignored: 1 times a time in the future in a file name" in capsys.readouterr().err
    assert records(raw)["timestamp"].dt.year.unique().tolist() == [2025]


def test_host_files_become_records_and_failures(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ingest(raw) == 0
    said = capsys.readouterr()
    assert "144 readings and 1 events are new" in said.out
    assert "a file of unknown kind, such as 'node-1/notes.txt'" in said.err
    assert "a file that cannot be read" in said.err
    found = records(raw)
    assert len(found) == 144
    assert set(found["timestamp"].dt.minute) == {0, 10, 20, 30, 40, 50}
    # Node 1 has no kernel log, so it is unknown whether it had an Xid.
    assert found.loc[found["machine_id"] == "node-1", "xid"].isna().all()
    of_first = found[found["gpu_serial"] == "S1"].set_index("timestamp")["xid"]
    assert of_first[of_first > 0].to_dict() == {pd.Timestamp("2025-03-01T03:10Z"): 79}
    (failure,) = failures(raw)
    assert (failure["gpu_serial"], failure["cause"]) == ("S1", "xid 79")
    assert str(failure["known_at"]) == "2025-03-01 06:00:00+00:00"


def test_lost_gpu_hides_no_xid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = tmp_path / "raw" / "node-1"
    host.mkdir(parents=True)
    (host / "dmesg_2025-03-02T00:00.txt").write_text(
        "[Sat Mar  1 23:10:00 2025] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', "
        "name=<unknown>, GPU has fallen off the bus.\n"
        "[Sat Mar  1 23:10:00 2025] NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.\n"
        "[Sat Mar  1 23:20:00 2025] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=a, DBE\n"
    )
    rows = [
        f"2025/03/01 23:{minute}:00, {serial}, 00000000:{bus}:00.0, 40"
        for minute in (10, 20)
        for serial, bus in (("S1", "9B"), ("S2", "3B"))
    ]
    header = "timestamp, serial, pci.bus_id, temperature.gpu"
    (host / "smi.csv").write_text("\n".join([header, *rows]) + "\n")
    assert ingest(tmp_path / "raw") == 0
    assert "files of 1 hosts: 1 csv, 1 kernel_log" in capsys.readouterr().err
    found = records(tmp_path / "raw").set_index(["gpu_serial", "timestamp"])["xid"]
    assert [found["S1"].iloc[0], found["S2"].iloc[1]] == [79, 48]
    files = sorted((tmp_path / "records" / "_events").rglob("*.parquet"))
    events = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    lost = [event for event in events if event["kind"] == "lost"]
    assert [(str(e["timestamp"]), e["raw"]) for e in lost] == [
        ("2025-03-01 23:10:00+00:00", "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.")
    ]
    causes = {one["gpu_serial"]: one["cause"] for one in failures(tmp_path / "raw")}
    assert causes == {"S1": "xid 79", "S2": "xid 48"}


def test_first_host_keeps_the_uuid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = "timestamp, uuid, pci.bus_id, temperature.gpu\n"
    for host, ticks, temperature in (("node-2", (1, 2, 3), 40), ("node-1", (2, 3), 90)):
        place = tmp_path / "raw" / host
        place.mkdir(parents=True)
        rows = [
            f"2025/03/01 00:{tick}0:00, GPU-1, 00000000:01:00.0, {temperature}\n" for tick in ticks
        ]
        (place / "smi.csv").write_text(header + "".join(rows))
    (tmp_path / "raw" / "node-1" / "dmesg").write_text(
        "[Sat Mar  1 00:15:00 2025] NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a, text\n"
    )
    assert ingest(tmp_path / "raw") == 0
    found = records(tmp_path / "raw")
    assert list(found["temperature_gpu"]) == [40, 40, 40]
    assert 13 not in set(found["xid"])
    assert set(found["machine_id"]) == {"node-2"}
    said = capsys.readouterr().err
    assert "node-1 and node-2 both report GPU GPU-1; " in said
    assert "2 readings of node-1 were dropped because node-2" in said


def test_gpus_without_uuid_are_not_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "raw" / "node-1"
    place.mkdir(parents=True)
    zeros = "GPU-00000000-0000-0000-0000-000000000000"
    rows = [f"2025/03/01 00:10:00, {zeros}, 00000000:0{gpu}:00.0, 40\n" for gpu in (1, 2)]
    header = "timestamp, uuid, pci.bus_id, temperature.gpu\n"
    (place / "smi.csv").write_text(header + "".join(rows))
    assert ingest(tmp_path / "raw") == 0
    assert "2 readings identify no GPU" in capsys.readouterr().err
    assert list((tmp_path / "records").glob("date=*")) == []


def test_future_rows_are_dropped(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line(1, 0).replace("2025/", f"{year}/") for year in (2025, 2035)]
    host = raw / "node-2"
    host.mkdir()
    (host / "smi_2035-01-01T00:00.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    (host / "other_2035-01-01T00:00.csv").write_text("serial, temperature.gpu\nS9, 40\n")
    batch = {"events": [{"timestamp": 2 * 10**18, "kind": "xid", "code": 79, "id": "e"}]}
    (host / "batch.json").write_text(json.dumps(batch))
    (host / "kern.log").write_text(
        "2035-03-01T00:05:00Z node-2 kernel: NVRM: GPU at PCI:0000:07:00: "
        "GPU-01234567-89ab-cdef-0123-456789abcdef\n"
        "2035-03-01T00:05:00Z node-2 kernel: NVRM: Xid (PCI:0000:07:00): 79, text\n"
    )
    assert ingest(raw) == 0
    said = capsys.readouterr().err
    assert "3 times a row in the future, such as 'node-2/kern.log: 2035-03-01T00:05:00Z'" in said
    assert "2 times a time in the future in a file name, such as 'node-2/other_2035" in said
    assert "a reading without a time" in said
    assert [path.name for path in (raw.parent / "records").glob("date=*")] == ["date=2025-03-01"]
    assert records(raw)["timestamp"].max() == pd.Timestamp("2025-03-01T06:00Z") - pd.Timedelta(
        "10min"
    )
    places = pq.read_table(raw.parent / "records" / "_state" / "places.parquet")
    assert "0000:07:00" not in places["pci"].to_pylist()


def test_five_minutes_ahead_are_accepted(raw: Path) -> None:
    minute = MINUTE
    last = 1_740_787_200 * SECOND + 350 * minute + 3 * SECOND  # time of the last host file
    for number, (ahead, count) in enumerate(((5 * minute, 144), (5 * minute + 1, 140))):
        landing = Landing(raw.parent / f"records-{number}", 10 * minute)
        assert ingest_host_files(raw, landing, now=last - ahead).landed.readings == count


def test_duplicate_rows_are_reported_by_file(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = raw / "node-0" / "smi.csv"
    rows = file.read_text().splitlines()[1:]
    file.write_text(file.read_text() + "\n".join(rows[:42]) + "\n")
    (raw / "node-0" / "tail.csv").write_text("\n".join([HEADER, *rows[-3:]]) + "\n")
    assert ingest(raw) == 0
    said = capsys.readouterr()
    assert "144 readings and 1 events are new, 0 were known" in said.out
    assert "node-0/smi.csv: 42 of its rows are repeated in it; each counts once" in said.err
    assert "node-0/tail.csv: 3 of its rows are also in node-0/smi.csv; each counts once" in said.err
    assert ingest(raw) == 0
    assert "0 readings and 0 events are new, 145 were known" in capsys.readouterr().out


def test_hardware_errors_fail_no_gpu(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = failures(raw) if ingest(raw) == 0 else []
    address = "0000:11:00.0"
    log = raw / "node-1" / "kern.log"
    severity = "severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"
    log.write_text(
        f"2025-03-01T00:25:00+00:00 node-1 kernel: nvidia {address}: PCIe Bus Error: {severity}\n"
        "2025-03-01T00:25:00+00:00 node-1 kernel: EDAC MC0: 2 CE memory read error on DIMM_A1 (x)\n"
        "2025-03-01T00:25:30+00:00 node-1 kernel: EDAC MC0: 3 CE memory read error on DIMM_A1 (x)\n"
    )
    assert ingest(raw) == 0
    assert failures(raw) == before
    assert "no GPU was seen" not in capsys.readouterr().err
    events = pd.read_parquet(raw.parent / "records" / "_events")
    told = events[events["kind"].isin(["pcie_error", "memory_error"])]
    assert sorted(zip(told["kind"], told["severity"], told["count"], strict=True)) == [
        ("memory_error", "notice", 5),
        ("pcie_error", "critical", 1),
    ]
    assert set(told["machine_id"]) == {"node-1"}


def test_future_tickets_are_dropped(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repairs = raw.parent / "repairs.csv"
    repairs.write_text(f"{TICKETS}S3,2035-03-01T02:00:00Z,,fan,\n")
    assert main(["ingest", "--repairs", str(repairs), "--out", str(raw.parent / "records")]) == 0
    assert "1 tickets in the future dropped" in capsys.readouterr().err
    assert failures(raw) == []


def test_a_second_run_gives_the_same_bytes(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ingest(raw)
    out = raw.parent / "records"
    before = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    assert ingest(raw) == 0
    assert "0 readings and 0 events are new, 145 were known" in capsys.readouterr().out
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
    assert f"{repairs}: 2 of 4 tickets rejected" in said
    assert f"{repairs}: row 4: column `gpu_serial` is empty, expected a value" in said
    assert f"{repairs}: row 5: column `repaired_at` holds '2025-03-01T08:00:00Z'" in said
    assert "1 rows with a repeated serial" in said
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
        ("gpu_serial,rack\nS1\n", None, "is not a CSV file"),
        ("gpu_serial,slot\nS1,x\n", None, "column `slot` holds 'x', expected a number from 0"),
        ("gpu_serial,slot\nS1,99999999999\n", None, "column `slot` holds '99999999999', expected"),
        ("gpu_serial,expiration_date\nS1,\nS2,soon\n", None, "holds 'soon', expected a date"),
        ("gpu_serial,rack,rack\nS1,a,b\n", None, "column `rack` occurs twice, expected once."),
        ("gpu_serial,gpu_serial\nS1,S1\n", None, "column `gpu_serial` occurs twice"),
        ("gpu_serial,rack\nS1,\udce9\n", None, "holds text that is not UTF-8"),
        ("gpu_serial,r\udce9ck\nS1,a\n", None, "holds text that is not UTF-8"),
        ("gpu_serial\n7.55e+12\n", None, "column `gpu_serial` holds '7.55e+12', expected"),
        ("gpu_serial\n1650124014249.0\n", None, "holds '1650124014249.0', expected the"),
        (None, f"{TICKETS}7.55E12,2025-03-01,,,\n", "column `gpu_serial` holds '7.55E12'"),
        (None, "gpu_serial,failed_at,failed_at\nS1,,\n", "column `failed_at` occurs twice"),
        (None, "gpu_serial\nS1\n", "column `failed_at` is missing"),
        (None, f"{TICKETS}S1,yesterday,,,\n", "column `failed_at` holds 'yesterday'"),
        (None, "", "is not a CSV file"),
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
            path.write_text(text, errors="surrogateescape")
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
        ([], "no input given"),
        (["--raw", "{raw}", "--prometheus", "http://x"], "expected only one of them"),
        (["--raw", "{raw}/no"], "no such folder"),
        (["--raw", "{raw}/empty"], "holds no file"),
        (["--raw", "{raw}", "--cmdb", "{raw}/no.csv"], "no such file"),
        (["--raw", "{raw}", "--utc-offset", "2h"], "expected an offset such as +02:00"),
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


def test_float_serials_become_digits_or_fail(tmp_path: Path) -> None:
    path = tmp_path / "cmdb.parquet"
    pq.write_table(pa.table({"gpu_serial": [1650124014249.0, 7.55e12, None]}), path)
    assert read_cmdb(path).attributes["gpu_serial"].to_pylist() == [
        "1650124014249",
        "7550000000000",
    ]
    for serial in (12.5, 2.0**60):
        pq.write_table(pa.table({"gpu_serial": [serial, None]}), path)
        with pytest.raises(ValueError, match="column `gpu_serial` is double, expected text"):
            read_cmdb(path)


def test_folder_is_rejected_as_cmdb(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="is not a regular file"):
        read_cmdb(tmp_path)


def test_a_cmdb_as_parquet_with_numbers_and_uuids(tmp_path: Path) -> None:
    table = pa.table({"gpu_serial": [165, 166], "gpu_uuid": ["U1", None], "rack": ["r", " "]})
    pq.write_table(table, tmp_path / "cmdb.parquet")
    cmdb = read_cmdb(tmp_path / "cmdb.parquet")
    assert cmdb.serial_of_uuid == {"U1": "165"}
    assert cmdb.attributes.to_pylist() == [
        {"gpu_serial": "165", "rack": "r"},
        {"gpu_serial": "166", "rack": None},
    ]


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("smi_2025-03-01T00:10:05.csv", 605),
        ("smi-20250301-0010.csv", 600),
        ("smi.20250301T001005Z.xml", 605),
        ("2025-03-01_00.10.csv", 600),
        ("smi-1740787205.csv", 5),
        ("smi-1740787205123.csv", 5),
        ("smi.csv", None),
        ("smi-20251301.csv", None),
        ("serial-16501240142490.csv", None),
        ("node-20250301.csv", None),
    ],
)
def test_a_time_in_a_name(name: str, seconds: int | None) -> None:
    assert time_in_name(name) == (None if seconds is None else MARCH + seconds * SECOND)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("node-7_smi_2025-03-01T00:10.csv", "node-7"),
        ("gpu17.rack3_20250301-0010.csv.gz", "gpu17.rack3"),
        ("smi.csv", None),
        ("nvidia-smi_1740787205.csv", None),
        ("kern.log", None),
        ("dmesg_node-1.txt", "node-1"),
        ("..csv", None),
    ],
)
def test_a_host_in_a_name(name: str, host: str | None) -> None:
    assert host_in_name(name) == host


@given(st.text(max_size=60))
def test_any_file_name_is_parsed(name: str) -> None:
    time_in_name(name)
    host = host_in_name(name)
    assert host is None or "/" not in host


def test_table_names_gpus_by_earlier_files(raw: Path) -> None:
    """A table has addresses alone; the CSV of an earlier call says which GPU sits there."""
    assert ingest(raw) == 0
    later = raw.parent / "later"
    (later / "node-0").mkdir(parents=True)
    table = (
        "| NVIDIA-SMI 550.54.15     Driver Version: 550.54.15     CUDA Version: 12.4 |\n"
        "|   1  NVIDIA H100        On  |   00000000:01:00.0 Off |                    0 |\n"
        "| N/A   77C    P0   412W /  700W |   70123MiB /  81559MiB |  97%      Default |\n"
    )
    (later / "node-0" / "smi.txt").write_text(f"Sat Mar  1 06:30:00 2025\n{table}")
    assert main(["ingest", "--raw", str(later), "--out", str(raw.parent / "records")]) == 0
    (row,) = records(raw).query("temperature_gpu == 77").to_dict("records")
    assert (row["gpu_serial"], row["power_draw"]) == ("S1", 412)


def test_dmon_needs_a_list_of_gpus(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("node-8", "node-9"):
        (raw / host).mkdir()
        (raw / host / "dmon.log").write_text(
            "#Date       Time        gpu    pwr  gtemp\n#YYYYMMDD   HH:MM:SS    Idx      W      C\n"
            " 20250301   00:10:00      0    512     81\n"
        )
    listed = "GPU 0: NVIDIA H100 (UUID: GPU-aaaaaaaa-1111-2222-3333-444444444444)\n"
    (raw / "node-9" / "gpus.txt").write_text(listed)
    assert ingest(raw) == 0
    (row,) = records(raw).query("temperature_gpu == 81").to_dict("records")
    assert row["gpu_serial"] == "GPU-aaaaaaaa-1111-2222-3333-444444444444"
    notes = capsys.readouterr().err
    assert "`npu-smi info -t board` of the same host to the folder), such as 'node-8" in notes


def test_told_fields_read_csv_without_header(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "2025/03/01 08:10:00.000, 0, S0, 83\n2025/03/01 08:10:00.000, 1, S1, 84\n"
    (raw / "node-0" / "headerless.csv").write_text(rows)
    assert ingest(raw, "--query-gpu", "timestamp,index,serial,temperature.gpu") == 0
    assert set(records(raw)["temperature_gpu"]) >= {83, 84}
    with pytest.raises(SystemExit):
        ingest(raw, "--query-gpu", "timestamp,in dex")
    assert "expected names such as" in capsys.readouterr().err

"""Failures and their ends, from files of hosts through `ingest` to `score` and `doctor`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.pipelines.cli.main import main

START = 1_740_787_200 * SECOND  # 2025-03-01, a Saturday
NO_REPAIR = "failed, no repair known"
CONFIG = """
[windows]
length = 6
[features]
float = ["temperature_gpu", "utilization_gpu"]
counter = ["ecc_uncorrected"]
code = ["xid"]
history = []
peers = []
residuals = []
"""


def readings(days: int) -> Iterator[dict[str, Any]]:
    """Yield readings of five GPUs, one every ten minutes.

    All except S4 have a fatal Xid at 2025-03-01 10:05. S1 continues to work, S2 is idle, S3
    restarts at noon, and S5 works until it fails again at 2025-03-04 00:05.
    """
    for tick in range(1, days * 144 + 1):
        for gpu in range(1, 6):
            joules = 1e9 + tick if gpu != 3 or tick <= 72 else 100.0 * (tick - 72)
            yield {
                "timestamp": START + tick * 10 * MINUTE,
                "machine_id": "gn01",
                "gpu_serial": f"S{gpu}",
                "pci": f"0000:0{gpu}:00",
                "slot": gpu,
                "temperature_gpu": 50.0 + tick % 5,
                "utilization_gpu": 0.0 if gpu == 2 and tick > 60 else 90.0,
                "ecc_uncorrected": 0,
                "energy_consumption": joules,
                "log_read": True,
            }


def xid(gpu: int, hour: float) -> dict[str, Any]:
    return {
        "timestamp": START + round(hour * HOUR),
        "machine_id": "gn01",
        "pci": f"0000:0{gpu}:00",
        "kind": "xid",
        "code": 79,
        "id": f"{gpu}-{hour}",
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the records of five days and a configuration."""
    folder = tmp_path_factory.mktemp("site")
    host = folder / "raw" / "gn01"
    host.mkdir(parents=True)
    events = [xid(gpu, 10 + 1 / 12) for gpu in (1, 2, 3, 5)] + [xid(5, 72 + 1 / 12)]
    batch = {"readings": list(readings(5)), "events": events}
    (host / "batch.json").write_text(json.dumps(batch))
    (folder / "c.toml").write_text(CONFIG)
    ingest(folder, "--raw", str(folder / "raw"))
    return folder


def ingest(folder: Path, *options: str) -> None:
    config, out = str(folder / "c.toml"), str(folder / "records")
    assert main(["ingest", *options, "--config", config, "--out", out]) == 0


def scored(folder: Path, at: str) -> tuple[dict[str, Any], dict[str, dict[str, str]], str]:
    """Return the notes of a list, the rows of `unscored.csv`, both by serial, and the page."""
    options = ("--records", str(folder / "records"), "--config", str(folder / "c.toml"))
    out = folder / "lists"
    command = ["score", *options, "--model", "builtin:rules", "--at", at, "--out", str(out)]
    assert main(command) == 0
    day = out / f"date={at[:10]}"
    rows = pq.read_table(day / "at_risk.parquet", partitioning=None).to_pylist()
    unscored = list(csv.DictReader((day / "unscored.csv").read_text().splitlines()))
    return (
        {row["gpu_serial"]: row.get("note") for row in rows},
        {row["gpu_serial"]: row for row in unscored},
        (day / "at_risk.html").read_text(),
    )


def test_failures_table_has_every_end(site: Path) -> None:
    rows = pq.read_table(site / "records" / "failures.parquet").to_pylist()
    ends = [
        (
            row["gpu_serial"],
            *(row[n] and f"{row[n]:%d %H:%M}" for n in ("repaired_at", "end_known_at")),
            row["end_source"],
            row["unknown_until"] and f"{row['unknown_until']:%d %H:%M}",
        )
        for row in rows
    ]
    assert ends == [
        ("S1", "01 10:20", "02 10:10", "presumed", "08 10:05"),
        ("S2", None, None, None, None),
        ("S3", "01 12:10", "01 13:10", "boot", None),
        ("S5", "01 10:20", "02 10:10", "presumed", "08 10:05"),
        ("S5", "04 00:20", "05 00:10", "presumed", "11 00:05"),
    ]


def test_gpu_is_failed_until_known_end(site: Path) -> None:
    notes, unscored, page = scored(site, "2025-03-02T10:10")
    assert notes == {"S3": None, "S4": None}
    assert {serial: row["reason"] for serial, row in unscored.items()} == {
        "S1": "failed",
        "S2": "failed",
        "S5": "failed",
    }
    assert unscored["S1"]["failed_since"] == "2025-03-01T10:05:00Z"
    assert unscored["S1"]["cause"] == "xid 79"
    assert "forewarn ingest --repairs" in unscored["S1"]["ended_by"]
    assert "Failed, not yet repaired" in page
    assert NO_REPAIR not in page


def test_recovered_gpu_is_listed_and_marked(site: Path) -> None:
    notes, unscored, page = scored(site, "2025-03-02T10:20")
    assert notes == {"S1": NO_REPAIR, "S3": "", "S4": "", "S5": NO_REPAIR}
    assert list(unscored) == ["S2"]
    assert NO_REPAIR in page


def test_new_fatal_xid_cancels_presumed_end(site: Path) -> None:
    notes, unscored, _ = scored(site, "2025-03-04T03:00")
    assert notes == {"S1": NO_REPAIR, "S3": "", "S4": ""}
    assert unscored["S5"]["failed_since"] == "2025-03-01T10:05:00Z"


def test_doctor_counts_failures_without_an_end(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["doctor", str(site / "records"), "--config", str(site / "c.toml")]
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    first = {"gpu_serial": "S2", "since": "2025-03-01T10:05:00Z", "cause": "xid 79"}
    assert report["failures_without_end"] == {
        "count": 1,
        "overdue": 1,
        "presumed": 2,
        "oldest": [first],
    }
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "no repair  1 failure without an end, 2 with a presumed end" in text
    assert "The oldest is S2, since 2025-03-01, xid 79." in text


def test_ticket_ends_failure(site: Path, tmp_path: Path) -> None:
    tickets = tmp_path / "tickets.csv"
    tickets.write_text(
        "gpu_serial,failed_at,repaired_at\nS1,2025-03-01 10:00,2025-03-03 12:00\n"
        "S2,2025-03-01 10:00,2025-03-03 12:00\n"
    )
    ingest(site, "--repairs", str(tickets))
    notes, unscored, _ = scored(site, "2025-03-05T12:00")
    assert notes == {"S1": "", "S2": "", "S3": "", "S4": "", "S5": NO_REPAIR}
    assert not unscored

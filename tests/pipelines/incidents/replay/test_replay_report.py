"""Tests of `forewarn policy replay` on records, kernel logs and lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.features.time_units import MINUTE
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.replay.fleet_history_reader import read_fleet_history
from forewarn.pipelines.incidents.replay.policy_file import load_policy

START = pd.Timestamp("2025-03-01", tz="UTC")
HOURS = 96
KEYS = {"at", "machine", "gpu_serial", "finding", "severity", "step", "blocked_by"}

Replay = Callable[..., list[dict[str, Any]]]


def hour(number: float) -> pd.Timestamp:
    return START + pd.Timedelta(hours=number)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Write hourly records of 8 GPUs; G0 has Xid 79 in hour 10 and is failed until hour 20."""
    frames = []
    for gpu in range(8):
        frame = pd.DataFrame({"timestamp": [hour(n) for n in range(HOURS)]})
        frame["gpu_serial"], frame["machine_id"] = f"G{gpu}", f"node-{gpu // 2}"
        frame["rack"], frame["failure"], frame["xid"] = f"r{gpu // 4}", 0, 0
        frames.append(frame)
    frames[0].loc[10, "xid"] = 79
    frames[0].loc[10:19, "failure"] = 1
    frames[5].loc[40, "xid"] = 119
    frames[7].loc[50, "xid"] = 31
    folder = tmp_path / "records"
    table = pd.concat(frames)
    for date, rows in table.groupby(table["timestamp"].dt.date):
        (folder / f"date={date}").mkdir(parents=True)
        rows.to_parquet(folder / f"date={date}" / "part-0.parquet", index=False)
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "forewarn.toml"
    path.write_text('[records]\ninterval = "1h"\n[windows]\nhorizon = 24\n', encoding="utf-8")
    return path


@pytest.fixture
def replayed(config: Path, capsys: pytest.CaptureFixture[str]) -> Replay:
    def run(records: Path, *options: object) -> list[dict[str, Any]]:
        command = ["policy", "replay", "--policy", "default", "--records", str(records)]
        command += ["--config", str(config), "--json", *map(str, options)]
        assert main(command) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def drains(lines: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    isolating = [line for line in lines[:-1] if "outcome" in line]
    return [(row["machine"], row["finding"], row["step"], row["outcome"]) for row in isolating]


def write_list(folder: Path, day: str, rows: list[dict[str, Any]]) -> None:
    (folder / f"date={day}").mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(folder / f"date={day}" / "at_risk.parquet", index=False)


def at_risk_row(serial: str, probability: float, hours: float, **extra: Any) -> dict[str, Any]:
    return {
        "gpu_serial": serial,
        "machine_id": f"node-{int(serial[1:]) // 2}",
        "probability": probability,
        "flagged": True,
        "window_end": hour(hours),
        "valid_until": hour(hours + 24),
        "model_version": "m1",
        **extra,
    }


# --- records --------------------------------------------------------------------------------------


def test_json_lists_decisions_then_summary(records: Path, replayed: Replay) -> None:
    *decisions, summary = replayed(records)
    assert all(decision.keys() >= KEYS for decision in decisions)
    assert [(d["machine"], d["finding"], d["step"]) for d in decisions] == [
        ("node-0", "xid 79", "avoid"),
        ("node-0", "xid 79", "restart"),
        ("node-2", "xid 119", "avoid"),
        ("node-2", "xid 119", "reset"),
        ("node-3", "xid 31", "tell"),
    ]
    levels = [decision["level"] for decision in decisions]
    assert levels == ["isolate", "isolate", "gpu_reset", "gpu_reset", "process_restart"]
    assert summary["summary"] == "would have drained 2 machines: 1 right, at most 1 at once"
    assert (summary["machines"], summary["failures"]) == (4, 1)
    assert summary["drain_every_xid"]["drains"] == 3
    assert drains([*decisions, summary]) == [
        ("node-0", "xid 79", "restart", "confirmed"),
        ("node-2", "xid 119", "reset", "not_confirmed"),
    ]


def test_blocked_decisions_name_the_limit(records: Path, config: Path, replayed: Replay) -> None:
    pool = "[respond.pools.gpu]\nmachines = 1\ncause = 1\n[respond]\nrefill = '3d'\n"
    config.write_text(config.read_text(encoding="utf-8") + pool, encoding="utf-8")
    table = pd.read_parquet(records / "date=2025-03-01")
    table.loc[(table["gpu_serial"] == "G5") & (table["timestamp"] == hour(15)), "xid"] = 79
    table.to_parquet(records / "date=2025-03-01" / "part-0.parquet", index=False)
    blocked = [line["blocked_by"] for line in replayed(records)[:-1] if line["machine"] == "node-2"]
    assert "1 of 4 machines of pool fleet is out, at most 1" in blocked
    assert "1 machine drained within 3 days for cause xid 79, at most 1" in blocked


def test_tell_only_policy_drains_nothing(records: Path, replayed: Replay, tmp_path: Path) -> None:
    table = pd.read_parquet(records / "date=2025-03-01")
    table.loc[table["xid"] == 79, "xid"] = 119
    table.to_parquet(records / "date=2025-03-01" / "part-0.parquet", index=False)
    path = tmp_path / "mild.toml"
    path.write_text('[xids.119]\nat_most = "tell"', encoding="utf-8")
    lines = replayed(records, "--policy", path)
    assert {line["step"] for line in lines[:-1]} == {"tell"}
    assert lines[-1]["summary"] == "would have drained no machine"


def test_configured_codes_apply(records: Path, config: Path, replayed: Replay) -> None:
    with config.open("a", encoding="utf-8") as file:
        file.write("[collection]\nreport_xids = [119]\n")
    assert [drain[1] for drain in drains(replayed(records))] == ["xid 119"]


def test_outcomes_are_unknown_without_failures(records: Path, replayed: Replay) -> None:
    for path in records.glob("date=*/*.parquet"):
        pd.read_parquet(path).drop(columns="failure").to_parquet(path, index=False)
    lines = replayed(records)
    assert {drain[3] for drain in drains(lines)} == {"unknown"}
    assert lines[-1]["failures"] is None


def test_failure_table_and_records_are_merged(
    records: Path, replayed: Replay, tmp_path: Path
) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text(
        "gpu_serial,failed_at,mechanism\nG0,2025-03-01T09:30:00Z,link\n"
        "G5,2025-03-02T20:00:00Z,memory\n",
        encoding="utf-8",
    )
    lines = replayed(records, "--failures", path)
    assert lines[-1]["failures"] == 2
    assert [drain[3] for drain in drains(lines)] == ["confirmed", "confirmed"]


# --- lists ----------------------------------------------------------------------------------------


def test_flagged_gpus_without_hindsight_are_findings(
    records: Path, replayed: Replay, tmp_path: Path
) -> None:
    lists = tmp_path / "lists"
    flagged = [at_risk_row("G2", 0.9, 70), at_risk_row("G4", 0.1, 70)]
    write_list(lists, "2025-03-03", [*flagged, at_risk_row("G6", 0.9, 70, flagged=False)])
    write_list(lists, "2025-03-04", [at_risk_row("G6", 0.9, 94) | {"hindsight": True}])
    lines = replayed(records, "--at-risk", lists)
    by_list = [(row["machine"], row["step"]) for row in lines[:-1] if row["finding"] == "at_risk"]
    assert by_list == [("node-1", "drain"), ("node-2", "avoid")]
    drain = next(row for row in lines if row.get("step") == "drain")
    assert (drain["mode"], drain["until"]) == ("finish", "2025-03-04T22:00:00Z")


# --- kernel logs ----------------------------------------------------------------------------------


def test_kernel_logs_without_serials_use_addresses(
    tmp_path: Path, replayed: Replay, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw" / "node-9"
    raw.mkdir(parents=True)
    line = "2025-03-01T{}:00:00,000000+00:00 NVRM: Xid (PCI:0000:{}:00): {}, pid=1, name=x, text"
    texts = [line.format("05", "1a", 31), line.format("06", "1b", 79), line.format("06", "1b", 45)]
    (raw / "dmesg.log").write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert main(["ingest", "--raw", str(raw.parent), "--out", str(tmp_path / "records")]) == 0
    capsys.readouterr()
    lines = replayed(tmp_path / "records")
    assert [(row["finding"], row["step"], row["gpu_serial"]) for row in lines[:-1]] == [
        ("xid 31", "tell", None),
        ("xid 79", "avoid", None),
    ]
    assert lines[-1]["machines"] == 1


def test_real_kernel_logs_are_replayed(
    shared_data: Path, tmp_path: Path, replayed: Replay, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records"
    assert main(["ingest", "--raw", str(shared_data / "kernel_logs"), "--out", str(out)]) == 0
    capsys.readouterr()
    lines = replayed(out)
    steps = {(row["machine"], row["finding"], row["step"]) for row in lines[:-1]}
    assert steps == {
        ("memory", "xid 13", "tell"),
        ("memory", "xid 43", "tell"),  # after the other one has expired
        ("accelerator", "xid 119", "avoid"),
        ("accelerator", "xid 119", "reset"),
    }
    # The same Xid is the only evidence of the failure, therefore the outcome is unknown.
    assert [drain[3] for drain in drains(lines)] == ["unknown"]


# --- text and page --------------------------------------------------------------------------------


def test_page_and_text_have_same_headline(
    records: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "replay.html"
    command = ["policy", "replay", "--policy", "default", "--records", str(records)]
    command += ["--config", str(config), "--html", str(page)]
    assert main(command) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0] == "This policy would have drained 2 machines: 1 right, at most 1 at once."
    html = page.read_text(encoding="utf-8")
    assert f"<h1>{text[0]}</h1>" in html
    assert "<svg" in html
    assert "had failed 2 min earlier" in html
    assert main(command) == 0
    assert page.read_text(encoding="utf-8") == html


def test_machine_names_are_escaped_on_page(records: Path, config: Path, tmp_path: Path) -> None:
    for path in records.glob("date=*/*.parquet"):
        table = pd.read_parquet(path)
        table["machine_id"] = "<script>" + table["machine_id"]
        table.to_parquet(path, index=False)
    page = tmp_path / "replay.html"
    command = ["policy", "replay", "--policy", "default", "--records", str(records)]
    assert main([*command, "--config", str(config), "--html", str(page)]) == 0
    html = page.read_text(encoding="utf-8")
    assert "<script>" not in html
    assert "&lt;script&gt;node-0" in html


# --- validation -----------------------------------------------------------------------------------


@pytest.fixture
def refused(config: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*options: object) -> str:
        command = ["policy", "replay", "--policy", "default", "--config", str(config)]
        assert main([*command, *map(str, options)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        (line,) = [line for line in err.splitlines() if not line.startswith("note: ")]
        return line

    return run


def test_missing_inputs_are_refused_in_one_line(
    records: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    none, empty = tmp_path / "none", tmp_path / "empty"
    empty.mkdir()
    assert f"{none}: no such folder" in refused("--records", none)
    assert f"{empty}: holds no records" in refused("--records", empty)
    lists = refused("--records", records, "--at-risk", empty)
    assert f"{empty}: contains no list" in lists
    table = tmp_path / "failures.csv"
    table.write_text("serial,failed_at\n", encoding="utf-8")
    line = refused("--records", records, "--failures", table)
    assert f"{table}: column `gpu_serial` is missing, found serial, failed_at." in line


def test_refused_replay_writes_no_page(tmp_path: Path, refused: Callable[..., str]) -> None:
    page = tmp_path / "page" / "replay.html"
    refused("--records", tmp_path / "none", "--html", page)
    assert not page.parent.exists()


def test_list_without_required_column_is_refused(
    records: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    row = at_risk_row("G2", 0.9, 30)
    del row["valid_until"]
    write_list(tmp_path / "lists", "2025-03-02", [row])
    line = refused("--records", records, "--at-risk", tmp_path / "lists")
    assert "at_risk.parquet: column `valid_until` is missing." in line


def test_failure_without_records_uses_event_machine(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "host-a"
    raw.mkdir(parents=True)
    messages = (
        "GPU at PCI:0000:3b:00: GPU-00000000-1111-2222-3333-444444444444",
        "GPU Board Serial Number: 7700000000001",
        "Xid (PCI:0000:3b:00): 119, pid=1, name=python, Timeout",
    )
    lines = [f"[Sun Feb 23 16:24:18 2025] NVRM: {message}\n" for message in messages]
    (raw / "dmesg.log").write_text("".join(lines))
    assert main(["ingest", "--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "records")]) == 0
    policy = load_policy([])
    past = read_fleet_history(tmp_path / "records", policy, interval=10 * MINUTE)
    assert [(f.machine, f.gpu_serial) for f in past.failures] == [("host-a", "7700000000001")]

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.features.telemetry.parsers.dcgm_metrics import field_names
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.doctor import examination
from forewarn.pipelines.doctor.data_problems import (
    advice,
    doctor_text,
    find_problems,
    precision_half_width,
)

# Telemetry of section 1 of the contracts that DCGM measures.
CONTRACT_COLUMNS = (
    *("temperature_gpu", "power_draw", "utilization_gpu", "utilization_memory", "memory_used"),
    *("clock_sm", "ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays"),
    *("pcie_link_width", "xid"),
)
CONFIG = """
[records]
interval = "10min"
[windows]
length = 6
horizon = 36
step = 6
[features]
float = ["temp", "load"]
counter = ["errors"]
history = []
peers = []
residuals = []
"""


def records() -> pd.DataFrame:
    """Return two days of three GPUs on two machines; B fails in the last six hours."""
    times = pd.date_range("2025-01-31", periods=288, freq="10min", tz="UTC")
    frames = [
        pd.DataFrame(
            {
                "gpu_serial": serial,
                "timestamp": times,
                "machine_id": machine,
                "temp": [40.0 + i % 7 for i in range(288)],
                "load": [50.0 + i % 5 for i in range(288)],
                "errors": range(288),
                "failure": [int(serial == "B" and i >= 252) for i in range(288)],
            }
        )
        for serial, machine in (("A", "m1"), ("B", "m1"), ("C", "m2"))
    ]
    return pd.concat(frames, ignore_index=True)


def write(frame: pd.DataFrame, folder: Path) -> list[str]:
    """Write records and the configuration; return the arguments of the command."""
    for date, mine in frame.groupby(frame["timestamp"].dt.strftime("%Y-%m-%d")):
        path = folder / "records" / f"date={date}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        mine.to_parquet(path, index=False)
    (folder / "c.toml").write_text(CONFIG)
    return ["doctor", str(folder / "records"), "--config", str(folder / "c.toml")]


def examined(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    found: dict[str, Any] = json.loads(lines[0])
    return found


def said(found: dict[str, Any]) -> str:
    return " ".join(one.what for one in find_problems(found))


def test_healthy_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = examined(capsys, write(records(), tmp_path))
    assert (found["gpus"], found["machines"], found["records"]) == (3, 2, 864)
    assert (found["cadence_seconds"], found["coverage"], found["gaps"]) == (600.0, 1.0, 0)
    assert found["records_by_day"] == {"2025-01-31": 432, "2025-02-01": 432}
    assert found["failures"] == {
        "count": 1,
        "gpus": 1,
        "by_month": {"2025-02": {"no cause given": 1}},
    }
    assert find_problems(found) == []
    assert "too few to train on" in advice(found)
    # Each GPU has an instance every hour; the labels of the last six hours of A and C are unknown.
    assert found["usable"]["positives"] == 6
    assert found["usable"]["instances"] == 48 + 48 + 42


def test_replaced_gpu_is_not_counted_at_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = records()
    replaced = (frame["gpu_serial"] == "A") & (frame["timestamp"] >= "2025-02-01T12:00Z")
    frame.loc[replaced, "gpu_serial"] = "D"
    found = examined(capsys, write(frame, tmp_path))
    assert (found["gpus"], found["gpus_at_end"]) == (4, 3)
    assert "4 on 2 machines; 3 of them have records at the end" in doctor_text(found)


def test_gpu_without_record_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = records()
    no_time = pd.to_datetime(["NaT"], utc=True)
    lost = frame.iloc[:1].assign(gpu_serial="D", machine_id="m9", timestamp=no_time)
    arguments = write(frame, tmp_path)
    path = tmp_path / "records" / "date=2025-01-31" / "part-0.parquet"
    whole = pd.concat([pd.read_parquet(path), lost])
    whole.to_parquet(path, index=False)
    found = examined(capsys, arguments)
    assert (found["gpus"], found["machines"], found["rows_without_key"]) == (3, 2, 1)


def test_all_problems_are_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = records()
    frame.loc[frame.index[frame["gpu_serial"] == "A"][:144], "errors"] += 1_000  # falls once
    frame.loc[frame["gpu_serial"] == "C", "load"] = float("nan")
    frame = pd.concat([frame, frame.iloc[:5].assign(machine_id="m2")])
    frame = frame.drop(columns="temp").reset_index(drop=True)
    found = examined(capsys, write(frame, tmp_path))
    assert found["columns_missing"] == {"temp": 2}
    assert found["serials_on_two_machines"] == ["A"]
    assert found["rows_doubled"] == 5
    resets = {column["name"]: column["resets"] for column in found["columns"]}
    assert resets == {"load": 0, "errors": 1}
    text = said(found)
    assert "1 serial (A) on two machines at once" in text
    assert "Column `temp` is missing in 2 of 2 files" in text
    assert "`load` is missing in 33% of the rows" in text
    assert "5 rows are duplicates" in text
    assert "Fix the grave problems below before training" in advice(found)


@pytest.mark.parametrize("column", CONTRACT_COLUMNS)
@pytest.mark.parametrize("is_null", [False, True])
def test_missing_column_names_its_dcgm_field(
    column: str, is_null: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = records().rename(columns={"temp": column})
    frame[column] = frame[column].astype("float64")
    arguments = write(frame, tmp_path)
    path = next((tmp_path / "records").glob("*/*.parquet"))
    table = pd.read_parquet(path)
    table = table.assign(**{column: float("nan")}) if is_null else table.drop(columns=column)
    table.to_parquet(path, index=False)
    config = Path(arguments[arguments.index("--config") + 1])
    config.write_text(config.read_text().replace('"temp"', f'"{column}"'))
    remedies = [p.todo for p in find_problems(examined(capsys, arguments)) if column in p.what]
    assert remedies
    assert field_names(column)
    for name in field_names(column):
        assert name.startswith("DCGM_FI_")
        assert f"`{name}`" in remedies[0]


def test_unfinished_horizons_are_not_usable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # B fails at record 280 of 288: six instances end before it, two of them by record 251.
    frame = records()
    frame["failure"] = ((frame["gpu_serial"] == "B") & (frame.index % 288 >= 280)).astype(int)
    assert examined(capsys, write(frame, tmp_path))["usable"]["positives"] == 2


def test_other_cadence_is_problem_not_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = records()
    start = frame["timestamp"].min()
    frame["timestamp"] = start + (frame["timestamp"] - start) / 4
    found = examined(capsys, write(frame, tmp_path))
    assert found["usable"] is None
    assert "Records arrive every 2.5 min, the configuration says 10 min" in said(found)
    assert 'Set `records.interval = "150s"`' in doctor_text(found)


def test_gaps_and_misfiled_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = records()
    arguments = write(frame[frame.index % 288 < 200], tmp_path)
    lost = frame[frame.index % 288 >= 270]
    lost.to_parquet(tmp_path / "records" / "date=2025-01-31" / "late.parquet", index=False)
    found = examined(capsys, arguments)
    assert found["rows_in_another_date"] == len(lost)
    assert (found["gaps"], found["records_missing"]) == (3, 210)
    assert "24% of the records are missing, in 3 gaps" in said(found)


def test_parts_give_same_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = records()
    a, c = frame["gpu_serial"] == "A", frame["gpu_serial"] == "C"
    frame.loc[c, "timestamp"] += pd.Timedelta("3min")  # offset of its clock
    moved = frame[a].assign(gpu_serial="D", machine_id=["m1"] * 150 + ["m3"] * 138)
    slow = frame[a].iloc[::4].assign(gpu_serial="E")  # slower than the fleet
    close = frame[a].iloc[-1:].assign(timestamp=frame["timestamp"].max() + pd.Timedelta("1min"))
    frame = pd.concat([slow, frame, moved, close, frame.iloc[:3].assign(machine_id="m2")])
    arguments = write(frame, tmp_path)
    absences = pd.DataFrame({"machine_id": ["m3"], "start": [frame["timestamp"].iloc[400]]})
    absences.assign(gpu_serial=None, end=None).to_parquet(
        tmp_path / "records" / "out_of_service.parquet"
    )
    whole = examined(capsys, arguments)
    assert whole["serials_moved"] == 1
    assert whole["clocks_off_seconds"] == {"m2": 177.0}  # rounded to a hundredth of the interval
    assert whole["usable"]["positives"] == 6
    for rows in (250, 700):  # a part for each GPU, the slow one first; two parts
        monkeypatch.setattr(examination, "MAX_PART_ROWS", rows)
        assert examined(capsys, arguments) == whole


def test_causes_are_read_from_tickets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = write(records(), tmp_path)
    tickets = pd.DataFrame(
        {
            "gpu_serial": ["B", "C", "unknown"],
            "failed_at": pd.to_datetime(
                ["2025-02-01T19:00Z", "2025-01-31T05:00Z", "2025-01-31T00:00Z"]
            ),
            "repaired_at": [pd.NaT, pd.Timestamp("2025-01-31T06:00Z"), pd.NaT],
            "cause": ["memory", "link", "power"],
        }
    )
    tickets.to_parquet(tmp_path / "records" / "failures.parquet", index=False)
    found = examined(capsys, arguments)
    assert found["failures"]["by_month"] == {"2025-01": {"link": 1}, "2025-02": {"memory": 1}}


def test_page_and_text_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = records().rename(columns={"temp": "x<y"})
    arguments = [*write(frame, tmp_path), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    page = (tmp_path / "out" / "doctor.html").read_text()
    found = json.loads((tmp_path / "out" / "doctor.json").read_text())
    assert advice(found) in text
    assert advice(found) in page
    assert all(one.what in text for one in find_problems(found))
    assert page.count("<svg") == 2
    again = tmp_path / "again"
    assert main([*arguments[:-1], str(again)]) == 0
    assert (again / "doctor.html").read_text() == page


def test_no_records_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["doctor", str(tmp_path / "nothing"), "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


def test_precision_half_width() -> None:
    assert round(precision_half_width(23), 2) == 0.2
    assert round(precision_half_width(100), 2) == 0.1


def test_unusable_failures_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = write(records(), tmp_path)
    failed = pd.to_datetime(["2023-02-01T19:00Z", "2035-01-31T05:00Z", "2025-01-31T00:00Z"])
    repaired = failed + pd.Timedelta(hours=1)
    serials = ["A", "C", "GPU-of-another-name"]
    tickets = {"gpu_serial": serials, "failed_at": failed, "repaired_at": repaired}
    pd.DataFrame(tickets).to_parquet(tmp_path / "records" / "failures.parquet", index=False)
    examination = examined(capsys, arguments)
    assert advice(examination).startswith(
        "1 failure in 2 days"
    )  # the failure of B, from the records
    assert "2 of the failures are before the first record or after the last one" in said(
        examination
    )
    assert "reported for 1 serial (GPU-of-another-name) without any record" in said(examination)


@pytest.mark.parametrize(("interval", "grave"), [("20min", False), ("25min", True)])
def test_small_cadence_error_is_reported(
    interval: str, grave: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = write(records(), tmp_path)
    (tmp_path / "c.toml").write_text(CONFIG.replace('"10min"', f'"{interval}"'))
    examination = examined(capsys, arguments)
    (cadence,) = [
        c for c in find_problems(examination) if c.what.startswith("Records arrive every")
    ]
    assert cadence.grave == grave
    assert f"every 10 min, the configuration says {interval[:2]} min" in cadence.what


def test_clock_years_ahead_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = records()
    frame["timestamp"] += pd.to_timedelta(3650 * (frame["gpu_serial"] == "C"), unit="D")
    examination = examined(capsys, write(frame, tmp_path))
    assert "No GPU has a record between 2025-02-01 and 2035-01-29." in said(examination)


def test_invalid_states_and_codes_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = records().assign(xid=0.0)
    frame["failure"] = frame["failure"].astype("float64")
    frame.loc[[0, 1, 600], "failure"] = [-1.0, 0.5, 2.0]
    frame.loc[[0, 1, 2, 3], "xid"] = [0.5, -1.0, 79.0, float("nan")]
    arguments = write(frame, tmp_path)
    (tmp_path / "c.toml").write_text(CONFIG.replace("history", 'code = ["xid"]\nhistory', 1))
    examination = examined(capsys, arguments)
    assert examination["failure_neither_0_nor_1"] == 3
    assert "`failure` is neither 0 nor 1 in 3 rows." in said(examination)
    assert "`xid` has 2 impossible values." in said(examination)

"""`forewarn inspect plan`: from lists, results and a ledger to machines, with reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.inspection.check_results import RESULTS
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.scheduled_tasks import inspect_site
from forewarn.response.state.finding import Finding, FindingKind

AT = pd.Timestamp("2025-03-02T00:00:00", tz="UTC")
CHECKS = """
[check.gemm]
command = ["gemm"]
value = {regex = '(\\d+)', unit = "TFLOP/s"}
category = "gpu"
when = ["weekly"]
timeout = "10min"
[check.disk]
command = ["fio"]
value = {regex = '(\\d+)', unit = "MiB/s"}
category = "storage"
when = ["weekly"]
timeout = "10min"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a list of ten machines, of which m3 is at risk."""
    (tmp_path / "none.toml").write_text("")
    monkeypatch.setattr(
        "forewarn.pipelines.inspection.check_files.SHIPPED_CHECKS", tmp_path / "none.toml"
    )
    (tmp_path / "checks.toml").write_text(CHECKS)
    rows = [
        {
            "gpu_serial": f"s{number}",
            "machine_id": f"m{number // 2}",
            "probability": 0.3 if number == 7 else 0.001,
            "flagged": number == 7,
            "window_end": AT - pd.Timedelta(hours=1),
            "valid_until": AT + pd.Timedelta(days=1),
        }
        for number in range(20)
    ]
    folder = tmp_path / "lists" / "date=2025-03-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pandas(pd.DataFrame(rows)), folder / "at_risk.parquet")
    return tmp_path


def plan(site: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    words = ["--at-risk", str(site / "lists"), "--checks", str(site / "checks.toml")]
    arguments = ["inspect", "plan", *words, "--at", "2025-03-02", "--json", *options]
    assert main(arguments) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_machine_at_risk_comes_first_with_its_reason(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(site, capsys, "--budget", "1h")
    assert made["machines"] == 10
    first = made["lines"][0]
    assert (first["machine"], first["checks"][0]) == ("m3", "gemm")
    assert first["reason"].startswith("at risk (30.1%)")
    assert made["planned_hours"] <= 1.0


def test_default_budget_is_one_percent_of_a_week(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(site, capsys)["budget_hours"] == pytest.approx(0.01 * 168 * 10)


def test_machine_of_a_large_job_is_worth_more(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(site, capsys, "--budget", "40min", "--job", "m[5-8],x[1-100]")
    assert made["lines"][0]["machine"] in {"m5", "m6", "m7", "m8"}
    assert "before a job of 104 machines" in made["lines"][0]["reason"]


def write_results(path: Path) -> None:
    rows = [
        {
            **dict.fromkeys(RESULTS.names),
            "timestamp": AT - pd.Timedelta(hours=2) + pd.Timedelta(seconds=number),
            **{"machine": machine, "check": "gemm", "run": "1", "value": 1.0, "unit": "TFLOP/s"},
            **{"status": "ok", "seconds": 60.0, "set": "weekly"},
        }
        for machine in ("m3", "m4")
        for number in range(2)
    ]
    pq.write_table(pa.Table.from_pylist(rows, RESULTS), path)


def test_past_results_tell_minutes_and_what_is_new(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(site / "results.parquet")
    options = ["--results", str(site / "results.parquet"), "--budget", "20h", "--most", "20"]
    lines = {row["machine"]: row for row in plan(site, capsys, *options)["lines"]}
    assert "never inspected" in lines["m1"]["reason"]
    assert "never inspected" not in lines["m3"]["reason"]
    assert lines["m1"]["minutes"] == pytest.approx(2.0 + 10.0)


def write_plan(folder: Path, at: pd.Timestamp, *machines: str) -> None:
    lines = [{"machine": name, "is_random": True} for name in machines]
    lines.append({"machine": "m9", "is_random": False})
    folder.mkdir(exist_ok=True)
    content = json.dumps({"at": at.isoformat(), "lines": lines})
    (folder / f"{at:%Y-%m-%d}.json").write_text(content)


def test_inspections_drawn_at_random_tell_the_rate_of_defects(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site / "results.parquet"
    write_results(path)
    options = ["--results", str(path), "--plans", str(site / "plans"), "--budget", "20h"]
    assert plan(site, capsys, *options)["drawn"] == {"inspected": 0, "found": 0}
    # Both of m3 and m4 were inspected two hours ago; m5 was not, and m9 was not drawn.
    write_plan(site / "plans", AT - pd.Timedelta(hours=3), "m3", "m4", "m5")
    write_plan(site / "plans", AT - pd.Timedelta(days=4), "m3")  # its results came too late
    write_plan(site / "plans", AT + pd.Timedelta(days=1), "m3")  # not yet made
    made = plan(site, capsys, *options)
    assert made["drawn"] == {"inspected": 2, "found": 0}
    reason = "routine (0 defects in 2 inspections at random)"
    assert all(reason in line["reason"] for line in made["lines"] if not line["is_random"])

    rows = pq.read_table(path).to_pylist()
    rows[0]["status"] = "failed"
    pq.write_table(pa.Table.from_pylist(rows, RESULTS), path)
    assert plan(site, capsys, *options)["drawn"] == {"inspected": 2, "found": 1}
    (site / "checks.toml").write_text(
        CHECKS.replace("[check.disk]", 'level = "note"\n[check.disk]')
    )
    assert plan(site, capsys, *options)["drawn"] == {"inspected": 2, "found": 0}


def test_file_that_is_no_plan_is_named(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(site / "results.parquet")
    (site / "plans").mkdir()
    (site / "plans" / "a.json").write_text('{"at": "2025-03-01T00:00:00Z", "lines": [{}]}')
    words = ["--results", str(site / "results.parquet"), "--plans", str(site / "plans")]
    arguments = ["inspect", "plan", "--at-risk", str(site / "lists"), "--at", "2025-03-02", *words]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "a.json: lines.0.machine: Field required, expected a plan" in error


def test_page_has_what_to_run_the_draw_and_what_had_no_room(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = site / "plan.html"
    options = ["--budget", "200min", "--most", "9", "--html", str(page)]  # 20 minutes a machine
    options += ["--at", "2025-03-03"]  # draws one; 0.9 are to be drawn on average
    made = plan(site, capsys, *options)
    assert [line["is_random"] for line in made["lines"]].count(True) == 1
    assert made["left_out"]["machines"] == len(made["left_out"]["lines"]) > 0
    names = {line["machine"] for line in (*made["lines"], *made["left_out"]["lines"])}
    assert names == {f"m{number}" for number in range(10)}
    text = page.read_text()
    by_risk, _, rest = text.partition("<h2>Drawn at random</h2>")
    at_random, _, left_out = rest.partition("<h2>Left out</h2>")
    assert "at risk (30.1%); routine" in by_risk
    drawn = next(line["machine"] for line in made["lines"] if line["is_random"])
    assert f"<bdi>{drawn}</bdi>" in at_random
    assert made["left_out"]["lines"][0]["machine"] in left_out
    assert "—" in at_random  # no worth
    assert "<bdi>m3</bdi>" not in at_random + left_out


def test_ledger_tells_of_incidents(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = site / "forewarn.toml"
    config.write_text('[respond]\nledger = "sqlite:///ledger.db"\n')
    at = Nanoseconds(int(AT.value) - 3 * DAY)
    finding = Finding(
        *("records", "x", FindingKind.XID, "xid 79", "m6", at, Nanoseconds(at + HOUR))
    )
    with Ledger.open(f"sqlite:///{site / 'ledger.db'}") as ledger:
        ledger.record_findings([finding], now=at)
    lines = plan(site, capsys, "--config", str(config), "--budget", "20h")["lines"]
    assert "xid 79" in next(row["reason"] for row in lines if row["machine"] == "m6")


def test_scheduled_task_judges_and_plans(site: Path) -> None:
    config = site / "forewarn.toml"
    config.write_text('[site]\nlists = "lists"\n')
    assert inspect_site(str(config), "2025-03-02") is None
    config.write_text('[site]\nlists = "lists"\ninspections = "results"\n')
    (site / "results" / "date=2025-03-01").mkdir(parents=True)
    write_results(site / "results" / "date=2025-03-01" / "m3.1.parquet")
    counts = inspect_site(str(config), "2025-03-02")
    # Without shipped checks there is nothing to plan; the results are judged.
    assert counts == {"bad_machines": 0, "planned": 0}
    judged = json.loads((site / "results" / "judged.json").read_text())
    assert judged["machines"] == 2
    for name in ("plan.json", "plan.html", "plans/2025-03-02.json"):
        assert (site / "results" / name).exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "much"], "expected a duration"),
        (["--job", "m[3-1]"], "--job"),
        (["--at-risk", "nothing"], "holds no list"),
    ],
)
def test_bad_options_are_refused(
    site: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    words = ["inspect", "plan", "--at-risk", str(site / "lists"), "--at", "2025-03-02"]
    try:
        code = main([*words, *options])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err

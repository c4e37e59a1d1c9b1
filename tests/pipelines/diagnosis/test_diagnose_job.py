"""`forewarn diagnose run`: the folder, further sources, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.features.telemetry.telemetry_tables import EVENTS, build_table
from forewarn.pipelines.cli.main import main

OPEN = {"retired": False}
BEGIN = pd.Timestamp(1_795_296_000, unit="s", tz="UTC")


def refused(job: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["diagnose", "run", "--job", str(job), "--json", *options]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    return error


def test_folder_without_part_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert "contains no file of a job, expected logs or at least one of ranks.csv" in refused(
        tmp_path, capsys
    )
    assert "does not exist" in refused(tmp_path / "absent", capsys)


def test_job_without_time_is_unknown(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "ranks.csv").write_text("rank,machine\n0,a\n")
    assert main(["diagnose", "run", "--job", str(tmp_path), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["kind"], verdict["at"]) == ("unknown", None)


def test_folder_without_data_is_all_blind(tmp_path: Path, diagnose: Any) -> None:
    (tmp_path / "ranks.csv").write_text("rank,machine\n0,a\n")
    verdict = diagnose(tmp_path)
    assert (verdict["job"], verdict["kind"], verdict["rank"]) == (tmp_path.name, "unknown", None)
    assert {"exits", "logs", "flight", "stacks", "metrics", "kernel", "profiles"} <= {
        *verdict["blind"]
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"rank,machine\n0,a\n0,b\n", "rank 0 occurs twice"),
        (b"rank,host\n0,a\n", "column `machine` is missing"),
        (b"\xff\xfe\x00", "byte 0 is not valid UTF-8"),
    ],
)
def test_invalid_rank_table_is_refused(
    tmp_path: Path, capsys: Any, content: bytes, message: str
) -> None:
    (tmp_path / "ranks.csv").write_bytes(content)
    assert message in refused(tmp_path, capsys)


@pytest.fixture
def undecided(put_dump: Any) -> Path:
    """Return a job that waits for ranks 1 and 2 on two machines."""
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    put_dump(1, [("a", 1, 0.0)])
    job: Path = put_dump(2, [("a", 1, 0.0)])
    (job / "ranks.csv").write_text("rank,machine,gpu_serial\n0,m0,S0\n1,m1,S1\n2,m2,S2\n")
    return job


def test_two_absent_ranks_are_candidates(undecided: Path, diagnose: Any) -> None:
    verdict = diagnose(undecided)
    assert (verdict["kind"], verdict["rank"], verdict["machine"]) == ("hang", None, None)
    assert verdict["culprits"] == []
    assert [(c["rank"], c["machine"], c["weight"]) for c in verdict["also"]] == [
        (1, "m1", 0.5),
        (2, "m2", 0.5),
    ]


def test_single_culprit_is_listed(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    verdict = diagnose(put_dump(1, [("a", 1, 0.0)]))
    assert verdict["rank"] == 1
    (culprit,) = verdict["culprits"]
    assert (culprit["rank"], culprit["machine"]) == (1, None)
    assert culprit["why"] == "rank 0 waits for rank 1, which waits for no rank"


def test_page_and_text_list_all_origins(put_dump: Any, tmp_path: Path, capsys: Any) -> None:
    for group in ("a", "b"):
        first = 0 if group == "a" else 2
        put_dump(first, [(group, 1, 0.0), (group, 2, 1.0, OPEN)])
        job = put_dump(first + 1, [(group, 1, 0.0)])
    page = tmp_path / "page.html"
    options = ["--at", "2026-11-22T12:00:00Z", "--html", str(page)]
    assert main(["diagnose", "run", "--job", str(job), *options]) == 0
    text, html = capsys.readouterr().out, page.read_text()
    for rank in (1, 3):
        assert f"root cause: rank {rank}\n" in text
        assert f"Root cause: rank {rank}." in html
    assert html.count("stroke: var(--bad, #b3261e)") == 2
    assert "No culprit" not in html


def test_recent_xid_decides(undecided: Path, tmp_path: Path, diagnose: Any) -> None:
    event = {
        "timestamp": BEGIN.value,
        "machine_id": "m2",
        "gpu_serial": "S2",
        "kind": "xid",
        "code": 79,
        "raw": "NVRM: Xid (PCI:0000:10:00): 79",
        "id": "x",
    }
    folder = tmp_path / "records" / "_events" / f"date={BEGIN:%Y-%m-%d}"
    folder.mkdir(parents=True)
    pq.write_table(build_table([event], EVENTS), folder / f"{BEGIN:%H}.parquet")
    options = ("--events", str(tmp_path / "records"))
    verdict = diagnose(undecided, 3000.0, *options)
    assert (verdict["rank"], verdict["machine"]) == (2, "m2")
    assert "Xid 79" in verdict["cause"]
    assert diagnose(undecided, 7000.0, *options)["rank"] is None  # over an hour ago


def test_at_risk_list_orders_candidates(undecided: Path, tmp_path: Path, diagnose: Any) -> None:
    rows = {
        "machine_id": ["m2"],
        "flagged": [True],
        "window_end": [BEGIN - pd.Timedelta("1h")],
        "valid_until": [BEGIN + pd.Timedelta("1D")],
    }
    path = tmp_path / "lists" / "date=2026-11-21" / "at_risk.parquet"
    path.parent.mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(path)
    verdict = diagnose(undecided, 3000.0, "--at-risk", str(tmp_path / "lists"))
    assert verdict["rank"] is None
    assert [candidate["rank"] for candidate in verdict["also"]] == [2, 1]


def test_page_draws_wait_graph(undecided: Path, put_dump: Any, tmp_path: Path, capsys: Any) -> None:
    put_dump(1, [("a", 1, 0.0), ("b", 1, 2.0, OPEN | {"process_group": ["b", "<b>tp"]})])
    put_dump(2, [("a", 1, 0.0), ("b", 0, 0.5, {"process_group": ["b", "<b>tp"]})])
    page = tmp_path / "pages" / "page.html"
    options = ["--at", "2026-11-22T12:00:00Z", "--html", str(page)]
    assert main(["diagnose", "run", "--job", str(undecided), *options]) == 0
    text = page.read_text()
    assert "Root cause: rank 2 on m2." in text
    assert text.count("stroke: var(--bad, #b3261e)") == 1  # the box of rank 2
    for arrow in ("rank 0 to rank 1", "rank 0 to rank 2", "rank 1 to rank 2"):
        assert text.count(arrow) == 1
    assert "&lt;b&gt;tp" in text
    assert "<b>tp" not in text
    first = page.read_bytes()
    assert main(["diagnose", "run", "--job", str(undecided), *options]) == 0
    assert page.read_bytes() == first
    assert "root cause: rank 2 on m2" in capsys.readouterr().out


def test_page_shows_mismatched_operations(put_dump: Any, tmp_path: Path, capsys: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    job = put_dump(1, [("a", 1, 0.0), ("a", 2, 1.0, OPEN | {"profiling_name": "gloo:barrier"})])
    page = tmp_path / "page.html"
    options = ["--at", "2026-11-22T12:00:00Z", "--html", str(page)]
    assert main(["diagnose", "run", "--job", str(job), *options]) == 0
    assert "in all_reduce 2, group a (a)" in page.read_text()
    assert "in barrier 2, group a (a)" in page.read_text()
    assert "no culprit identified" in capsys.readouterr().out


def test_page_compares_outlier_stack() -> None:
    from forewarn.pipelines.diagnosis.diagnosis_page import render_diagnosis_page

    details = {"frames": ["read (loader.py:7)"], "usual_frames": ["all_reduce"], "usual_rank": 0}
    evidence = {
        "part": "stacks",
        "rank": 3,
        "machine": "m0",
        "time": "2026-11-21T21:20:00Z",
        "says": "rank 3 is outside",
        "details": details,
    }
    line = {
        "job": "j",
        "kind": "hang",
        "rank": 3,
        "machine": "m0",
        "culprits": [{"rank": 3, "machine": "m0", "why": "is outside"}],
        "also": [],
        "since": None,
        "detected_at": None,
        "cause": None,
        "probes": {},
        "next": ["Look at `read`.", "Then restart."],
        "evidence": [evidence],
        "blind": [],
        "files": [{"path": "a.bin", "read_as": None, "why": "is empty"}],
        "at": "2026-11-21T21:30:00Z",
    }
    text = render_diagnosis_page(json.loads(json.dumps(line)))
    assert (
        text.index("read (loader.py:7)") < text.index("such as rank 0") < text.index("all_reduce")
    )
    assert "<li>Look at <code>read</code>.</li>" in text
    assert "How 1 file was understood, 1 not read" in text


def test_log_without_times_has_page(tmp_path: Path) -> None:
    log, page = tmp_path / "a.log", tmp_path / "page.html"
    log.write_text("ValueError: batch is empty\n")
    assert main(["diagnose", "run", "--job", str(log), "--html", str(page)]) == 0
    assert "batch is empty" in page.read_text()

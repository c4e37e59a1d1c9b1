"""`forewarn inspect accept`: certificates that pass, fail, or are incomplete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.inspection.check_results import RESULTS
from forewarn.pipelines.cli.main import main

CHECKS = """
[check.gemm]
command = ["gemm"]
value = {regex = '(\\d+)', unit = "TFLOP/s", better = "higher"}
category = "gpu"
compare = ["fleet", "own"]
when = ["accept"]
required = true
[check.disk]
command = ["fio"]
value = {regex = '(\\d+)', unit = "MiB/s", better = "higher"}
category = "storage"
when = ["accept"]
limit = {min = 100}
required = true
[check.fan]
command = ["fan"]
value = {regex = '(\\d+)', unit = "1", better = "lower"}
when = ["accept"]
level = "note"
"""
SINCE = "2025-02-01"


class Site:
    """Results and certificates of twelve machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "checks.toml").write_text(CHECKS)
        generator = np.random.default_rng(4)
        self.rows: list[dict[str, Any]] = []
        for number in range(12):
            self.add("gemm", (100 + generator.standard_normal(8)).tolist(), f"n{number:02}", day=10)

    def add(
        self,
        check: str,
        values: list[float | None],
        machine: str = "n00",
        *,
        day: int = 10,
        run: str = "accept",
        **fields: Any,
    ) -> None:
        units = {"gemm": "TFLOP/s", "disk": "MiB/s", "fan": "1"}
        start = pd.Timestamp(f"2025-02-{day:02}", tz="UTC") + pd.Timedelta(hours=len(self.rows))
        for number, value in enumerate(values):
            self.rows.append(
                {
                    **dict.fromkeys(RESULTS.names),
                    "timestamp": start + pd.Timedelta(seconds=number),
                    **{"machine": machine, "check": check, "run": run, "value": value},
                    **{"unit": units[check], "status": "ok", "seconds": 1.0, "set": "accept"},
                    "versions": '{"board": "X12", "gpu": "H100"}',
                    **fields,
                }
            )

    def burn_in(self, hours: float) -> None:
        for _ in range(2):
            seconds = hours * 3600.0 / 2
            self.add("disk", [500.0], run="burn", set="burn_in", seconds=seconds)

    def accept(self, *options: str) -> tuple[int, Path]:
        pq.write_table(pa.Table.from_pylist(self.rows, RESULTS), self.folder / "results.parquet")
        out = self.folder / "accepted"
        arguments = {
            "--machine": "n00",
            "--results": self.folder / "results.parquet",
            "--out": out,
            "--checks": self.folder / "checks.toml",
            "--since": SINCE,
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        return main(["inspect", "accept", *words, *options]), out / "n00"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a site with checks of its own only."""
    (tmp_path / "none.toml").write_text("")
    monkeypatch.setattr(
        "forewarn.pipelines.inspection.check_files.SHIPPED_CHECKS", tmp_path / "none.toml"
    )
    return Site(tmp_path)


def certificate(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "certificate.json").read_text())
    return content


def test_accepted_machine_has_a_certificate_and_a_baseline(site: Site) -> None:
    site.add("disk", [500.0])
    site.burn_in(48.1)
    code, folder = site.accept()
    made = certificate(folder)
    assert (code, made["state"], made["reasons"]) == (0, "passed", [])
    assert made["burn_in_hours"] == pytest.approx(48.1, abs=0.01)
    gemm = next(row for row in made["checks"] if row["check"] == "gemm")
    assert gemm["compared"] in ("fleet", "scatter")
    assert "criterion" in gemm["why"]
    assert pq.read_table(folder / "accepted.parquet").num_rows == 8 + 1 + 2
    page = (folder / "certificate.html").read_text()
    assert "n00 may work" in page
    assert "X12, H100" in page


def test_baseline_is_used_by_the_next_acceptance(site: Site) -> None:
    site.add("disk", [500.0])
    assert site.accept("--after", "repair:gpu")[0] == 0
    site.rows = [row for row in site.rows if row["machine"] == "n00"]
    site.add("gemm", [90.0] * 8, day=20, run="again")
    code, folder = site.accept("--after", "repair:gpu", "--since", "2025-02-19")
    gemm = next(row for row in certificate(folder)["checks"] if row["check"] == "gemm")
    assert gemm["compared"] == "own"
    assert gemm["state"] == "suspect"
    assert code == 3


@pytest.mark.parametrize(
    ("after", "hours", "code"),
    [("new", 47.0, 3), ("board-swap", 4.5, 0), ("board-swap", 3.0, 3), ("reset", 1.1, 0)],
)
def test_burn_in_depends_on_the_occasion(site: Site, after: str, hours: float, code: int) -> None:
    site.burn_in(hours)
    assert site.accept("--after", after)[0] == code


def test_required_check_that_did_not_run_is_never_passed(site: Site) -> None:
    site.add("disk", [None], status="not_run", text="fio is missing")
    code, folder = site.accept("--after", "repair:storage")
    assert (code, certificate(folder)["state"]) == (3, "incomplete")
    assert not (folder / "accepted.parquet").exists()
    assert "disk not_run: did not run, and is required" in certificate(folder)["reasons"]


def test_missing_required_check_is_incomplete_unless_of_another_category(site: Site) -> None:
    code, folder = site.accept("--after", "repair:storage")
    assert code == 3
    assert certificate(folder)["reasons"] == ["disk: no result, and is required"]
    assert site.accept("--after", "repair:gpu")[0] == 0


def test_failed_check_fails_and_a_note_does_not(site: Site) -> None:
    site.add("disk", [50.0])
    site.add("fan", [None], status="failed")
    code, folder = site.accept("--after", "repair:gpu")
    assert (code, certificate(folder)["reasons"]) == (1, ["disk failed"])
    assert site.accept("--after", "repair:gpu", "--nagios")[0] == 2
    site.rows = [row for row in site.rows if row["check"] != "disk"]
    assert site.accept("--after", "repair:gpu")[0] == 0


def test_run_measures_this_machine_and_stops_after_a_failure(site: Site) -> None:
    """`--run` takes the checks of the sets; a check that fails and drains ends it."""
    (site.folder / "checks.toml").write_text(
        """
[check.good]
command = ["true"]
when = ["quick"]
required = true
[check.bad]
command = ["sh", "-c", "exit 2"]
when = ["accept"]
level = "drain"
[check.heat]
command = ["true"]
when = ["burn_in"]
"""
    )
    arguments = ["--machine", "here", "--results", str(site.folder / "own"), "--since", "now"]
    out = site.folder / "accepted"
    words = [*arguments, "--out", str(out), "--checks", str(site.folder / "checks.toml")]
    assert main(["inspect", "accept", *words, "--run", "--after", "reset"]) == 1
    made = certificate(out / "here")
    assert {row["check"]: row["state"] for row in made["checks"]} == {"good": "ok", "bad": "failed"}


def test_results_from_before_the_repair_do_not_count(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("disk", [500.0])
    assert site.accept("--after", "repair:gpu", "--since", "2025-03-01")[0] == 2
    assert "holds no result of n00 since 2025-03-01" in capsys.readouterr().err
    assert site.accept("--after", "repair:gpu", "--since", "2025-03-01", "--nagios")[0] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--machine", "../n00"], "expected the name of a machine"),
        (["--after", "repair:engine"], "expected new, board-swap, reset, or repair:"),
        (["--after", "new:gpu"], "expected new, board-swap, reset, or repair:"),
    ],
)
def test_bad_options_are_refused(
    site: Site, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    try:
        code = site.accept(*options)[0]
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err

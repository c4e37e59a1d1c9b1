from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.metrics.job_values import retrain_metrics

DRIVER_CSV = """timestamp, index, name, serial, temperature.gpu
2025/01/01 00:00:00.000, 0, NVIDIA A100, 1650000001, 41
"""


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    fleet_of: Callable[[int, int], pd.DataFrame],
    write: Callable[[pd.DataFrame, Path], Path],
    config_text: str,
) -> Path:
    """Return a folder with a configuration, records, known failures, and a folder for metrics."""
    folder = tmp_path_factory.mktemp("site")
    fleet = fleet_of(12, 14)
    ended = fleet["gpu_serial"].eq("S003") & (fleet["timestamp"] >= "2025-01-12 12:00")
    write(fleet[~ended], folder / "records")
    text = config_text + '[site]\nmetrics = "prom"\nrecords = "records"\nlists = "lists"\n'
    text += "[respond.pools.train]\n"
    (folder / "forewarn.toml").write_text(text)
    failures = pd.DataFrame({"gpu_serial": ["S001"], "failed_at": ["2025-01-12T12:00:00Z"]})
    failures.to_csv(folder / "failures.csv", index=False)
    (folder / "prom").mkdir()
    return folder


@pytest.fixture
def run(site: Path, check_metrics: Callable[[str], None]) -> Callable[..., dict[str, float]]:
    """Return `run(job, *options)`: the values that a command has written."""

    def command(job: str, *options: str) -> dict[str, float]:
        assert main([job, "--config", str(site / "forewarn.toml"), *options]) == 0
        text = (site / "prom" / f"forewarn_{job}.prom").read_text()
        check_metrics(text)
        return dict(samples(text))

    return command


def samples(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            yield name, float(value)


def test_jobs_write_what_alert_rules_need(
    run: Callable[..., dict[str, float]], site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = pd.Timestamp("2025-01-13", tz="UTC")
    scored = run("score", "--model", "builtin:rules", "--at", "2025-01-13")
    assert scored["forewarn_list_time_seconds"] == at.timestamp()
    assert "forewarn_list_model_time_seconds" not in scored
    counted = {
        state: scored[f'forewarn_fleet_gpus{{state="{state}"}}']
        for state in ("scored", "blind", "failed_without_end", "unscored")
    }
    assert counted["blind"] == 1
    assert scored['forewarn_fleet_gpus{state="all"}'] == sum(counted.values()) == 12
    run("score", "--model", "builtin:rules", "--at", "2025-01-10")
    assert run("review", "--failures", str(site / "failures.csv"), "--until", "2025-01-15")
    text = (site / "prom" / "forewarn_score.prom").read_text()
    assert dict(samples(text)) == scored  # a list of an earlier day says nothing about today
    assert run("compact")["forewarn_compact_dates"] > 0
    capsys.readouterr()


def test_ingestion_counts_what_is_new(run: Callable[..., dict[str, float]], tmp_path: Path) -> None:
    host = tmp_path / "raw" / "node-1"
    host.mkdir(parents=True)
    (host / "smi.csv").write_text(DRIVER_CSV)
    out = str(tmp_path / "records")
    ingested = run("ingest", "--raw", str(tmp_path / "raw"), "--out", out)
    assert ingested["forewarn_ingest_new_readings"] == 1


def test_round_without_api_writes_file(run: Callable[..., dict[str, float]]) -> None:
    values = run("respond", "--once")
    assert values["forewarn_respond_ledger_up"] == values["forewarn_respond_acting"] == 1
    assert values['forewarn_respond_beat_age_seconds{beat="loop"}'] < 60
    assert values['forewarn_respond_isolations_total{by="forewarn",pool="train"}'] == 0


def test_retraining_reports_its_outcome() -> None:
    text = retrain_metrics(10**9, promoted=False).text().decode()
    assert "forewarn_retrain_promoted 0.0" in text
    assert "forewarn_retrain_time_seconds 1.0" in text

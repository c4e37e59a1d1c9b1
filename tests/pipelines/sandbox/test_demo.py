from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.ensembles import Committee
from forewarn.pipelines.at_risk.at_risk_list import AtRiskList
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.sandbox.demo import (
    _count_without_precursor,
    _failures,
    _MadeList,
    _show_gpu,
)


def test_failures_without_precursor_are_sudden(tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text(
        "gpu_serial,failed_at,mechanism\n"
        "A,2025-01-02T10:00:00Z,sudden\n"
        "A,2025-01-09T10:00:00Z,memory\n"
        "B,2025-01-02T10:00:00Z,link\n"
        "C,2025-01-03T10:00:00Z,sudden\n"
    )
    times = ["2025-01-02T10:00Z", "2025-01-09T10:10Z", "2025-01-02T10:00Z"]
    failures = pd.DataFrame({"gpu_serial": ["A", "A", "B"], "failed_at": pd.to_datetime(times)})
    assert _count_without_precursor(failures, truth) == 1
    assert _count_without_precursor(failures.head(0), truth) == 0


@pytest.mark.parametrize("hours", [[np.inf, np.inf], [13.0, np.inf]])
def test_score_failures_match_ground_truth(hours: list[float], tmp_path: Path) -> None:
    """A small fleet may have no failure to evaluate lists on."""
    failures = int(np.isfinite(hours).sum())
    ends = pd.Timestamp("2025-01-01T23:00Z") + pd.Timedelta("1D") * np.arange(len(hours))
    columns = {"gpu_serial": ["A", "B"], "window_end": ends, "hours_to_failure": hours}
    frame = pd.DataFrame(columns | {"label": np.isfinite(hours).astype("int8")})
    frame.to_parquet(tmp_path / "scores.parquet")
    truth = tmp_path / "truth.csv"
    truth.write_text("gpu_serial,failed_at,mechanism\nA,2025-01-02T12:00:00Z,sudden\n")
    spans = Nanoseconds(2 * HOUR), DAY
    protocol = EvaluationProtocol(
        Committee(("blend",), (("blend", 0.5),)), 0.5, 0.7, 0.5, *spans, 0
    )
    table = _failures(protocol, None, tmp_path / "scores.parquet")
    assert len(table) == failures
    assert _count_without_precursor(table, truth) == failures


def made_list(folder: Path, day: int, probabilities: dict[str, float]) -> _MadeList:
    end = pd.Timestamp(f"2025-01-{day:02d}T00:00Z")
    table = pd.DataFrame({"gpu_serial": list(probabilities), "machine_id": "node-1"}).assign(
        probability=list(probabilities.values()),
        flagged=True,
        reasons="1 row remapped this week | Xid 63 (row of memory remapped) once this week",
        window_end=end,
        valid_until=end + pd.Timedelta("1D"),
    )
    made = AtRiskList(end.value, table, pd.DataFrame(), 0.003, 24.0, "version")
    return _MadeList(made, folder / f"date={day}")


def test_shown_gpu_failed_within_horizon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = [
        made_list(tmp_path, 1, {"A": 0.2, "B": 0.4, "C": 0.9}),
        made_list(tmp_path, 2, {"A": 0.5, "C": 0.8}),
    ]
    truth = tmp_path / "truth.csv"
    truth.write_text(
        "gpu_serial,failed_at,mechanism\n"
        "A,2025-01-02T10:00:00Z,memory\nB,2025-01-01T20:00:00Z,memory\n"
        "C,2025-01-09T00:00:00Z,memory\n"
    )
    assert _show_gpu(lists, truth) == tmp_path / "date=2"
    text = capsys.readouterr().out
    assert "A on node-1 was listed at 2025-01-02T00:00 with 50 %: 1 row remapped" in text
    assert "It failed 10 h later. What to check before that:" in text
    assert "nvidia-smi -q -d ECC,ROW_REMAPPER" in text
    truth.write_text("gpu_serial,failed_at,mechanism\nC,2025-01-09T00:00:00Z,memory\n")
    assert _show_gpu(lists, truth) == tmp_path / "date=2"
    assert "C on node-1 was listed at 2025-01-02T00:00 with 80 %" in capsys.readouterr().out


def test_full_option_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    assert "--full" in capsys.readouterr().out

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.ensembles import Committee
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.sandbox.demo import _count_without_precursor, _failures


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


def test_full_option_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    assert "--full" in capsys.readouterr().out

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.sandbox.demo import _without_sign


def test_failures_without_a_sign_are_those_that_the_truth_calls_sudden(tmp_path: Path) -> None:
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
    assert _without_sign(failures, truth) == 1
    assert _without_sign(failures.head(0), truth) == 0


def test_full_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    assert "--full" in capsys.readouterr().out

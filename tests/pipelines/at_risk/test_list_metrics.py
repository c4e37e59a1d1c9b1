from __future__ import annotations

import pandas as pd
import pytest

from forewarn.evaluation.prediction.metrics.list_review import ReviewedLists
from forewarn.pipelines.at_risk.list_metrics import recent_review_metrics

NEWEST = pd.Timestamp("2025-03-31", tz="UTC")


def reviewed(*groups: tuple[float | None, int, int], days_ago: int = 0) -> ReviewedLists:
    """Return unflagged rows: a probability, how many have it, and how many of them failed."""
    rows = [(probability, i < hits) for probability, n, hits in groups for i in range(n)]
    table = pd.DataFrame(rows, columns=["probability", "hit"])
    table["window_end"] = NEWEST - pd.Timedelta(days=days_ago)
    table["flagged"] = False
    failures = pd.DataFrame({"failed_at": pd.Series(dtype="datetime64[ns, UTC]"), "caught": []})
    return ReviewedLists(table, failures, 0)


def calibration(lists: ReviewedLists) -> dict[str, float]:
    lines = recent_review_metrics(lists).text().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("forewarn_review_cal"))
    return {name.removeprefix("forewarn_review_"): float(value) for name, _, value in pairs}


def test_calibrated_probabilities_have_slope_one() -> None:
    fitted = calibration(reviewed((0.2, 5, 1), (0.5, 4, 2)))
    assert fitted["calibration_slope"] == pytest.approx(1, abs=1e-3)
    assert fitted["calibration_intercept"] == pytest.approx(0, abs=1e-3)


def test_overconfident_probabilities_have_smaller_slope() -> None:
    """The log odds are -4 and 0; those of the outcomes are -2 and 0 (in units of ln 2)."""
    fitted = calibration(reviewed((1 / 17, 5, 1), (0.5, 4, 2)))
    assert fitted["calibration_slope"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    "groups", [[(0.2, 5, 0), (0.5, 4, 0)], [(0.2, 5, 1)], [(None, 5, 1), (None, 4, 2)]]
)
def test_undetermined_slope_is_absent(groups: list[tuple[float | None, int, int]]) -> None:
    assert calibration(reviewed(*groups)) == {}


def test_rows_before_30_days_do_not_count() -> None:
    recent, old = reviewed((0.2, 5, 1), (0.5, 4, 2)), reviewed((0.9, 9, 0), days_ago=31)
    rows = pd.concat([recent.rows, old.rows])
    both = ReviewedLists(rows, recent.failures, 0)
    assert calibration(both)["calibration_slope"] == pytest.approx(1, abs=1e-3)

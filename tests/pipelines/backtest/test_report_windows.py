from __future__ import annotations

from typing import Any

import pandas as pd

from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics, WindowMetrics
from forewarn.pipelines.backtest.report_results import Result, read_results
from forewarn.pipelines.backtest.report_windows import days_since_training, over_time

STARTS = ["2025-01-20T00:00:00Z", "2025-01-17T00:00:00Z"]


def run(*figures: float | None, **more: Any) -> PaperMetrics:
    windows = [
        WindowMetrics(start, figure, train_length_days=9.0 + 3 * i, positives=i)
        for i, (start, figure) in enumerate(zip(STARTS, figures, strict=True))
    ]
    return PaperMetrics(precision_at_k=0.5, windows=windows, **more)


def results(**section: PaperMetrics) -> list[Result[PaperMetrics]]:
    return read_results(section, "precision_at_k")


def test_windows_are_ordered_with_all_lines() -> None:
    found = over_time(
        results(parallel_variable=run(0.8, None), parallel_fixed=run(0.3, 0.2), random=run(1, 1)),
        "variable",
        chance=1 / 9,
    )
    assert found is not None
    assert found.labels == ("Parallel", "Parallel, trained once")
    assert [row.start for row in found.rows] == sorted(map(pd.Timestamp, STARTS))
    assert [row.precision for row in found.rows] == [(None, 0.2), (0.8, 0.3)]
    assert [row.trained_days for row in found.rows] == [12.0, 9.0]
    assert [row.positives for row in found.rows] == [1.0, 0.0]
    assert found.spans == "9 days in 1 window, 12 days in 1 window"
    assert "<svg" in found.spans_svg


def test_unchosen_lengths_are_not_plotted() -> None:
    found = over_time(results(gbdt_sliding=run(0.8, 0.7)), "sliding", chance=1 / 9)
    assert found is not None
    assert found.spans_svg == ""


def test_no_windows_no_section() -> None:
    assert over_time([], "variable", chance=1 / 9) is None
    assert (
        over_time(results(gbdt_fixed=PaperMetrics(precision_at_k=0.5)), "fixed", chance=1 / 9)
        is None
    )


def test_days_are_padded_to_longest() -> None:
    found = days_since_training(
        results(
            gbdt_fixed=run(1, 1, precision_by_day=[0.9, 0.8, 0.7], precision_variance=0.01),
            cnn_fixed=run(1, 1, precision_by_day=[0.6, None]),
            mlp_fixed=run(1, 1),
        ),
        "fixed",
    )
    assert found["n_days"] == 3
    rows = {one.method.name: (days, variance) for one, days, variance in found["rows"]}
    assert rows == {"gbdt": ([0.9, 0.8, 0.7], 0.01), "cnn": ([0.6, None, None], None)}

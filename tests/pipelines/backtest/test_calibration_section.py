from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.list_calibration import (
    CalibrationDay,
    DatedChange,
    ListCalibrationMetrics,
)
from forewarn.pipelines.backtest.backtest_page import render_report
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.calibration_section import (
    calibration_monitor_plot,
    calibration_monitor_text,
)


def row(number: int, alerts: int, hits: int, flagged: int, right: int) -> CalibrationDay:
    return CalibrationDay(f"2025-02-{number:02}", alerts, 0.2 * alerts, hits, flagged, right)


def change(date: str, judged: int, length: float, alerts: int, hits: int) -> DatedChange:
    return DatedChange(date, judged, length, alerts, hits, expected=12.3)


def promise(
    state: str, judged: int = 70, *changes: DatedChange, days: Sequence[CalibrationDay] = ()
) -> ListCalibrationMetrics:
    bounds, broken = (0.0, 0.3), len(changes)
    return ListCalibrationMetrics(state, judged, 5, 0.1, 0.07, bounds, broken, changes, days)


BREAK = change("2025-02-03", 120, 0.0, 60, 1)
DAYS = [row(1, 60, 10, 60, 10), row(2, 60, 2, 60, 2), row(3, 30, 1, 0, 0), row(4, 30, 3, 0, 0)]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("cannot tell", "Cannot tell whether the chances of listed GPUs hold: 70 alerts judged"),
        ("kept", "The promise of the list is kept: 10 % of 70 alerts were to fail, and 7.0 % did."),
    ],
)
def test_a_promise_that_never_broke_is_one_sentence(state: str, words: str) -> None:
    (sentence,) = calibration_monitor_text(promise(state, days=DAYS[:2]))
    assert sentence.startswith(words)


def test_a_broken_promise_is_told_with_its_date_its_cause_and_what_was_stopped() -> None:
    state, broke, stopped = calibration_monitor_text(promise("broken", 60, BREAK, days=DAYS))
    assert state.startswith("The promise of the list is broken at the end: 10 % of 60 alerts since")
    assert broke.startswith(
        "It broke on 3 February 2025: of the last 60 alerts 12.3 were to fail, and 1 did."
    )
    assert stopped == (
        "So 60 of 180 alerts would have called for nothing, 4 of them before a failure. Of 100 "
        "that did call for action 10 failed; without the brake 8.9."
    )


def test_on_the_day_of_the_break_there_is_nothing_since() -> None:
    assert calibration_monitor_text(promise("broken", 0, BREAK))[0] == (
        "The promise of the list is broken at the end."
    )


def test_what_came_back_is_said() -> None:
    back = change("2025-02-20", 180, 2 / 3, 60, 13)
    words = calibration_monitor_text(promise("kept", 9, BREAK, back))
    assert words[2] == (
        "It was forgiven on 20 February 2025: of the last 60 alerts among the first 67 % of the "
        "list 12.3 were to fail, and 13 did. "
        "From then on the first 67 % of the list would have been flagged again."
    )
    whole = change("2025-02-20", 180, 1.0, 60, 13)
    assert calibration_monitor_text(promise("kept", 9, BREAK, whole))[2] == (
        "It was forgiven on 20 February 2025: of the last 60 alerts 12.3 were to fail, and 13 did. "
        "From then on all of the list would have been flagged again."
    )


def test_the_page_says_first_that_the_chances_do_not_hold() -> None:
    fleet = {"blend_variable": FleetMetrics(0.1, (0.05, 0.2))}
    broken = promise("broken", 60, BREAK, days=DAYS)
    page = render_report(BacktestReport(fleet=fleet, promise={"variable": broken}))
    assert page.index("its chances do not hold") < page.index('id="fleet"')
    assert "It broke on 3 February 2025" in page
    holds = render_report(BacktestReport(fleet=fleet, promise={"variable": promise("kept")}))
    assert "its chances do not hold" not in holds
    assert 'id="promise"' in holds
    unknown = render_report(BacktestReport(fleet=fleet, promise={"variable": None}))
    assert "its chances do not hold" not in unknown


def test_the_picture_shades_the_days_without_flags() -> None:
    (axes,) = calibration_monitor_plot(DAYS).axes
    (shade,) = axes.patches
    assert isinstance(shade, Rectangle)
    assert (shade.get_x(), shade.get_width()) == (1.5, 2.0)
    assert [np.asarray(line.get_ydata())[-1] for line in axes.lines] == [36.0, 16.0]

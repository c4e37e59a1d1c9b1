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


def calibration_metrics(
    state: str, judged: int = 70, *changes: DatedChange, days: Sequence[CalibrationDay] = ()
) -> ListCalibrationMetrics:
    bounds, broken = (0.0, 0.3), len(changes)
    return ListCalibrationMetrics(state, judged, 5, 0.1, 0.07, bounds, broken, changes, days)


ALARM = change("2025-02-03", 120, 0.0, 60, 1)
DAYS = [row(1, 60, 10, 60, 10), row(2, 60, 2, 60, 2), row(3, 30, 1, 0, 0), row(4, 30, 3, 0, 0)]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            "cannot tell",
            "It is not known whether the probabilities of listed GPUs are calibrated: 70 alerts",
        ),
        (
            "kept",
            "The probabilities of the list are calibrated: of 70 alerts, 10 % were expected to",
        ),
    ],
)
def test_calibrated_list_has_one_sentence(state: str, words: str) -> None:
    (sentence,) = calibration_monitor_text(calibration_metrics(state, days=DAYS[:2]))
    assert sentence.startswith(words)


def test_miscalibration_is_explained() -> None:
    state, alarm, blocked = calibration_monitor_text(
        calibration_metrics("broken", 60, ALARM, days=DAYS)
    )
    assert state.startswith(
        "The probabilities of the list are not calibrated at the end: of 60 alerts"
    )
    assert alarm.startswith(
        "Miscalibration was detected on 3 February 2025: of the last 60 alerts, 12.3 were expected "
    )
    assert blocked == (
        "The monitor blocked 60 of 180 alerts, 4 of them before a failure. Of 100 flagged GPUs 10 "
        "failed; without the monitor 8.9."
    )


def test_no_alerts_since_alarm() -> None:
    assert calibration_monitor_text(calibration_metrics("broken", 0, ALARM))[0] == (
        "The probabilities of the list are not calibrated at the end."
    )


def test_recovery_is_explained() -> None:
    recovery = change("2025-02-20", 180, 2 / 3, 60, 13)
    words = calibration_monitor_text(calibration_metrics("kept", 9, ALARM, recovery))
    assert words[2] == (
        "The ranking recovered on 20 February 2025: of the last 60 alerts among the first 67 % of "
        "the list, 12.3 were expected to fail and 13 did. "
        "From then on the first 67 % of the list would have been flagged again."
    )
    whole = change("2025-02-20", 180, 1.0, 60, 13)
    assert calibration_monitor_text(calibration_metrics("kept", 9, ALARM, whole))[2] == (
        "The ranking recovered on 20 February 2025: of the last 60 alerts, 12.3 were expected to "
        "fail and 13 did. "
        "From then on all of the list would have been flagged again."
    )


def test_page_starts_with_miscalibration() -> None:
    fleet = {"blend_variable": FleetMetrics(0.1, (0.05, 0.2))}
    broken = calibration_metrics("broken", 60, ALARM, days=DAYS)
    page = render_report(BacktestReport("variable", fleet=fleet, promise={"variable": broken}))
    assert page.index("its probabilities are not calibrated") < page.index('id="fleet"')
    assert "Miscalibration was detected on 3 February 2025" in page
    holds = render_report(
        BacktestReport("variable", fleet=fleet, promise={"variable": calibration_metrics("kept")})
    )
    assert "its probabilities are not calibrated" not in holds
    assert 'id="calibration-monitor"' in holds
    unknown = render_report(BacktestReport("variable", fleet=fleet, promise={"variable": None}))
    assert "its probabilities are not calibrated" not in unknown


def test_plot_shades_blocked_days() -> None:
    (axes,) = calibration_monitor_plot(DAYS).axes
    (shade,) = axes.patches
    assert isinstance(shade, Rectangle)
    assert (shade.get_x(), shade.get_width()) == (1.5, 2.0)
    assert [np.asarray(line.get_ydata())[-1] for line in axes.lines] == [36.0, 16.0]

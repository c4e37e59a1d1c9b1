from __future__ import annotations

from forewarn.evaluation.detection.fit_assessment import FitAssessment
from forewarn.models.detection.fitting.detector_training import CrossValidation
from forewarn.models.detection.fitting.threshold_fitting import Suspect
from forewarn.pipelines.detection.detection_text import fit_report_lines


def test_report_states_expected_and_found_alarms() -> None:
    alarm = Suspect("job-4", "m3", "joint", 1.5)
    judged = CrossValidation(judged=40, days=12.5, alarms=(alarm,), blind=0.0)
    report = FitAssessment(40, 320, 40, (), judged, (), 7, false_alarms=0.02)
    assert report.figures()["alarms_expected"] == 0.25
    (line,) = [line for line in fit_report_lines(report) if line.startswith("held-out")]
    assert line == (
        "held-out jobs: 1 alarms in 40 tasks assumed healthy, 0.25 expected; job-4: m3 on joint"
    )

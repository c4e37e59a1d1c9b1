"""A verdict as text."""

from __future__ import annotations

import pytest

from forewarn.pipelines.detection.detection_text import verdict_text


@pytest.mark.parametrize(("n", "more"), [(3, ""), (4, " and 1 other"), (5, " and 2 others")])
def test_text_names_three_recovered_machines(n: int, more: str) -> None:
    line = {
        "task": "job",
        "machines": 8,
        "seconds": 0.1,
        "machine": None,
        "not_judged": None,
        "blind": [],
        "too_small": [],
        "observe_only": False,
        "suppressed": [],
        "event": None,
        "jitters": [{"machine": f"m{number}", "seconds": 30} for number in range(n)],
    }
    assert verdict_text(line).endswith(f"m2 deviated for 30 s{more})")

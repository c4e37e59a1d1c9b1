"""Healthy jobs over hours: their pauses, and counts of unexplained standstills."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forewarn.evaluation.simulation.jobs.healthy_job import (
    WRITERS,
    HealthyJob,
    draw_healthy_job,
    healthy_log_lines,
    run_healthy_job,
    stack_capture_times,
)
from forewarn.evaluation.simulation.jobs.simulated_stacks import draw_program
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.studies.false_hang_study import false_hang_text, watch_job

MINUTE = 60.0


def life(**changes: object) -> HealthyJob:
    """Return two hours of 8 ranks with recorder, metrics and logs that report only steps."""
    drawn = draw_healthy_job(8, 2.0, 3)
    plan = replace(drawn.plan, step=60.0, compiling=30.0, is_gloo=False, missing=0.0)
    silent = {"says_save": False, "says_evaluate": False, "says_step": True, "log_every": 1}
    parts = {"has_recorder": True, "has_metrics": True, "has_logs": True, "has_stacks": False}
    often = {"save_every": 1e6, "evaluate_every": 50 * MINUTE, "restart_every": 1e9}
    values = {**silent, **parts, **often, "few_evaluate": True, "plan": plan, **changes}
    return replace(drawn, **values)  # type: ignore[arg-type]


def test_unexplained_evaluation_becomes_hang_late() -> None:
    short = watch_job(run_healthy_job(life(evaluate_takes=10 * MINUTE)))
    assert short.episodes == ()
    assert short.agreed > 0  # standstills occur and are detected
    assert watch_job(run_healthy_job(life(evaluate_takes=60 * MINUTE))).episodes == (
        ("evaluation", "collective and log and metrics"),
    )


def test_first_checkpoint_is_no_hang() -> None:
    own = draw_program(99, np.random.default_rng(1))
    saves = {"has_stacks": True, "program": own, "writers": "rank 0", "save_every": 50 * MINUTE}
    plan = replace(life().plan, end=75 * MINUTE)
    lived = run_healthy_job(life(**saves, plan=plan, evaluate_every=1e9, save_takes=10 * MINUTE))
    watched = watch_job(lived)
    assert watched.episodes == ()
    assert watched.agreed > 0  # standstills occur and are detected


@pytest.mark.parametrize(
    ("writers", "expected"),
    [
        ("rank 0", [0]),
        ("first copy", [0, 1]),
        ("one a machine", [0, 2, 4, 6]),
        ("all", [*range(8)]),
    ],
)
def test_checkpoint_writers(writers: str, expected: list[int]) -> None:
    assert np.flatnonzero(WRITERS[writers](life().plan.layout)).tolist() == expected


def test_healthy_job_continues_after_restart() -> None:
    lived = run_healthy_job(life(save_every=30 * MINUTE, restart_every=3600.0, says_restart=True))
    kinds = [kind for kind, _, _ in lived.pauses]
    assert {"first step", "checkpoint", "evaluation", "restart"} == {*kinds}
    assert kinds[kinds.index("restart") + 1] == "first step"
    begins, ends = ([span[n] for span in lived.pauses] for n in (1, 2))
    assert all(b >= e - 1e-9 for b, e in zip(begins[1:], ends, strict=False))  # type: ignore[operator]
    assert np.isfinite(lived.timeline.now).all()
    texts = [text for _, text in healthy_log_lines(lived, 0)]
    assert texts.count("INFO restarting all workers") == kinds.count("restart")
    assert all(
        any(begin + 30 <= moment <= end for _, begin, end in lived.pauses)
        for moment in stack_capture_times(lived)
    )


def test_results_have_bounds_and_episodes() -> None:
    episode = {"seed": 7, "during": "checkpoint", "by": "log and stack"}
    figures = {"jobs": 8, "job_days": 2.0, "quiet": {"checkpoint": 9}, "looks": 5, "agreed": 4}
    bounds = {"a_job_and_day": 0.5, "at_least": 0.03, "at_most": 2.37}
    text = false_hang_text({**figures, **bounds, "episodes": [episode]})
    assert "false hangs: 1, 0.500 per job and day (0.030 to 2.370, each bound at 95 %)" in text
    assert text.endswith("seed 7: during checkpoint, by log and stack")


def test_days_must_be_valid(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["study", "false-hangs", "--days", "0.5"])
    assert left.value.code == 2
    assert "--days" in capsys.readouterr().err

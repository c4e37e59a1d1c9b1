"""Events of recovery from the life of a job."""

from __future__ import annotations

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.response.recovery.job_crash import FaultOrigin, JobCrash
from forewarn.response.recovery.job_run import JobRun, LoggedSave, ReportedStep, RunEnd
from forewarn.response.recovery.life_events import life_events
from forewarn.response.recovery.recovery_state import CheckpointSaved, RungBegun, StepMade
from forewarn.response.state.rung import Rung


def _at(seconds: int) -> Nanoseconds:
    return Nanoseconds(seconds * SECOND)


def test_runs_become_events() -> None:
    """Step 20 is saved, the run fails after step 30, and the next one loads the checkpoint."""
    crash = JobCrash(_at(40), FaultOrigin.IMPLICIT, "hang", "node-1")
    steps = [ReportedStep(_at(number), number) for number in (10, 20, 30)]
    first = JobRun(
        begin=_at(0),
        end=_at(40),
        gpus=8,
        ended=RunEnd.FAILED,
        steps=tuple(steps),
        saves=(LoggedSave(_at(20), _at(22)),),
        crash=crash,
    )
    second = JobRun(
        begin=_at(50),
        end=_at(80),
        gpus=8,
        ended=RunEnd.FAILED,
        rung=Rung.REQUEUE,
        steps=(ReportedStep(_at(60), 30), ReportedStep(_at(70), 40)),
        cause="a machine failed",
    )
    assert list(life_events([first, second])) == [
        CheckpointSaved(_at(22), 20),
        StepMade(_at(10)),
        StepMade(_at(30)),
        crash,
        RungBegun(_at(50), Rung.REQUEUE, is_observed=True),
        CheckpointSaved(_at(50), 20),
        StepMade(_at(60)),
        StepMade(_at(70)),
        JobCrash(_at(80), FaultOrigin.NOT_ONE, "a machine failed"),
    ]

"""Incidents as input of the score: times of detection and isolation, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision
from forewarn.response.state.incident import Incident, Outcome

__all__ = ["ScoredAlert", "StateTimes", "summarize_incident"]

StateTimes = Mapping[int, Mapping[ActionState, Nanoseconds]]
"""First time at which each action reached each state."""


@dataclass(frozen=True, slots=True)
class ScoredAlert:
    """Incident as input of the score. Times are nanoseconds since 1970 UTC.

    Attributes
    ----------
    machine : str
    gpu_serial : str or None
    at : int
        Time of the first finding.
    horizon : int
        End of its validity.
    predicted : bool
        Whether it would drain the machine for a prediction alone.
    left_alone : float or None
        Propensity of the holdout, if the machine was in it; otherwise None.
    outcome : Outcome or None
        None while undetermined.
    failed_at : int or None
    isolated_at, emptied_at, back_at : int or None
        When the machine took no more jobs, was drained, and returned to service or was overridden.
    gpus, job_gpus : int
        GPUs of the machine, and of its job.
    """

    machine: str
    gpu_serial: str | None
    at: Nanoseconds
    horizon: Nanoseconds
    predicted: bool
    left_alone: float | None
    outcome: Outcome | None
    failed_at: Nanoseconds | None = None
    isolated_at: Nanoseconds | None = None
    emptied_at: Nanoseconds | None = None
    back_at: Nanoseconds | None = None
    gpus: int = 0
    job_gpus: int = 0


def summarize_incident(
    incident: Incident,
    decisions: Sequence[Decision],
    moments: StateTimes,
    *,
    failed_at: Nanoseconds | None = None,
    gpus: int = 0,
    job_gpus: int = 0,
) -> ScoredAlert:
    """Return an incident as input of the score.

    Parameters
    ----------
    incident : Incident
        With at least one finding.
    decisions : sequence of Decision
        All decisions about the incident, oldest first.
    moments : mapping of int to mapping of ActionState to int
    failed_at : int or None
        From its outcome.
    gpus, job_gpus : int
    """
    predicting = {f.key for f in incident.findings if f.predicts}
    drains = [
        decision
        for decision in decisions
        if decision.step.isolates and predicting.issuperset(decision.findings)
    ]
    isolating = [action for action in incident.actions if action.step.isolates and action.started]
    return ScoredAlert(
        machine=incident.machine,
        gpu_serial=incident.gpu_serial,
        at=min(finding.at for finding in incident.findings),
        horizon=max(finding.valid_until for finding in incident.findings),
        predicted=bool(drains),
        left_alone=_left_alone(drains, isolating),
        outcome=incident.outcome,
        failed_at=failed_at,
        isolated_at=_first(isolating, moments, ActionState.HOLDING, ActionState.DRAINED),
        emptied_at=_first(isolating, moments, ActionState.DRAINED),
        back_at=_first(isolating, moments, ActionState.RELEASED, ActionState.OVERRIDDEN),
        gpus=gpus,
        job_gpus=job_gpus,
    )


def _left_alone(drains: Sequence[Decision], isolating: Sequence[Action]) -> float | None:
    """Return the propensity with which the machine was left in service; the first one counts.

    A machine of the holdout may be drained later for more than a prediction. In mode observe
    (propensity 1) no action may have followed at all.
    """
    drawn = next((d for d in drains if d.propensity is not None), None)
    if drawn is None:
        return None
    alone = drawn.control or (drawn.propensity == 1.0 and not isolating)
    return drawn.propensity if alone else None


def _first(
    actions: Sequence[Action], moments: StateTimes, *states: ActionState
) -> Nanoseconds | None:
    times = [
        moments[action.id][state]
        for action in actions
        for state in states
        if state in moments.get(action.id, {})
    ]
    return min(times, default=None)

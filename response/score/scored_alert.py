"""Alerts: an incident as the score sees it, when it was found, isolated, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision
from forewarn.response.state.incident import Incident, Outcome

__all__ = ["ScoredAlert", "StateTimes", "summarize_incident"]

StateTimes = Mapping[int, Mapping[ActionState, Nanoseconds]]
"""When each action first came to which state."""


@dataclass(frozen=True, slots=True)
class ScoredAlert:
    """An incident as the score sees it. Times are nanoseconds since 1970 UTC.

    Attributes
    ----------
    machine : str
    gpu_serial : str or None
    at : int
        When it was noticed first.
    horizon : int
        Up to when it was valid.
    predicted : bool
        It would have taken the machine out for a prediction alone.
    left_alone : float or None
        With which probability it was left alone, if it was; None if it was not, or if that was
        no matter of chance.
    outcome : Outcome or None
        None: not known yet.
    failed_at : int or None
    isolated_at, emptied_at, back_at : int or None
        When the machine took no more jobs, had none left, and was given back or taken over.
    gpus, job_gpus : int
        Of the machine, and of the job that ran on it.
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
    """Return an incident as the score sees it.

    Parameters
    ----------
    incident : Incident
        With at least one finding.
    decisions : sequence of Decision
        All of the incident, oldest first.
    moments : mapping of int to mapping of ActionState to int
    failed_at : int or None
        By its outcome.
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
    """Return the probability of the lot that left the machine in service; the first lot counts.

    One of the control share may still be taken out later, for more than a prediction. Where
    nobody acted, nobody may have acted later, either.
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

"""Release: when a machine goes back into service, and when a person has to give it back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import FindingKind, Provenance
from forewarn.response.state.incident import Incident
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import Step

__all__ = ["CheckVerdict", "Release", "ReleaseMethod", "decide_release", "release_due_at"]


_CONFIRMING_KINDS = frozenset({FindingKind.FAILURE, FindingKind.CHECK, FindingKind.DIAGNOSIS})


class ReleaseMethod(StrEnum):
    """What is done to give a machine back: undo it, run the site's check first, or keep it."""

    UNDO = "undo"
    CHECK = "check"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """How the site's check of a machine ended, at `at` in nanoseconds since 1970 UTC."""

    passed: bool
    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class Release:
    """What becomes of an action that holds, and why."""

    way: ReleaseMethod
    why: str


def decide_release(
    action: Action,
    incident: Incident,
    *,
    check: CheckVerdict | None,
    settings: ResponseSettings,
    now: Nanoseconds,
) -> Release | None:
    """Return whether an action that holds is to be undone; None as long as it is to go on.

    Parameters
    ----------
    action : Action
    incident : Incident
        That it was taken for, open or not.
    check : Check or None
        The last one of its machine; one from before the machine was empty does not count.
    settings : ResponseSettings
    now : int
        Nanoseconds since 1970 UTC.
    """
    if action.state not in (ActionState.HOLDING, ActionState.DRAINED):
        return None
    over = release_due_at(action, incident)
    if over is not None and now < over:
        return None
    if action.step is Step.AVOID:
        return Release(ReleaseMethod.UNDO, "what it was avoided for is over")
    if over is not None:
        return _release_prediction(action, check, settings)
    if action.step is Step.CHECK and action.state is ActionState.DRAINED:
        return _release_by_check(action, check, "the check that it was taken out for")
    return None


def release_due_at(action: Action, incident: Incident) -> Nanoseconds | None:
    """Return when what an action was taken for is over; None if a person gives the machine back."""
    if action.step is not Step.AVOID and not _predicted(action, incident):
        return None
    ends = [f.valid_until for f in incident.findings if f.machine == action.machine]
    return max([action.valid_until, *ends])


def _predicted(action: Action, incident: Incident) -> bool:
    """Tell whether a machine was taken out for a prediction, and nothing has proved it since."""
    causes = [f for f in incident.findings if f.cause == action.cause]
    proved = any(
        f.kind in _CONFIRMING_KINDS and f.vouched is Provenance.HOST for f in incident.findings
    )
    return bool(causes) and all(finding.predicts for finding in causes) and not proved


def _release_prediction(
    action: Action, check: CheckVerdict | None, settings: ResponseSettings
) -> Release:
    words = "the prediction did not come true in its horizon"
    if settings.keep_drained:
        return Release(ReleaseMethod.KEEP, f"{words}; it stays out until a person gives it back")
    if action.state is ActionState.HOLDING:
        # Its jobs ran on throughout: it never left service, and a check would disturb them.
        return Release(ReleaseMethod.UNDO, f"{words}, and its jobs are still running")
    return _release_by_check(action, check, words)


def _release_by_check(action: Action, check: CheckVerdict | None, words: str) -> Release:
    if check is None or check.at < action.changed_at:
        return Release(ReleaseMethod.CHECK, f"{words}: the site's check comes before its return")
    if check.passed:
        return Release(ReleaseMethod.UNDO, f"{words}: the check was passed")
    return Release(ReleaseMethod.KEEP, f"{words}: the check failed, a person has to look")

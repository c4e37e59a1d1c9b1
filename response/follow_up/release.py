"""Release: when a machine goes back into service, and when a person has to give it back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import FindingKind, Voucher
from forewarn.response.state.incident import Incident
from forewarn.response.state.settings import ResponseSettings
from forewarn.response.state.step import Step

__all__ = ["Check", "Release", "Way", "over_at", "release"]


_PROOFS = frozenset({FindingKind.FAILURE, FindingKind.CHECK, FindingKind.DIAGNOSIS})


class Way(StrEnum):
    """What is done to give a machine back: undo it, run the site's check first, or keep it."""

    UNDO = "undo"
    CHECK = "check"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Check:
    """How the site's check of a machine ended, at `at` in nanoseconds since 1970 UTC."""

    passed: bool
    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class Release:
    """What becomes of an action that holds, and why."""

    way: Way
    why: str


def release(
    action: Action,
    incident: Incident,
    *,
    check: Check | None,
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
    over = over_at(action, incident)
    if over is not None and now < over:
        return None
    if action.step is Step.AVOID:
        return Release(Way.UNDO, "what it was avoided for is over")
    if over is not None:
        return _of_prediction(action, check, settings)
    if action.step is Step.CHECK and action.state is ActionState.DRAINED:
        return _by_check(action, check, "the check that it was taken out for")
    return None


def over_at(action: Action, incident: Incident) -> Nanoseconds | None:
    """Return when what an action was taken for is over; None if a person gives the machine back."""
    if action.step is not Step.AVOID and not _predicted(action, incident):
        return None
    ends = [f.valid_until for f in incident.findings if f.machine == action.machine]
    return max([action.valid_until, *ends])


def _predicted(action: Action, incident: Incident) -> bool:
    """Tell whether a machine was taken out for a prediction, and nothing has proved it since."""
    causes = [f for f in incident.findings if f.cause == action.cause]
    proved = any(f.kind in _PROOFS and f.vouched is Voucher.HOST for f in incident.findings)
    return bool(causes) and all(finding.predicts for finding in causes) and not proved


def _of_prediction(action: Action, check: Check | None, settings: ResponseSettings) -> Release:
    words = "the prediction did not come true in its horizon"
    if settings.keep:
        return Release(Way.KEEP, f"{words}; it stays out until a person gives it back")
    if action.state is ActionState.HOLDING:
        # Its jobs ran on throughout: it never left service, and a check would disturb them.
        return Release(Way.UNDO, f"{words}, and its jobs are still running")
    return _by_check(action, check, words)


def _by_check(action: Action, check: Check | None, words: str) -> Release:
    if check is None or check.at < action.changed_at:
        return Release(Way.CHECK, f"{words}: the site's check comes before its return")
    if check.passed:
        return Release(Way.UNDO, f"{words}: the check was passed")
    return Release(Way.KEEP, f"{words}: the check failed, a person has to look")

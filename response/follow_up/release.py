"""Release: when a machine returns to service, and when a person has to return it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import FindingKind, Provenance
from forewarn.response.state.incident import Incident
from forewarn.response.state.independent_evidence import independent_evidence
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import Step

__all__ = ["CheckVerdict", "Release", "ReleaseMethod", "decide_release", "release_due_at"]


_CONFIRMING_KINDS = frozenset({FindingKind.FAILURE, FindingKind.CHECK, FindingKind.DIAGNOSIS})


class ReleaseMethod(StrEnum):
    """How a machine is returned: undo the action, run the site's check first, or keep it."""

    UNDO = "undo"
    CHECK = "check"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """Result of the site's check of a machine; `at` is in nanoseconds since 1970 UTC."""

    passed: bool
    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class Release:
    """How a confirmed action is released, and why."""

    way: ReleaseMethod
    why: str


def decide_release(
    action: Action,
    incident: Incident,
    *,
    check: CheckVerdict | None,
    settings: ResponseSettings,
    now: Nanoseconds,
    succeeded: Nanoseconds | None = None,
    offence: str | None = None,
) -> Release | None:
    """Return how to release a confirmed action; None while it continues.

    Parameters
    ----------
    action : Action
    incident : Incident
        Incident of the action, open or not.
    check : CheckVerdict or None
        Last check of its machine; a check from before the machine was drained does not count.
    settings : ResponseSettings
    now : int
        Nanoseconds since 1970 UTC.
    succeeded : int or None, optional
        When the step for which the machine was drained was carried out with success.
    offence : str or None, optional
        Why the machine is a repeat offender, which no passed check returns.
    """
    if action.state not in (ActionState.HOLDING, ActionState.DRAINED):
        return None
    if succeeded is not None and action.state is ActionState.DRAINED:
        release = _release_by_check(action, check, "the step was carried out", since=succeeded)
        return _unless_offender(release, offence)
    over = release_due_at(action, incident)
    if over is not None and now < over:
        return None
    if action.step is Step.AVOID:
        return Release(ReleaseMethod.UNDO, "the reason to avoid it is over")
    if over is not None:
        return _release_prediction(action, check, settings)
    if action.step is Step.CHECK and action.state is ActionState.DRAINED:
        return _unless_offender(_release_by_check(action, check, "drained for a check"), offence)
    return None


def _unless_offender(release: Release, offence: str | None) -> Release:
    """Keep a repeat offender out until its board is swapped, or a person returns it by name."""
    if release.way is not ReleaseMethod.UNDO or offence is None:
        return release
    return Release(ReleaseMethod.KEEP, f"repeat offender, {offence}: a person has to return it")


def release_due_at(action: Action, incident: Incident) -> Nanoseconds | None:
    """Return when the purpose of an action ends; None if a person returns the machine."""
    if action.step is not Step.AVOID and not _predicted(action, incident):
        return None
    ends = [f.valid_until for f in incident.findings if f.machine == action.machine]
    return max([action.valid_until, *ends])


def _predicted(action: Action, incident: Incident) -> bool:
    """Tell whether a machine was drained for a prediction that nothing has confirmed since."""
    causes = [f for f in incident.findings if f.cause == action.cause]
    proving = [f for f in incident.findings if f.kind in _CONFIRMING_KINDS]
    proved = any(
        f.vouched is Provenance.HOST and independent_evidence(f, cause)
        for f in proving
        for cause in causes
    )
    return bool(causes) and all(finding.predicts for finding in causes) and not proved


def _release_prediction(
    action: Action, check: CheckVerdict | None, settings: ResponseSettings
) -> Release:
    words = "no failure within the horizon of the prediction"
    if settings.keep_drained:
        return Release(ReleaseMethod.KEEP, f"{words}; drained until a person returns it")
    if action.state is ActionState.HOLDING:
        # Jobs ran throughout, so it never left service, and a check would disturb them.
        return Release(ReleaseMethod.UNDO, f"{words}; its jobs are still running")
    return _release_by_check(action, check, words)


def _release_by_check(
    action: Action, check: CheckVerdict | None, words: str, since: Nanoseconds | None = None
) -> Release:
    if check is None or check.at < (action.changed_at if since is None else since):
        return Release(ReleaseMethod.CHECK, f"{words}: the site's check runs before its return")
    if check.passed:
        return Release(ReleaseMethod.UNDO, f"{words}: the check passed")
    return Release(ReleaseMethod.KEEP, f"{words}: the check failed, a person has to look")

"""Groups of causes, few enough for a label of a metric."""

from __future__ import annotations

from enum import StrEnum

from forewarn.response.policy.certain_damage import is_certain_cause
from forewarn.response.state.finding import MANUAL_CAUSE, is_predicted_cause

__all__ = ["CauseGroup", "cause_group"]


class CauseGroup(StrEnum):
    """What an action rests on: a prediction, certain damage, a person, or other evidence."""

    PREDICTION = "prediction"
    CERTAIN_DAMAGE = "certain_damage"
    PERSON = "person"
    OTHER = "other"


def cause_group(cause: str) -> CauseGroup:
    """Return the group of an action's cause.

    Examples
    --------
    >>> cause_group("xid 79").value, cause_group("check by nhc").value
    ('certain_damage', 'other')
    """
    if is_predicted_cause(cause):
        return CauseGroup.PREDICTION
    if is_certain_cause(cause):
        return CauseGroup.CERTAIN_DAMAGE
    return CauseGroup.PERSON if cause == MANUAL_CAUSE else CauseGroup.OTHER

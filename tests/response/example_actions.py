"""Actions for tests."""

from __future__ import annotations

from typing import Any

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action
from forewarn.response.state.step import DrainMode, Step


def drain(at: Nanoseconds, valid_until: Nanoseconds, **fields: Any) -> Action:
    """Return action 17, which drains the only machine of incident 1 in mode `finish`."""
    values: dict[str, Any] = {
        **{"id": 17, "incident": 1, "machine": "n0", "pool": "train", "rack": None, "job": None},
        **{"cause": "xid 79", "step": Step.DRAIN, "mode": DrainMode.FINISH, "changed_at": at},
    }
    return Action(at=at, valid_until=valid_until, **(values | fields))

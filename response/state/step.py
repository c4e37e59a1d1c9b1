"""Steps: what can be done about a machine, the mildest first."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["DrainMode", "Step"]


class Step(StrEnum):
    """What is done about a machine.

    `TELL` and `AVOID` leave it in service; all others begin by taking it out (`isolates`).
    """

    TELL = "tell"
    AVOID = "avoid"
    DRAIN = "drain"
    CHECK = "check"
    RESET = "reset"
    RESTART = "restart"
    REPLACE = "replace"

    @property
    def rank(self) -> int:
        """Place in the order, 0 for the mildest."""
        return _RANKS[self]

    @property
    def isolates(self) -> bool:
        """Tell whether the machine has to be out of service for it."""
        return self.rank >= Step.DRAIN.rank


_RANKS = {step: number for number, step in enumerate(Step)}


class DrainMode(StrEnum):
    """What becomes of the jobs on a machine that is drained.

    `FINISH` lets them run out; `DEADLINE` lets them run until the finding ends, and requeues
    them then; `NOW` requeues them at once.
    """

    FINISH = "finish"
    DEADLINE = "deadline"
    NOW = "now"

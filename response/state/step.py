"""Steps that can be taken about a machine, and drain modes."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["DrainMode", "Step"]


class Step(StrEnum):
    """Step about a machine, least disruptive first.

    `TELL` and `AVOID` leave it in service; all others start by taking it out of service
    (`isolates`).
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
        """Position in the order, 0 for the least disruptive."""
        return _RANKS[self]

    @property
    def isolates(self) -> bool:
        """Tell whether the step takes the machine out of service."""
        return self.rank >= Step.DRAIN.rank


_RANKS = {step: number for number, step in enumerate(Step)}


class DrainMode(StrEnum):
    """What happens to the jobs of a drained machine.

    `FINISH`: they run to their end; `DEADLINE`: they are requeued when the finding expires;
    `MOVED`: the scheduler itself moves them as soon as the machine is closed, which counts as
    ending them; `NOW`: they are requeued at once.
    """

    FINISH = "finish"
    DEADLINE = "deadline"
    MOVED = "moved"
    NOW = "now"

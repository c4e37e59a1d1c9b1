"""Commands by which a site carries out steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.response.state.step import Step

__all__ = ["DEFAULT_TIMEOUTS", "REMEDIES", "SiteStep"]

REMEDIES: Final = (Step.RESET, Step.RESTART, Step.REPLACE)
"""Steps that change a machine after it was drained, mildest first."""

DEFAULT_TIMEOUTS: Final = {
    Step.RESET: Nanoseconds(10 * MINUTE),
    Step.RESTART: Nanoseconds(30 * MINUTE),
    Step.REPLACE: Nanoseconds(30 * MINUTE),
}
"""Until the durations of a site are known."""


@dataclass(frozen=True, slots=True)
class SiteStep:
    """How a step is carried out.

    Attributes
    ----------
    command : tuple of str
        Program and arguments, run without a shell; empty if the scheduler carries it out.
    timeout : int
        Nanoseconds after which it counts as failed.
    needs_idle : bool
        Whether it waits until no job is left on the machine.
    """

    command: tuple[str, ...]
    timeout: Nanoseconds
    needs_idle: bool = True

"""Clocks: whether what is decided by time may rest on ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from forewarn.features.time_units import MINUTE, SECOND, Nanoseconds

__all__ = ["NO_SECOND_CLOCK", "ClockReadings"]

NO_SECOND_CLOCK: Final = "no second clock confirms ours"

_MAX_DISAGREEMENT: Final = Nanoseconds(5 * MINUTE)
_MAX_CALLER_SKEW: Final = SECOND  # of two hosts that call the loop


@dataclass(frozen=True, slots=True)
class ClockReadings:
    """What several clocks say at the begin of one call, in nanoseconds since 1970 UTC.

    Nothing irreversible rests on one clock: one that is a day ahead reaches every deadline, ends
    every rest after an override, and makes every prediction one that did not come true.

    Attributes
    ----------
    now : int
        By the clock of this machine.
    every : int
        Nanoseconds from one call to the next.
    scheduler, database : int or None
        By their own clocks; None if they do not tell.
    last_call : int or None
        By the clock of whoever called the loop last; None if there was no call before.
    """

    now: Nanoseconds
    every: Nanoseconds
    scheduler: Nanoseconds | None = None
    database: Nanoseconds | None = None
    last_call: Nanoseconds | None = None

    def __str__(self) -> str:
        """Return what each clock says."""
        names = {"ours": self.now, "scheduler": self.scheduler, "database": self.database}
        names["last call"] = self.last_call
        return ", ".join(f"{name} {_in_words(at)}" for name, at in names.items() if at is not None)

    @property
    def is_alone(self) -> bool:
        """Tell whether no other clock says what ours says."""
        return self.scheduler is None and self.database is None

    def disagreement(self) -> str:
        """Return which clocks contradict ours, in words that stay the same; empty if none does."""
        return "; ".join(self._contradictions())

    def _contradictions(self) -> Iterator[str]:
        for name, time in (("scheduler", self.scheduler), ("database", self.database)):
            if time is not None and abs(time - self.now) > _MAX_DISAGREEMENT:
                way = "ahead of" if self.now > time else "behind"
                yield f"our clock is more than 5 minutes {way} that of the {name}"
        if self.last_call is not None and self.now < self.last_call - _MAX_CALLER_SKEW:
            yield "our clock is behind the last call of the loop"

    def interruption(self) -> str:
        """Return that nothing tells a jump of our clock from a pause; empty if something does."""
        if not self.is_alone or self.last_call is None:
            return ""
        if self.now - self.last_call <= self.every + _MAX_DISAGREEMENT:
            return ""
        return f"the last call of the loop is long ago by our clock, and {NO_SECOND_CLOCK}"


def _in_words(at: Nanoseconds) -> str:
    return datetime.fromtimestamp(at // SECOND, UTC).isoformat()

"""Clock readings: whether the local clock agrees with other clocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from forewarn.features.time_units import MINUTE, SECOND, Nanoseconds

__all__ = ["NO_SECOND_CLOCK", "ClockReadings"]

NO_SECOND_CLOCK: Final = "no second clock confirms the local one"

_MAX_DISAGREEMENT: Final = Nanoseconds(5 * MINUTE)
_MAX_CALLER_SKEW: Final = SECOND  # between two hosts that run the loop


@dataclass(frozen=True, slots=True)
class ClockReadings:
    """Readings of several clocks at the start of one call, in nanoseconds since 1970 UTC.

    Nothing irreversible depends on one clock. A clock that is a day ahead would reach every
    deadline, expire every override, and fail every prediction.

    Attributes
    ----------
    now : int
        Clock of this machine.
    every : int
        Nanoseconds between two calls.
    scheduler, database : int or None
        Their own clocks; None if they report no time.
    last_call : int or None
        Time of the previous call, by the clock of its host; None for the first call.
    """

    now: Nanoseconds
    every: Nanoseconds
    scheduler: Nanoseconds | None = None
    database: Nanoseconds | None = None
    last_call: Nanoseconds | None = None

    def __str__(self) -> str:
        """Return all readings as text."""
        names = {"ours": self.now, "scheduler": self.scheduler, "database": self.database}
        names["last call"] = self.last_call
        return ", ".join(f"{name} {_in_words(at)}" for name, at in names.items() if at is not None)

    @property
    def is_alone(self) -> bool:
        """Tell whether neither the scheduler nor the database reports a time."""
        return self.scheduler is None and self.database is None

    def disagreement(self) -> str:
        """Return which clocks disagree with the local one, in stable words; empty if none does."""
        return "; ".join(self._contradictions())

    def _contradictions(self) -> Iterator[str]:
        for name, time in (("scheduler", self.scheduler), ("database", self.database)):
            if time is not None and abs(time - self.now) > _MAX_DISAGREEMENT:
                way = "ahead of" if self.now > time else "behind"
                yield f"the local clock is more than 5 minutes {way} that of the {name}"
        if self.last_call is not None and self.now < self.last_call - _MAX_CALLER_SKEW:
            yield "the local clock is behind the last call of the loop"

    def interruption(self) -> str:
        """Return a warning if a clock jump cannot be told from a pause; empty otherwise."""
        if not self.is_alone or self.last_call is None:
            return ""
        if self.now - self.last_call <= self.every + _MAX_DISAGREEMENT:
            return ""
        return f"the last call of the loop is long ago by the local clock, and {NO_SECOND_CLOCK}"


def _in_words(at: Nanoseconds) -> str:
    return datetime.fromtimestamp(at // SECOND, UTC).isoformat()

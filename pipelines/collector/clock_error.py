"""A batch that is not taken because of its clock, and what its sender is told."""

from __future__ import annotations

from forewarn.features.time_units import SECOND
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = ["ClockError"]


class ClockError(RefusedError):
    """A batch of the future: it is taken when its time has come, or the clock is set right.

    Nothing of it is taken, fault reports neither: a time that we made up would be a label that
    nobody measured. The sender keeps it, so nothing is lost either.

    Attributes
    ----------
    host : str
    ahead : int
        Nanoseconds.
    """

    def __init__(self, host: str, ahead: int, now: int) -> None:
        self.host, self.ahead, self.now = host, ahead, now
        super().__init__(409, f"{host}: a row is {ahead / SECOND:.0f} s ahead of this clock")

    def answer(self) -> dict[str, object]:
        """Return what the sender is told, as JSON holds it."""
        return {"error": "clock", "detail": str(self), "now": format_iso(self.now)}

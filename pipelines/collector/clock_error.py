"""Refusal of a batch because of clock skew."""

from __future__ import annotations

from forewarn.features.time_units import SECOND
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = ["ClockError"]


class ClockError(RefusedError):
    """A batch whose time is in the future.

    Nothing of it is accepted, not even fault reports, because a corrected time would be an invented
    label. The sender keeps the batch and retries it, so that no data is lost.

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
        """Return the JSON body of the response."""
        return {"error": "clock", "detail": str(self), "now": format_iso(self.now)}

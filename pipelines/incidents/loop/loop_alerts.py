"""Alerts of the loop; each is raised once until it changes or ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.audit import add_note
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.messages.site_messages import SiteMessages

__all__ = ["CLOCK", "HIGH_OUTAGE", "MARKS", "LoopAlerts"]

CLOCK: Final = "clock"
HIGH_OUTAGE: Final = "out of service"
MARKS: Final = "marks"

_ACT: Final = "alert"  # kind of note in the ledger


@dataclass(frozen=True, slots=True)
class LoopAlerts:
    """Alerts remembered in the ledger, because with `--once` each round is another process.

    Attributes
    ----------
    ledger : Ledger
    warn : callable
        Takes the subject of an alert and its text, and must not wait.
    messages : SiteMessages or None
        Sends the alerts.
    """

    ledger: Ledger
    warn: Callable[[str, str], None]
    messages: SiteMessages | None = None

    def raise_new(self, troubles: Mapping[str, str], now: Nanoseconds) -> None:
        """Raise an alert for each new problem.

        Parameters
        ----------
        troubles : mapping of str to str
            Text of each alert by its subject; an empty text ends the alert.
        now : int
            Nanoseconds since 1970 UTC.
        """
        last = self.ledger.last_notes(_ACT, troubles) if troubles else {}
        for subject, text in troubles.items():
            if text == last.get(subject, ""):
                continue
            if text:
                self.warn("respond", text)
            with self.ledger.database.writing() as connection:
                add_note(connection, now=now, who="forewarn", act=_ACT, target=subject, detail=text)
                if text and self.messages is not None:
                    self.messages.add_alert(connection, text, now)

"""Alerts of the loop: each is raised once, and again when it has changed or has been over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger

__all__ = ["CLOCK", "HIGH_OUTAGE", "MARKS", "LoopAlerts"]

CLOCK: Final = "clock"
HIGH_OUTAGE: Final = "out of service"
MARKS: Final = "marks"

_ACT: Final = "alert"  # of a note


@dataclass(frozen=True, slots=True)
class LoopAlerts:
    """Alerts that the ledger remembers: with `--once` each call is another process.

    Attributes
    ----------
    ledger : Ledger
    warn : callable
        Takes what an alert is about, and its words.
    """

    ledger: Ledger
    warn: Callable[[str, str], None]

    def raise_new(self, troubles: Mapping[str, str], now: Nanoseconds) -> None:
        """Raise an alert about each trouble that is new.

        Parameters
        ----------
        troubles : mapping of str to str
            By what an alert is about, its words; empty words end it.
        now : int
            Nanoseconds since 1970 UTC.
        """
        for about, words in troubles.items():
            if words == self.ledger.last_words(_ACT, about):
                continue
            if words:
                self.warn("respond", words)
            self.ledger.note(now=now, who="forewarn", act=_ACT, target=about, detail=words)

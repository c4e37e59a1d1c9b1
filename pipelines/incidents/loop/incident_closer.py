"""Closing: machines that go back to service, checks before that, and what came of incidents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import ActionChange
from forewarn.pipelines.incidents.ledger.service_log import read_service
from forewarn.pipelines.incidents.loop.check_process import (
    BEGUN,
    FAILED,
    PASSED,
    CheckJob,
    start_check,
)
from forewarn.pipelines.incidents.loop.site_check import SiteCheck
from forewarn.pipelines.incidents.schedulers.driver import Driver, DriverError
from forewarn.pipelines.runtime.progress import note
from forewarn.response.follow_up.outcome_assessment import GroundTruth, assess_outcome, can_close
from forewarn.response.follow_up.release import CheckVerdict, ReleaseMethod, decide_release
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import Step

__all__ = ["IncidentCloser"]

_MAX_PARALLEL_CHECKS = 8  # at once; each is a process of its own


@dataclass(slots=True)
class IncidentCloser:
    """What ends actions and incidents.

    Attributes
    ----------
    ledger : Ledger
    driver : Driver or None
    check : SiteCheck or None
        None: the site has none. Then a machine whose prediction did not come true goes back
        without, and one that was taken out for a check stays out until a person gives it back.
    settings : ResponseSettings
    """

    ledger: Ledger
    driver: Driver | None
    check: SiteCheck | None
    settings: ResponseSettings
    _running: int | None = field(default=None, init=False)

    def release(self, action: Action, incident: Incident, now: Nanoseconds) -> None:
        """Give a machine back if it is time; the site's check comes first, beside the loop."""
        last = self._last_check(action)
        way = decide_release(action, incident, check=last, settings=self.settings, now=now)
        if way is None or way.way is ReleaseMethod.KEEP:
            return
        if way.way is ReleaseMethod.CHECK and self.check is None and action.step is Step.CHECK:
            return  # what was to be checked was not: a person has to look
        if way.way is ReleaseMethod.CHECK and self.check is not None:
            self._run_check(self.check, action, now)
        else:
            self._undo(action, way.why, now)

    def _undo(self, action: Action, why: str, now: Nanoseconds) -> None:
        releasing = self.ledger.advance(action, ActionState.RELEASING, now=now, detail=why)
        if releasing is None or self.driver is None:
            return
        try:
            self.driver.undo(releasing)
        except DriverError as error:
            note(f"{action.machine}: not released yet ({error})")

    def _last_check(self, action: Action) -> CheckVerdict | None:
        for change in reversed(self.ledger.action_states(action.id)):
            if change.detail.startswith((PASSED, FAILED)):
                return CheckVerdict(change.detail.startswith(PASSED), change.at)
        return None

    def _begins(self, check: SiteCheck, action: Action, now: Nanoseconds) -> list[ActionChange]:
        """Return the checks of a machine that were begun lately, and what came after the last.

        Whatever came of one, the next one comes twice the limit after its begin at the earliest.
        """
        changes = self.ledger.action_states(action.id)
        for row, change in enumerate(changes):
            if change.detail == BEGUN and now < change.at + check.timeout * 2 * SECOND:
                return [c for c in changes[row:] if c.detail.startswith("check ")]
        return []

    def _all_busy(self, check: SiteCheck, now: Nanoseconds) -> bool:
        """Tell whether as many checks run as may at once."""
        if self._running is None:
            begins = [self._begins(check, other, now) for other in self.ledger.open_actions()]
            self._running = sum(bool(b) and b[-1].detail == BEGUN for b in begins)
        return self._running >= _MAX_PARALLEL_CHECKS

    def _run_check(self, check: SiteCheck, action: Action, now: Nanoseconds) -> None:
        """Have a machine checked where nothing else runs; a process writes down what comes of it.

        The ledger knows of it first: another responder leaves it alone, and so do we.
        """
        if self.driver is None or self._begins(check, action, now) or self._all_busy(check, now):
            return
        begun = self.ledger.advance(action, action.state, now=now, detail=BEGUN)
        if begun is None:
            return
        try:
            self.driver.reserve(action)
            start_check(
                CheckJob(
                    ledger=self.ledger.database.address,
                    command=check.command,
                    timeout=check.timeout,
                    machine=action.machine,
                    action=action.id,
                    version=begun.version,
                    begun_at=now,
                )
            )
        except (DriverError, OSError) as error:
            note(f"{action.machine}: not checked yet ({error})")
        self._running = (self._running or 0) + 1

    def close(
        self,
        incident: Incident,
        proofs: Mapping[str, list[GroundTruth]],
        *,
        seen_until: Nanoseconds,
        now: Nanoseconds,
    ) -> None:
        """Say what came of an incident, and close it, once that is known."""
        judgement = assess_outcome(
            incident,
            ground_truth=proofs.get(incident.machine, []),
            service=read_service(self.ledger, incident.machine, until=seen_until),
            settings=self.settings,
            now=now,
        )
        if judgement is None:
            return
        if incident.outcome is None:
            self.ledger.outcome(
                incident.id,
                judgement.outcome,
                now=now,
                who="forewarn",
                why=judgement.why,
                failed_at=judgement.failed_at,
                known_at=judgement.known_at,
            )
        if can_close(incident, now):
            self.ledger.end_incident(
                incident.id, IncidentState.CLOSED, now=now, who="forewarn", why=judgement.why
            )

"""Release of actions, site checks before a return to service, and outcomes of incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import (
    CHECK_BEGUN,
    CHECK_FAILED,
    CHECK_PASSED,
    ActionChange,
)
from forewarn.pipelines.incidents.ledger.step_changes import read_changes
from forewarn.pipelines.incidents.loop.check_process import start_check
from forewarn.pipelines.incidents.loop.detached_process import AwaitedCommand
from forewarn.pipelines.incidents.loop.site_check import SiteCheck
from forewarn.pipelines.incidents.repairs.repair_events import read_repair_cases
from forewarn.pipelines.incidents.schedulers.driver import Driver, DriverError
from forewarn.pipelines.runtime.progress import note
from forewarn.response.follow_up.outcome_assessment import (
    GroundTruth,
    ServiceSpan,
    assess_outcome,
    can_close,
)
from forewarn.response.follow_up.release import CheckVerdict, ReleaseMethod, decide_release
from forewarn.response.follow_up.step_progress import succeeded_at
from forewarn.response.repair.repeat_offenders import offender_text
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.site_step import REMEDIES
from forewarn.response.state.step import Step

__all__ = ["IncidentCloser", "last_check"]

_MAX_PARALLEL_CHECKS = 8  # site checks, each in its own process


def last_check(ledger: Ledger, action: int) -> CheckVerdict | None:
    """Return the last result of a site check during an action; None if there is none."""
    for change in reversed(ledger.action_states(action)):
        if change.detail.startswith((CHECK_PASSED, CHECK_FAILED)):
            return CheckVerdict(change.detail.startswith(CHECK_PASSED), change.at)
    return None


@dataclass(slots=True)
class IncidentCloser:
    """Ends actions and incidents.

    Attributes
    ----------
    ledger : Ledger
    driver : Driver or None
    check : SiteCheck or None
        None: the site has no check. A machine with a prediction that did not come true then returns
        to service without one; a machine that was drained for a check stays out until a person
        returns it.
    settings : ResponseSettings
    """

    ledger: Ledger
    driver: Driver | None
    check: SiteCheck | None
    settings: ResponseSettings
    _running: int | None = field(default=None, init=False)

    def release(self, action: Action, incident: Incident, now: Nanoseconds) -> None:
        """Return a machine to service if its action is over, after the site check."""
        changes = read_changes(self.ledger, action.id) if action.step in REMEDIES else []
        check = last_check(self.ledger, action.id)
        offence = None
        if check is not None and check.passed:
            cases = read_repair_cases(self.ledger, now, action.machine)
            offence = offender_text(action.machine, cases, now)
        decision = decide_release(
            action,
            incident,
            check=check,
            offence=offence,
            settings=self.settings,
            now=now,
            succeeded=succeeded_at(changes),
        )
        if decision is None or decision.way is ReleaseMethod.KEEP:
            return
        if decision.way is ReleaseMethod.CHECK and self.check is None and action.step is Step.CHECK:
            return  # the check did not happen: a person has to look
        if decision.way is ReleaseMethod.CHECK and self.check is not None:
            self._run_check(self.check, action, now)
        else:
            self._undo(action, decision.why, now)

    def _undo(self, action: Action, why: str, now: Nanoseconds) -> None:
        releasing = self.ledger.advance(action, ActionState.RELEASING, now=now, detail=why)
        if releasing is None or self.driver is None:
            return
        try:
            self.driver.undo(releasing)
        except DriverError as error:
            note(f"{action.machine}: release failed, will retry ({error})")

    def _recent_check_changes(
        self, check: SiteCheck, action: Action, now: Nanoseconds
    ) -> list[ActionChange]:
        """Return the changes from the last recent start of a check on; empty if there is none.

        The next check starts at the earliest twice the time limit after the last start, whatever
        its result.
        """
        changes = self.ledger.action_states(action.id)
        for row, change in enumerate(changes):
            if change.detail == CHECK_BEGUN and now < change.at + check.timeout * 2 * SECOND:
                return [c for c in changes[row:] if c.detail.startswith("check ")]
        return []

    def _at_check_limit(self, check: SiteCheck, now: Nanoseconds) -> bool:
        """Tell whether the maximum number of checks is running."""
        if self._running is None:
            recent = [
                self._recent_check_changes(check, other, now)
                for other in self.ledger.open_actions()
            ]
            self._running = sum(bool(r) and r[-1].detail == CHECK_BEGUN for r in recent)
        return self._running >= _MAX_PARALLEL_CHECKS

    def _run_check(self, check: SiteCheck, action: Action, now: Nanoseconds) -> None:
        """Start the check of a machine in a separate process that records the result.

        The start is recorded in the ledger first, so that no responder starts the check twice.
        """
        if (
            self.driver is None
            or self._recent_check_changes(check, action, now)
            or self._at_check_limit(check, now)
        ):
            return
        started = self.ledger.advance(action, action.state, now=now, detail=CHECK_BEGUN)
        if started is None:
            return
        try:
            self.driver.reserve(action)
            start_check(
                AwaitedCommand(
                    ledger=self.ledger.database.address,
                    command=check.command,
                    timeout=check.timeout,
                    machine=action.machine,
                    action=action.id,
                    version=started.version,
                    begun_at=now,
                )
            )
        except (DriverError, OSError) as error:
            note(f"{action.machine}: check could not be started, will retry ({error})")
        self._running = (self._running or 0) + 1

    def close(
        self,
        incident: Incident,
        ground_truth: Mapping[str, list[GroundTruth]],
        service: Sequence[ServiceSpan],
        *,
        now: Nanoseconds,
    ) -> None:
        """Record the outcome of an incident and close it, once the outcome is known."""
        assessment = assess_outcome(
            incident,
            ground_truth=ground_truth.get(incident.machine, []),
            service=service,
            settings=self.settings,
            now=now,
        )
        if assessment is None:
            return
        if incident.outcome is None:
            self.ledger.outcome(
                incident.id,
                assessment.outcome,
                now=now,
                who="forewarn",
                why=assessment.why,
                failed_at=assessment.failed_at,
                known_at=assessment.known_at,
            )
        if can_close(incident, now):
            self.ledger.end_incident(
                incident.id, IncidentState.CLOSED, now=now, who="forewarn", why=assessment.why
            )

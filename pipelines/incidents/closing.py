"""Closing: machines that go back to service, checks before that, and what came of incidents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.driver import Driver, DriverError
from forewarn.pipelines.incidents.ledger import Ledger
from forewarn.pipelines.incidents.service_log import services_of
from forewarn.pipelines.incidents.site_check import CheckResult, CheckState, SiteCheck
from forewarn.pipelines.runtime.progress import note
from forewarn.response.action import Action, ActionState
from forewarn.response.finding import Finding, FindingKind, Severity
from forewarn.response.incident import Incident, IncidentState
from forewarn.response.outcome import Proof, judge
from forewarn.response.release import Check, Way, release
from forewarn.response.settings import ResponseSettings

__all__ = ["Closing"]

_BEGUN, _PASSED, _FAILED = "check begun", "check passed", "check failed"


@dataclass(slots=True)
class Closing:
    """What ends actions and incidents.

    Attributes
    ----------
    ledger : Ledger
    driver : Driver or None
    check : SiteCheck or None
        None: the site has none, and a machine goes back without.
    settings : ResponseSettings
    """

    ledger: Ledger
    driver: Driver | None
    check: SiteCheck | None
    settings: ResponseSettings
    _checked: bool = False

    def release(self, action: Action, incident: Incident, now: Nanoseconds) -> None:
        """Give a machine back if it is time; the site's check comes first, and is waited for."""
        last = self._last_check(action)
        way = release(action, incident, check=last, settings=self.settings, now=now)
        if way is None or way.way is Way.KEEP:
            return
        if way.way is Way.CHECK and self.check is not None:
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

    def _last_check(self, action: Action) -> Check | None:
        for change in reversed(self.ledger.action_states(action.id)):
            if change.detail.startswith((_PASSED, _FAILED)):
                return Check(change.detail.startswith(_PASSED), change.at)
        return None

    def _claimed(self, check: SiteCheck, action: Action, now: Nanoseconds) -> Action | None:
        """Return the action once it is this responder's to check; None if another one is at it.

        A check takes minutes, and the loop waits for it: there is one in a call.
        """
        for change in self.ledger.action_states(action.id):
            if change.detail == _BEGUN and now < change.at + 2 * check.timeout * 1e9:
                return None
        if self._checked:
            return None
        return self.ledger.advance(action, action.state, now=now, detail=_BEGUN)

    def _run_check(self, check: SiteCheck, action: Action, now: Nanoseconds) -> None:
        """Check a machine where nothing else runs, and write down what came of it."""
        begun = self._claimed(check, action, now)
        if self.driver is None or begun is None:
            return
        self._checked = True
        try:
            self.driver.reserve(action)
            result = check.run(
                action.machine, action=action.id, reservation=f"forewarn-{action.id}"
            )
        except DriverError as error:
            note(f"{action.machine}: not checked yet ({error})")
            return
        if result.state is CheckState.UNKNOWN:  # it says nothing, so it proves nothing
            note(f"{action.machine}: the check said nothing ({result.detail}), it is tried again")
            return
        if not result.passed:  # before the change, which is not made again
            self.ledger.take(self.ledger.unknown([_finding(action, result, now)]), now=now)
        verdict = _PASSED if result.passed else _FAILED
        self.ledger.advance(begun, begun.state, now=now, detail=f"{verdict}: {result.detail}")

    def settle(
        self,
        incident: Incident,
        proofs: Mapping[str, list[Proof]],
        *,
        seen_until: Nanoseconds,
        now: Nanoseconds,
    ) -> None:
        """Say what came of an incident, and close it, once that is known."""
        judgement = judge(
            incident,
            proofs=proofs.get(incident.machine, []),
            service=services_of(self.ledger, incident.machine, until=seen_until),
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
        over = all(not finding.valid(now) for finding in incident.findings)
        if over and not any(action.open for action in incident.actions):
            self.ledger.settle(
                incident.id, IncidentState.CLOSED, now=now, who="forewarn", why=judgement.why
            )


def _finding(action: Action, result: CheckResult, now: Nanoseconds) -> Finding:
    return Finding(
        source="check",
        id=f"{action.machine} action {action.id} version {action.version}",
        kind=FindingKind.CHECK,
        cause="failed check",
        machine=action.machine,
        gpu_serial=action.gpu_serial,
        at=now,
        valid_until=Nanoseconds(now + 7 * 86_400 * 10**9),
        severity=Severity.ERROR,
        evidence={"state": result.state.name.lower(), "detail": result.detail},
    )

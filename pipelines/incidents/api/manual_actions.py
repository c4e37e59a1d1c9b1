"""What people do about incidents: rows of the ledger, which the loop carries out.

The command line and the API share these. None of them touches a machine. Each may be done again:
the second time changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident, IncidentState, Outcome
from forewarn.response.state.step import DrainMode, Step

__all__ = ["ManualActionError", "Operator"]

_DRAIN_VALIDITY: Final = DAY  # a drain by hand that could not be begun by then is forgotten
_MAX_ATTEMPTS: Final = 10  # while the loop changes the same action


class ManualActionError(InputError):
    """What somebody wants cannot be done.

    Attributes
    ----------
    missing : bool
        There is no such incident.
    """

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody who does something, at one moment.

    Attributes
    ----------
    ledger : Ledger
    name : str
        Of the token or the user.
    now : int
        Nanoseconds since 1970 UTC.
    why : str
        In words of one line; may be empty.
    """

    ledger: Ledger
    name: str
    now: Nanoseconds
    why: str = ""

    def approve(self, number: int, decision_at: Nanoseconds | None = None) -> bool:
        """Approve what is proposed for an incident; tell whether that is new.

        Parameters
        ----------
        number : int
        decision_at : int, optional
            Which decision was looked at, nanoseconds since 1970 UTC. Where another one has come
            since, nothing is approved. None approves the last one.

        Raises
        ------
        PersonActError
            If there is no such incident or no decision about it.
        InputError
            If there is another decision by now, it is no proposal, or no longer valid.
        """
        incident = self._incident(number)
        if incident.decision is None:
            raise ManualActionError(
                f"incident {number}: nothing is decided yet, so nothing proposed"
            )
        at = incident.decision.at if decision_at is None else decision_at
        last = self.ledger.approvals([number]).get(number)
        if last is not None and last.decision.at == at:
            return False
        self.ledger.approve(number, at, now=self.now, who=self.name)
        self._note("approve", f"incident {number}", f"{format_iso(at)} {self.why}".strip())
        return True

    def acknowledge(self, number: int) -> bool:
        """Say that an incident is this person's; tell whether that is new.

        Raises
        ------
        PersonActError
            If there is no such incident.
        """
        if self._incident(number).acknowledged:
            return False
        self.ledger.acknowledge(number, now=self.now, who=self.name)
        self._note("ack", f"incident {number}")
        return True

    def undo(self, number: int) -> bool:
        """Have all that was done about an incident taken back; tell whether anything is new.

        Whoever undoes us wins: the incident is overridden, and its cause does not act on this
        machine for a while.

        Raises
        ------
        PersonActError
            If there is no such incident, or it has ended with nothing left to undo.
        """
        incident = self._incident(number)
        released = [self._release(action) for action in incident.actions if action.open]
        if incident.state is IncidentState.OPEN:
            # Whatever the clock of this machine says: not before what is undone.
            at = max([self.now, incident.opened_at, *(a.changed_at for a in incident.actions)])
            self.ledger.end_incident(
                number, IncidentState.OVERRIDDEN, now=at, who=self.name, why=self.why
            )
        elif incident.state is IncidentState.CLOSED and not released:
            raise ManualActionError(f"incident {number}: is closed, and nothing is left to undo")
        changed = incident.state is IncidentState.OPEN or any(released)
        if changed:
            self._note("undo", f"incident {number}")
        return changed

    def record_outcome(
        self, number: int, outcome: Outcome, failed_at: Nanoseconds | None = None
    ) -> bool:
        """Say what came of an incident; tell whether that is new.

        Parameters
        ----------
        number : int
        outcome : Outcome
        failed_at : int, optional
            Of a failure, where its time is known: nanoseconds since 1970 UTC.

        Raises
        ------
        PersonActError
            If there is no such incident, or a failure is to come or is none.
        """
        if self._incident(number).outcome is outcome and failed_at is None:
            return False
        if failed_at is not None and outcome is not Outcome.CONFIRMED:
            raise ManualActionError(
                f"failed_at: only a `confirmed` outcome has it, found `{outcome}`"
            )
        if failed_at is not None and failed_at > self.now:
            raise ManualActionError(
                f"failed_at: found {format_iso(failed_at)}, expected no time to come"
            )
        self.ledger.outcome(
            number,
            outcome,
            now=self.now,
            who=self.name,
            why=self.why,
            failed_at=failed_at,
            known_at=self.now,
        )
        self._note("outcome", f"incident {number}", f"{outcome} {self.why}".strip())
        return True

    def drain(self, machine: str, mode: DrainMode = DrainMode.FINISH) -> tuple[int, bool]:
        """Ask for a machine to be drained; the limits hold for people, too.

        Returns
        -------
        number : int
            Of its incident.
        new : bool
            False where this was asked for already, and is still to be done.
        """
        for incident in self.ledger.incidents(state=IncidentState.OPEN, machine=machine):
            if any(
                _wants(finding, mode) and finding.valid(self.now) for finding in incident.findings
            ):
                return incident.id, False
        finding = self._drain_finding(machine, mode)
        self.ledger.record_findings([finding], now=self.now)
        number = self._number_of(finding)
        self.ledger.decide(self._drain_decision(number, finding, mode))
        self._note("drain", f"machine {machine}", f"{mode} {self.why}".strip())
        return number, True

    def _drain_finding(self, machine: str, mode: DrainMode) -> Finding:
        return Finding(
            source=self.name,
            id=f"drain {machine} {self.now}",
            kind=FindingKind.REPORT,
            cause=MANUAL_CAUSE,
            machine=machine,
            at=self.now,
            valid_until=Nanoseconds(self.now + _DRAIN_VALIDITY),
            severity=Severity.ERROR,
            evidence={"why": self.why, "mode": mode.value},
        )

    def _drain_decision(self, number: int, finding: Finding, mode: DrainMode) -> Decision:
        return Decision(
            incident=number,
            at=self.now,
            ruling=Ruling.ACT,
            step=Step.DRAIN,
            mode=mode,
            severity=Severity.ERROR,
            reason=f"{MANUAL_CAUSE}: {self.why}" if self.why else MANUAL_CAUSE,
            until=None,
            valid_until=finding.valid_until,
            findings=(finding.key,),
            policy_version="",
            who=self.name,
        )

    def _number_of(self, finding: Finding) -> int:
        """Return the incident that a finding of a moment ago has joined."""
        incidents = self.ledger.incidents(state=IncidentState.OPEN, machine=finding.machine)
        for incident in incidents:
            if any(f.key == finding.key for f in incident.findings):
                return incident.id
        raise ManualActionError(
            f"machine {finding.machine}: its incident was closed at once, try again"
        )

    def _release(self, action: Action) -> bool:
        """Have an action taken back, also where the loop changes it meanwhile."""
        current: Action | None = action
        for _ in range(_MAX_ATTEMPTS):
            if current is None or not current.open or current.state is ActionState.RELEASING:
                return False
            detail = self.why or "undone"
            state = ActionState.RELEASING
            if self.ledger.advance(current, state, now=self.now, who=self.name, detail=detail):
                return True
            current = self.ledger.action(action.id)
        raise ManualActionError(f"action {action.id}: is changed all the time, try again")

    def _incident(self, number: int) -> Incident:
        incident = self.ledger.incident(number)
        if incident is None:
            raise ManualActionError(f"incident {number}: there is none", missing=True)
        return incident

    def _note(self, act: str, target: str, detail: str | None = None) -> None:
        words = self.why if detail is None else detail
        self.ledger.note(now=self.now, who=self.name, act=act, target=target, detail=words)


def _wants(finding: Finding, mode: DrainMode) -> bool:
    """Tell whether a finding is a person's wish for this drain."""
    return finding.cause == MANUAL_CAUSE and finding.evidence.get("mode") == mode.value

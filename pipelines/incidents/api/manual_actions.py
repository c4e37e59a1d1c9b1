"""Manual actions on incidents: rows in the ledger that the loop carries out.

The command line and the API share them. None of them changes a machine. All are idempotent, and
each is one transaction with the note on who did it: a process that is killed in the middle of an
act has done it or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger.finding_rows import FindingError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident, IncidentState, Outcome
from forewarn.response.state.step import DrainMode, Step

__all__ = ["ManualActionError", "Operator"]

_DRAIN_VALIDITY: Final = DAY  # a manual drain that has not started by then is dropped

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class ManualActionError(InputError):
    """A manual action is not possible.

    Attributes
    ----------
    missing : bool
        The incident does not exist.
    """

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


def _in_one_transaction(
    act: Callable[Concatenate[Operator, _Arguments], _Result],
) -> Callable[Concatenate[Operator, _Arguments], _Result]:
    """Make all reads and writes of an act one transaction of the ledger."""

    @wraps(act)
    def joined(self: Operator, /, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        with self.ledger.database.transaction():
            return act(self, *args, **options)

    return joined


@dataclass(frozen=True, slots=True)
class Operator:
    """A person who acts on incidents at one moment.

    Attributes
    ----------
    ledger : Ledger
    name : str
        Name of the token or the user.
    now : int
        Nanoseconds since 1970 UTC.
    why : str
        Reason in one line; may be empty.
    """

    ledger: Ledger
    name: str
    now: Nanoseconds
    why: str = ""

    @_in_one_transaction
    def approve(self, number: int, decision_at: Nanoseconds | None = None) -> bool:
        """Approve the proposed step of an incident; return False if it was approved before.

        Parameters
        ----------
        number : int
        decision_at : int, optional
            Time of the decision that the person saw, nanoseconds since 1970 UTC. If a later
            decision exists, nothing is approved. None approves the last decision.

        Raises
        ------
        ManualActionError
            If the incident does not exist or has no decision.
        InputError
            If the decision was replaced, is not a proposal, or is no longer valid.
        """
        incident = self._incident(number)
        if incident.decision is None:
            raise ManualActionError(f"incident {number}: no decision yet, nothing to approve")
        at = incident.decision.at if decision_at is None else decision_at
        last = self.ledger.approvals([number]).get(number)
        if last is not None and last.decision.at == at:
            return False
        self.ledger.approve(number, at, now=self.now, who=self.name)
        self._note("approve", f"incident {number}", f"{format_iso(at)} {self.why}".strip())
        return True

    @_in_one_transaction
    def acknowledge(self, number: int) -> bool:
        """Acknowledge an incident for this person; return False if it was acknowledged before.

        Raises
        ------
        ManualActionError
            If the incident does not exist.
        """
        if self._incident(number).acknowledged:
            return False
        self.ledger.acknowledge(number, now=self.now, who=self.name)
        self._note("ack", f"incident {number}")
        return True

    @_in_one_transaction
    def undo(self, number: int) -> bool:
        """Undo all actions of an incident; return False if nothing changed.

        A manual change takes precedence: the incident is overridden, and for a time its cause does
        not lead to actions on this machine.

        Raises
        ------
        ManualActionError
            If the incident does not exist, or is closed and has no open action.
        """
        incident = self._incident(number)
        released = [self._release(action) for action in incident.actions if action.open]
        if incident.state is IncidentState.OPEN:
            # The clock of this machine may be behind: never before the actions that are undone.
            at = max([self.now, incident.opened_at, *(a.changed_at for a in incident.actions)])
            self.ledger.end_incident(
                number, IncidentState.OVERRIDDEN, now=at, who=self.name, why=self.why
            )
        elif incident.state is IncidentState.CLOSED and not released:
            raise ManualActionError(f"incident {number}: closed, nothing left to undo")
        changed = incident.state is IncidentState.OPEN or any(released)
        if changed:
            self._note("undo", f"incident {number}")
        return changed

    @_in_one_transaction
    def record_outcome(
        self, number: int, outcome: Outcome, failed_at: Nanoseconds | None = None
    ) -> bool:
        """Record the outcome of an incident; return False if it was recorded before.

        Parameters
        ----------
        number : int
        outcome : Outcome
        failed_at : int, optional
            Time of the failure, if known: nanoseconds since 1970 UTC.

        Raises
        ------
        ManualActionError
            If the incident does not exist, or `failed_at` lies in the future or has another outcome
            than `confirmed`.
        """
        if self._incident(number).outcome is outcome and failed_at is None:
            return False
        if failed_at is not None and outcome is not Outcome.CONFIRMED:
            raise ManualActionError(
                f"failed_at: expected with outcome `confirmed` only, got `{outcome}`"
            )
        if failed_at is not None and failed_at > self.now:
            raise ManualActionError(
                f"failed_at: got {format_iso(failed_at)}, expected a time in the past"
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

    @_in_one_transaction
    def drain(self, machine: str, mode: DrainMode = DrainMode.FINISH) -> tuple[int, bool]:
        """Request the drain of a machine. Limits apply as to any other drain.

        Returns
        -------
        number : int
            The incident.
        new : bool
            False if the same drain is requested already and not done yet.

        Raises
        ------
        FindingError
            If the ledger cannot hold the name of the machine.
        """
        for incident in self.ledger.incidents(state=IncidentState.OPEN, machine=machine):
            if any(
                _requests_drain(finding, mode) and finding.valid(self.now)
                for finding in incident.findings
            ):
                return incident.id, False
        finding = self._drain_finding(machine, mode)
        self.ledger.record_findings([finding], now=self.now, refuse=_raise)
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
        """Return the incident that a finding recorded just now has joined."""
        incidents = self.ledger.incidents(state=IncidentState.OPEN, machine=finding.machine)
        return next(i.id for i in incidents if any(f.key == finding.key for f in i.findings))

    def _release(self, action: Action) -> bool:
        """Start the release of an action; return False if it is being released already."""
        if action.state is ActionState.RELEASING:
            return False
        detail, state = self.why or "undone", ActionState.RELEASING
        self.ledger.advance(action, state, now=self.now, who=self.name, detail=detail)
        return True

    def _incident(self, number: int) -> Incident:
        incident = self.ledger.incident(number)
        if incident is None:
            raise ManualActionError(f"incident {number}: does not exist", missing=True)
        return incident

    def _note(self, act: str, target: str, detail: str | None = None) -> None:
        text = self.why if detail is None else detail
        self.ledger.note(now=self.now, who=self.name, act=act, target=target, detail=text)


def _raise(error: FindingError) -> None:
    raise error


def _requests_drain(finding: Finding, mode: DrainMode) -> bool:
    """Tell whether a finding requests this drain."""
    return finding.cause == MANUAL_CAUSE and finding.evidence.get("mode") == mode.value

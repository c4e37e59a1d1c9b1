"""Ledger methods about decisions and actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger import action_rows, decision_rows, outcome_rows
from forewarn.pipelines.incidents.ledger.database import LedgerDatabase
from forewarn.pipelines.incidents.ledger.ledger_entries import ActionChange
from forewarn.response.decision.manual_override import Override
from forewarn.response.decision.situation import Approval
from forewarn.response.follow_up.action_transition import TrackedAction
from forewarn.response.score.scored_alert import StateTimes
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision
from forewarn.response.state.machine import Machine

__all__ = ["ActionLedger"]

Refusal = TypeVar("Refusal")
LIMIT_LOOKBACK = Nanoseconds(8 * DAY)
"""Time that limits look back: a week and a day."""
MAX_ROW_ID = 2**63 - 1


class ActionLedger:
    """Decisions about incidents, and the actions that follow from them."""

    database: LedgerDatabase

    # --- decisions ------------------------------------------------------------------------------

    def decide(self, decision: Decision) -> bool:
        """Add a decision if it or its reason changed; return whether it was added."""
        with self.database.writing() as connection:
            return decision_rows.add(connection, decision)

    def decisions(self, incident: int) -> list[Decision]:
        """Return the decisions about an incident, oldest first."""
        with self.database.reading() as connection:
            return decision_rows.incident_decisions(connection, incident)

    def decisions_by_incident(self, incidents: Sequence[int]) -> dict[int, list[Decision]]:
        """Return the decisions about each incident that has any, oldest first."""
        with self.database.reading() as connection:
            return decision_rows.decisions_by_incident(connection, incidents)

    def approve(
        self, incident: int, decision_at: Nanoseconds, *, now: Nanoseconds, who: str
    ) -> None:
        """Record a person's approval of the last decision, which was made at `decision_at`.

        Raises
        ------
        ApprovalError
            If that is not the last decision, not a proposal, or no longer valid.
        """
        with self.database.writing() as connection:
            decision_rows.approve(connection, incident, decision_at, now=now, who=who)

    def approvals(self, incidents: Sequence[int]) -> dict[int, Approval]:
        """Return the last approval of each incident that has any."""
        with self.database.reading() as connection:
            return decision_rows.last_approvals(connection, incidents)

    # --- actions --------------------------------------------------------------------------------

    def act(
        self,
        action: Action,
        check: Callable[[Sequence[Action]], Refusal | None],
        *,
        who: str = "forewarn",
        machine: Machine | None = None,
    ) -> Action | Refusal | None:
        """Record a new action, if the limits permit it in the same transaction.

        Parameters
        ----------
        action : Action
            Without a number.
        check : callable
            Takes all open actions and those that changed in the 8 days before `action.at`. If it
            returns a refusal, nothing is recorded. No other action can be recorded while it runs.
        who : str
        machine : Machine or None, optional
            As just read: an action that holds only another of its GPUs does not drain it.

        Returns
        -------
        Action, the refusal of `check`, or None
            The action with its number, which the caller has to carry out. None if an open action
            already drains the machine or takes the same milder step: another responder was first.
        """
        with self.database.writing() as connection:
            recent = action_rows.recent(
                connection, Nanoseconds(action.at - LIMIT_LOOKBACK), with_open=True
            )
            same_step = action_rows.find_same_step(recent, action, machine)
            if same_step is not None and same_step.incident == action.incident:
                return None
            refusal = check(recent)  # for an action of another incident, the refusal is the blocker
            if refusal is not None or same_step is not None:
                return refusal
            return action_rows.add(connection, action, who=who)

    def advance(
        self,
        action: Action,
        state: ActionState,
        *,
        now: Nanoseconds,
        who: str = "forewarn",
        detail: str = "",
        identity: tuple[str, str] = ("", ""),
    ) -> Action | None:
        """Record a new state of an action; return None if it has changed since it was read.

        Parameters
        ----------
        action : Action
            As it was read.
        state : ActionState
            May be the current state, to record `identity`.
        now : int
        who, detail : str
        identity : tuple of (str, str)
            Controller of the scheduler and boot of the machine with which the action was read back.

        Raises
        ------
        ValueError
            If the action has ended.
        """
        with self.database.writing() as connection:
            return action_rows.advance(
                connection, action, state, now=now, who=who, detail=detail, identity=identity
            )

    def open_actions(self, machine: str | None = None) -> list[Action]:
        """Return the actions that have not ended, of all machines or of one, oldest first."""
        with self.database.reading() as connection:
            return action_rows.open_actions(connection, machine)

    def tracked_actions(self) -> list[TrackedAction]:
        """Return the open actions with their recorded controller and boot, oldest first."""
        with self.database.reading() as connection:
            return action_rows.tracked_actions(connection)

    def recent_actions(self, since: Nanoseconds, *, with_open: bool = False) -> list[Action]:
        """Return the actions that changed since a time, optionally all open ones, oldest first."""
        with self.database.reading() as connection:
            return action_rows.recent(connection, since, with_open=with_open)

    def action(self, number: int) -> Action | None:
        """Return an action by its number."""
        if not 0 < number <= MAX_ROW_ID:
            return None
        with self.database.reading() as connection:
            return action_rows.action(connection, number)

    def action_states(self, number: int) -> list[ActionChange]:
        """Return the state changes of an action, oldest first."""
        with self.database.reading() as connection:
            return action_rows.changes(connection, number)

    def first_state_times(self, numbers: Sequence[int]) -> StateTimes:
        """Return the time at which each action first reached each state."""
        with self.database.reading() as connection:
            return action_rows.first_state_times(connection, numbers)

    def overrides(self, since: Nanoseconds) -> list[Override]:
        """Return the manual overrides since a time, oldest first."""
        with self.database.reading() as connection:
            return outcome_rows.overrides(connection, since)

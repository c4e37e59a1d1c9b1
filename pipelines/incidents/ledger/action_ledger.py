"""The part of the ledger about what was decided and done."""

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

__all__ = ["ActionLedger"]

Refusal = TypeVar("Refusal")
LIMIT_LOOKBACK = Nanoseconds(8 * DAY)
"""How far back a limit looks: a week and a day."""
MAX_ROW_ID = 2**63 - 1


class ActionLedger:
    """Decisions about incidents, and the actions that follow from them."""

    database: LedgerDatabase

    # --- decisions ------------------------------------------------------------------------------

    def decide(self, decision: Decision) -> bool:
        """Add a decision if it or its reason is new; tell whether it was added."""
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
        """Say that a person wants the last decision, of `decision_at`, to be done.

        Raises
        ------
        ApprovalError
            If that is not its last decision, no proposal, or no longer valid.
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
    ) -> Action | Refusal | None:
        """Write that something is to be done, if the limits allow it at that very moment.

        Parameters
        ----------
        action : Action
            Without a number.
        check : callable
            Gets all open actions and those that changed in the 8 days before `action.at`. What it
            returns holds the action back; nothing is written then. No other action can be written
            while it thinks.
        who : str

        Returns
        -------
        Action, what `check` returned, or None
            The action with its number: it is the caller's to do. None: an open action takes the
            machine out of service already, or does this milder step; somebody else was first.
        """
        with self.database.writing() as connection:
            recent = action_rows.recent(
                connection, Nanoseconds(action.at - LIMIT_LOOKBACK), with_open=True
            )
            standing = action_rows.standing(recent, action)
            if standing is not None and standing.incident == action.incident:
                return None
            refusal = check(recent)  # for another incident it says what holds it back
            if refusal is not None or standing is not None:
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
        life: tuple[str, str] = ("", ""),
    ) -> Action | None:
        """Change the state of an action; None if somebody else has changed it since it was read.

        Parameters
        ----------
        action : Action
            As it was read.
        state : ActionState
            May be the same again, to remember `life`.
        now : int
        who, detail : str
        life : tuple of (str, str)
            Of the scheduler's controller and of the machine, where the action was read to hold.

        Raises
        ------
        ValueError
            If it has ended.
        """
        with self.database.writing() as connection:
            return action_rows.advance(
                connection, action, state, now=now, who=who, detail=detail, life=life
            )

    def open_actions(self) -> list[Action]:
        """Return the actions that still want something of a machine, oldest first."""
        with self.database.reading() as connection:
            return action_rows.open_actions(connection)

    def tracked_actions(self) -> list[TrackedAction]:
        """Return the open actions with what is remembered of them, oldest first."""
        with self.database.reading() as connection:
            return action_rows.tracked_actions(connection)

    def recent_actions(self, since: Nanoseconds) -> list[Action]:
        """Return the actions that changed since a moment, oldest first."""
        with self.database.reading() as connection:
            return action_rows.recent(connection, since)

    def action(self, number: int) -> Action | None:
        """Return an action by its number."""
        if not 0 < number <= MAX_ROW_ID:
            return None
        with self.database.reading() as connection:
            return action_rows.action(connection, number)

    def action_states(self, number: int) -> list[ActionChange]:
        """Return what became of an action, oldest first."""
        with self.database.reading() as connection:
            return action_rows.changes(connection, number)

    def first_moments(self, numbers: Sequence[int]) -> StateTimes:
        """Return when each action first came to which state."""
        with self.database.reading() as connection:
            return action_rows.first_moments(connection, numbers)

    def overrides(self, since: Nanoseconds) -> list[Override]:
        """Return what somebody undid since a moment, oldest first."""
        with self.database.reading() as connection:
            return outcome_rows.overrides(connection, since)

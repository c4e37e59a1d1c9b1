"""Rows of actions and their state changes; the newest change gives the state of an action."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.decision_rows import decision_versions
from forewarn.pipelines.incidents.ledger.ledger_entries import ActionChange
from forewarn.pipelines.incidents.ledger.ledger_tables import action_states as states
from forewarn.pipelines.incidents.ledger.ledger_tables import actions
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.follow_up.action_transition import TrackedAction
from forewarn.response.state.action import ENDED_STATES, Action, ActionState
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import DrainMode, Step

__all__ = [
    "action",
    "actions_by_incident",
    "add",
    "advance",
    "changes",
    "find_same_step",
    "first_state_times",
    "open_actions",
    "recent",
    "tracked_actions",
]

MAX_INT32 = 2**31 - 1  # columns that count GPUs and jobs


def _newest_state() -> Select[Any]:
    """Return the statement for all actions in their newest state, oldest first."""
    newest = select(func.max(states.c.version)).where(states.c.action == actions.c.id)
    version = newest.correlate(actions).scalar_subquery()
    columns = (states.c.state, states.c.version, states.c.at.label("changed_at"))
    same = (states.c.action == actions.c.id) & (states.c.version == version)
    return select(actions, *columns).outerjoin(states, same).order_by(actions.c.id)


def _never_ended() -> ColumnElement[bool]:
    """Return the condition for open actions: an ended one never reopens."""
    ended = select(states.c.action).where(
        states.c.state.in_(sorted(state.value for state in ENDED_STATES)),
        states.c.action == actions.c.id,
    )
    return ~ended.correlate(actions).exists()


# To build a statement takes as long as to run it: pages and rounds run these many times.
_ACTIONS, _IS_OPEN = _newest_state(), _never_ended()


def add(connection: Connection, intended: Action, *, who: str) -> Action:
    """Add an action and its first change; return the action with its number."""
    statement = insert(actions).values(
        incident=intended.incident,
        machine=intended.machine,
        pool=intended.pool,
        rack=intended.rack,
        job=intended.job,
        cause=intended.cause,
        step=intended.step.value,
        mode=None if intended.mode is None else intended.mode.value,
        at=intended.at,
        valid_until=intended.valid_until,
        jobs=min(intended.jobs, MAX_INT32),
        gpu_serial=intended.gpu_serial,
        gpus=min(intended.gpus, MAX_INT32),
        job_gpus=min(intended.job_gpus, MAX_INT32),
        **decision_versions(connection, intended.incident),
    )
    number = connection.scalars(statement.returning(actions.c.id)).one()
    state, at = ActionState.INTENDED, intended.at
    first = {"action": number, "version": 0, "state": state.value, "at": at, "who": who}
    connection.execute(insert(states).values(**first, detail="", controller="", boot=""))
    return replace(intended, id=number, changed_at=at, state=state, version=0)


def find_same_step(
    recent: Sequence[Action], intended: Action, machine: Machine | None
) -> Action | None:
    """Return the open action that already does what is intended for a machine.

    A machine is drained once, whatever the cause, and each of its GPUs. A milder step is taken once
    as well.
    """
    for other in recent:
        same_step = other.step is intended.step or (other.step.isolates and intended.step.isolates)
        spared = other.spares(machine, intended.gpu_serial)
        if other.open and other.machine == intended.machine and same_step and not spared:
            return other
    return None


def advance(
    connection: Connection,
    action: Action,
    state: ActionState,
    *,
    now: Nanoseconds,
    who: str,
    detail: str,
    identity: tuple[str, str],
) -> Action | None:
    """Add a change; return None if another was added since the action was read.

    `identity` is the controller and the boot of the machine, where they were read.

    Raises
    ------
    ValueError
        If the action has ended.
    """
    if not action.open:
        raise ValueError(f"action {action.id} has ended (`{action.state}`), cannot be changed")
    version = action.version + 1
    change = {"action": action.id, "version": version, "state": state.value, "at": now}
    details = {"who": who, "detail": detail, "controller": identity[0], "boot": identity[1]}
    try:
        with connection.begin_nested():
            connection.execute(insert(states).values(**change, **details))
    except IntegrityError:
        return None
    return replace(action, state=state, version=version, changed_at=now)


def _select_actions(connection: Connection, condition: ColumnElement[bool]) -> list[Action]:
    """Return the actions that match a condition in their newest state, oldest first."""
    rows = connection.execute(_ACTIONS.where(condition)).all()
    return [action for _, action in iter_readable(connection, actions, rows, _parse_action)]


def _parse_action(row: Row[Any]) -> Action:
    last = (row.changed_at, row.version)  # columns of another table, not validated yet
    if not all(isinstance(number, int) for number in last) or not 0 <= row.version < MAX_INT32:
        raise ValueError("its last change is unreadable")
    return Action(
        id=row.id,
        incident=row.incident,
        machine=row.machine,
        pool=row.pool,
        rack=row.rack,
        job=row.job,
        cause=row.cause,
        step=Step(row.step),
        mode=None if row.mode is None else DrainMode(row.mode),
        at=row.at,
        valid_until=row.valid_until,
        changed_at=Nanoseconds(row.changed_at),
        state=ActionState(row.state),
        version=row.version,
        jobs=row.jobs,
        gpu_serial=row.gpu_serial,
        gpus=row.gpus,
        job_gpus=row.job_gpus,
    )


def _changed_since(since: Nanoseconds) -> ColumnElement[bool]:
    return actions.c.id.in_(select(states.c.action).where(states.c.at >= since))


def open_actions(connection: Connection, machine: str | None = None) -> list[Action]:
    """Return the actions that have not ended, of all machines or of one, oldest first."""
    condition = _IS_OPEN
    if machine is not None:
        condition &= actions.c.machine == machine
    return _select_actions(connection, condition)


def tracked_actions(connection: Connection) -> list[TrackedAction]:
    """Return the open actions with their recorded controller and boot, oldest first."""
    rows: dict[int, list[Row[Any]]] = defaultdict(list)
    query = select(states).where(_belongs_to_open_action()).order_by(states.c.version)
    for row, _ in iter_readable(connection, states, connection.execute(query).all(), tuple):
        rows[row.action].append(row)
    return [_track(action, rows[action.id]) for action in open_actions(connection)]


def _belongs_to_open_action() -> ColumnElement[bool]:
    return states.c.action.in_(select(actions.c.id).where(_IS_OPEN))


def _track(action: Action, rows: Sequence[Row[Any]]) -> TrackedAction:
    identities = [(row.controller, row.boot) for row in rows if row.controller or row.boot]
    controller, boot = identities[-1] if identities else ("", "")
    sent = [row for row in rows if row.state == ActionState.SENT.value]
    return TrackedAction(action, controller, boot, reapplied=len(sent) > 1)


def recent(connection: Connection, since: Nanoseconds, *, with_open: bool = False) -> list[Action]:
    """Return the actions that changed since a time, optionally with all open ones, oldest first."""
    condition = _changed_since(since)
    return _select_actions(connection, or_(condition, _IS_OPEN) if with_open else condition)


def action(connection: Connection, number: int) -> Action | None:
    """Return an action by its number."""
    return next(iter(_select_actions(connection, actions.c.id == number)), None)


def actions_by_incident(
    connection: Connection, incidents: Sequence[int]
) -> dict[int, tuple[Action, ...]]:
    """Return the actions of each incident that has any, oldest first."""
    by_incident: dict[int, list[Action]] = defaultdict(list)
    for chunk in chunks(incidents):
        for row in _select_actions(connection, actions.c.incident.in_(chunk)):
            by_incident[row.incident].append(row)
    return {incident: tuple(rows) for incident, rows in by_incident.items()}


def first_state_times(
    connection: Connection, numbers: Sequence[int]
) -> dict[int, dict[ActionState, Nanoseconds]]:
    """Return the time at which each action first reached each state, nanoseconds since 1970 UTC."""
    times: dict[int, dict[ActionState, Nanoseconds]] = defaultdict(dict)
    for chunk in chunks(numbers):
        query = select(states).where(states.c.action.in_(chunk))
        rows = connection.execute(query.order_by(states.c.action, states.c.version)).all()
        for row, change in iter_readable(connection, states, rows, _parse_change):
            times[row.action].setdefault(change.state, change.at)
    return dict(times)


def changes(connection: Connection, number: int) -> list[ActionChange]:
    """Return the state changes of an action, oldest first."""
    query = select(states).where(states.c.action == number).order_by(states.c.version)
    rows = connection.execute(query).all()
    return [change for _, change in iter_readable(connection, states, rows, _parse_change)]


def _parse_change(row: Row[Any]) -> ActionChange:
    return ActionChange(row.version, ActionState(row.state), row.at, row.who, row.detail)

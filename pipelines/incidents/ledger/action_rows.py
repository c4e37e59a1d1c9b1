"""Actions as rows, each of their changes too; the newest change is what an action is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, or_, select
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
from forewarn.response.state.step import DrainMode, Step

__all__ = [
    "action",
    "actions_by_incident",
    "add",
    "advance",
    "changes",
    "first_moments",
    "open_actions",
    "recent",
    "standing",
    "watched",
]

MAX_INT32 = 2**31 - 1  # of the columns that count GPUs and jobs
_ENDED = sorted(state.value for state in ENDED_STATES)


def add(connection: Connection, intended: Action, *, who: str) -> Action:
    """Add an action and its first change; return it with its number."""
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


def standing(recent: Sequence[Action], intended: Action) -> Action | None:
    """Return the open action that does to a machine already what is intended.

    A machine is taken out of service once, whatever for; a milder step is taken once, too.
    """
    for other in recent:
        same_step = other.step is intended.step or (other.step.isolates and intended.step.isolates)
        if other.open and other.machine == intended.machine and same_step:
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
    life: tuple[str, str],
) -> Action | None:
    """Add a change; None if somebody else has added one since the action was read.

    `life` is that of the controller and of the machine, where they were read.

    Raises
    ------
    ValueError
        If the action has ended.
    """
    if not action.open:
        raise ValueError(f"action {action.id} has ended (`{action.state}`), it cannot go on")
    version = action.version + 1
    change = {"action": action.id, "version": version, "state": state.value, "at": now}
    words = {"who": who, "detail": detail, "controller": life[0], "boot": life[1]}
    try:
        with connection.begin_nested():
            connection.execute(insert(states).values(**change, **words))
    except IntegrityError:
        return None
    return replace(action, state=state, version=version, changed_at=now)


def _selected(connection: Connection, condition: ColumnElement[bool]) -> list[Action]:
    """Return the actions of a condition, each as its newest change says, oldest first."""
    newest = (
        select(func.max(states.c.version))
        .where(states.c.action == actions.c.id)
        .correlate(actions)
        .scalar_subquery()
    )
    columns = (states.c.state, states.c.version, states.c.at.label("changed_at"))
    query = (
        select(actions, *columns)
        .outerjoin(states, (states.c.action == actions.c.id) & (states.c.version == newest))
        .where(condition)
        .order_by(actions.c.id)
    )
    rows = connection.execute(query).all()
    return [action for _, action in iter_readable(connection, actions, rows, _parse_action)]


def _parse_action(row: Row[Any]) -> Action:
    last = (row.changed_at, row.version)  # of another table, which nothing has checked yet
    if not all(isinstance(number, int) for number in last) or not 0 <= row.version < MAX_INT32:
        raise ValueError("its last change cannot be read")
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


def _is_open() -> ColumnElement[bool]:
    # An action that has ended does not begin again, so one such change is enough to tell.
    ended = select(states.c.action).where(states.c.state.in_(_ENDED))
    return ~ended.where(states.c.action == actions.c.id).correlate(actions).exists()


def _changed_since(since: Nanoseconds) -> ColumnElement[bool]:
    return actions.c.id.in_(select(states.c.action).where(states.c.at >= since))


def open_actions(connection: Connection) -> list[Action]:
    """Return the actions that still want something of a machine, oldest first."""
    return _selected(connection, _is_open())


def tracked_actions(connection: Connection) -> list[TrackedAction]:
    """Return the open actions with what is remembered of them, oldest first."""
    rows: dict[int, list[Row[Any]]] = defaultdict(list)
    query = select(states).where(_of_open()).order_by(states.c.version)
    for row, _ in iter_readable(connection, states, connection.execute(query).all(), tuple):
        rows[row.action].append(row)
    return [_track(action, rows[action.id]) for action in open_actions(connection)]


def _of_open() -> ColumnElement[bool]:
    return states.c.action.in_(select(actions.c.id).where(_is_open()))


def _track(action: Action, rows: Sequence[Row[Any]]) -> TrackedAction:
    lives = [(row.controller, row.boot) for row in rows if row.controller or row.boot]
    controller, boot = lives[-1] if lives else ("", "")
    sent = [row for row in rows if row.state == ActionState.SENT.value]
    return TrackedAction(action, controller, boot, reapplied=len(sent) > 1)


def recent(connection: Connection, since: Nanoseconds, *, with_open: bool = False) -> list[Action]:
    """Return the actions that changed since a moment, and perhaps all open ones, oldest first."""
    condition = _changed_since(since)
    return _selected(connection, or_(condition, _is_open()) if with_open else condition)


def action(connection: Connection, number: int) -> Action | None:
    """Return an action by its number."""
    return next(iter(_selected(connection, actions.c.id == number)), None)


def actions_by_incident(
    connection: Connection, incidents: Sequence[int]
) -> dict[int, tuple[Action, ...]]:
    """Return the actions of each incident that has any, oldest first."""
    by_incident: dict[int, list[Action]] = defaultdict(list)
    for chunk in chunks(incidents):
        for row in _selected(connection, actions.c.incident.in_(chunk)):
            by_incident[row.incident].append(row)
    return {incident: tuple(rows) for incident, rows in by_incident.items()}


def first_moments(
    connection: Connection, numbers: Sequence[int]
) -> dict[int, dict[ActionState, Nanoseconds]]:
    """Return when each action first came to which state, nanoseconds since 1970 UTC."""
    moments: dict[int, dict[ActionState, Nanoseconds]] = defaultdict(dict)
    for chunk in chunks(numbers):
        query = select(states).where(states.c.action.in_(chunk))
        rows = connection.execute(query.order_by(states.c.action, states.c.version)).all()
        for row, change in iter_readable(connection, states, rows, _parse_change):
            moments[row.action].setdefault(change.state, change.at)
    return dict(moments)


def changes(connection: Connection, number: int) -> list[ActionChange]:
    """Return what became of an action, oldest first."""
    query = select(states).where(states.c.action == number).order_by(states.c.version)
    rows = connection.execute(query).all()
    return [change for _, change in iter_readable(connection, states, rows, _parse_change)]


def _parse_change(row: Row[Any]) -> ActionChange:
    return ActionChange(row.version, ActionState(row.state), row.at, row.who, row.detail)

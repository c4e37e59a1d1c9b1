"""Minimal responder for tests that kill it or run several at once.

python small_responder.py kill URL STRIDE   # prints a line of JSON per crash
python small_responder.py race URL          # waits for a line, prints the actions it obtained
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url, text

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import metadata
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import IncidentState, Outcome
from forewarn.response.state.step import DrainMode, Step

MACHINES = ("m1", "m2")
STATES = (
    *(ActionState.INTENDED, ActionState.SENT, ActionState.HOLDING, ActionState.DRAINED),
    *(ActionState.RELEASING, ActionState.RELEASED),
)
NOW = Nanoseconds(100)
END = Nanoseconds(1000)


def finding(machine: str) -> Finding:
    return Finding("records", f"xid-{machine}", FindingKind.XID, "xid 79", machine, NOW, END)


def drain(incident: int, machine: str) -> Action:
    step, mode = Step.DRAIN, DrainMode.FINISH
    names = (machine, "train", None, None, "xid 79")
    return Action(0, incident, *names, step, mode, NOW, END, NOW)


def respond(ledger: Ledger) -> None:
    """Record findings, act on them and end all actions; continue where a crash interrupted."""
    ledger.record_findings([finding(machine) for machine in MACHINES], now=NOW)
    for incident in ledger.open_incidents():
        if not incident.actions:
            keys = tuple(row.key for row in incident.findings)
            what = (Ruling.ACT, Step.DRAIN, DrainMode.FINISH, Severity.ERROR, "xid 79")
            ledger.decide(Decision(incident.id, NOW, *what, None, END, keys, "p1"))
            ledger.act(drain(incident.id, incident.machine), no_limit)
    for action in ledger.open_actions():
        advance_to_the_end(ledger, action)
    for incident in ledger.open_incidents():
        ledger.outcome(incident.id, Outcome.CONFIRMED, now=NOW, who="forewarn", why="")
        ledger.end_incident(incident.id, IncidentState.CLOSED, now=NOW, who="forewarn", why="")


def no_limit(recent: Sequence[Action]) -> None:
    del recent


def advance_to_the_end(ledger: Ledger, action: Action | None) -> None:
    while action is not None and action.open:
        action = ledger.advance(action, STATES[action.version + 1], now=NOW)


# --- crashes --------------------------------------------------------------------------------------


def kill_at(step: int) -> Callable[..., None]:
    """Return a listener that kills this process at its `step`-th call."""
    calls = 0

    def listener(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


def run_until(url: str, step: int) -> bool:
    """Respond in a child process that is killed at a step; return whether it was killed."""
    child = os.fork()
    if child == 0:
        listener = kill_at(step)
        for name in ("before_cursor_execute", "after_cursor_execute", "begin", "commit"):
            event.listen(Engine, name, listener)
        with Ledger.open(url) as ledger:
            respond(ledger)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        sys.exit(f"the responder failed before step {step}")
    return os.WIFSIGNALED(status)


def remove(url: str) -> None:
    """Remove all tables of a database."""
    address = make_url(url)
    if address.get_backend_name() == "sqlite":
        for suffix in ("", "-wal", "-shm"):
            Path(f"{address.database}{suffix}").unlink(missing_ok=True)
        return
    engine = create_engine(address.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()


def summary(ledger: Ledger) -> dict[str, Any]:
    incidents = ledger.incidents()
    with ledger.database.reading() as connection:
        rows = {
            table.name: len(connection.execute(table.select()).all())
            for table in metadata.sorted_tables
        }
    return {
        "rows": rows,
        "machines": sorted(incident.machine for incident in incidents),
        "counts": sorted(row.count for incident in incidents for row in incident.findings),
        "states": dict(Counter(incident.state for incident in incidents)),
        "states_of_actions": [
            [change.state for change in ledger.action_states(action.id)]
            for incident in incidents
            for action in incident.actions
        ],
    }


def kill(url: str, stride: int) -> None:
    step, killed = 1, True
    while killed:
        remove(url)
        killed = run_until(url, step)
        with Ledger.open(url) as ledger:
            respond(ledger)
            print(json.dumps({"step": step, "killed": killed, **summary(ledger)}), flush=True)
        step += stride


# --- concurrency ----------------------------------------------------------------------------------


def race(url: str) -> None:
    with Ledger.open(url) as ledger:
        print("ready", flush=True)
        sys.stdin.readline()
        recorded = [
            ledger.act(drain(incident.id, incident.machine), at_most_three_out)
            for incident in ledger.open_incidents()
        ]
        actions = [row for row in recorded if isinstance(row, Action)]
        obtained = [row.id for row in actions if ledger.advance(row, ActionState.SENT, now=NOW)]
        blocked = [row for row in recorded if isinstance(row, str)]
    print(
        json.dumps({"acted": [row.id for row in actions], "obtained": obtained, "blocked": blocked})
    )


def at_most_three_out(recent: Sequence[Action]) -> str | None:
    n_out = sum(row.open for row in recent)
    return f"{n_out} are out" if n_out >= 3 else None


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["kill", url, stride]:
            kill(url, int(stride))
        case ["race", url]:
            race(url)

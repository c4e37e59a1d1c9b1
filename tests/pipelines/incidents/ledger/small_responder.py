"""A responder in small, for tests that kill it or let several of them run.

python responder.py kill URL [STRIDE]   # prints a line of JSON for each point of death
python responder.py race URL            # waits for a line, prints what it has won
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
LIFE = (
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
    """Take findings, act on them, and bring all actions to their end; go on where it stopped."""
    ledger.record_findings([finding(machine) for machine in MACHINES], now=NOW)
    for incident in ledger.open_incidents():
        if not incident.actions:
            rests_on = tuple(row.key for row in incident.findings)
            what = (Ruling.ACT, Step.DRAIN, DrainMode.FINISH, Severity.ERROR, "xid 79")
            ledger.decide(Decision(incident.id, NOW, *what, None, END, rests_on, "p1"))
            ledger.act(drain(incident.id, incident.machine), nothing_against)
    for action in ledger.open_actions():
        advance_to_the_end(ledger, action)
    for incident in ledger.open_incidents():
        ledger.outcome(incident.id, Outcome.CONFIRMED, now=NOW, who="forewarn", why="")
        ledger.end_incident(incident.id, IncidentState.CLOSED, now=NOW, who="forewarn", why="")


def nothing_against(recent: Sequence[Action]) -> None:
    del recent


def advance_to_the_end(ledger: Ledger, action: Action | None) -> None:
    while action is not None and action.open:
        action = ledger.advance(action, LIFE[action.version + 1], now=NOW)


# --- killed ---------------------------------------------------------------------------------------


def kill_at(step: int) -> Callable[..., None]:
    """Return a listener that kills this process at its so-manieth call."""
    calls = 0

    def listener(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


def run_until(url: str, step: int) -> bool:
    """Respond in a process of its own that dies before a step; tell whether it has died."""
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
    """Make an empty database of it, without a table."""
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
        "lives": [
            [change.state for change in ledger.action_states(action.id)]
            for incident in incidents
            for action in incident.actions
        ],
    }


def kill(url: str, stride: int) -> None:
    step, died = 1, True
    while died:
        remove(url)
        died = run_until(url, step)
        with Ledger.open(url) as ledger:
            respond(ledger)
            print(json.dumps({"step": step, "died": died, **summary(ledger)}), flush=True)
        step += stride


# --- racing ---------------------------------------------------------------------------------------


def race(url: str) -> None:
    with Ledger.open(url) as ledger:
        print("ready", flush=True)
        sys.stdin.readline()
        written = [
            ledger.act(drain(incident.id, incident.machine), at_most_three_out)
            for incident in ledger.open_incidents()
        ]
        actions = [row for row in written if isinstance(row, Action)]
        won = [row.id for row in actions if ledger.advance(row, ActionState.SENT, now=NOW)]
        held = [row for row in written if isinstance(row, str)]
    print(json.dumps({"acted": [row.id for row in actions], "won": won, "held": held}))


def at_most_three_out(recent: Sequence[Action]) -> str | None:
    n_out = sum(row.open for row in recent)
    return f"{n_out} are out" if n_out >= 3 else None


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["kill", url, stride]:
            kill(url, int(stride))
        case ["race", url]:
            race(url)

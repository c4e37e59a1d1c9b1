"""Commands for manual actions: incidents, approve, drain, undo, ack, outcome, switch."""

from __future__ import annotations

import argparse
import getpass
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.options import (
    Commands,
    Parser,
    add_command,
    add_config,
    add_json,
    integer_at_least,
    time_argument,
)
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.pipelines.incidents.api.manual_actions import Operator
    from forewarn.pipelines.incidents.ledger.ledger import Ledger
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite
    from forewarn.response.state.machine import Machine

__all__ = [
    "add_ack",
    "add_approve",
    "add_drain",
    "add_incidents",
    "add_outcome",
    "add_switch",
    "add_undo",
    "open_site",
]

_number = integer_at_least(1, 2**63 - 1)
_OUTCOMES = ("confirmed", "not_confirmed", "unknown")
_MODES = ("finish", "deadline", "now")


def open_site(args: argparse.Namespace) -> ResponseSite:
    """Return the site that the user wants to change.

    Without --config, in a folder without a ledger, a new ledger would be created that no
    responder reads, and the user would believe that actions are switched off.
    """
    from forewarn.pipelines.incidents.ledger.database import LedgerError
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite

    site = ResponseSite.from_config(args.config)
    if args.config is None and not (site.folder / "ledger.db").is_file():
        raise LedgerError(
            f"{site.folder}: contains no ledger.db, expected the `--config` of `forewarn respond`."
        )
    return site


def _now() -> Nanoseconds:
    return Nanoseconds(time.time_ns())


def _person(ledger: Ledger, args: argparse.Namespace) -> Operator:
    from forewarn.pipelines.incidents.api.manual_actions import Operator

    return Operator(ledger, getpass.getuser(), _now(), args.why)


def _add_person(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
) -> Parser:
    command = add_command(commands, name, run, text, example, extra="server")
    add_config(command)
    command.add_argument("--why", default="", metavar="TEXT", help="reason, kept in the ledger")
    add_json(command)
    return command


def _add_number(command: Parser) -> None:
    command.add_argument("incident", type=_number, metavar="INCIDENT", help="incident number")


def _report(
    args: argparse.Namespace, incident: int, changed: bool, message: str, unchanged: str
) -> int:
    if args.json:
        print(json.dumps({"incident": incident, "changed": changed}))
    else:
        write_line(f"incident {incident}: {message if changed else unchanged}")
    return 0


def _act(
    args: argparse.Namespace, act: Callable[[Operator], bool], message: str, unchanged: str
) -> int:
    """Perform the user's action on an incident, and print the result."""
    with open_site(args).ledger() as ledger:
        changed = act(_person(ledger, args))
    return _report(args, args.incident, changed, message, unchanged)


# --- list -----------------------------------------------------------------------------------------


def add_incidents(commands: Commands) -> None:
    """Add `forewarn incidents`."""
    command = add_command(
        commands,
        "incidents",
        _incidents,
        "list incidents: findings about machines, and the actions taken",
        "forewarn incidents --config my.toml\n"
        "  forewarn incidents --config my.toml --machine node-17 --all --json",
        extra="server",
    )
    add_config(command)
    command.add_argument("--machine", metavar="NAME", help="only incidents of this machine")
    command.add_argument("--all", action="store_true", help="include closed incidents")
    command.add_argument(
        "--limit",
        type=integer_at_least(1, 10_000),
        default=100,
        metavar="N",
        help="at most this many (default: 100)",
    )
    add_json(command, "print one JSON object per incident on stdout")


def _incidents(args: argparse.Namespace) -> int:
    from forewarn.pipelines.incidents.loop.decision_output import incident_line, incident_text
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite
    from forewarn.pipelines.incidents.loop.scheduler_marks import mark_line, mark_text
    from forewarn.pipelines.runtime.progress import note
    from forewarn.response.state.incident import IncidentState

    state = None if args.all else IncidentState.OPEN
    site = ResponseSite.from_config(args.config)
    with site.ledger_to_look_at() as ledger:
        incidents = ledger.incidents(state=state, machine=args.machine, limit=args.limit)
        off, set_aside = site.switch(ledger).off(), ledger.quarantined_rows()
        marks = _marks(site, ledger, args.machine)
    for incident in incidents:
        if args.json:
            print(json.dumps(incident_line(incident)))
        else:
            for line in incident_text(incident):
                write_line(line)
    for machine in marks:
        if args.json:
            print(json.dumps(mark_line(machine)))
        else:
            write_line(mark_text(machine))
    # With --json, stdout contains only JSON.
    output: Callable[[str], None] = note if args.json else write_line
    if not incidents:
        output("no incidents" if args.all else "no open incidents")
    for damaged in set_aside:
        output(str(damaged))
    if off is not None:
        output(f"actions are switched off by {off.who}{f': {off.why}' if off.why else ''}")
    return 0


def _marks(site: ResponseSite, ledger: Ledger, name: str | None) -> list[Machine]:
    """Return drain marks in the scheduler that the ledger does not know, if drains are allowed."""
    from forewarn.pipelines.incidents.loop.scheduler_marks import read_unknown_marks
    from forewarn.pipelines.incidents.schedulers.driver import DriverError
    from forewarn.pipelines.runtime.progress import note

    driver = site.driver() if site.acts else None
    if driver is None:
        return []
    try:
        machines = driver.read().machines
    except DriverError as error:
        note(f"the scheduler does not respond, drain marks are not compared: {error}")
        return []
    marks = read_unknown_marks(ledger, machines, now=_now())
    return [machine for machine in marks if name in (None, machine.name)]


# --- decide ---------------------------------------------------------------------------------------


def add_approve(commands: Commands) -> None:
    """Add `forewarn approve`."""
    command = _add_person(
        commands,
        "approve",
        _approve,
        "approve the action that forewarn proposes for an incident",
        "forewarn approve 17 --config my.toml --why 'confirmed by hand'",
    )
    _add_number(command)


def _approve(args: argparse.Namespace) -> int:
    message = "approved; the next `forewarn respond` performs the action"
    return _act(args, lambda person: person.approve(args.incident), message, "already approved")


def add_drain(commands: Commands) -> None:
    """Add `forewarn drain`."""
    command = _add_person(
        commands,
        "drain",
        _drain,
        "request to drain a machine; the limits of the policy apply",
        "forewarn drain node-17 --config my.toml --mode finish --why 'fan is loud'",
    )
    command.add_argument("machine", metavar="MACHINE", help="machine name in the scheduler")
    command.add_argument(
        "--mode",
        choices=_MODES,
        default="finish",
        help="let jobs finish (default), give them one day, or requeue them immediately",
    )


def _drain(args: argparse.Namespace) -> int:
    from forewarn.response.state.step import DrainMode

    with open_site(args).ledger() as ledger:
        number, new = _person(ledger, args).drain(args.machine, DrainMode(args.mode))
    message = f"the next `forewarn respond` drains {args.machine} if the limits permit"
    return _report(args, number, new, message, "already requested")


def add_undo(commands: Commands) -> None:
    """Add `forewarn undo`."""
    command = _add_person(
        commands,
        "undo",
        _undo,
        "revert the action on an incident; its cause triggers no action there for a week",
        "forewarn undo 17 --config my.toml --why 'the board is fine'",
    )
    _add_number(command)


def _undo(args: argparse.Namespace) -> int:
    message = "overridden; the next `forewarn respond` reverts the action"
    return _act(args, lambda person: person.undo(args.incident), message, "already undone")


def add_ack(commands: Commands) -> None:
    """Add `forewarn ack`."""
    command = _add_person(
        commands, "ack", _ack, "acknowledge an incident", "forewarn ack 17 --config my.toml"
    )
    _add_number(command)


def _ack(args: argparse.Namespace) -> int:
    return _act(
        args,
        lambda person: person.acknowledge(args.incident),
        "acknowledged",
        "already acknowledged",
    )


def add_outcome(commands: Commands) -> None:
    """Add `forewarn outcome`."""
    command = _add_person(
        commands,
        "outcome",
        _outcome,
        "record the outcome of an incident; confirmed failures become training labels",
        "forewarn outcome 17 confirmed --config my.toml --failed-at 2025-03-01T04:00:00Z "
        "--why 'ticket 4711'",
    )
    _add_number(command)
    command.add_argument("outcome", choices=_OUTCOMES, help="outcome of the incident")
    command.add_argument(
        "--failed-at", type=time_argument, metavar="TIME", help="time of the failure"
    )


def _outcome(args: argparse.Namespace) -> int:
    from forewarn.response.state.incident import Outcome

    outcome, failed_at = Outcome(args.outcome), args.failed_at
    return _act(
        args,
        lambda person: person.record_outcome(args.incident, outcome, failed_at),
        args.outcome,
        f"{args.outcome}, unchanged",
    )


# --- the kill switch ------------------------------------------------------------------------------


def add_switch(commands: Commands) -> None:
    """Add `forewarn switch`."""
    command = add_command(
        commands,
        "switch",
        _switch,
        "stop forewarn from taking machines out of service (off), or permit it again (on)",
        "forewarn switch off --config my.toml --why 'maintenance'",
        extra="server",
    )
    command.add_argument("acting", choices=("off", "on"), help="`off` works without the database")
    add_config(command)
    command.add_argument("--why", default="", metavar="TEXT", help="reason, kept in the ledger")


def _switch(args: argparse.Namespace) -> int:
    site, who, now = open_site(args), getpass.getuser(), _now()
    if args.acting == "off":
        return _switch_off(site, now=now, who=who, why=args.why)
    with site.ledger() as ledger:
        site.switch(ledger).lift(now=now, who=who, why=args.why)
    write_line("actions are on")
    return 0


def _switch_off(site: ResponseSite, *, now: Nanoseconds, who: str, why: str) -> int:
    """Create the file first; it suffices if the ledger is unavailable or the disk is full."""
    from contextlib import suppress

    from forewarn.pipelines.incidents.ledger.database import LedgerError
    from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitchError
    from forewarn.pipelines.runtime.progress import note

    switch, says_why = site.switch(None), None
    with suppress(OSError):  # `stop` tries again and reports the error
        says_why = switch.mark(who, why)
        write_line(f"actions are off while {switch.file} exists")
    try:
        with site.ledger() as ledger:
            site.switch(ledger).stop(now=now, who=who, why=why)
    except LedgerError as error:
        if says_why is None:
            words = f"{switch.file} cannot be created, and {error}"
            raise KillSwitchError(f"actions are NOT switched off: {words}") from None
        if says_why:
            raise
        note(f"the file takes effect, but the ledger could not be written: {error}")
    return 0

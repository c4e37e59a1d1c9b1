"""The command `repairs`: cases from drain to return, their tickets and their evidence."""

from __future__ import annotations

import argparse
import getpass
import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.operator_commands import open_site
from forewarn.pipelines.cli.options import (
    Commands,
    add_command,
    add_config,
    add_json,
    integer_at_least,
)
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.pipelines.incidents.ledger.ledger import Ledger

__all__ = ["add_repairs"]

_STAGES = ("evidence", "ticket", "vendor", "swapped", "accepted")
_FORMS = ("webhook", "servicenow", "jira")
_number = integer_at_least(1, 2**63 - 1)


def add_repairs(commands: Commands) -> None:
    """Add `forewarn repairs`."""
    command = add_command(
        commands,
        "repairs",
        _repairs,
        "list repair cases with the age of each stage, and repeat offenders; or record a stage, "
        "print or post a ticket, or pack the evidence of a case",
        "forewarn repairs --config my.toml --html repairs.html\n"
        "  forewarn repairs --case 17 --bundle case-17.tar.gz --add bug-report.log.gz\n"
        "  forewarn repairs --case 17 --ticket jira --project OPS --post\n"
        "  forewarn repairs --case 17 --record ticket --detail OPS-4711",
        extra="server",
    )
    add_config(command)
    command.add_argument("--machine", metavar="NAME", help="only cases of this machine")
    command.add_argument("--all", action="store_true", help="include cases that have ended")
    command.add_argument("--html", type=Path, metavar="PAGE", help="write the report as a page")
    command.add_argument("--case", type=_number, metavar="N", help="number of an incident")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--record", choices=_STAGES, help="record that the case has reached it")
    which.add_argument("--ticket", choices=_FORMS, help="print the request that opens a ticket")
    which.add_argument("--bundle", type=Path, metavar="FILE", help="write the evidence, .tar.gz")
    command.add_argument(
        "--post",
        action="store_true",
        help="post the ticket to FOREWARN_TICKET_URL instead, with FOREWARN_TICKET_SECRET (of "
        "ServiceNow and Jira the value of Authorization, of a webhook its key), and record it; a "
        "case with a ticket is not posted again",
    )
    command.add_argument("--detail", default="", metavar="TEXT", help="kept with --record")
    command.add_argument("--project", default="OPS", metavar="KEY", help="of Jira (OPS)")
    command.add_argument(
        "--add", type=Path, action="append", default=[], metavar="FILE", help="add it to --bundle"
    )
    add_json(command)


def _repairs(args: argparse.Namespace) -> int:
    from forewarn.pipelines.runtime.clock import SystemClock

    act = next((name for name in ("record", "ticket", "bundle") if getattr(args, name)), None)
    if (act is None) != (args.case is None):
        raise InputError(
            "`--case` needs one of --record, --ticket and --bundle, and each of these needs "
            "`--case`."
        )
    if args.post and act != "ticket":
        raise InputError("`--post` needs --ticket.")
    now = Nanoseconds(SystemClock().now())
    if act == "record":
        return _record(args, now)
    return _report(args, now) if act is None else _one_case(args, now)


def _record(args: argparse.Namespace, now: Nanoseconds) -> int:
    from forewarn.pipelines.incidents.repairs.repair_events import record_stage
    from forewarn.response.repair.repair_case import RepairStage

    with open_site(args).ledger() as ledger:
        stage = RepairStage(args.record)
        record_stage(ledger, args.case, stage, now=now, who=getpass.getuser(), detail=args.detail)
    write_line(f"case {args.case}: {args.record} {args.detail}".rstrip())
    return 0


def _report(args: argparse.Namespace, now: Nanoseconds) -> int:
    from forewarn.pipelines.incidents.learning.gpu_locations import GpuLocations
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite
    from forewarn.pipelines.incidents.repairs.board_moves import find_separations
    from forewarn.pipelines.incidents.repairs.repair_events import read_repair_cases
    from forewarn.pipelines.incidents.repairs.repair_metrics import write_repair_metrics
    from forewarn.pipelines.incidents.repairs.repair_report import repair_lines, repair_report

    site = ResponseSite.from_config(args.config)
    with site.ledger_to_look_at() as ledger:
        every = read_repair_cases(ledger, now)
    cases = [case for case in every if args.machine in (None, case.machine)]
    # A board is followed to other machines, so this needs the cases of all.
    moved = find_separations(GpuLocations(site.records).stays(), every)
    separations = [row for row in moved if args.machine in (None, row.machine)]
    report = repair_report(cases, now, separations, everything=args.all)
    if args.html is not None:
        from forewarn.pipelines.incidents.repairs.repairs_page import write_repairs_page

        write_repairs_page(report, args.html)
    if args.machine is None:
        write_repair_metrics(site.metrics, report)
    if args.json:
        print(json.dumps(report), flush=True)
        return 0
    for line in repair_lines(report):
        write_line(line)
    return 0


def _one_case(args: argparse.Namespace, now: Nanoseconds) -> int:
    from forewarn.pipelines.incidents.loop.decision_output import incident_line
    from forewarn.pipelines.incidents.repairs.evidence_bundle import write_bundle
    from forewarn.pipelines.incidents.repairs.repair_events import (
        read_repair_cases,
        record_stage,
    )
    from forewarn.pipelines.incidents.repairs.repair_report import repair_report
    from forewarn.pipelines.incidents.repairs.ticket_lock import hold_ticket_lock
    from forewarn.response.repair.repair_case import RepairStage

    with (
        open_site(args).ledger() as ledger,
        hold_ticket_lock(ledger.database) if args.post else nullcontext(),
    ):
        report = repair_report(read_repair_cases(ledger, now), now, everything=True)
        case = _case(report, args.case)
        if args.ticket:
            return _ticket(args, ledger, case, now)
        incidents = [incident_line(row) for row in ledger.by_number(case["incidents"])]
        write_bundle(args.bundle, case, incidents, args.add)
        detail = f"{args.bundle.name} with {len(args.add)} files"
        who = getpass.getuser()
        record_stage(ledger, args.case, RepairStage.EVIDENCE, now=now, who=who, detail=detail)
    write_line(f"wrote {args.bundle}")
    return 0


def _ticket(
    args: argparse.Namespace, ledger: Ledger, case: dict[str, Any], now: Nanoseconds
) -> int:
    """Print the ticket of a case, or post and record it."""
    from forewarn.pipelines.incidents.messages.message import incident_key
    from forewarn.pipelines.incidents.repairs.repair_events import record_stage
    from forewarn.pipelines.incidents.repairs.ticket_forms import ticket_body
    from forewarn.pipelines.incidents.repairs.ticket_post import post_ticket
    from forewarn.response.repair.repair_case import RepairStage

    (first,) = ledger.by_number([case["case"]])
    key = incident_key(first)
    ticket = ticket_body(args.ticket, case, args.project, key)
    if not args.post:
        print(json.dumps(ticket), flush=True)
        return 0
    if case["ticket"] is not None:
        write_line(f"case {case['case']} has the ticket {case['ticket']}; nothing was posted")
        return 0
    number = post_ticket(args.ticket, ticket, key, environment=os.environ, now=now)
    who = getpass.getuser()
    record_stage(ledger, case["case"], RepairStage.TICKET, now=now, who=who, detail=number)
    write_line(f"case {case['case']}: ticket {number}")
    return 0


def _case(report: dict[str, Any], number: int) -> dict[str, Any]:
    case: dict[str, Any] | None = next(
        (row for row in report["cases"] if number in row["incidents"]), None
    )
    if case is None:
        raise InputError(f"incident {number} has no repair case: no machine was taken out for it.")
    return case

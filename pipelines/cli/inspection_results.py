"""Commands about results of inspections: `inspect judge`, `accept`, `plan` and `forms`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.errors import InputError
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.cli.options import (
    Commands,
    Parser,
    add_at_risk,
    add_command,
    add_json,
    add_out,
    duration_in,
    hosts_argument,
    integer_at_least,
    positive_number,
    time_argument,
)
from forewarn.pipelines.runtime.terminal import print_error, write_line

if TYPE_CHECKING:
    from forewarn.features.inspection.check_table import CheckCategory

__all__ = ["DEFAULT_VIA", "add_accept", "add_checks", "add_forms", "add_judge", "add_plan"]

_NAGIOS = {"passed": 0, "failed": 2, "incomplete": 3}
_CODES = {"passed": 0, "failed": 1, "incomplete": 3}
_MAX_AGE = "72h"
DEFAULT_VIA = "ssh -o BatchMode=yes {host}"
"""Command that runs another one on a machine."""


def add_checks(command: Parser) -> None:
    """Add --checks, the files in which a site changes the shipped checks."""
    command.add_argument(
        "--checks",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="TOML of [check.NAME] tables, merged over the shipped checks; may be repeated",
    )


def add_accepted(command: Parser, text: str) -> None:
    """Add --accepted, the folder of certificates."""
    command.add_argument("--accepted", type=Path, metavar="DIR", help=text)


def add_judge(verbs: Commands) -> None:
    """Add `forewarn inspect judge`."""
    command = add_command(
        verbs,
        "judge",
        _judge,
        "judge results by limits, by the fleet and by what machines were accepted with; exit code "
        "1 if a machine is bad",
        "forewarn inspect judge results --accepted accepted --json",
    )
    command.add_argument("results", type=Path, metavar="RESULTS", help="file or folder of results")
    add_accepted(command, "folder of `inspect accept`: own values of machines")
    add_checks(command)
    command.add_argument(
        "--false-alarms",
        type=positive_number,
        default=0.1,
        metavar="N",
        help="wanted false alarms of a run in a fleet of 1,000 machines, over all checks (0.1)",
    )
    add_json(command)


def _judge(args: argparse.Namespace) -> int:
    from forewarn.pipelines.inspection.check_files import load_checks
    from forewarn.pipelines.inspection.judge_report import judge_files, report_lines

    report = judge_files(
        args.results,
        load_checks(args.checks),
        args.accepted,
        false_alarms=args.false_alarms / 1000,
    )
    if args.json:
        print(json.dumps(report), flush=True)
    else:
        for line in report_lines(report):
            write_line(line)
    return 1 if report["bad_machines"] else 0


def add_accept(verbs: Commands) -> None:
    """Add `forewarn inspect accept`."""
    command = add_command(
        verbs,
        "accept",
        _accept,
        "decide whether a machine may work, and write its certificate; exit code 0 passed, 1 "
        "failed, 3 incomplete",
        "forewarn inspect accept --machine node-17 --run --results results --out accepted\n"
        "  forewarn inspect accept --machine node-17 --results results --out accepted "
        "--after repair:memory",
    )
    command.add_argument("--machine", required=True, metavar="NAME", help="the machine")
    command.add_argument(
        "--results",
        type=Path,
        required=True,
        metavar="RESULTS",
        help="results of the machine, and of others as the reference",
    )
    add_out(command, "folder of certificates")
    command.add_argument(
        "--run",
        dest="measure",
        action="store_true",
        help="first run the sets quick and accept and the burn-in on this machine, into RESULTS",
    )
    _add_neighbours(command)
    _add_occasion(command)
    add_checks(command)
    add_json(command)


def _add_neighbours(command: Parser) -> None:
    """Add options for the machines with which the network is tested."""
    command.add_argument(
        "--neighbours",
        type=hosts_argument,
        default=(),
        metavar="HOSTS",
        help="with --run, test pairs and rings with these machines, three or more, as node-[18-20]",
    )
    command.add_argument(
        "--via",
        default=DEFAULT_VIA,
        metavar="COMMAND",
        help="command that runs another one on machine {host}, without a shell (default: ssh)",
    )


def _add_occasion(command: Parser) -> None:
    """Add options that say what happened to the machine, and how to exit."""
    command.add_argument(
        "--after",
        type=_occasion,
        default=("new", None),
        metavar="WHAT",
        help="`new` (burn-in of 48 h), `board-swap` (4 h), `reset` (1 h), or `repair:CATEGORY`: "
        "only checks of the category and its neighbours (default: new)",
    )
    command.add_argument(
        "--since",
        type=time_argument,
        metavar="TIME",
        help=f"older results of the machine do not count (default: {_MAX_AGE} ago)",
    )
    command.add_argument(
        "--nagios",
        action="store_true",
        help="exit code as `check` of [respond] expects it: 0 passed, 2 failed, 3 otherwise",
    )


def _occasion(text: str) -> tuple[str, CheckCategory | None]:
    """Parse what happened to the machine, and the repaired category."""
    from forewarn.features.inspection.check_table import CATEGORIES

    name, _, category = text.partition(":")
    if name in ("new", "board-swap", "reset") and not category:
        return name, None
    known = next((known for known in CATEGORIES if known == category), None)
    if name == "repair" and known is not None:
        return name, known
    raise argparse.ArgumentTypeError(
        f"found {text[:40]!r}, expected new, board-swap, reset, or repair: and one of "
        f"{', '.join(CATEGORIES)}"
    )


def _accept(args: argparse.Namespace) -> int:
    from forewarn.pipelines.inspection.certificate import certificate_lines

    try:
        certificate = _certificate(args)
    except InputError as error:
        if not args.nagios:
            raise
        print_error(f"forewarn: error: {error}")
        return _NAGIOS["incomplete"]  # nothing is known of the machine, which is no failed check
    if args.json:
        print(json.dumps(certificate), flush=True)
    else:
        for line in certificate_lines(certificate):
            write_line(line)
    return (_NAGIOS if args.nagios else _CODES)[certificate["state"]]


def _certificate(args: argparse.Namespace) -> dict[str, Any]:
    from forewarn.features.duration import parse_duration
    from forewarn.pipelines.inspection.certificate import (
        AcceptanceRequest,
        accept_machine,
        run_checks,
    )
    from forewarn.pipelines.inspection.check_files import load_checks
    from forewarn.pipelines.inspection.precheck import check_hosts
    from forewarn.pipelines.runtime.clock import SystemClock
    from forewarn.response.inspection.acceptance import Occasion

    now = Nanoseconds(SystemClock().now())
    name, category = args.after
    since = now - parse_duration(_MAX_AGE) if args.since is None else args.since
    request = AcceptanceRequest(
        *(args.machine, args.results, args.out, Occasion(name), category, Nanoseconds(since), now),
        neighbours=args.neighbours,
        via=args.via,
    )
    checks = load_checks(args.checks)
    if args.neighbours:
        check_hosts(args.neighbours, "--neighbours", fewest=3)
        if not args.measure:
            raise InputError("`--neighbours` needs --run.")
    if args.measure:
        run_checks(request, checks)
    return accept_machine(request, checks)


def add_plan(verbs: Commands) -> None:
    """Add `forewarn inspect plan`."""
    command = add_command(
        verbs,
        "plan",
        _plan,
        "choose which machines to inspect with few node-hours, a tenth of them at random",
        "forewarn inspect plan --at-risk lists --results results --budget 40h --json",
        extra="server",
    )
    add_at_risk(command, "LISTS")
    _add_history(command)
    command.add_argument(
        "--budget",
        type=duration_in(HOUR),
        metavar="SPAN",
        help="node-hours, such as 40h (default: 1 %% of those of a week)",
    )
    command.add_argument(
        "--most", type=integer_at_least(1), metavar="N", help="at most so many machines"
    )
    command.add_argument(
        "--job",
        type=hosts_argument,
        default=(),
        metavar="HOSTS",
        help="machines of a job that will start, such as node-[01-64]",
    )
    command.add_argument("--at", type=time_argument, default="now", metavar="TIME", help="(now)")
    command.add_argument("--html", type=Path, metavar="PAGE", help="write the plan as a page")
    add_checks(command)
    add_json(command)


def _add_history(command: Parser) -> None:
    """Add options for what is known of the past."""
    command.add_argument(
        "--results",
        type=Path,
        metavar="RESULTS",
        help="past results: when machines were inspected, and how long checks take",
    )
    command.add_argument(
        "--plans",
        type=Path,
        metavar="DIR",
        help="earlier plans, *.json: what the machines that they drew at random had in RESULTS is "
        "the rate of defects that nothing speaks for",
    )
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration of `respond`: its ledger knows incidents, repairs and failures",
    )


def _plan(args: argparse.Namespace) -> int:
    from forewarn.pipelines.inspection.check_files import load_checks
    from forewarn.pipelines.inspection.planned_inspections import (
        PlanRequest,
        events_from_ledger,
        plan_from_files,
        plan_lines,
    )

    now = Nanoseconds(args.at)
    events, failures = events_from_ledger(args.config, now)
    request = PlanRequest(
        args.at_risk,
        args.results,
        args.plans,
        args.budget,
        args.most,
        args.job,
        tuple(events),
        tuple(failures),
        now,
    )
    plan = plan_from_files(request, load_checks(args.checks))
    if args.html is not None:
        from forewarn.pipelines.inspection.plan_page import write_plan_page

        write_plan_page(plan, args.html)
    if args.json:
        print(json.dumps(plan), flush=True)
    else:
        for line in plan_lines(plan):
            write_line(line)
    return 0


def add_forms(verbs: Commands) -> None:
    """Add `forewarn inspect forms`."""
    from forewarn.pipelines.inspection.inspection_forms import FORMS

    command = add_command(
        verbs,
        "forms",
        _forms,
        "print a form in which a scheduler runs inspections, to be adapted",
        "forewarn inspect forms slurm-prolog > /etc/slurm/forewarn-prolog",
        extra="",
    )
    command.add_argument("form", choices=sorted(FORMS), metavar="FORM", help=", ".join(FORMS))


def _forms(args: argparse.Namespace) -> int:
    from forewarn.pipelines.inspection.inspection_forms import FORMS

    print(FORMS[args.form], end="")
    return 0

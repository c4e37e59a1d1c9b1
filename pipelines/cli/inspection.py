"""The command `inspect` and its commands."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.inspection_results import (
    DEFAULT_VIA,
    add_accept,
    add_checks,
    add_forms,
    add_judge,
    add_plan,
)
from forewarn.pipelines.cli.options import (
    Commands,
    Parser,
    add_command,
    add_group,
    add_json,
    duration_in,
    hosts_argument,
    integer_at_least,
    time_argument,
)
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.pipelines.inspection.probe_pool import ProbePool

__all__ = ["add_inspect"]


def add_inspect(commands: Commands) -> None:
    """Add `forewarn inspect` and its commands."""
    parts = add_group(commands, "inspect", "measure machines on purpose", metavar="COMMAND")
    _add_run(parts)
    _add_precheck(parts)
    _add_superbench(parts)
    add_judge(parts)
    add_accept(parts)
    add_plan(parts)
    add_forms(parts)


def _add_run(parts: Commands) -> None:
    command = add_command(
        parts,
        "run",
        _run,
        "run the checks of a set on this machine, each within its limits",
        "forewarn inspect run --set quick --out inspections\n"
        "  forewarn inspect run --set burn_in --for 48h --out inspections\n"
        "  forewarn inspect run --set pairs --pair node-[1-8] --out inspections",
    )
    add_set(command)
    _add_other_machines(command)
    _add_bounds(command)
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="RESULTS",
        help="folder of results: date=YYYY-MM-DD/MACHINE.RUN.parquet",
    )
    _add_machine(command)
    command.add_argument(
        "--nagios",
        action="store_true",
        help="print one line, and exit with 0 (ok), 1 (warning), 2 (critical) or 3 (unknown), as a "
        "check of an agent has to",
    )
    add_json(command, "print one JSON object per result on stdout")


def _add_machine(command: Parser) -> None:
    """Add options for what is known of this machine."""
    command.add_argument(
        "--machine",
        default=socket.gethostname(),
        metavar="NAME",
        help="name of this machine (default: its host name)",
    )
    command.add_argument(
        "--nhc",
        type=Path,
        metavar="FILE",
        help="file of Node Health Check: checks that are understood become the set nhc",
    )
    command.add_argument(
        "--cmdb",
        type=Path,
        metavar="FILE",
        help="table of GPU serials, CSV; with --pair it names racks: a few pairs within and across "
        "them are tested, not all",
    )


def _add_other_machines(command: Parser) -> None:
    """Add options for machines other than this one."""
    command.add_argument(
        "--hosts",
        nargs="+",
        type=hosts_argument,
        default=[],
        metavar="HOST",
        help="inspect these machines at the same time, through --via, instead of this one",
    )
    command.add_argument(
        "--pair",
        nargs="+",
        type=hosts_argument,
        default=[],
        metavar="HOST",
        help="test pairs of these machines instead, as node-[1-8]: all, or a few by rack with "
        "--cmdb; --set names the results",
    )
    _add_network(command)


def _add_bounds(command: Parser) -> None:
    """Add options for how long and on which machines an inspection runs."""
    command.add_argument(
        "--for",
        dest="burn_in",
        type=duration_in(SECOND),
        default=0.0,
        metavar="SPAN",
        help="repeat the set for this time, as 48h; started again after a kill or a restart of the "
        "machine, it goes on",
    )
    command.add_argument(
        "--timeout",
        type=duration_in(SECOND),
        metavar="SPAN",
        help="end of the inspection; what is left then does not run",
    )
    command.add_argument(
        "--while-busy",
        action="store_true",
        help="inspect although a job uses a GPU, without the checks that need an idle machine",
    )
    command.add_argument(
        "--all",
        dest="all_checks",
        action="store_true",
        help="go on after a failure that makes the machine unusable",
    )


def _add_precheck(parts: Commands) -> None:
    command = add_command(
        parts,
        "precheck",
        _precheck,
        "test pairs of machines before a job starts, and print the machines to leave out",
        "forewarn inspect precheck --hosts node-[1-8]\n"
        "  forewarn inspect precheck --hosts $SLURM_JOB_NODELIST --via 'srun -w {host} -N 1'",
    )
    command.add_argument(
        "--hosts",
        nargs="+",
        type=hosts_argument,
        required=True,
        metavar="HOST",
        help="machines, as node-[1-8]",
    )
    command.add_argument(
        "--rounds",
        type=integer_at_least(1, 20),
        default=2,
        metavar="N",
        help="rounds of pairs at most (default: 2, as DLRover)",
    )
    _add_network(command)
    command.add_argument(
        "--check", action="store_true", help="exit with 1 if a machine has to be left out"
    )
    add_json(command)


def _add_superbench(parts: Commands) -> None:
    command = add_command(
        parts,
        "superbench",
        _superbench,
        "add results of SuperBench to results of inspections, judged by its rules and baseline",
        "forewarn inspect superbench --results results-summary.jsonl --rules rules.yaml "
        "--baseline baseline.json --out inspections",
    )
    command.add_argument(
        "--results", type=Path, required=True, metavar="FILE", help="results, JSON lines"
    )
    command.add_argument(
        "--rules",
        type=Path,
        metavar="FILE",
        help="rules, YAML; a criterion has to be a comparison with a number",
    )
    command.add_argument("--baseline", type=Path, metavar="FILE", help="baselines by metric, JSON")
    command.add_argument(
        "--at",
        type=time_argument,
        default="now",
        metavar="TIME",
        help="when they were measured, which they do not state (default: now)",
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="RESULTS", help="folder of results"
    )


def _add_network(command: Parser) -> None:
    """Add options of tests between machines."""
    command.add_argument(
        "--via",
        default=DEFAULT_VIA,
        metavar="COMMAND",
        help="command that runs another one on machine {host}, without a shell (default: ssh)",
    )
    command.add_argument(
        "--python",
        default=None,
        metavar="PROGRAM",
        help="interpreter with PyTorch on the machines (default: of FOREWARN_TORCH, or python3)",
    )
    command.add_argument(
        "--interface", default="", metavar="NAME", help="network interface of the tests"
    )
    command.add_argument(
        "--pair-timeout",
        type=duration_in(SECOND),
        default=60.0,
        metavar="SPAN",
        help="limit of a test of a pair (default: 60s)",
    )


def add_set(command: Parser) -> None:
    """Add --set and --checks."""
    command.add_argument(
        "--set",
        dest="name",
        required=True,
        metavar="NAME",
        help="quick, accept, weekly, burn_in, suspect:CATEGORY, full, or a set of the site",
    )
    add_checks(command)


def _probes(args: argparse.Namespace, names: Sequence[Sequence[str]], option: str) -> ProbePool:
    """Return probes of machines that the options name."""
    import shlex

    from forewarn.pipelines.inspection.check_runner import torch_python
    from forewarn.pipelines.inspection.precheck import check_hosts
    from forewarn.pipelines.inspection.probe_pool import ProbePool

    hosts = [host for part in names for host in part]
    check_hosts(hosts, option)
    return ProbePool(
        hosts,
        via=shlex.split(args.via),
        python=args.python or torch_python(),
        interface=args.interface,
        timeout=args.pair_timeout,
    )


def _precheck(args: argparse.Namespace) -> int:
    from forewarn.pipelines.inspection.precheck import precheck

    with _probes(args, args.hosts, "--hosts") as pool:
        result = precheck(pool, rounds=args.rounds)
    if args.json:
        print(json.dumps(result.line()), flush=True)
    else:
        for host, reason in result.reasons.items():
            write_line(f"{host}: {reason}")
    return int(args.check and bool(result.reasons))


def _superbench(args: argparse.Namespace) -> int:
    from forewarn.pipelines.inspection.result_files import write_results
    from forewarn.pipelines.inspection.superbench_import import import_superbench

    rows = import_superbench(args.results, args.rules, args.baseline, at=args.at)
    write_results(rows, args.out)
    _print_results(rows, as_json=False)
    return 0


def _run_hosts(args: argparse.Namespace) -> int:
    import shlex

    from forewarn.pipelines.inspection.host_runs import inspect_hosts
    from forewarn.pipelines.inspection.precheck import check_hosts

    hosts = [host for part in args.hosts for host in part]
    check_hosts(hosts, "--hosts", fewest=1)
    options = ["--set", args.name]
    for path in args.checks:
        options += ["--checks", str(path)]
    options += ["--nhc", str(args.nhc)] if args.nhc is not None else []
    options += ["--cmdb", str(args.cmdb)] if args.cmdb is not None else []
    options += ["--while-busy"] if args.while_busy else []
    options += ["--all"] if args.all_checks else []
    rows = inspect_hosts(
        hosts, shlex.split(args.via), options, args.out, name=args.name, timeout=args.timeout
    )
    _print_results(rows, as_json=args.json)
    return 0


def _racks(args: argparse.Namespace) -> dict[str, str]:
    """Return the racks that the CMDB gives the machines of --pair; empty without a CMDB."""
    from forewarn.features.errors import InputError
    from forewarn.pipelines.ingest.cmdb import read_cmdb

    if args.cmdb is None:
        return {}
    known = read_cmdb(args.cmdb).racks
    racks = {host: known.get(host, "") for part in args.pair for host in part}
    unknown = next((host for host, rack in racks.items() if not rack), None)
    if unknown is not None:
        raise InputError(
            f"{args.cmdb}: found no rack of {unknown!r}, expected a row with its `machine_id` and "
            "`rack`. Without --cmdb all pairs are tested."
        )
    return racks


def _run_pairs(args: argparse.Namespace) -> int:
    import time
    import uuid

    from forewarn.pipelines.inspection.precheck import (
        group_rows,
        measure_all_pairs,
        measure_by_rack,
        measure_rings,
    )
    from forewarn.pipelines.inspection.result_files import write_results

    racks = _racks(args)
    with _probes(args, args.pair, "--pair") as pool:
        moment = time.time_ns()
        verdict, results = measure_by_rack(pool, racks) if racks else measure_all_pairs(pool)
        groups = [*results, *measure_rings(pool, results)]
    run = uuid.uuid4().hex[:12]
    write_results(list(group_rows(groups, run=run, moment=moment, name=args.name)), args.out)
    if args.json:
        print(json.dumps(verdict.line()), flush=True)
        return 0
    for words in verdict.words():
        write_line(words)
    return 0


def _run(args: argparse.Namespace) -> int:
    if args.pair:
        return _run_pairs(args)
    if args.hosts:
        return _run_hosts(args)
    from forewarn.pipelines.inspection.check_files import load_checks, select_checks
    from forewarn.pipelines.inspection.inspection_run import Inspection, inspect_machine
    from forewarn.pipelines.inspection.result_files import nagios_result

    known = load_checks(args.checks)
    if args.nhc is not None:
        from forewarn.pipelines.inspection.check_files import load_nhc_checks

        known |= load_nhc_checks(args.nhc, args.machine)
    checks = select_checks(known, args.name)
    rows = inspect_machine(
        Inspection(
            args.machine,
            args.name,
            checks,
            args.out,
            timeout=args.timeout,
            burn_in=args.burn_in,
            while_busy=args.while_busy,
            all_checks=args.all_checks,
            cmdb=args.cmdb,
        )
    )
    if args.nagios:
        code, text = nagios_result(rows, checks)
        write_line(text)
        return code
    _print_results(rows, as_json=args.json)
    return 0


def _print_results(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    from forewarn.pipelines.inspection.result_files import result_lines

    if as_json:
        for row in rows:
            print(json.dumps(row), flush=True)
        return
    for machine in dict.fromkeys(row["machine"] for row in rows):
        for words in result_lines([row for row in rows if row["machine"] == machine]):
            write_line(words)

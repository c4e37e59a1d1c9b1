"""The commands `lost`, `advise` and `launch`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    Parser,
    add_command,
    add_group,
    add_json,
    integer_at_least,
    time_argument,
    zone_argument,
)
from forewarn.pipelines.runtime.terminal import write_line

__all__ = ["add_advise", "add_launch", "add_lost"]


def add_lost(commands: Commands) -> None:
    """Add `forewarn lost`."""
    command = add_command(
        commands,
        "lost",
        _lost,
        "account for the GPU time of a job or of all jobs: useful, or lost by what",
        "sacct -D -P -j 4242 -o JobIDRaw,JobName,Submit,Start,End,State,AllocTRES,NodeList > runs\n"
        "  forewarn lost --job /shared/jobs/4242 --runs runs\n"
        "  forewarn lost --fleet /shared/jobs --runs runs --html lost.html",
    )
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--job", type=Path, metavar="JOB", help="folder, log or .tar.gz of a job")
    which.add_argument(
        "--fleet", type=Path, metavar="DIR", help="folder with a folder or log a job"
    )
    command.add_argument(
        "--runs",
        type=Path,
        metavar="FILE",
        help="output of `sacct -D -P`, or Slurm's file of completed jobs; without it, time outside "
        "the logs is not counted",
    )
    _add_sources(command)
    command.add_argument("--html", type=Path, metavar="PAGE", help="write the report as a page")
    add_json(command)


def _add_log_options(command: Parser) -> None:
    """Add options for what logs and scheduler do not tell."""
    command.add_argument(
        "--gpus",
        type=integer_at_least(1, 10**6),
        metavar="N",
        help="GPUs of a job, where the scheduler does not tell (default: its ranks)",
    )
    command.add_argument(
        "--timezone",
        type=zone_argument,
        metavar="ZONE",
        help="zone of times that state none, as Asia/Shanghai (default: UTC)",
    )


def _add_sources(command: Parser) -> None:
    _add_log_options(command)
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration of `respond`: findings in its ledger tell when trouble was detected",
    )


def _lost(args: argparse.Namespace) -> int:
    import datetime as dt

    from forewarn.pipelines.recovery.lost_job import (
        ledger_findings,
        lost_by_fleet,
        lost_by_job,
    )
    from forewarn.pipelines.recovery.lost_report import report_lines

    with ledger_findings(args.config) as finding_times:
        options: dict[str, Any] = {
            "gpus": args.gpus,
            "finding_times": finding_times,
            "zone": args.timezone or dt.UTC,
        }
        report = (
            lost_by_fleet(args.fleet, args.runs, **options)
            if args.job is None
            else lost_by_job(args.job, args.runs, **options)
        )
    if args.html is not None:
        from forewarn.pipelines.recovery.lost_page import write_lost_page

        write_lost_page(report, args.html)
    if args.json:
        print(json.dumps(report), flush=True)
        return 0
    for words in report_lines(report):
        write_line(words)
    return 0


def add_advise(commands: Commands) -> None:
    """Add `forewarn advise` and its commands."""
    parts = add_group(commands, "advise", "advise a job", metavar="COMMAND")
    _add_recovery(parts)
    command = add_command(
        parts,
        "checkpoint",
        _advise,
        "say how often a job should save, and whether a flagged machine is worth a checkpoint or a "
        "move",
        "forewarn advise checkpoint --job job.toml --at-risk lists --review review.json",
    )
    command.add_argument(
        "--job",
        type=Path,
        required=True,
        metavar="FILE",
        help='TOML: machines = ["node-[1-8]"], step = "2s", save = "30s", restart = "5min"; '
        "optionally detect, since_save, interruptions_per_day, gpus, spares",
    )
    command.add_argument("--at-risk", type=Path, metavar="LISTS", help="lists of `score`")
    command.add_argument(
        "--review",
        type=Path,
        metavar="FILE",
        help="output of `review --json`: what a flag is worth",
    )
    command.add_argument(
        "--at",
        type=time_argument,
        default="now",
        metavar="TIME",
        help="which list counts (default: now)",
    )
    add_json(command)


def _add_recovery(commands: Commands) -> None:
    command = add_command(
        commands,
        "recovery",
        _recovery,
        "say how an interrupted job goes on: which part to restart, for how long to wait, and what "
        "follows",
        "sacct -D -P -j 4242 -o JobIDRaw,JobName,Submit,Start,End,State,AllocTRES,NodeList > runs\n"
        "  forewarn advise recovery --job /shared/jobs/4242 --runs runs --config forewarn.toml",
    )
    for name, metavar, is_needed, words in (
        ("--job", "JOB", True, "folder, log or .tar.gz of a job"),
        ("--runs", "FILE", False, "output of `sacct -D -P`, or Slurm's file of completed jobs"),
        ("--lost", "FILE", False, "output of `lost --fleet --json`: how long restarts take here"),
    ):
        command.add_argument(name, type=Path, required=is_needed, metavar=metavar, help=words)
    _add_log_options(command)
    _add_recovery_options(command)
    add_json(command)


def _add_recovery_options(command: Parser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration: [respond.recovery], the policy, and the ledger with findings and "
        "earlier decisions",
    )
    command.add_argument(
        "--spares",
        type=integer_at_least(0, 10**6),
        metavar="N",
        help="machines that could replace one (default: unknown)",
    )
    command.add_argument(
        "--at",
        type=time_argument,
        default="now",
        metavar="TIME",
        help="later events are ignored (default: now)",
    )
    command.add_argument(
        "--begin",
        action="store_true",
        help="record in the ledger that the step begins; carry it out only after that",
    )
    command.add_argument(
        "--html",
        type=Path,
        metavar="PAGE",
        help="write a page for the person who is called: why the job stops or how it goes on, and "
        "what happened in each attempt",
    )


def _recovery(args: argparse.Namespace) -> int:
    import datetime as dt

    from forewarn.pipelines.recovery.recovery_advice import advise_recovery, recovery_lines
    from forewarn.pipelines.recovery.recovery_site import recovery_site

    if args.begin and args.config is None:
        raise OptionsError("--begin needs --config, expected the configuration of the ledger.")
    with recovery_site(args.config, spares=args.spares, writes=args.begin) as site:
        line = advise_recovery(
            *(args.job, args.runs, site),
            at=args.at,
            lost=args.lost,
            begins=args.begin,
            gpus=args.gpus,
            zone=args.timezone or dt.UTC,
        )
    if args.html is not None:
        from forewarn.pipelines.recovery.recovery_page import write_recovery_page

        write_recovery_page(line, args.html)
    if args.json:
        print(json.dumps(line), flush=True)
        return 0
    for words in recovery_lines(line):
        write_line(words)
    return 0


def _advise(args: argparse.Namespace) -> int:
    from forewarn.pipelines.recovery.job_advice import advice_lines, advise_job

    line = advise_job(args.job, args.at_risk, args.review, at=args.at)
    if args.json:
        print(json.dumps(line), flush=True)
        return 0
    for words in advice_lines(line):
        write_line(words)
    return 0


def add_launch(commands: Commands) -> None:
    """Add `forewarn launch`."""
    command = add_command(
        commands,
        "launch",
        _launch,
        "start a job with torchrun or DLRover, watch it, and start it again in place, with a "
        "spare, or smaller",
        "forewarn launch --job pretrain.toml\n"
        "  forewarn lost --job /shared/jobs/pretrain    (what each interruption cost)",
    )
    command.add_argument(
        "--job",
        type=Path,
        required=True,
        metavar="FILE",
        help='TOML: hosts = ["node-[1-9]"], nodes = 8, processes = 8, program = ["train.py"], '
        'folder = "/shared/jobs/pretrain", on_host = ["ssh", "{host}", "{command}"], and more',
    )
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration: the [ladder] of its policy limits restarts, and its levels of Xids "
        "tell which machine is damaged",
    )
    add_json(command, "print one JSON object per start, end and stop on stdout")


def _launch(args: argparse.Namespace) -> int:
    from forewarn.pipelines.recovery.job_launcher import JobLauncher, event_text
    from forewarn.pipelines.recovery.recovery_site import site_policy
    from forewarn.pipelines.runtime.interruption import stop_on_signals

    def report(event: dict[str, Any]) -> None:
        write_line(json.dumps(event) if args.json else event_text(event))

    policy = None if args.config is None else site_policy(args.config)
    return JobLauncher(args.job, report, stop_on_signals(), policy=policy).run()

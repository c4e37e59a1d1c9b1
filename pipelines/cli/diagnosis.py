"""The command `diagnose` and its subcommands, and `simulate job`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    Parser,
    add_command,
    add_group,
    add_json,
    add_out,
    add_seed,
    duration_in,
    hosts_argument,
    integer_at_least,
    time_argument,
    zone_argument,
)
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.pipelines.diagnosis.site_context import SiteContext

__all__ = ["add_diagnose", "add_simulate_job"]

_EVERY = 30.0  # seconds


def add_diagnose(commands: Commands) -> None:
    """Add `forewarn diagnose` and its commands."""
    parts = add_group(
        commands,
        "diagnose",
        "find the root cause of a stalled, slow or crashed job",
        metavar="COMMAND",
    )
    command = add_command(
        parts,
        "run",
        _run,
        "diagnose a job: is it stalled, slow or crashed, which rank is the cause, what to do next",
        "forewarn diagnose run --job /tmp/job --json\n"
        "  forewarn diagnose run --job slurm-4242.out\n"
        "  forewarn diagnose run --job job.tar.gz --html job.html",
    )
    command.add_argument(
        "--job", type=Path, required=True, metavar="JOB", help="folder, file or .tar.gz"
    )
    command.add_argument(
        "--at",
        type=time_argument,
        metavar="TIME",
        help="ignore everything later (default: the last time in any part)",
    )
    _add_context(command)
    command.add_argument("--html", type=Path, metavar="PAGE", help="write the verdict as a page")
    add_json(command)
    _add_watch(parts)
    _add_nodes(parts)
    _add_collect(parts)


def _add_context(command: Parser) -> None:
    """Add options for knowledge from outside the job's folder."""
    command.add_argument(
        "--events", type=Path, metavar="RECORDS", help="folder of `collect`: Xids, lost GPUs"
    )
    command.add_argument(
        "--at-risk", type=Path, metavar="AT_RISK", help="lists of `score`, as weak evidence"
    )
    command.add_argument(
        "--patterns",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="site changes to the log knowledge base, TOML; can be repeated",
    )
    command.add_argument(
        "--timezone",
        type=zone_argument,
        metavar="ZONE",
        help="zone of log times that state none, as Asia/Shanghai (default: guessed, else UTC)",
    )


def _site(args: argparse.Namespace) -> SiteContext:
    from forewarn.pipelines.diagnosis.site_context import SiteContext

    return SiteContext(args.events, args.at_risk, tuple(args.patterns), args.timezone)


def _run(args: argparse.Namespace) -> int:
    from forewarn.pipelines.diagnosis.diagnose_job import diagnose

    line = diagnose(args.job, _site(args), at=args.at).line()
    if args.html is not None:
        from forewarn.pipelines.diagnosis.diagnosis_page import write_diagnosis_page

        write_diagnosis_page(line, args.html)
    _print_verdict(line, args.json)
    return 0


def _print_verdict(line: dict[str, Any], as_json: bool) -> None:
    from forewarn.pipelines.diagnosis.diagnosis_text import diagnosis_lines

    if as_json:
        print(json.dumps(line), flush=True)
        return
    for words in diagnosis_lines(line):
        write_line(words)


def _add_watch(parts: Commands) -> None:
    command = add_command(
        parts,
        "watch",
        _watch,
        "diagnose running jobs repeatedly and report each new verdict once",
        "forewarn diagnose watch --jobs /shared/jobs --state /var/lib/forewarn/said.json --json",
    )
    command.add_argument(
        "--jobs", type=Path, required=True, metavar="DIR", help="folder of jobs, or of one job"
    )
    _add_context(command)
    command.add_argument(
        "--every",
        type=duration_in(SECOND),
        default=_EVERY,
        metavar="TIME",
        help="time between two diagnoses (default: 30s)",
    )
    command.add_argument(
        "--state", type=Path, metavar="FILE", help="file of reported verdicts, for restarts"
    )
    command.add_argument("--once", action="store_true", help="diagnose once and exit")
    add_json(command)


def _watch(args: argparse.Namespace) -> int:
    from forewarn.pipelines.diagnosis.job_watch import JobWatch
    from forewarn.pipelines.runtime.interruption import stop_on_signals

    watch = JobWatch(args.jobs, _site(args), args.state)
    for line in watch.look() if args.once else watch.run(args.every, stop_on_signals()):
        _print_verdict(line, args.json)
    return 0


def _add_nodes(commands: Commands) -> None:
    command = add_command(
        commands,
        "nodes",
        _nodes,
        "test the machines of a job in pairs before it starts: print the pairs to test next, and "
        "which nodes are faulty or slow or have a bad link",
        "forewarn diagnose nodes --nodes node-[1-8]                  (round 1)\n"
        "  # run a collective in each pair, at most 180 s; write round,nodes,passed,seconds:\n"
        "  #   1,node-1 node-2,true,12.1\n"
        "  forewarn diagnose nodes --nodes node-[1-8] --results results.csv   (round 2, and so on)",
    )
    command.add_argument(
        "--nodes",
        type=hosts_argument,
        default=(),
        metavar="LIST",
        help="node-[1-8,12], neighbours next to each other (default: those of the results)",
    )
    command.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="tests so far: CSV with round,nodes,passed,seconds, or one JSON object per line; or a "
        "table of all pairs (nodes,bandwidth), or output of nccl-tests (a file or a folder)",
    )
    add_json(command)


def _nodes(args: argparse.Namespace) -> int:
    from forewarn.pipelines.diagnosis.node_results import check_nodes

    if not args.nodes and args.results is None:
        raise OptionsError("--nodes or --results is required; both can be given.")
    checked = check_nodes(args.results, args.nodes)
    if args.json:
        print(json.dumps(checked.line()))
    else:
        for words in checked.words():
            write_line(words)
    return 0


def _add_collect(commands: Commands) -> None:
    command = add_command(
        commands,
        "collect",
        _collect,
        "save diagnostic data of the training jobs on this host for `diagnose run`; an agent whose "
        "policy has `[jobs]` does the same",
        "forewarn diagnose collect --policy agent.toml",
        extra="",
    )
    command.add_argument("--policy", type=Path, required=True, metavar="FILE", help="TOML")
    command.add_argument("--once", action="store_true", help="collect once and exit")


def _collect(args: argparse.Namespace) -> int:
    from forewarn.pipelines.agent.jobs.job_collector import JobCollector
    from forewarn.pipelines.config.agent_policy import load_policy
    from forewarn.pipelines.runtime.clock import SystemClock
    from forewarn.pipelines.runtime.interruption import stop_on_signals
    from forewarn.pipelines.runtime.progress import note

    policy = load_policy(args.policy)
    if policy.jobs.folder is None:
        raise OptionsError(f"{args.policy}: `jobs.folder` is missing, expected a folder.")
    jobs = JobCollector(policy.jobs, policy.jobs.folder, policy.machine_id, SystemClock(), note)
    if args.once:
        write_line(f"{jobs.collect()} training processes; saved in {policy.jobs.folder}")
        return 0
    jobs.run(stop_on_signals())
    return 0


def add_simulate_job(kinds: Commands) -> None:
    """Add `forewarn simulate job`."""
    command = add_command(
        kinds,
        "job",
        _simulate_job,
        "simulate the folder of a training job, with or without a fault, with ground truth",
        "forewarn simulate job --out /tmp/job --ranks 64 --fault loader --seed 1",
    )
    add_out(command)
    command.add_argument(
        "--ranks", type=integer_at_least(4, 4096), default=8, metavar="N", help="multiple of 4"
    )
    command.add_argument("--fault", type=_fault, default="none", metavar="KIND", help=_FAULTS)
    for option, words in (("trainer", _TRAINERS), ("launcher", _LAUNCHERS)):
        command.add_argument(
            f"--{option}",
            choices=("any", *words),
            default="any",
            metavar="NAME",
            help=f"form of the logs: {', '.join(words)} (default: one drawn from the seed)",
        )
    add_seed(command)


# The keys of `TRAINERS` and `LAUNCHERS`, which are not imported for the help.
_TRAINERS = ("plain", "megatron", "transformers", "nemo-bar", "nemo", "deepspeed", "torchtitan")
_LAUNCHERS = ("files", "torchrun", "slurm", "kubernetes", "mpirun", "deepspeed")
_FAULTS = (
    "loader, machine, collective, deadlock, sigstop, dstate (hangs), sigkill, exception, timeout "
    "(crashes), slow, jitter, none"
)


def _fault(text: str) -> str:
    from forewarn.evaluation.simulation.jobs.job_plan import JOB_FAULTS

    if text not in JOB_FAULTS:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected one of {', '.join(JOB_FAULTS)}")
    return text


def _simulate_job(args: argparse.Namespace) -> int:
    from forewarn.pipelines.sandbox.simulate_job import simulate_job_to

    if args.ranks % 4:
        raise OptionsError(f"--ranks is {args.ranks}, expected a multiple of 4.")
    simulate_job_to(args.out, args.ranks, args.fault, args.seed, args.trainer, args.launcher)
    write_line(f"wrote {args.out} and {args.out}/truth.json")
    return 0

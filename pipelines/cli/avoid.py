"""`forewarn avoid`: prints machines at risk as a scheduler option for large jobs."""

from __future__ import annotations

import argparse
import json

from forewarn.pipelines.cli.options import (
    Commands,
    add_at_risk,
    add_command,
    add_config,
    add_json,
    integer_at_least,
    time_argument,
)
from forewarn.pipelines.runtime.terminal import print_error, write_line

__all__ = ["add_avoid"]


def add_avoid(commands: Commands) -> None:
    """Add `forewarn avoid`."""
    command = add_command(
        commands,
        "avoid",
        _avoid,
        "print machines at risk as an option for large jobs, such as --exclude=node-[01,07]",
        "sbatch $(forewarn avoid --at-risk lists --most 8) job.sh",
    )
    add_at_risk(command, "LISTS")
    add_config(command)
    command.add_argument(
        "--at", type=time_argument, metavar="TIME", help="start of the job (default: now)"
    )
    command.add_argument(
        "--most",
        type=integer_at_least(1, 100_000),
        metavar="N",
        help="at most N machines, the most at risk (default: all flagged machines)",
    )
    add_json(command)


def _avoid(args: argparse.Namespace) -> int:
    from forewarn.pipelines.at_risk.stored_lists import newest_flagged
    from forewarn.pipelines.runtime.clock import SystemClock
    from forewarn.pipelines.runtime.timestamps import format_iso
    from forewarn.response.follow_up.avoid_list import avoid_list

    at = SystemClock().now() if args.at is None else args.at
    flagged = newest_flagged(args.at_risk, at)
    chosen = avoid_list(flagged.machines, most=args.most)
    if chosen.beyond:
        print_error(f"{chosen.beyond} more machines are at risk")
    if chosen.unusable:
        print_error(f"ignored: {len(chosen.unusable)} invalid names such as {chosen.unusable[0]!r}")
    if args.json:
        figures = {
            "at": format_iso(at),
            "list": flagged.date,
            "valid_until": format_iso(flagged.valid_until),
            "machines": list(chosen.machines),
            "hostlist": chosen.hostlist,
            "beyond": chosen.beyond,
        }
        print(json.dumps(figures))
    elif chosen.machines:
        write_line(chosen.option)
    return 0

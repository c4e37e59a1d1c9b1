"""The commands around a job that hangs, crawls or has crashed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forewarn.pipelines.cli.options import Commands, add_command, add_group, add_json, moment
from forewarn.pipelines.runtime.terminal import say

__all__ = ["add_diagnose"]


def add_diagnose(commands: Commands) -> None:
    """Add `forewarn diagnose` and its commands."""
    parts = add_group(
        commands, "diagnose", "say which rank a job waits for, and why", metavar="COMMAND"
    )
    command = add_command(
        parts,
        "run",
        _run,
        "look at the folder of one job: does it hang, crawl, or has it crashed, and who began it",
        "forewarn diagnose run --job /tmp/job --json",
    )
    command.add_argument("--job", type=Path, required=True, metavar="DIR", help="folder of the job")
    command.add_argument(
        "--at",
        type=moment,
        metavar="TIME",
        help="nothing later is read (default: the last time in any part)",
    )
    command.add_argument(
        "--events", type=Path, metavar="RECORDS", help="what `collect` writes: Xids, lost GPUs"
    )
    command.add_argument(
        "--at-risk", type=Path, metavar="AT_RISK", help="lists of `forewarn score`, as a sign"
    )
    command.add_argument("--html", type=Path, metavar="PAGE", help="page for people to write")
    add_json(command)


def _run(args: argparse.Namespace) -> int:
    from forewarn.pipelines.diagnosis.run import diagnose
    from forewarn.pipelines.diagnosis.sentences import diagnosis_words

    line = diagnose(args.job, at=args.at, events=args.events, at_risk=args.at_risk).line()
    if args.html is not None:
        from forewarn.pipelines.diagnosis.page import write_page

        write_page(line, args.html)
    if args.json:
        print(json.dumps(line))
    else:
        for words in diagnosis_words(line):
            say(words)
    return 0

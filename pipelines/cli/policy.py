"""The command `policy`: compares policies and replays them on past data."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forewarn.pipelines.cli.options import (
    Commands,
    add_command,
    add_config,
    add_group,
    add_json,
    add_records,
    load_config_option,
)
from forewarn.pipelines.runtime.terminal import print_error

__all__ = ["add_policy"]

_DEFAULT = "default"


def add_policy(commands: Commands) -> None:
    """Add `forewarn policy`."""
    group = add_group(commands, "policy", "compare response policies, or replay one on past data")
    _add_diff(group)
    _add_replay(group)


def _overlays(name: str) -> list[Path]:
    return [] if name == _DEFAULT else [Path(name)]


def _add_diff(commands: Commands) -> None:
    command = add_command(
        commands,
        "diff",
        _diff,
        "print the differences between two policies",
        "forewarn policy diff default site.toml",
        extra="server",
    )
    for name, metavar in (("before", "A"), ("after", "B")):
        text = "site policy file, merged over the default, or `default`"
        command.add_argument(name, metavar=metavar, help=text)
    add_json(command, "print one JSON object per change on stdout")


def _diff(args: argparse.Namespace) -> int:
    from forewarn.pipelines.incidents.replay.policy_file import load_policy
    from forewarn.response.policy.policy_diff import diff_policies

    before, after = (load_policy(_overlays(name)) for name in (args.before, args.after))
    for change in diff_policies(before, after):
        line = {
            "names": list(change.names),
            "key": change.key,
            "before": change.before,
            "after": change.after,
        }
        print(json.dumps(line) if args.json else change.text)
    return 0


def _add_replay(commands: Commands) -> None:
    command = add_command(
        commands,
        "replay",
        _replay,
        "replay a policy on past data: print its decisions, and how many were right",
        "forewarn policy replay --policy site.toml --records records --at-risk lists "
        "--html replay.html",
        extra="server",
    )
    command.add_argument(
        "--policy",
        action="append",
        metavar="FILE",
        help="site policy file, merged over the default, or `default`; later files override "
        "earlier ones (default: those of the configuration)",
    )
    add_records(command)
    command.add_argument(
        "--at-risk", type=Path, metavar="DIR", help="folder of date=.../at_risk.parquet"
    )
    command.add_argument(
        "--failures",
        type=Path,
        metavar="FILE",
        help="CSV or Parquet with gpu_serial and failed_at (default: failures.parquet of the "
        "records)",
    )
    add_config(command)
    add_json(command, "print one JSON object per decision, then a summary, on stdout")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page")


def _replay(args: argparse.Namespace) -> int:
    from forewarn.pipelines.incidents.replay.replay_report import replay_records, replay_text

    settings = load_config_option(args)
    if args.policy is None:
        overlays = [args.config.parent / name for name in settings.respond.policy]
    else:
        overlays = [path for name in args.policy for path in _overlays(name)]
    report = replay_records(
        args.records,
        settings,
        overlays=overlays,
        at_risk=args.at_risk,
        failures=args.failures,
    )
    if args.html is not None:
        from forewarn.pipelines.incidents.replay.replay_page import write_replay_page

        write_replay_page(report, args.html)
        print_error(f"wrote {args.html}")
    if args.json:
        for line in report.lines():
            print(json.dumps(line))
    else:
        print(replay_text(report))
    return 0

"""`forewarn blocks`: keeps a machine out of one job."""

from __future__ import annotations

import argparse
import getpass
import json
import re
import time
from typing import TYPE_CHECKING, Any

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.operator_commands import open_site
from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    Parser,
    add_command,
    add_config,
    add_group,
    add_json,
    integer_at_least,
    time_argument,
)
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.response.state.job_block import JobBlock

__all__ = ["add_blocks"]

_WEEK = 7 * 86_400 * 10**9  # nanoseconds
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,252}")


class BlockError(InputError):
    """A block that cannot be changed."""


def add_blocks(commands: Commands) -> None:
    """Add `forewarn blocks`."""
    group = add_group(commands, "blocks", "keep a machine out of one job when it starts again")
    command = _add(
        *(group, "add", _block, "block a machine for a job, within the limits on avoided machines"),
        "forewarn blocks add 4711 node-17 --config my.toml --why 'wrong losses'",
    )
    command.add_argument("job", type=_name, metavar="JOB", help="job in the scheduler")
    command.add_argument("machine", type=_name, metavar="MACHINE", help="machine to keep out")
    command.add_argument("--why", required=True, metavar="TEXT", help="reason, kept in the ledger")
    command.add_argument(
        "--until",
        type=time_argument,
        metavar="TIME",
        help="end of the block (default: in a week; it also ends with the job)",
    )
    command = _add(
        *(group, "list", _list, "list blocks, with their owner, reason and end"),
        "forewarn blocks list --config my.toml",
    )
    command.add_argument("--all", action="store_true", help="include blocks that have ended")
    command = _add(
        *(group, "lift", _lift, "end a block"), "forewarn blocks lift 3 --config my.toml"
    )
    command.add_argument(
        "block", type=integer_at_least(1, 2**63 - 1), metavar="BLOCK", help="number of the block"
    )


def _add(group: Commands, name: str, run: Any, text: str, example: str) -> Parser:
    command = add_command(group, name, run, text, example, extra="server")
    add_config(command)
    add_json(command, "print one JSON object per block on stdout")
    return command


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"found {text[:60]!r}, expected a name of the scheduler")
    return text


def _block(args: argparse.Namespace) -> int:
    from forewarn.features.time_units import Nanoseconds
    from forewarn.response.state.job_block import JobBlock

    now = Nanoseconds(time.time_ns())
    until = Nanoseconds(now + _WEEK if args.until is None else args.until)
    if until <= now:
        raise OptionsError("found `--until` in the past, expected a later time.")
    block = JobBlock(0, args.job, args.machine, args.why, getpass.getuser(), now, until)
    with open_site(args).ledger() as ledger:
        added = ledger.add_block(block)
    if added is None:
        raise BlockError(f"job {args.job} is already blocked from {args.machine}.")
    _print(added, args.json)
    return 0


def _list(args: argparse.Namespace) -> int:
    with open_site(args).ledger_to_look_at() as ledger:
        blocks = ledger.blocks()
    shown = [block for block in blocks if block.open or args.all]
    for block in shown:
        _print(block, args.json)
    if not shown and not args.json:
        write_line("no blocks" if args.all else "no open blocks")
    return 0


def _lift(args: argparse.Namespace) -> int:
    from forewarn.features.time_units import Nanoseconds
    from forewarn.response.state.job_block import BlockState

    with open_site(args).ledger() as ledger:
        block = next((b for b in ledger.open_blocks() if b.id == args.block), None)
        if block is None:
            raise BlockError(f"block {args.block}: not an open block, see `forewarn blocks list`.")
        detail = f"lifted by {getpass.getuser()}"
        now = Nanoseconds(time.time_ns())
        lifted = ledger.advance_block(block, BlockState.LIFTING, now=now, detail=detail)
    if lifted is None:
        raise BlockError(f"block {args.block}: changed meanwhile, try again.")
    _print(lifted, args.json)
    return 0


def _print(block: JobBlock, as_json: bool) -> None:
    from forewarn.pipelines.runtime.timestamps import format_iso

    end = format_iso(block.valid_until)
    if as_json:
        line = {
            "block": block.id,
            "job": block.job,
            "machine": block.machine,
            "state": block.state.value,
            "reason": block.reason,
            "owner": block.owner,
            "at": format_iso(block.at),
            "valid_until": end,
            "detail": block.detail,
        }
        print(json.dumps(line))
        return
    detail = f" ({block.detail})" if block.detail else ""
    write_line(
        f"{block.id}  {block.machine} for job {block.job}: {block.state}{detail}, until {end}, "
        f"by {block.owner}: {block.reason}"
    )

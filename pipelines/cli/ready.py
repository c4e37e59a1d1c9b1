"""`forewarn ready`: tells whether a machine may start a job, from the file that its agent keeps.

Slurm waits for it before each job. Nothing but the standard library is imported on that way.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from forewarn.pipelines.runtime.terminal import escape_text, print_error

if TYPE_CHECKING:
    from forewarn.pipelines.cli.options import Commands

__all__ = ["add_ready", "run_ready"]

_READY_FILE: Final = "ready.json"  # docs/reference/formats.md describes it

_STATE = Path("/var/lib/forewarn-agent")
_FRESH_INTERVALS = 3
_MAX_FILE_BYTES = 1 << 20
_READY, _NOT_READY, _UNKNOWN = 0, 1, 2
_TEXT = "tell whether a machine may start a job: exit code 0 if ready, 1 if not"
_EXAMPLE = (
    "forewarn ready --machine node-17\n"
    '  forewarn ready --machine "$SLURMD_NODENAME" --for prolog   (in a prolog of Slurm)'
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, since a prolog must not fail."""
        raise ValueError(message)


def add_ready(commands: Commands) -> None:
    """Add `forewarn ready`."""
    from forewarn.pipelines.cli.options import add_command, complete_path

    command = add_command(commands, "ready", _run, _TEXT, _EXAMPLE, extra="")
    _add_options(command)
    for action in command._actions:
        complete_path(action)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--machine", required=True, metavar="NAME", help="name of this machine")
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=("prolog", "healthcheck"),
        help="`prolog`: 1 only if the agent has just reported damage, 0 if nothing is known; "
        "`healthcheck`: always 0",
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=_STATE,
        metavar="DIR",
        help=f"state folder of the agent (default: {_STATE})",
    )


def run_ready(arguments: Sequence[str]) -> int:
    """Print whether a machine is ready, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str
        Options of the command. An invalid one is exit code 2, but 0 in a prolog or health check.
    """
    parser = _Parser(prog="forewarn ready")
    _add_options(parser)
    try:
        return _run(parser.parse_args(arguments))
    except ValueError as error:
        print_error(f"forewarn ready: error: {error}")
        in_scheduler = {"prolog", "healthcheck"} & set(
            " ".join(arguments).replace("=", " ").split()
        )
        return _READY if in_scheduler else _UNKNOWN


def _run(args: argparse.Namespace) -> int:
    try:
        code, text = _answer(args.state / _READY_FILE, args.machine, time.time())
    except Exception as error:  # whatever is wrong with the file must not empty a cluster
        code, text = _UNKNOWN, f"{args.state / _READY_FILE}: {_reason(error)}"
    if code == _READY:
        print(escape_text(text))
    else:
        print_error(f"forewarn ready: {text}")
    if args.purpose is None:
        return code
    return _NOT_READY if code == _NOT_READY and args.purpose == "prolog" else _READY


def _answer(path: Path, machine: str, now: float) -> tuple[int, str]:
    """Return the exit code without a purpose, and a line that explains it."""
    with path.open("rb") as file:
        content: dict[str, Any] = json.loads(file.read(_MAX_FILE_BYTES))
    if content["machine"] != machine:
        raise ValueError(f"is about {content['machine']!r}, expected {machine!r}")
    lifetime = _FRESH_INTERVALS * float(content["interval_seconds"])
    age = now - _seconds(content["at"])
    if abs(age) >= lifetime:
        raise ValueError(f"was written {age:.0f} s ago, expected less than {lifetime:.0f} s")
    fresh = [row for row in content["faults"] if abs(now - _seconds(row["at"])) < lifetime]
    if not fresh:
        return _READY, f"{machine} is ready"
    first = fresh[0]
    words = " ".join(str(first[name]) for name in ("gpu", "kind", "code") if first.get(name))
    more = f" and {len(fresh) - 1} more" if len(fresh) > 1 else ""
    return _NOT_READY, f"{machine} is not ready: {words} at {first['at']}{more}"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"has no {error}" if isinstance(error, KeyError) else str(error)

"""The command line: one verb for each stage, no logic of its own."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.extras import missing_extra, require_extra
from forewarn.pipelines.cli.options import Commands, Parser
from forewarn.pipelines.runtime.heap import keep_memory
from forewarn.pipelines.runtime.terminal import complain

__all__ = ["build_parser", "main"]

_LONGEST = 500  # characters of what is wrong
# Command -> the module beside this one and its function that adds the command.
_ADDED_BY = {
    "demo": ("sandbox", "add_demo"),
    "simulate": ("sandbox", "add_simulate"),
    "agent": ("collection", "add_agent"),
    "collect": ("collection", "add_collect"),
    "ingest": ("collection", "add_ingest"),
    "compact": ("compaction", "add_compact"),
    "doctor": ("prediction", "add_doctor"),
    "backtest": ("prediction", "add_backtest"),
    "train": ("prediction", "add_train"),
    "retrain": ("models", "add_retrain"),
    "models": ("models", "add_models"),
    "up": ("sandbox", "add_up"),
    "score": ("prediction", "add_score"),
    "review": ("prediction", "add_review"),
    "detect": ("detection", "add_detect"),
    "diagnose": ("diagnosis", "add_diagnose"),
    "respond": ("respond", "add_respond"),
    "incidents": ("acting", "add_incidents"),
    "approve": ("acting", "add_approve"),
    "drain": ("acting", "add_drain"),
    "undo": ("acting", "add_undo"),
    "ack": ("acting", "add_ack"),
    "outcome": ("acting", "add_outcome"),
    "switch": ("acting", "add_switch"),
    "policy": ("policy", "add_policy"),
    "avoid": ("avoid", "add_avoid"),
    "study": ("studies", "add_study"),
}


def build_parser(command: str | None) -> Parser:
    """Return the parser of one command; of all commands if `command` is not one of them."""
    parser = Parser(
        prog="forewarn",
        description="Tells which GPUs of a fleet will fail within a day, and why.",
        epilog="example:\n  forewarn demo            (everything once, on a simulated fleet)\n"
        "  forewarn backtest --help  (each command has an example)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    if command in _ADDED_BY:  # an agent does not wait for the modules of other commands
        _add(command, commands)
        return parser
    parser.add_argument("--version", action="version", version=f"forewarn {version('forewarn')}")
    for name in _ADDED_BY:
        _add(name, commands)
    _add_completion(commands, parser)
    return parser


def _add(command: str, commands: Commands) -> None:
    module, function = _ADDED_BY[command]
    getattr(importlib.import_module(f"forewarn.pipelines.cli.{module}"), function)(commands)


def _add_completion(commands: Commands, parser: Parser) -> None:
    from forewarn.pipelines.cli.completion import add_completion

    add_completion(commands, parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, after one line where the input is wrong."""
    keep_memory()
    atexit.register(gc.freeze)  # to look for garbage on the way out took half a second
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses, secrets and all
    # A home that cannot be written to costs it its cache of fonts, and nobody a result.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that an old terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()  # here an error of it can be said; at the exit it cannot
    except BrokenPipeError:  # whoever read our output has enough, such as `head`
        _drop_output()
        return 128 + signal.SIGPIPE
    except (InputError, OSError) as error:
        complain(f"forewarn: error: {_described(error)}")
        return 2
    except KeyboardInterrupt:
        complain("forewarn: interrupted")
        return 128 + signal.SIGINT
    return code


def _run(words: Sequence[str]) -> int:
    """Run one command; a module that is missing belongs to an extra, or it is a bug."""
    try:
        args = build_parser(words[0] if words else None).parse_args(words)
        require_extra(args.command, args.extra)
        run: Callable[[argparse.Namespace], int] = args.run
        return run(args)
    except ModuleNotFoundError as error:
        if missing := missing_extra(f"forewarn {words[0]}", error):
            raise missing from None
        raise


def _described(error: InputError | OSError) -> str:
    """Say what is wrong, and with which file; a cell that is quoted may be long."""
    text = str(error)
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else text
        text = f"{error.filename or 'the output'}: {reason}."
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _drop_output() -> None:
    """Let what is still to be written go nowhere, or the exit would complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

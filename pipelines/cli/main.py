"""Entry point of the command line; commands contain no logic of their own."""

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
from forewarn.pipelines.cli.site_defaults import fill_site_defaults
from forewarn.pipelines.runtime.allocator_tuning import tune_process_memory
from forewarn.pipelines.runtime.terminal import print_error

__all__ = ["build_parser", "main"]

_MAX_MESSAGE_LENGTH = 500  # characters of an error message
# Command -> module in this package, and its function that adds the command.
_COMMAND_MODULES = {
    "start": ("start", "add_start"),
    "demo": ("sandbox", "add_demo"),
    "simulate": ("sandbox", "add_simulate"),
    "agent": ("collection", "add_agent"),
    "ready": ("ready", "add_ready"),
    "collect": ("collection", "add_collect"),
    "ingest": ("collection", "add_ingest"),
    "config": ("config", "add_config_command"),
    "compact": ("compaction", "add_compact"),
    "doctor": ("prediction", "add_doctor"),
    "backtest": ("prediction", "add_backtest"),
    "train": ("prediction", "add_train"),
    "retrain": ("models", "add_retrain"),
    "tune": ("tuning", "add_tune"),
    "models": ("models", "add_models"),
    "up": ("sandbox", "add_up"),
    "score": ("prediction", "add_score"),
    "review": ("prediction", "add_review"),
    "detect": ("detection", "add_detect"),
    "diagnose": ("diagnosis", "add_diagnose"),
    "inspect": ("inspection", "add_inspect"),
    "lost": ("recovery", "add_lost"),
    "advise": ("recovery", "add_advise"),
    "launch": ("recovery", "add_launch"),
    "respond": ("respond", "add_respond"),
    "console": ("console", "add_console"),
    "incidents": ("operator_commands", "add_incidents"),
    "approve": ("operator_commands", "add_approve"),
    "drain": ("operator_commands", "add_drain"),
    "undo": ("operator_commands", "add_undo"),
    "blocks": ("blocks", "add_blocks"),
    "ack": ("operator_commands", "add_ack"),
    "outcome": ("operator_commands", "add_outcome"),
    "repairs": ("repairs", "add_repairs"),
    "switch": ("operator_commands", "add_switch"),
    "messages": ("messages", "add_messages"),
    "policy": ("policy", "add_policy"),
    "avoid": ("avoid", "add_avoid"),
    "study": ("studies", "add_study"),
}


def build_parser(command: str | None) -> Parser:
    """Return a parser of one command, or of all commands if the name is unknown."""
    parser = Parser(
        prog="forewarn",
        description="Predicts GPU failures, finds faulty machines, diagnoses jobs, and responds.",
        epilog="example:\n  forewarn demo            (all steps once, on a simulated fleet)\n"
        "  forewarn backtest --help  (each command has an example)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    if command in _COMMAND_MODULES:  # load no modules of other commands
        _add(command, commands)
        return parser
    parser.add_argument("--version", action="version", version=f"forewarn {version('forewarn')}")
    for name in _COMMAND_MODULES:
        _add(name, commands)
    _add_completion(commands, parser)
    return parser


def _add(command: str, commands: Commands) -> None:
    module, function = _COMMAND_MODULES[command]
    getattr(importlib.import_module(f"forewarn.pipelines.cli.{module}"), function)(commands)


def _add_completion(commands: Commands, parser: Parser) -> None:
    from forewarn.pipelines.cli.completion import add_completion

    add_completion(commands, parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; invalid input is reported in one line."""
    tune_process_memory()
    atexit.register(gc.freeze)  # garbage collection at exit took half a second
    logging.getLogger("httpx").setLevel(logging.WARNING)  # its messages contain secrets
    # Without a writable home, matplotlib has no font cache; this does not affect results.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that an old terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()  # report a write error here; at exit it is too late
    except BrokenPipeError:  # the reader of our output has stopped, such as `head`
        _discard_output()
        return 128 + signal.SIGPIPE
    except (InputError, OSError) as error:
        print_error(f"forewarn: error: {_error_text(error)}")
        return 2
    except KeyboardInterrupt:
        print_error("forewarn: interrupted")
        return 128 + signal.SIGINT
    return code


def _run(arguments: Sequence[str]) -> int:
    """Run one command; report a missing module as a missing extra if it belongs to one."""
    try:
        args = build_parser(arguments[0] if arguments else None).parse_args(arguments)
        require_extra(args.command, args.extra)
        fill_site_defaults(args)
        run: Callable[[argparse.Namespace], int] = args.run
        return run(args)
    except ModuleNotFoundError as error:
        if missing := missing_extra(f"forewarn {arguments[0]}", error):
            raise missing from None
        raise


def _error_text(error: InputError | OSError) -> str:
    """Return the error message with the file; long quoted values are truncated."""
    text = str(error)
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else text
        text = f"{error.filename or 'the output'}: {reason}."
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:_MAX_MESSAGE_LENGTH]}..."


def _discard_output() -> None:
    """Discard pending output, which would raise an error at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

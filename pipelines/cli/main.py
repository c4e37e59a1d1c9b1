"""The command line: one verb for each stage, no logic of its own."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.acting import add_acting
from forewarn.pipelines.cli.avoid import add_avoid
from forewarn.pipelines.cli.collection import add_agent, add_collect, add_ingest
from forewarn.pipelines.cli.completion import add_completion
from forewarn.pipelines.cli.detection import add_detect
from forewarn.pipelines.cli.diagnosis import add_diagnose
from forewarn.pipelines.cli.models import add_models, add_retrain
from forewarn.pipelines.cli.options import Parser
from forewarn.pipelines.cli.policy import add_policy
from forewarn.pipelines.cli.prediction import (
    add_backtest,
    add_doctor,
    add_review,
    add_score,
    add_train,
)
from forewarn.pipelines.cli.respond import add_respond
from forewarn.pipelines.cli.sandbox import add_demo, add_simulate, add_up
from forewarn.pipelines.cli.studies import add_study
from forewarn.pipelines.runtime.terminal import complain

__all__ = ["main"]

_LONGEST = 500  # characters of what is wrong


def _parser() -> Parser:
    parser = Parser(
        prog="forewarn",
        description="Tells which GPUs of a fleet will fail within a day, and why.",
        epilog="example:\n  forewarn demo            (everything once, on a simulated fleet)\n"
        "  forewarn backtest --help  (each command has an example)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for add in (
        add_demo,
        add_simulate,
        add_agent,
        add_collect,
        add_ingest,
        add_doctor,
        add_backtest,
        add_train,
        add_retrain,
        add_models,
        add_up,
        add_score,
        add_review,
        add_detect,
        add_diagnose,
        add_respond,
        add_acting,
        add_policy,
        add_avoid,
        add_study,
    ):
        add(commands)
    add_completion(commands, parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, after one line where the input is wrong."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses, secrets and all
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that an old terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        args = _parser().parse_args(argv)
        run: Callable[[argparse.Namespace], int] = args.run
        code = run(args)
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

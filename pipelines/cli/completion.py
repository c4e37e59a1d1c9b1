"""Shell completion of commands, options and paths."""

from __future__ import annotations

import argparse
from functools import partial

from forewarn.pipelines.cli.options import Commands, Parser, add_command

__all__ = ["add_completion"]


def add_completion(commands: Commands, parser: Parser) -> None:
    """Add `forewarn completion` for all commands of `parser`."""
    command = add_command(
        commands,
        "completion",
        partial(_completion, parser),
        "print a script that completes commands, options and paths in a shell",
        'eval "$(forewarn completion bash)"',
        extra="",
    )
    command.add_argument("shell", choices=("bash", "zsh"), help="bash or zsh")


def _completion(parser: Parser, args: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(parser, shell=args.shell))
    return 0

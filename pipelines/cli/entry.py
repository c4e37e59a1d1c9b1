"""Entry point of the program: a command that a scheduler waits for loads no other command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run one command and return its exit code."""
    if sys.argv[1:2] == ["ready"] and not {"-h", "--help"} & set(sys.argv):
        from forewarn.pipelines.cli.ready import run_ready

        return run_ready(sys.argv[2:])
    from forewarn.pipelines.cli.main import main as run_command

    return run_command()

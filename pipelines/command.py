"""What the commands of the command line share: how they are added, and how options are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from forewarn.pipelines.terminal import plain

if TYPE_CHECKING:
    from forewarn.pipelines.settings import Settings

__all__ = [
    "Parser",
    "add_at",
    "add_command",
    "add_config",
    "add_fitted",
    "add_records",
    "moment",
    "names_of",
    "settings_of",
    "whole",
]


_LONGEST = 300  # characters of what is wrong: an option may be a file's worth of text


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Say it and leave with exit code 2."""
        said = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
        self.exit(2, f"{self.prog}: error: {plain(said)} (see {self.prog} --help)\n")


def moment(text: str) -> int:
    """Read a date or time of the command line, as nanoseconds since 1970 UTC."""
    from forewarn.pipelines.moments import parse_moment

    try:
        return parse_moment(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"found {_short(text)!r}, expected a date or time such as 2025-03-01 or "
            "2025-03-01T06:00:00Z"
        ) from None


def whole(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a reader of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:  # also of thousands of digits
            number = least - 1
        if not least <= number <= most:
            found = repr(text) if len(text) <= 20 else f"{text[:20]!r}..."
            bound = "" if number <= most else f" and at most {most}"
            raise argparse.ArgumentTypeError(
                f"found {found}, expected a whole number of at least {least}{bound}"
            )
        return number

    return parse


def names_of(text: str, known: Collection[str], separator: str = ",") -> tuple[str, ...]:
    """Read names that are separated by commas or alike, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(separator)))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"found {unknown[0]!r}, expected names of {separator.join(known)}"
        )
    return names


def settings_of(args: argparse.Namespace) -> Settings:
    """Read the configuration that --config names."""
    from forewarn.pipelines.settings import load_settings

    return load_settings(args.config)


def add_command(
    commands: argparse._SubParsersAction[Parser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
) -> Parser:
    """Add a command with its help and an example."""
    command = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def add_config(command: Parser, text: str = "configuration, TOML (default: built in)") -> None:
    """Add --config."""
    command.add_argument("--config", type=Path, metavar="FILE", help=text)


def add_fitted(command: Parser, text: str) -> None:
    """Add --model of a detector."""
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help=text)


def add_records(command: Parser) -> None:
    """Add --records."""
    command.add_argument(
        "--records", type=Path, required=True, help="folder of date=YYYY-MM-DD/*.parquet"
    )


def add_at(command: Parser) -> None:
    """Add --at."""
    command.add_argument(
        "--at", type=moment, required=True, metavar="TIME", help="nothing later is read"
    )

"""Options that commands share, and parsers of their values."""

from __future__ import annotations

import argparse
import datetime as dt
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.site_defaults import SiteDefault
from forewarn.pipelines.runtime.terminal import escape_text

if TYPE_CHECKING:
    from forewarn.pipelines.config.settings import Settings
    from forewarn.pipelines.storage.files.location import Location

__all__ = [
    "Commands",
    "OptionsError",
    "Parser",
    "add_at",
    "add_at_risk",
    "add_command",
    "add_config",
    "add_detector_model",
    "add_gpus",
    "add_group",
    "add_json",
    "add_out",
    "add_records",
    "add_seed",
    "complete_path",
    "duration_in",
    "hosts_argument",
    "integer_at_least",
    "load_config_option",
    "model_names",
    "parse_names",
    "positive_number",
    "records_location",
    "require_start_before_end",
    "time_argument",
    "zone_argument",
]


# The value of `shtab.FILE`; importing it here would slow down every command.
_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files"}
_MAX_MESSAGE_LENGTH = 300  # characters of a message: an option may be as long as a file


class OptionsError(InputError):
    """A combination of options that is not valid."""


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


class Parser(argparse.ArgumentParser):
    """A parser with one-line error messages and shell completion of paths."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument like argparse does."""
        return complete_path(super().add_argument(*names, **options))

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with code 2."""
        reason = (
            message
            if len(message) <= _MAX_MESSAGE_LENGTH
            else f"{message[:_MAX_MESSAGE_LENGTH]}..."
        )
        self.exit(2, f"{self.prog}: error: {escape_text(reason)} (see {self.prog} --help)\n")


class Commands(Protocol):
    """A parser's subcommands, to which one can be added."""

    def add_parser(
        self,
        name: str,
        *,
        help: str,
        description: str | None = None,
        epilog: str | None = None,
        formatter_class: type[argparse.HelpFormatter] = argparse.HelpFormatter,
    ) -> Parser:
        """Add a command and return its parser."""
        ...


def complete_path(action: argparse.Action) -> argparse.Action:
    """Enable shell completion of an argument if it is a path."""
    if action.type in (Path, records_location, _local_folder):
        action.complete = _FILES  # type: ignore[attr-defined]  # shtab reads it
    return action


def time_argument(text: str) -> int:
    """Parse a date or time, or `now`, as nanoseconds since 1970 UTC."""
    from forewarn.pipelines.runtime.clock import SystemClock
    from forewarn.pipelines.runtime.timestamps import parse_moment

    if text == "now":
        return SystemClock().now()
    try:
        return parse_moment(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"found {_short(text)!r}, expected a date or time such as 2025-03-01 or "
            "2025-03-01T06:00:00Z, or now"
        ) from None


def duration_in(unit: int) -> Callable[[str], float]:
    """Return a parser of durations such as 90s or 48h, in units of so many nanoseconds."""

    def parse(text: str) -> float:
        from forewarn.features.duration import parse_duration

        try:
            return parse_duration(text) / unit
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"found {_short(text)!r}, {error}") from None

    return parse


def hosts_argument(text: str) -> tuple[str, ...]:
    """Parse names of hosts such as node-[1-8]."""
    from forewarn.features.hostlist import HostlistError, expand

    try:
        return tuple(expand(text))
    except HostlistError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def zone_argument(text: str) -> dt.tzinfo:
    """Parse the name of a time zone."""
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not a time zone, expected a name such as Asia/Shanghai"
        ) from None


def integer_at_least(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a parser of integers from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:  # also with thousands of digits
            number = least - 1
        if not least <= number <= most:
            quoted = repr(text) if len(text) <= 20 else f"{text[:20]!r}..."
            bound = "" if number <= most else f" and at most {most}"
            raise argparse.ArgumentTypeError(
                f"found {quoted}, expected an integer of at least {least}{bound}"
            )
        return number

    return parse


def positive_number(text: str) -> float:
    """Parse a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"found {_short(text)!r}, expected a number above 0")
    return number


def require_start_before_end(args: argparse.Namespace) -> None:
    """Refuse a --start after --end if both are given."""
    from forewarn.pipelines.runtime.timestamps import format_iso

    if args.start is None or args.end is None or args.start <= args.end:
        return
    start, end = (format_iso(at) if isinstance(at, int) else at for at in (args.start, args.end))
    raise OptionsError(f"found `--start` {start} after `--end` {end}, expected an earlier start.")


def parse_names(text: str, known: Collection[str], separator: str = ",") -> tuple[str, ...]:
    """Parse separated names, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(separator)))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"found {unknown[0]!r}, expected names of {separator.join(known)}"
        )
    return names


def model_names(text: str) -> tuple[str, ...]:
    """Parse names of models; the configuration says which ones exist (`open_job`)."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def load_config_option(args: argparse.Namespace) -> Settings:
    """Load the configuration given by --config."""
    from forewarn.pipelines.config.settings import load_settings

    return load_settings(args.config)


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
    extra: str = "score",
) -> Parser:
    """Add a command with its help, an example, and the extra that it requires."""
    command = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run, command=command.prog, extra=extra)
    return command


def add_group(commands: Commands, name: str, text: str, metavar: str = "WHAT") -> Commands:
    """Add a command with subcommands, and return the subcommands."""
    group = commands.add_parser(name, help=text)
    return group.add_subparsers(required=True, metavar=metavar, parser_class=Parser)


def add_config(command: Parser, text: str = "configuration, TOML") -> None:
    """Add --config, which has a default (`find_config`)."""
    default = "(default: $FOREWARN_CONFIG, ./forewarn.toml or /etc/forewarn/forewarn.toml)"
    command.add_argument("--config", type=Path, metavar="FILE", help=f"{text} {default}")


def add_detector_model(command: Parser, text: str) -> None:
    """Add --model for a detector."""
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help=text)


def records_location(text: str) -> Location:
    """Parse the path or URI of records."""
    from forewarn.pipelines.storage.files.location import LocationError, parse_location

    try:
        return parse_location(text)
    except LocationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _local_folder(text: str) -> Path:
    """Parse the path of a local folder."""
    from forewarn.pipelines.storage.files.location import is_uri

    if is_uri(text):
        raise argparse.ArgumentTypeError("found a URI, expected a folder on this machine")
    return Path(text)


def add_records(command: Parser, *, remote: bool = False) -> None:
    """Add --records, by default of the site; with `remote`, an object store is accepted too."""
    parse = records_location if remote else _local_folder
    command.add_argument(
        "--records",
        type=parse,
        default=SiteDefault("records", parse),
        help=f"folder of date=YYYY-MM-DD/*.parquet{', or s3://bucket/folder' if remote else ''} "
        "(default: `records` of [site])",
    )


def add_at_risk(command: Parser, metavar: str = "DIR") -> None:
    """Add --at-risk, by default the lists of the site."""
    command.add_argument(
        "--at-risk",
        type=_local_folder,
        default=SiteDefault("lists", _local_folder),
        metavar=metavar,
        help="folder of date=.../at_risk.parquet (default: `lists` of [site])",
    )


def add_at(command: Parser) -> None:
    """Add --at."""
    command.add_argument(
        "--at",
        type=time_argument,
        required=True,
        metavar="TIME",
        help="ignore everything from then on; `now` for the present",
    )


def add_out(
    command: Parser,
    text: str = "folder to write",
    *,
    default: Path | None = None,
    site: str = "",
) -> None:
    """Add --out, which is required unless it has a default or is a path of the site."""
    known = SiteDefault(site, _local_folder) if site else default
    help_text = f"{text} (default: `{site}` of [site])" if site else text
    command.add_argument(
        "--out", type=_local_folder, required=known is None, default=known, help=help_text
    )


def add_json(command: Parser, text: str = "print one JSON object on stdout") -> None:
    """Add --json."""
    command.add_argument("--json", action="store_true", help=text)


def add_seed(command: Parser) -> None:
    """Add --seed."""
    command.add_argument("--seed", type=integer_at_least(0), default=0, metavar="S", help="seed")


def add_gpus(command: Parser, default: int | None) -> None:
    """Add --gpus for a simulated fleet."""
    command.add_argument(
        "--gpus", type=integer_at_least(1, 1_000_000), default=default, metavar="N", help="GPUs"
    )

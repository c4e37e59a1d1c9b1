"""The command `compact`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from forewarn.pipelines.cli.options import (
    Commands,
    OptionsError,
    add_command,
    add_config,
    add_json,
    add_records,
    load_config_option,
    require_start_before_end,
)
from forewarn.pipelines.cli.site_defaults import metrics_folder

if TYPE_CHECKING:
    import datetime as dt

__all__ = ["add_compact"]


def _date(text: str) -> dt.date:
    import datetime as dt

    if text == "now":
        return dt.datetime.now(dt.UTC).date()
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        quoted = text if len(text) <= 60 else f"{text[:57]}..."
        raise argparse.ArgumentTypeError(
            f"found {quoted!r}, expected a date such as 2025-03-01"
        ) from None


def add_compact(commands: Commands) -> None:
    """Add `forewarn compact`."""
    command = add_command(
        commands,
        "compact",
        _compact,
        "rewrite each date of records as one file, sorted by GPU and time",
        "forewarn compact --records /tmp/fleet/records",
    )
    add_records(command, remote=True)
    add_config(command, "configuration, TOML: [executor] sets where dates are compacted")
    command.add_argument(
        "--date", type=_date, metavar="DATE", help="only this date, even if it is the newest"
    )
    command.add_argument("--start", type=_date, metavar="DATE", help="first date")
    command.add_argument("--end", type=_date, metavar="DATE", help="first date not compacted")
    add_json(command, "print one JSON object per date on stdout")


def _compact(args: argparse.Namespace) -> int:
    import datetime as dt

    from forewarn.pipelines.metrics.job_textfile import write_job
    from forewarn.pipelines.metrics.job_values import compact_metrics
    from forewarn.pipelines.storage.records.compaction_run import (
        DateSpan,
        compact_records,
        outcome_json,
        outcome_text,
    )

    if args.date is not None and (args.start is not None or args.end is not None):
        raise OptionsError("found `--date` with `--start` or `--end`, expected one or the other.")
    require_start_before_end(args)
    settings = load_config_option(args)
    span, today = DateSpan(args.start, args.end, args.date), dt.datetime.now(dt.UTC).date()
    n_compacted = 0
    for outcome in compact_records(
        args.records, span, today, settings.executor.executor, settings.records.names
    ):
        n_compacted += outcome.state == "compacted"
        line = json.dumps(outcome_json(outcome)) if args.json else outcome_text(outcome)
        print(line, flush=True)
    write_job(metrics_folder(args.config), "compact", compact_metrics(n_compacted))
    return 0

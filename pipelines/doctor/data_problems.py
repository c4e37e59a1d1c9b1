"""Output of `forewarn doctor`: data problems with remedies, and advice."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from forewarn.features.duration import format_duration
from forewarn.features.telemetry.amd.smi_values import has_column
from forewarn.features.telemetry.nvidia_smi.query_csv import column_fields
from forewarn.features.telemetry.parsers.dcgm_metrics import field_names
from forewarn.pipelines.rendering.templates import plural, visible
from forewarn.pipelines.runtime.terminal import escape_text

__all__ = [
    "MIN_FAILURES_TO_TRAIN",
    "DataProblem",
    "advice",
    "doctor_text",
    "find_problems",
    "precision_half_width",
]

# Below this the rules ranked better than a model, on average over four simulated fleets
# (benchmarks/failures_to_train.py); the intervals are wide.
MIN_FAILURES_TO_TRAIN = 12
_MIN_FAILURES_TO_COMPARE = 60  # above this, intervals are narrow enough to compare methods
_MAX_SHOWN_NAMES = 5
_INVENTORY_COLUMNS = ("rack", "data_center", "expiration_date")
_MAX_CADENCE_ERROR = 0.1  # relative to the interval; beyond one half, training is impossible
_MAX_DAYS_WITHOUT_RECORDS = dt.timedelta(
    days=7
)  # without records of any GPU: probably a wrong clock


@dataclass(frozen=True, slots=True)
class DataProblem:
    """A problem of the records.

    Attributes
    ----------
    grave : bool
        Whether it prevents training or makes its results wrong.
    what, todo : str
        Description, and remedy.
    """

    grave: bool
    what: str
    todo: str


def precision_half_width(failures: int) -> float:
    """Return half the width of the 95 % interval of a precision based on so many failures.

    It is the normal interval of a share of one half, the widest one.

    >>> round(precision_half_width(23), 2)
    0.2
    """
    return 1.96 * 0.5 / math.sqrt(max(failures, 1))


def advice(report: Mapping[str, Any]) -> str:
    """Return one or two sentences on whether to train, wait, or start with the rules."""
    n = report["failures"]["count"] - report["failures_outside"]
    number = f"{plural(n, 'failure')} in {plural(round(report['days']), 'day')}"
    if any(problem.grave for problem in find_problems(report)):
        return f"{number}. Fix the grave problems below before training."
    if n < MIN_FAILURES_TO_TRAIN:
        return f"{number}: too few to train on. Start with the built-in rules (builtin:rules)."
    expect = f"{number}: expect a precision of plus or minus {precision_half_width(n):.1f}"
    if n < _MIN_FAILURES_TO_COMPARE:
        return f"{expect}. Wait for more, or start with the built-in rules and run backtests."
    return f"{expect}. Enough to train: run `forewarn backtest` to evaluate a list."


def find_problems(report: Mapping[str, Any]) -> list[DataProblem]:
    """Return the problems, grave ones first."""
    return sorted(
        (
            *_key_problems(report),
            *_date_problems(report),
            *_column_problems(report),
            *_label_problems(report),
            *_layout_problems(report),
        ),
        key=lambda f: not f.grave,
    )


def _key_problems(report: Mapping[str, Any]) -> Iterator[DataProblem]:
    cadence, expected = report["cadence_seconds"], report["interval_seconds"]
    if cadence and abs(cadence - expected) > _MAX_CADENCE_ERROR * expected:
        yield DataProblem(
            not 0.5 * expected <= cadence <= 1.5 * expected,
            f"Records arrive every {format_duration(cadence)}, the configuration says "
            f"{format_duration(expected)}.",
            f'Set `records.interval = "{cadence:g}s"`, and reconsider `[windows]`.',
        )
    if report["coverage"] < 0.9:
        yield DataProblem(
            report["coverage"] < 0.5,
            f"{1 - report['coverage']:.0%} of the records are missing, in {report['gaps']:,} gaps.",
            "Check the collection: a GPU with a gap in its window is not scored.",
        )
    if report["serials_on_two_machines"]:
        yield DataProblem(
            True,
            f"{_list_names(report['serials_on_two_machines'], 'serial')} on two machines at once.",
            "Serials must be unique: look for placeholders or a cloned inventory.",
        )
    if report["clocks_off_seconds"]:
        off = [f"{name} by {by:+.0f} s" for name, by in report["clocks_off_seconds"].items()]
        yield DataProblem(
            False, f"The clock is off: {_list_names(off, 'machine')}.", "Start NTP on them."
        )
    for name, what, todo in (
        ("rows_without_key", "without serial or time are ignored", "Check the collection."),
        (
            "rows_doubled",
            "are duplicates; the last one counts",
            "Check for files that were ingested twice.",
        ),
        ("rows_in_another_date", "are in the folder of another date", "Write them by UTC date."),
    ):
        if report[name]:
            yield DataProblem(False, f"{plural(report[name], 'row')} {what}.", todo)


def _date_problems(report: Mapping[str, Any]) -> Iterator[DataProblem]:
    dates = [dt.date.fromisoformat(day) for day in report["records_by_day"]]
    for before, after in pairwise(dates):
        if after - before > _MAX_DAYS_WITHOUT_RECORDS:
            yield DataProblem(
                False,
                f"No GPU has a record between {before} and {after}.",
                "Look for a clock with an error of that size and remove its records.",
            )


def _column_problems(report: Mapping[str, Any]) -> Iterator[DataProblem]:
    for name, files in report["columns_missing"].items():
        yield DataProblem(
            True,
            f"Column `{visible(name)}` is missing in {files} of {plural(report['files'], 'file')}.",
            f"Remove it from `[features]`, or collect it. {_column_source(name)}".rstrip(),
        )
    for column in report["columns"]:
        share = column["nulls"] / max(column["rows"], 1)
        name = visible(column["name"])
        if share > 0.05:
            yield DataProblem(
                share == 1.0,
                f"`{name}` is missing in {share:.0%} of the rows.",
                f"Check its source. {_column_source(column['name'])}".rstrip(),
            )
        if column["impossible"]:
            yield DataProblem(
                False,
                f"`{name}` has {plural(column['impossible'], 'impossible value')}.",
                "Look for a placeholder or another unit.",
            )
    for name, serials in report["frozen"].items():
        gpus = [f"{serial} on {plural(days, 'day')}" for serial, days in serials.items()]
        yield DataProblem(
            False,
            f"`{visible(name)}` was constant while others changed: {_list_names(gpus, 'GPU')}.",
            "Restart the exporter on them; a frozen sensor provides no data.",
        )


def _column_source(column: str) -> str:
    """Return what to switch on or run for a column; empty if no known source has it."""
    if column in _INVENTORY_COLUMNS:
        return "Inventory: `forewarn ingest --cmdb FILE`."
    ways = []
    if names := field_names(column):
        ways.append(f"dcgm-exporter: add {_code_names(names)} to its CSV of metrics")
    if names := column_fields(column):
        ways.append(f"nvidia-smi: add {_code_names(names)} to `--query-gpu`")
    if has_column(column):
        ways.append("AMD: run `amd-smi metric --json`")
    if column == "xid":
        ways.append("without an exporter: `dmesg --time-format iso`")
    return f"{'; '.join(ways)}." if ways else ""


def _code_names(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _label_problems(report: Mapping[str, Any]) -> Iterator[DataProblem]:
    if odd := report["failure_neither_0_nor_1"]:
        yield DataProblem(
            False,
            f"`failure` is neither 0 nor 1 in {plural(odd, 'row')}.",
            "Values above 0 count as failed, all others as healthy. Check its source.",
        )
    if not report["failures"]["count"]:
        yield DataProblem(
            False,
            "The records contain no failure.",
            "Add failures.parquet from your repair tickets, or a column `failure`.",
        )
    if report["failures_outside"]:
        yield DataProblem(
            False,
            f"{report['failures_outside']:,} of the failures are before the first record or after "
            "the last one and cannot be used.",
            "Compare the times of the tickets with those of the records.",
        )
    if others := report["failures_of_others"]:
        yield DataProblem(
            False,
            f"Failures are reported for {_list_names(others, 'serial')} without any record.",
            "Compare the spelling of serials in failures.parquet and in the records.",
        )
    yield from _failure_end_problems(report["failures_without_end"])
    usable = report["usable"]
    if usable is not None and usable["share"] < 0.7:
        yield DataProblem(
            False,
            f"Only {usable['share']:.0%} of the possible instances can be trained on.",
            "The others are lost to gaps, short lifetimes or a short data set.",
        )


def _plain_ends(ends: Mapping[str, Any]) -> str:
    number = plural(ends["count"], "failure")
    return f"{number} without an end, {ends['presumed']:,} with a presumed end"


def _failure_end_problems(ends: Mapping[str, Any]) -> Iterator[DataProblem]:
    if ends["overdue"]:
        first, number = ends["oldest"][0], plural(ends["overdue"], "failure")
        cause = f", {visible(first['cause'])}" if first["cause"] else ""
        yield DataProblem(
            False,
            f"{number} more than a day old without an end: these GPUs are neither scored nor used "
            f"in training. The oldest is {visible(first['gpu_serial'])}, since "
            f"{first['since'][:10]}{cause}.",
            "Provide `repaired_at` from the repair tickets (`forewarn ingest --repairs`). A "
            "restart of the GPU also ends a failure, as do 24 hours of healthy telemetry with 4 "
            "hours of load.",
        )
    if ends["presumed"]:
        yield DataProblem(
            False,
            f"The end of {plural(ends['presumed'], 'failure')} is presumed: the GPU works again "
            "but no repair is known.",
            "Provide the repair tickets, or check these GPUs; lists mark them.",
        )


def _layout_problems(report: Mapping[str, Any]) -> Iterator[DataProblem]:
    layout = report["layout"]
    if layout["dates"]:
        yield DataProblem(
            False,
            f"{plural(layout['dates'], 'date')} in {plural(layout['files'], 'file')}, not sorted "
            "by GPU: they need more disk space and reading time than necessary.",
            f"Run `{visible(layout['command'], limit=300)}`.",
        )


def _list_names(names: list[str], noun: str) -> str:
    """Return the number of names and the first few of them."""
    shown = ", ".join(visible(name, limit=60) for name in names[:_MAX_SHOWN_NAMES])
    return f"{plural(len(names), noun)} ({shown}{', ...' if len(names) > _MAX_SHOWN_NAMES else ''})"


def doctor_text(report: Mapping[str, Any]) -> str:
    """Return the report for a terminal."""
    usable = report["usable"]
    lines = [
        advice(report),
        "",
        f"GPUs       {report['gpus']:,}{_machines(report)}{_at_end(report)}",
        f"span       {report['first']} to {report['last']}, {report['days']:g} days",
        f"records    {report['records']:,} every {format_duration(report['cadence_seconds'])}, "
        f"{report['coverage']:.1%} of those expected, {plural(report['gaps'], 'gap')}",
        f"moves      {plural(report['serials_moved'], 'GPU')} moved between machines",
        f"resets     {_resets(report)}",
    ]
    if usable is not None:
        lines.append(
            f"instances  {usable['instances']:,}, {usable['labelled']:,} with a known label "
            f"({usable['share']:.0%} of those possible), {usable['positives']:,} positive"
        )
    for month, causes in report["failures"]["by_month"].items():
        failure_counts = ", ".join(f"{visible(cause)} {n}" for cause, n in causes.items())
        lines.append(f"failures   {month}: {sum(causes.values())} ({failure_counts})")
    ends = report["failures_without_end"]
    if ends["count"] or ends["presumed"]:
        lines.append(f"no repair  {_plain_ends(ends)}")
    for problem in find_problems(report):
        lines += [
            "",
            f"{'!!' if problem.grave else ' !'} {problem.what}",
            f"   {problem.todo}",
        ]
    return "\n".join(map(escape_text, lines))


def _machines(report: Mapping[str, Any]) -> str:
    return f" on {plural(report['machines'], 'machine')}" if report["machines"] else ""


def _at_end(report: Mapping[str, Any]) -> str:
    """Return how many GPUs still report if not all of them do; replaced GPUs count as well."""
    if report["gpus_at_end"] == report["gpus"]:
        return ""
    return f"; {report['gpus_at_end']:,} of them have records at the end"


def _resets(report: Mapping[str, Any]) -> str:
    resets = [f"{c['name']} {c['resets']:,}" for c in report["columns"] if c["resets"]]
    return ", ".join(resets) or "none"

"""`forewarn review`: compare past lists with the failures that followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forewarn.evaluation.prediction.metrics.list_review import ReviewedLists, match_failures
from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.out_of_service import OutOfServiceSpan
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.at_risk.stored_lists import read_lists
from forewarn.pipelines.rendering.templates import plural
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import to_timestamps
from forewarn.pipelines.storage.records.failures_table import INCIDENT_FAILURES, unknown_until
from forewarn.pipelines.storage.records.mapped_columns import with_our_names
from forewarn.pipelines.storage.records.out_of_service_table import (
    OUT_OF_SERVICE,
    read_out_of_service,
)
from forewarn.pipelines.storage.records.parquet_files import read_parquet
from forewarn.pipelines.storage.records.table_columns import read_serials, read_times
from forewarn.pipelines.storage.records.text_tables import read_texts

__all__ = ["review_lists", "review_text"]


def read_failures(path: Path, names: ColumnNames = OUR_NAMES) -> pd.DataFrame:
    """Read a failures table, Parquet or CSV: `gpu_serial`, `failed_at` and `unknown_until`.

    `unknown_until` is null unless the end of the failure is presumed.

    Raises
    ------
    RecordsError, JobError
        If it cannot be read or lacks a column.
    """
    table = read_texts(path) if path.suffix == ".csv" else read_parquet(path)
    table = with_our_names(table, names)
    for name in ("gpu_serial", "failed_at"):
        if name not in table.column_names:
            raise JobError(
                f"{path}: column `{name}` is missing, found {', '.join(table.column_names)}."
            )
    failed = read_times(table, "failed_at", path)
    columns = {
        "gpu_serial": read_serials(table, path).to_pandas().astype(object),
        "failed_at": to_timestamps(failed.to_pandas()),
        "unknown_until": to_timestamps(unknown_until(table, path).to_pandas()),
    }
    return pd.DataFrame(columns).dropna(subset=["gpu_serial", "failed_at"])


def _add_second_source(failures: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Add the failures of a second source, except those that the first one has within a day."""
    numbered = others.assign(number=range(len(others)))
    pairs = numbered.merge(failures, on="gpu_serial", suffixes=("", "_before"))
    apart = (pairs["failed_at"] - pairs["failed_at_before"]).abs()
    doubled = pairs.loc[apart <= pd.Timedelta(1, unit="D"), "number"]
    new = numbered[~numbered["number"].isin(doubled)].drop(columns="number")
    return pd.concat([failures, new], ignore_index=True)


def review_lists(
    at_risk: Path,
    failures: Path,
    until: int | None = None,
    names: ColumnNames = OUR_NAMES,
) -> ReviewedLists:
    """Compare the lists below `at_risk` with a table of failures.

    The folder of the table may also contain files of `forewarn respond`: further failures, and
    times when machines were out of service.

    Parameters
    ----------
    at_risk, failures : Path
    until : int, optional
        Time up to which the failures are complete, nanoseconds. By default the last failure,
        because later ones may not be known yet.
    """
    lists, known = read_lists(at_risk), read_failures(failures, names)
    of_incidents = failures.parent / INCIDENT_FAILURES
    if of_incidents.exists():
        known = _add_second_source(known, read_failures(of_incidents))
    if until is None and not len(known):
        raise JobError(f"{failures}: holds no failure, expected some, or `--until TIME`.")
    known, unknown = _without_cancelled_ends(known)
    newest = known["failed_at"].max() if until is None else to_timestamps([until])[0]
    lists["gpu_serial"] = lists["gpu_serial"].astype(object)
    _note_foreign_serials(lists, known, failures)
    absences = [*read_out_of_service(failures.parent / OUT_OF_SERVICE), *unknown]
    return match_failures(lists, known, newest, absences)


def _without_cancelled_ends(failures: pd.DataFrame) -> tuple[pd.DataFrame, list[OutOfServiceSpan]]:
    """Remove failures that cancel a presumed end; also return the intervals of unknown health."""
    presumed = failures.dropna(subset=["unknown_until"])
    columns = (presumed[name] for name in ("gpu_serial", "failed_at", "unknown_until"))
    spans = list(zip(*columns, strict=True))
    same_failure = np.zeros(len(failures), dtype=bool)
    for serial, failed, until in spans:
        within = failures["failed_at"].gt(failed) & failures["failed_at"].lt(until)
        same_failure |= (within & failures["gpu_serial"].eq(serial)).to_numpy()
    unknown = [
        OutOfServiceSpan("", serial, Nanoseconds(failed.value), Nanoseconds(until.value))
        for serial, failed, until in spans
    ]
    return failures[~same_failure].drop(columns="unknown_until"), unknown


def _note_foreign_serials(lists: pd.DataFrame, known: pd.DataFrame, path: Path) -> None:
    """Write a note if lists and failures have no serial in common."""
    if len(known) and len(lists) and not known["gpu_serial"].isin(lists["gpu_serial"]).any():
        note(
            f"{path}: no `gpu_serial` in it (such as '{known['gpu_serial'].iloc[0]}') is on any "
            f"list (such as '{lists['gpu_serial'].iloc[0]}'); check that both use the same spelling"
        )


def _notice(hits: int, lead: dict[str, float]) -> str:
    """Return how early the caught failures were flagged."""
    if hits == 1:
        return f"It was flagged {lead['p50']:.1f} h before it failed."
    return (
        f"Half of these {hits} were flagged at least {lead['p50']:.1f} h before they failed, and "
        f"one in ten at most {lead['p10']:.1f} h before."
    )


def review_text(figures: dict[str, Any]) -> str:
    """Format the metrics as sentences."""
    share, bounds = figures["precision"], figures["precision_interval"]
    if share is None and not figures["rows"]:
        return "No outcome is known yet: no list's horizon is over (see --until)."
    if share is None:
        failed = plural(figures["failures"], "failure")
        return f"No GPU was flagged on the lists whose horizon is over; {failed} followed."
    within = f" ({bounds[0]:.0%} to {bounds[1]:.0%})" if bounds else ""
    times, hits = plural(figures["flagged"], "time"), plural(figures["hits"], "time")
    lines = [
        f"GPUs were flagged {times} and failed within the horizon {hits}: "
        f"precision {share:.0%}{within}; a random list has {figures['random_precision']:.2%}.",
        f"{figures['caught']} of {figures['failures']} failures were caught, "
        f"{figures['missed']} missed; {plural(figures['false_alarms'], 'false alarm')}.",
    ]
    if figures["hits"]:
        lines.append(_notice(figures["hits"], figures["lead_time_hours"]))
    if figures["expected_hits"] is not None:
        lines.append(f"Hits expected from the probabilities: {figures['expected_hits']:.1f}.")
    if figures["rows_unknown"]:
        lines.append(
            f"{figures['rows_unknown']} rows were excluded: their machine was out of service and "
            "did not fail."
        )
    if figures.get("gpu_hours_net") is not None:
        lines.append(
            f"In GPU-hours: {figures['alerts']} alerts cost {figures['gpu_hours_spent']:,.0f} and "
            f"saved {figures['gpu_hours_saved']:,.0f}, net {figures['gpu_hours_net']:+,.0f}."
        )
    if figures["rows_not_over_yet"]:
        lines.append(
            f"{figures['rows_not_over_yet']} rows were excluded: their horizon is not over."
        )
    return "\n".join(lines)

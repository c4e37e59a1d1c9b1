"""A few rows of each GPU of a fleet as one timeline, put together from its slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from forewarn.features.records.hourly_sums import HourlyGrid
from forewarn.features.records.line import Line
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.runs import Runs
from forewarn.features.records.table import CheckReport, NoNumbers, TextColumn
from forewarn.features.records.timeline import Fleet, FleetSlice, Lives, Timeline

__all__ = ["few_rows", "joined_slices"]

Rows = npt.NDArray[np.int64]


def few_rows(part: FleetSlice, rows: Rows) -> tuple[FleetSlice, Rows]:
    """Return a few rows of a slice and which those are, without what each record takes.

    It can be asked for whatever does not need columns of numbers.

    Parameters
    ----------
    part : FleetSlice
    rows : ndarray, int64
        Whole windows; further rows stay (`Timeline.narrowed`).
    """
    narrow, left = part.timeline.narrowed(rows)
    # What was seen counts nulls as they are asked for, and so holds on to the columns.
    records = replace(narrow.records, columns=NoNumbers(), seen=CheckReport())
    few = replace(narrow, records=records)
    few.__dict__["grid"] = narrow.grid.without_rows(())
    return FleetSlice(few, part.gpu), left


def joined_slices(fleet: Fleet, parts: Sequence[FleetSlice]) -> tuple[Timeline, list[Rows]]:
    """Return a timeline of all GPUs, and which rows of it are those of each part.

    Parameters
    ----------
    fleet : Fleet
    parts : sequence of FleetSlice
        A few rows of each slice of the fleet.
    """
    timelines = [part for part, _ in parts]
    line, rows = Line.joined([part.records.line.of_gpus(gpu) for part, gpu in parts])
    records = replace(
        timelines[0].records,
        serials=tuple(fleet.serials),
        line=line,
        texts=_texts(parts, len(fleet.serials)),
        dates=_dates(parts, len(fleet.serials)),
        reborn=np.zeros(0, dtype=np.int64),
        out_of_service=OutOfService.none(),
    )
    breaks = np.concatenate([r[part.breaks] for part, r in zip(timelines, rows, strict=True)])
    lives = _lives(timelines, rows)
    bounds = records.gpu_bounds()
    whole = Timeline(records, fleet.failures, bounds, np.sort(breaks), lives)
    whole.__dict__["grid"] = _grid(parts, whole)
    return whole, rows


def _lives(timelines: Sequence[Timeline], rows: Sequence[Rows]) -> Lives:
    row = np.concatenate([r[part.lives.row] for part, r in zip(timelines, rows, strict=True)])
    repaired = np.concatenate([part.lives.repaired for part in timelines])
    order = np.argsort(row, kind="stable")
    return Lives(row[order], repaired[order])


def _texts(parts: Sequence[FleetSlice], n_gpus: int) -> dict[str, TextColumn]:
    """Return the texts; all slices of a fleet have them under the same numbers."""
    columns = {}
    for name, column in parts[0].timeline.records.texts.items():
        runs = [(part.records.texts[name].runs, gpu) for part, gpu in parts]
        columns[name] = TextColumn(column.texts, Runs.joined(runs, n_gpus))
    return columns


def _dates(parts: Sequence[FleetSlice], n_gpus: int) -> dict[str, Runs]:
    return {
        name: Runs.joined([(part.records.dates[name], gpu) for part, gpu in parts], n_gpus)
        for name in parts[0].timeline.records.dates
    }


def _grid(parts: Sequence[FleetSlice], whole: Timeline) -> HourlyGrid:
    """Return the hours of all GPUs, without what each row takes."""
    grid = parts[0].timeline.grid
    row_count = np.zeros((len(whole.serials), grid.shape[1]), dtype=np.int32)
    for part, gpu in parts:
        row_count[gpu] = part.grid.row_count
    return replace(
        grid, records=whole.records, shape=row_count.shape, row_count=row_count, _groups={}
    )

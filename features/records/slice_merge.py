"""One timeline of selected rows of all GPUs, merged from the slices of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Int32Array, Int64Array
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice, Lives, Timeline
from forewarn.features.records.hourly_sums import HourlyGrid
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.record_table import NoNumbers, Records, TextColumn

__all__ = ["merge_slices", "select_rows"]


def select_rows(part: FleetSlice, rows: Int64Array) -> tuple[FleetSlice, Int64Array]:
    """Select rows of a slice but keep all of its hours; return the slice and its row numbers.

    The first and the last row of each GPU, the first row after each repair and the last row before
    each failure are kept as well. Everything derived from `rows` is then unchanged, except columns
    of numbers.

    Parameters
    ----------
    part : FleetSlice
    rows : ndarray, int64
    """
    timeline, bounds = part.timeline, part.timeline.bounds
    seen = np.flatnonzero(np.diff(bounds))
    before = timeline.rows_before_failures()
    ends = [bounds[seen], bounds[seen + 1] - 1, timeline.lives.row, before[before >= 0]]
    left = np.unique(np.concatenate([rows, *ends]))
    records = timeline.records.without_numbers().select(left)
    breaks = np.searchsorted(left, timeline.breaks)
    few = replace(
        timeline,
        records=records,
        bounds=records.gpu_bounds(),
        alive=timeline.alive[left],
        breaks=breaks[breaks < len(left)],
        lives=Lives(np.searchsorted(left, timeline.lives.row), timeline.lives.repaired),
    )
    few.__dict__["grid"] = timeline.grid.without_rows(())
    return FleetSlice(few, part.gpu), left


def merge_slices(fleet: Fleet, parts: Sequence[FleetSlice]) -> tuple[Timeline, list[Int64Array]]:
    """Merge slices into a timeline of all GPUs; return it with the rows of each slice.

    Parameters
    ----------
    fleet : Fleet
    parts : sequence of FleetSlice
        Selected rows of each slice of the fleet.
    """
    timelines = [part for part, _ in parts]
    gpu = np.concatenate([number[part.records.gpu] for part, number in parts]).astype(np.int32)
    order = np.argsort(gpu, kind="stable")
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.arange(len(order))
    rows = np.split(row, np.cumsum([len(part.records) for part in timelines])[:-1])
    records = _joined_records(fleet, [part.records for part in timelines], gpu, order)

    def renumbered(rows_of: Callable[[Timeline], Int64Array]) -> Int64Array:
        return np.concatenate([r[rows_of(part)] for part, r in zip(timelines, rows, strict=True)])

    first = renumbered(lambda part: part.lives.row)
    repaired = np.concatenate([part.lives.repaired for part in timelines])
    by_row = np.argsort(first, kind="stable")
    whole = Timeline(
        records,
        fleet.failures,
        records.gpu_bounds(),
        np.concatenate([part.alive for part in timelines])[order],
        np.sort(renumbered(lambda part: part.breaks)),
        Lives(first[by_row], repaired[by_row]),
    )
    whole.__dict__["grid"] = _grid(parts, records)
    return whole, rows


def _joined_records(
    fleet: Fleet, parts: Sequence[Records], gpu: Int32Array, order: Int64Array
) -> Records:
    """Merge the records of all slices, which share the codes of their texts."""

    def column(values: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate(values)[order]

    first = parts[0]
    codes = {name: column([part.texts[name].codes for part in parts]) for name in first.texts}
    return replace(
        first,
        serials=tuple(fleet.serials),
        gpu=gpu[order],
        time=column([part.time for part in parts]),
        failed=column([part.failed for part in parts]),
        filled=column([part.filled for part in parts]),
        column_row=np.zeros(len(order), dtype=np.int64),
        columns=NoNumbers(),
        dates={name: column([part.dates[name] for part in parts]) for name in first.dates},
        texts={name: TextColumn(first.texts[name].texts, codes[name]) for name in codes},
        counter_restarts=np.zeros(0, dtype=np.int64),
        out_of_service=OutOfService.empty(),
    )


def _grid(parts: Sequence[FleetSlice], records: Records) -> HourlyGrid:
    """Return the hourly grid of all GPUs without the cells of rows."""
    grid = parts[0].timeline.grid
    row_count = np.zeros((len(records.serials), grid.shape[1]), dtype=np.int32)
    for part, gpu in parts:
        row_count[gpu] = part.grid.row_count
    return replace(grid, records=records, shape=row_count.shape, row_count=row_count, _groups={})

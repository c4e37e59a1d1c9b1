"""Files that are known as runs come into line as their rows do, or are left to those."""

from __future__ import annotations

import numpy as np
import pytest

from forewarn.features.records.file_check import Keys
from forewarn.features.records.file_runs import FileRuns
from forewarn.features.records.key_runs import KeyRuns, find_runs
from forewarn.features.records.keys_builder import KeysBuilder
from forewarn.features.records.row_cleaning import Spacings
from forewarn.features.records.run_keys import RunCleaning
from forewarn.features.records.slices import FINEST, serials_within, slice_of
from forewarn.features.records.table import Column, NoRecordsError

MINUTE = 60 * 10**9
INTERVAL = 10 * MINUTE
WHOLE = serials_within(0, FINEST)


def keys(rows: list[tuple[str, float]], failed: tuple[int, ...] = ()) -> Keys:
    """Return rows of a file: serial and minute."""
    texts = tuple(dict.fromkeys(serial for serial, _ in rows))
    codes = np.array([texts.index(serial) for serial, _ in rows], dtype=np.int32)
    time = np.array([int(minute * MINUTE) for _, minute in rows], dtype=np.int64)
    keep, state = np.full(len(rows), True), np.full(len(rows), False)
    state[list(failed)] = True
    odd = np.zeros(0, dtype=np.int64)
    return Keys(Column(codes, texts), time, keep, state, len(rows), False, odd)


def runs(of: Keys) -> KeyRuns:
    """Return the same rows as runs, as they lie beside a compacted file."""
    codes = of.serial.codes
    changes = np.append(True, (np.diff(codes) != 0) | np.diff(of.failed))
    begin, step = find_runs(changes, of.time, len(codes))
    return KeyRuns(of.at(begin), np.diff(np.append(begin, len(codes))), step, {})


def in_line(files: list[Keys], start: int | None = None) -> RunCleaning | None:
    """Bring files into line by their runs."""
    of_files = [FileRuns.of(runs(file), start, None, WHOLE) for file in files]
    known = [file for file in of_files if file is not None]
    return RunCleaning.of(known, [len(file.time) for file in files], INTERVAL)


def series(serial: str, *minutes: float) -> list[tuple[str, float]]:
    return [(serial, minute) for minute in minutes]


FIRST = keys([*series("A", 0, 10, 20, 30), *series("B", 0, 10, 20)], failed=(5,))
SECOND = keys([*series("B", 40, 50, 60), *series("A", 40, 50, 80), *series("C", 50)])


def test_runs_of_two_files_are_the_records_of_their_rows() -> None:
    cleaned, builder = in_line([FIRST, SECOND]), KeysBuilder([7, 7])
    builder.put_keys(0, FIRST)
    builder.put_keys(1, SECOND)
    builder.number_gpus()
    builder.align(INTERVAL)
    assert cleaned is not None
    assert cleaned.serials == builder.serials == ("A", "B", "C")
    by_run, by_row = cleaned.line, builder.line
    assert by_run.of_each(by_run.gpu).tolist() == by_row.of_each(by_row.gpu).tolist()
    assert by_run.time_of_each().tolist() == by_row.time_of_each().tolist()
    assert by_run.order_of_each().tolist() == by_row.order_of_each().tolist()
    assert by_run.of_each(by_run.failed).tolist() == by_row.of_each(by_row.failed).tolist()
    assert by_run.of_each(by_run.filled).tolist() == by_row.of_each(by_row.filled).tolist()
    # B: a lone missing record between the files; A: two within the second.
    assert (cleaned.seen.filled, cleaned.seen.gaps) == (1, 1)
    assert cleaned.seen == builder.seen
    rows = slice(0, 14)
    assert cleaned.as_read.gpu_of(rows).tolist() == builder.as_read.gpu_of(rows).tolist()


def test_rows_before_the_start_are_cut_off() -> None:
    cleaned = in_line([FIRST, SECOND], start=20 * MINUTE)
    assert cleaned is not None
    assert cleaned.line.time_of_each().min() == 20 * MINUTE
    assert cleaned.seen.rows == 10
    assert cleaned.as_read.gpu_of(slice(0, 7)).tolist() == [-1, -1, 0, 0, -1, -1, 1]


@pytest.mark.parametrize(
    "late",
    [
        series("A", 25),  # before the last one
        series("A", 30),  # twice
        series("A", 33),  # too close
        series("D", 0, 3, 6, 9),  # too close to each other
        [pair for n in range(8) for pair in series(f"D{n}", 0, 60)],  # most are not as expected
    ],
)
def test_what_has_to_be_looked_at_row_by_row_is_left_alone(late: list[tuple[str, float]]) -> None:
    assert in_line([FIRST, keys(late)]) is None


def test_a_failed_record_is_kept_however_close_it_is() -> None:
    cleaned = in_line([FIRST, keys(series("A", 31), failed=(0,))])
    assert cleaned is not None
    assert cleaned.line.time_of_each()[:5].tolist() == [0, *(m * MINUTE for m in (10, 20, 30, 31))]


def test_rows_that_no_runs_are_known_of_go_along() -> None:
    known = FileRuns.of(runs(FIRST), None, None, WHOLE)
    assert known is not None
    by_time = keys([("C", 40), ("A", 40), ("B", 40), ("A", 50), ("B", 50)])
    cleaned = RunCleaning.of([known, FileRuns.of_rows(by_time)], [7, 5], INTERVAL)
    assert cleaned is not None
    line = cleaned.line
    assert line.of_each(line.gpu).tolist() == [0] * 6 + [1] * 6 + [2]
    # The second file is taken by GPU: C, A twice, B twice.
    assert line.order_of_each().tolist() == [0, 1, 2, 3, 8, 9, 4, 5, 6, 6, 10, 11, 7]
    order = cleaned.as_read.order_in(1)
    assert cleaned.as_read.order_in(0) is None
    assert order is not None
    assert order.tolist() == [0, 1, 3, 2, 4]


def test_other_slices_are_left_out() -> None:
    number = int(slice_of(["A"])[0])
    only = FileRuns.of(runs(FIRST), None, None, serials_within(number, number + 1))
    assert only is not None
    assert {only.texts[code] for code in only.code.tolist()} == {"A"}


def test_no_row_at_all_is_refused_and_uneven_files_have_no_runs() -> None:
    with pytest.raises(NoRecordsError):
        in_line([FIRST], start=99 * MINUTE)
    uneven = runs(FIRST)
    assert FileRuns.of(KeyRuns(uneven.first, uneven.n_rows, None, {}), None, None, WHOLE) is None


def test_spacings_of_slices_are_judged_together() -> None:
    spacings = Spacings()
    known = FileRuns.of(runs(FIRST), None, None, WHOLE)
    assert known is not None
    assert RunCleaning.of([known], [7], INTERVAL, spacings) is not None
    spacings.check("hand")

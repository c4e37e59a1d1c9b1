"""Tables of pair tests: bandwidths or times, or the output of nccl-tests."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forewarn.features.errors import InputError
from forewarn.models.diagnosis.nodes.pair_matrix import PairTest
from forewarn.pipelines.diagnosis.parts.nccl_tests_output import find_nccl_runs, is_nccl_output

__all__ = ["PairTable", "parse_pair_table"]

_BANDWIDTH: Final = re.compile(r"band_?width|bus_?bw|alg_?bw|\bbw\b|throughput", re.IGNORECASE)
_TIME: Final = re.compile(r"latency|seconds|\btime(_|\b)|_(us|ms|ns|sec|s)$", re.IGNORECASE)
_PAIR_COLUMNS: Final = (
    ("a", "b"),
    ("node_a", "node_b"),
    ("node1", "node2"),
    ("src", "dst"),
    ("source", "destination"),
    ("from", "to"),
    ("host1", "host2"),
)
_TEST_COLUMNS: Final = ("test", "N", "G", "minBytes", "maxBytes", "size")
_MIN_VALUE, _MAX_VALUE = 1e-30, 1e30  # the inverse has to be finite
_FAILED: Final = ("", "nan", "n/a", "na", "none", "null", "-", "--", "fail", "failed", "error")
_FALSE: Final = ("false", "0", "no", "failed", "fail")


@dataclass(frozen=True, slots=True)
class PairTable:
    """Pair tests of one file, by kind of test.

    Attributes
    ----------
    tests : dict of str to list of PairTest
    unit : str
        Name of the column of values.
    is_time : bool
        The values are times, so that less is better; `tests` has their inverse.
    skipped : int
        Tests of other than two nodes.
    """

    tests: dict[str, list[PairTest]]
    unit: str
    is_time: bool
    skipped: int = 0


def parse_pair_table(text: str, path: Path) -> PairTable | None:
    """Parse a bandwidth table or the output of nccl-tests; None if the text is neither.

    A table has a column `nodes` (two names, by space or comma) or two columns of names, and a
    column of bandwidths, or of times where there is no `round`. An empty value is a failed test.

    Raises
    ------
    InputError
        If a value or a name is invalid, or no test of two nodes is left.
    """
    if is_nccl_output(text):
        return _parse_nccl(text, path)
    reader = csv.DictReader(io.StringIO(text), restval="")
    try:
        names = [name for name in reader.fieldnames or [] if name]
    except csv.Error as error:
        raise InputError(f"{path}: is not a valid CSV table ({error}).") from None
    value = next((name for name in names if _BANDWIDTH.search(name)), None)
    is_time = value is None
    if value is None and "round" not in names:
        value = next((name for name in names if _TIME.search(name)), None)
    ends = _end_columns(names)
    if value is None or ends is None:
        return None
    return _parse_rows(reader, path, value, is_time, ends)


def _end_columns(names: Sequence[str]) -> tuple[str, ...] | None:
    if "nodes" in names:
        return ("nodes",)
    return next((pair for pair in _PAIR_COLUMNS if set(pair) <= set(names)), None)


def _parse_rows(
    reader: csv.DictReader[str], path: Path, value: str, is_time: bool, ends: tuple[str, ...]
) -> PairTable:
    tests: dict[str, list[PairTest]] = {}
    skipped = 0
    try:
        for row in reader:
            where = f"{path}: line {reader.line_num}"
            nodes = [name for end in ends for name in row[end].replace(",", " ").split()]
            if len(nodes) != 2:
                skipped += 1
                continue
            if nodes[0] == nodes[1]:
                raise InputError(f"{where}: contains {nodes[0][:40]!r} twice, expected once.")
            passed = (row.get("passed") or "true").strip().lower() not in _FALSE
            if passed and row.get("passed") and row[value].strip() == "":
                continue  # it passed, but was not measured
            number = _parse_value(row[value], value, where) if passed else None
            number = 1.0 / number if number and is_time else number
            kind = " ".join(str(row[name]) for name in _TEST_COLUMNS if row.get(name))
            tests.setdefault(kind, []).append(PairTest(nodes[0], nodes[1], number))
    except csv.Error as error:
        raise InputError(f"{path}: is not a valid CSV table ({error}).") from None
    return _require_tests(PairTable(tests, value, is_time, skipped), path)


def _require_tests(table: PairTable, path: Path) -> PairTable:
    if not table.tests:
        raise InputError(f"{path}: contains no test of two nodes, expected one per pair.")
    return table


def _parse_value(text: str, column: str, where: str) -> float | None:
    """Parse a value; an empty cell, a word for failure and 0 mean that the test failed."""
    if text.strip().lower() in _FAILED:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number and not _MIN_VALUE <= number <= _MAX_VALUE:
        raise InputError(f"{where}: `{column}` is {text[:40]!r}, expected a number over 0.")
    return number or None


def _parse_nccl(text: str, path: Path) -> PairTable:
    """Parse the output of one or several runs; tests of other sizes are not compared."""
    tests: dict[str, list[PairTest]] = {}
    skipped = 0
    for run in find_nccl_runs(text):
        if len(run.hosts) == 2:
            a, b = run.hosts
            tests.setdefault(run.kind, []).append(PairTest(a, b, run.bandwidth))
        else:
            skipped += 1
    return _require_tests(PairTable(tests, "GB/s", False, skipped), path)

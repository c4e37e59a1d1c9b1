"""Tables of pair tests: bandwidth tables, output of nccl-tests, and their result."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.models.diagnosis.nodes.pair_matrix import PairTest
from forewarn.models.diagnosis.nodes.pair_table import PairVerdict, evaluate_pairs

__all__ = ["PairTable", "PairTableResult", "judge_table", "parse_pair_table"]

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
_FAILED: Final = ("", "nan", "n/a", "na", "none", "null", "-", "--", "fail", "failed", "error")
_FALSE: Final = ("false", "0", "no", "failed", "fail")
# Launchers put a label before a line, and some consoles lose the `#`.
_NCCL_SIZES: Final = re.compile(r"\bnThread\b.*\bminBytes\s+(\d+)\s+maxBytes\s+(\d+)")
_NCCL_NAME: Final = re.compile(r"Collective test starting:\s*(\w+)")
_NCCL_DEVICE: Final = re.compile(
    r"\bRank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+)\s+device\b"
)
_NCCL_AVERAGE: Final = re.compile(r"Avg bus bandwidth\s*:\s*([0-9.eE+-]+)")
_NCCL_WRONG: Final = re.compile(r"Out of bounds values\s*:\s*(\d+)")


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


@dataclass(frozen=True, slots=True)
class PairTableResult:
    """State of all nodes, by the worst of the kinds of test."""

    verdicts: dict[str, PairVerdict]
    table: PairTable

    def line(self) -> dict[str, Any]:
        """Return the result as the command prints it with `--json`."""
        return {
            "nodes": list(self._nodes()),
            "links": list(self._links()),
            "blocks": list(self._blocks()),
            "unit": self.table.unit,
            "tests": list(self.verdicts),
            "skipped": self.table.skipped,
        }

    def words(self) -> Iterator[str]:
        """Yield the result as lines of text."""
        line = self.line()
        for node in line["nodes"]:
            if node["state"] != "ok":
                yield f"{node['node']}: {node['state']}{_describe(node)}"
        for link in line["links"]:
            yield f"{link['a']} - {link['b']}: {link['state']} link{_describe(link)}"
        for block in line["blocks"]:
            across = "none" if block["across"] is None else f"{block['across']:g}"
            yield (
                f"block {' '.join(block['nodes'])}: {block['within']:g} within, {across} to others "
                f"({line['unit']})"
            )
        good = sum(node["state"] == "ok" for node in line["nodes"])
        yield f"{good} of {len(line['nodes'])} nodes are ok"
        if line["skipped"]:
            yield f"{line['skipped']} tests are not of two nodes and were not used"

    def _nodes(self) -> Iterator[dict[str, Any]]:
        """Yield each node with its worst state, the lowest factor first among equals."""
        order = ("failed", "slow", "unproven", "ok")
        for states in zip(*(verdict.nodes for verdict in self.verdicts.values()), strict=True):
            known = [state for state in states if state.partners] or list(states)
            worst = min(known, key=lambda s: (order.index(s.state), s.factor or math.inf))
            yield _rounded(asdict(worst))

    def _links(self) -> Iterator[dict[str, Any]]:
        """Yield each bad link once, from the test where it is worst."""
        blamed = {n["node"] for n in self._nodes() if n["state"] in ("failed", "slow")}
        links = [link for verdict in self.verdicts.values() for link in verdict.links]
        worst: dict[tuple[str, str], dict[str, Any]] = {}
        for link in sorted(links, key=lambda link: -(link.factor or 0.0)):
            if not {link.a, link.b} & blamed:
                worst[link.a, link.b] = _rounded(asdict(link))
        yield from worst.values()

    def _blocks(self) -> Iterator[dict[str, Any]]:
        """Yield the blocks of the test in which they differ most."""
        structures = [verdict.blocks for verdict in self.verdicts.values() if verdict.blocks]
        if structures:
            chosen = min(structures, key=lambda blocks: min(block.ratio or 0.0 for block in blocks))
            for block in chosen:
                row = asdict(block)
                for key in ("within", "across"):
                    row[key] = self._in_unit(row[key])
                yield _rounded(row)

    def _in_unit(self, bandwidth: float | None) -> float | None:
        return 1.0 / bandwidth if bandwidth and self.table.is_time else bandwidth


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    def short(value: Any) -> Any:
        if isinstance(value, tuple):
            return [short(part) for part in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {key: short(value) for key, value in row.items()}


def _describe(row: Mapping[str, Any]) -> str:
    parts = []
    if row["factor"] is not None and row["state"] != "failed":
        parts.append(f"{row['factor']:.2f} of the expected bandwidth")
        if row["interval"]:
            parts.append("95 % interval {:.2f} to {:.2f}".format(*row["interval"]))
    for key, word in (("slow_with", "slow"), ("failed_with", "failed")):
        if row.get(key):
            parts.append(f"{word} with {row[key]} of {row['partners']}")
    return f" ({', '.join(parts)})" if parts else ""


def judge_table(table: PairTable, nodes: Sequence[str], path: Path | None) -> PairTableResult:
    """Evaluate each kind of test by itself.

    Parameters
    ----------
    table : PairTable
    nodes : sequence of str
        If empty, those of the table.
    path : Path, optional
        For the message.

    Raises
    ------
    InputError
        If the table contains a node that is not in `nodes`.
    """
    named = [node for tests in table.tests.values() for test in tests for node in (test.a, test.b)]
    known = tuple(dict.fromkeys(nodes or named))
    strangers = sorted(set(named) - set(known))
    if strangers:
        raise InputError(
            f"{path}: contains node {strangers[0][:80]!r}, expected one of the {len(known)} "
            "nodes of the check."
        )
    return PairTableResult(
        {kind: evaluate_pairs(known, tests) for kind, tests in table.tests.items()}, table
    )


def parse_pair_table(text: str, path: Path) -> PairTable | None:
    """Parse a bandwidth table or the output of nccl-tests; None if the text is neither.

    A table has a column `nodes` (two names, by space or comma) or two columns of names, and a
    column of bandwidths, or of times where there is no `round`. An empty value is a failed test.

    Raises
    ------
    InputError
        If a value or a name is invalid, or no test of two nodes is left.
    """
    if _NCCL_DEVICE.search(text):
        return _parse_nccl(text, path)
    reader = csv.DictReader(io.StringIO(text), restval="")
    names = [name for name in reader.fieldnames or [] if name]
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
    if not math.isfinite(number) or number < 0.0:
        raise InputError(f"{where}: `{column}` is {text[:40]!r}, expected a number over 0.")
    return number or None


def _parse_nccl(text: str, path: Path) -> PairTable:
    """Parse the output of one or several runs; tests of other sizes are not compared."""
    tests: dict[str, list[PairTest]] = {}
    skipped = 0
    for run in _nccl_runs(text):
        if len(run.hosts) == 2:
            a, b = run.hosts
            tests.setdefault(run.kind, []).append(PairTest(a, b, run.bandwidth))
        else:
            skipped += 1
    return _require_tests(PairTable(tests, "GB/s", False, skipped), path)


@dataclass(slots=True)
class _Run:
    """A run of nccl-tests; without an average, or with wrong values, it has failed."""

    kind: str
    hosts: dict[str, None]
    average: float = 0.0
    wrong: int = 0

    @property
    def bandwidth(self) -> float | None:
        return self.average if self.average > 0.0 and not self.wrong else None


def _nccl_runs(text: str) -> Iterator[_Run]:
    """Yield runs; each starts with the line of its rank 0, after name and sizes of the test."""
    run: _Run | None = None
    name = sizes = ""
    for line in text.splitlines():
        if match := _NCCL_NAME.search(line):
            name, sizes = match[1], ""
        elif match := _NCCL_SIZES.search(line):
            sizes = f"{match[1]}-{match[2]}"
        elif match := _NCCL_DEVICE.search(line):
            if run is None or int(match[1]) == 0:
                if run is not None:
                    yield run
                run = _Run(f"{name} {sizes}".strip(), {})
            run.hosts[match[2]] = None
        elif run is not None and (match := _NCCL_WRONG.search(line)):
            run.wrong = int(match[1])
        elif run is not None and (match := _NCCL_AVERAGE.search(line)):
            run.average = _average(match[1])
    if run is not None:
        yield run


def _average(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0

"""Results of node checks: reading them, and the next round or the conclusions."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.features.errors import InputError
from forewarn.models.diagnosis.nodes.group_testing import NodeGroup, links_within
from forewarn.models.diagnosis.nodes.node_check import (
    ROUND_LIMIT,
    GroupTest,
    NodeCheck,
    evaluate_tests,
)
from forewarn.models.diagnosis.nodes.node_pairing import plan_next_round
from forewarn.models.diagnosis.nodes.pair_matrix import PairTest
from forewarn.pipelines.diagnosis.pair_results import PairTableResult, judge_table
from forewarn.pipelines.diagnosis.parts.job_folder import read_text
from forewarn.pipelines.diagnosis.parts.pair_table_reader import PairTable, parse_pair_table

__all__ = ["NodeCheckResult", "NodeResultsError", "check_nodes", "read_node_tests"]

_COLUMNS = ("round", "nodes")
_TRUE_WORDS, _FALSE_WORDS = ("true", "1", "yes", "passed"), ("false", "0", "no", "failed")
_OUTPUTS = (".log", ".out", ".txt", ".json")
_MAX_ROUNDS = 1000
_MIN_SECONDS = 1e-9  # keeps ratios of times finite
_TABLE_SHARE = 0.75  # of all pairs; rounds end long before
_TABLE_NODES = 8


class NodeResultsError(InputError):
    """A results file that cannot be used."""


@dataclass(frozen=True, slots=True)
class NodeCheckResult:
    """State of a node check.

    Attributes
    ----------
    nodes : tuple of str
    round : int
        Next round, or the last one if no test remains.
    groups : tuple of tuple of str
        Nodes to test together next.
    check : NodeCheck
    """

    nodes: tuple[str, ...]
    round: int
    groups: tuple[tuple[str, ...], ...]
    check: NodeCheck

    def line(self) -> dict[str, Any]:
        """Return the result as the command prints it with `--json`."""
        check, works, speed = self.check, self.check.works, self.check.speed
        settled = works.good | works.bad | works.unsteady
        return {
            "nodes": [
                {"node": node, "state": check.state(node), "factor": check.factor(node)}
                for node in self.nodes
            ],
            "links": [
                {"a": a, "b": b, "state": state, "factor": None}
                for state, links in (("failed", check.links), ("slow", speed.links))
                for a, b in _link_ends(links)
            ],
            "blocks": [],
            "done": not self.groups,
            "round": self.round,
            "pairs": [list(group) for group in self.groups],
            "faulty": sorted(works.bad),
            "stragglers": sorted(speed.bad),
            "slow_links": _link_ends(speed.links),
            "unsteady": sorted(works.unsteady),
            "suspects": [node for node in self.nodes if node not in settled],
            "good": len(works.good),
        }

    def words(self) -> Iterator[str]:
        """Yield the result as lines of text."""
        line = self.line()
        for key, words in _SENTENCES.items():
            for node in line[key]:
                yield words.format(node)
        for link in line["links"]:
            yield _LINK_SENTENCES[link["state"]].format(**link)
        yield f"{line['good']} of {len(self.nodes)} nodes are known to be good"
        if self.groups:
            yield f"round {self.round} (at most {ROUND_LIMIT:g} s):"
            yield from (f"  {' '.join(group)}" for group in self.groups)
        else:
            yield from (f"{node}: undetermined" for node in line["suspects"])


_SENTENCES = {
    "faulty": "{}: faulty",
    "stragglers": "{}: straggler",
    "unsteady": "{}: passes and fails intermittently, test it alone",
}
_LINK_SENTENCES = {
    "failed": "{a} - {b}: bad link between good nodes",
    "slow": "{a} - {b}: slow link between nodes that are fast with others",
}


def _link_ends(links: frozenset[NodeGroup]) -> list[list[str]]:
    return sorted(sorted(link) for link in links)


def check_nodes(results: Path | None, nodes: Sequence[str]) -> NodeCheckResult | PairTableResult:
    """Evaluate a table of all pairs, or the tests so far, and plan the next round.

    Parameters
    ----------
    results : Path, optional
        Tests so far, a table of pairs, or a file or folder of output of nccl-tests; None before
        the first round.
    nodes : sequence of str
        Nodes in physical order; if empty, those of the results in file order.

    Raises
    ------
    NodeResultsError
        If the file cannot be used, or contains a node that is not in `nodes`.
    """
    text = "" if results is None else _read_results(results)
    table = None if results is None else parse_pair_table(text, results)
    if table is not None:
        return judge_table(table, nodes, results)
    tests = [] if results is None else _parse_tests(text, results)
    if len(tests) > 1 and _is_table(tests):
        return judge_table(_timed_table(tests), nodes, results)
    named = [node for members, _ in tests for node in members]
    known = tuple(dict.fromkeys(nodes or named))
    strangers = sorted(set(named) - set(known))
    if strangers:
        raise NodeResultsError(
            f"{results}: contains node {strangers[0][:80]!r}, expected one of the {len(known)} "
            "nodes of the check."
        )
    outcomes = [test for _, test in tests]
    groups = plan_next_round(known, outcomes)
    last = max((test.round for test in outcomes), default=0)
    return NodeCheckResult(known, last + bool(groups), groups, evaluate_tests(known, outcomes))


def read_node_tests(path: Path) -> list[tuple[tuple[str, ...], GroupTest]]:
    """Read tests, with their nodes in file order.

    CSV files have the columns `round,nodes[,passed][,seconds]` with node names separated by spaces.
    JSON files have one object per line with the same keys and `nodes` as a list.

    Raises
    ------
    NodeResultsError
        If a key is missing or a value is invalid.
    """
    return _parse_tests(read_text(path), path)


def _read_results(path: Path) -> str:
    """Read a file, or all logs and reports of a folder of nccl-tests as one."""
    if not path.is_dir():
        return read_text(path)
    files = sorted(f for f in path.iterdir() if f.suffix in _OUTPUTS)
    if not files:
        endings = ", ".join(_OUTPUTS)
        raise NodeResultsError(f"{path}: contains no file {endings}, expected nccl-tests.")
    return "\n".join(read_text(file) for file in files)


def _is_table(tests: Sequence[tuple[tuple[str, ...], GroupTest]]) -> bool:
    """Return whether the tests are a table of the pairs rather than rounds of a check."""
    nodes = {node for members, _ in tests for node in members}
    pairs = {link for _, test in tests for link in links_within(test.nodes)}
    share = len(pairs) / (len(nodes) * (len(nodes) - 1) / 2)
    return len(nodes) >= _TABLE_NODES and share >= _TABLE_SHARE


def _timed_table(tests: Sequence[tuple[tuple[str, ...], GroupTest]]) -> PairTable:
    """Return pair tests with times; a test that passed without a time is left out."""
    pairs = [(members, test) for members, test in tests if len(members) == 2]
    used: list[PairTest] = []
    for (a, b), test in pairs:
        if test.outcome is False:
            used.append(PairTest(a, b, None))
        elif test.outcome and test.seconds is not None:
            used.append(PairTest(a, b, 1.0 / test.seconds))
    return PairTable({"": used}, "seconds", is_time=True, skipped=len(tests) - len(pairs))


def _parse_tests(text: str, path: Path) -> list[tuple[tuple[str, ...], GroupTest]]:
    is_json = text.lstrip().startswith("{")
    rows = _json_rows(text, path) if is_json else _csv_rows(text, path)
    return [_parse_test(row, where) for where, row in rows]


def _json_rows(text: str, path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise NodeResultsError(f"{path}: line {number} is not a JSON object, expected one.")
            yield f"{path}: line {number}", row


def _csv_rows(text: str, path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    reader = csv.DictReader(io.StringIO(text), restval="")
    missing = [column for column in _COLUMNS if column not in (reader.fieldnames or [])]
    if missing:
        raise NodeResultsError(f"{path}: column `{missing[0]}` is missing.")
    try:
        for row in reader:
            yield f"{path}: line {reader.line_num}", {**row, "nodes": row["nodes"].split()}
    except csv.Error as error:
        raise NodeResultsError(f"{path}: is not a valid CSV table ({error}).") from None


def _parse_test(row: Mapping[str, object], where: str) -> tuple[tuple[str, ...], GroupTest]:
    nodes = row.get("nodes")
    names = tuple(nodes) if isinstance(nodes, list) else ()
    if not 2 <= len(names) <= 3 or any(not isinstance(n, str) or not n for n in names):
        raise NodeResultsError(
            f"{where}: `nodes` is {_shorten(nodes)}, expected two or three names."
        )
    if len(set(names)) < len(names):
        raise NodeResultsError(f"{where}: `nodes` contains {names[0][:40]!r} twice, expected once.")
    number = _parse_number(row.get("round"))
    if number is None or number != int(number) or not 1 <= number <= _MAX_ROUNDS:
        shown = _shorten(row.get("round"))
        raise NodeResultsError(f"{where}: `round` is {shown}, expected 1 to {_MAX_ROUNDS}.")
    seconds = _parse_seconds(row.get("seconds"), where)
    return names, GroupTest(
        int(number), frozenset(names), _parse_passed(row.get("passed"), where), seconds
    )


def _parse_seconds(value: object, where: str) -> float | None:
    """Parse a time; an empty cell means no time, and 0 is an error."""
    if value is None or value == "":
        return None
    seconds = _parse_number(value)
    if seconds is None or seconds < _MIN_SECONDS:
        shown = _shorten(value)
        raise NodeResultsError(
            f"{where}: `seconds` is {shown}, expected more than 0, or an empty cell if unknown."
        )
    return seconds


def _parse_passed(value: object, where: str) -> bool | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in (*_TRUE_WORDS, *_FALSE_WORDS):
        raise NodeResultsError(f"{where}: `passed` is {_shorten(value)}, expected true or false.")
    return word in _TRUE_WORDS


def _parse_number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _shorten(value: object) -> str:
    return repr(value)[:60]

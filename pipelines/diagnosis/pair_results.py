"""Result of a table of pair tests, as the command prints it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forewarn.features.errors import InputError
from forewarn.models.diagnosis.nodes.pair_table import PairVerdict, evaluate_pairs
from forewarn.pipelines.diagnosis.parts.pair_table_reader import PairTable

__all__ = ["PairTableResult", "judge_table"]


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
            "done": True,
            "pairs": [],
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


def judge_table(
    table: PairTable,
    nodes: Sequence[str],
    path: Path | None,
    block_of: Mapping[str, str] | None = None,
) -> PairTableResult:
    """Evaluate each kind of test by itself.

    Parameters
    ----------
    table : PairTable
    nodes : sequence of str
        If empty, those of the table.
    path : Path, optional
        For the message.
    block_of : mapping of str to str, optional
        Block of each node, where it is known.

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
        {kind: evaluate_pairs(known, tests, block_of) for kind, tests in table.tests.items()}, table
    )

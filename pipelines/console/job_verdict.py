"""A verdict on a job as its page shows it, whatever its file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from forewarn.pipelines.rendering.templates import finite_number

__all__ = ["JobVerdict", "Suspect", "parse_verdict"]

_MAX_ROWS: Final = 60


class Suspect(NamedTuple):
    """A rank or machine, and why it is suspected; empty texts if unknown.

    `weight` is that of the evidence; 0 if unknown.
    """

    rank: str
    machine: str
    why: str
    weight: float = 0.0


class JobVerdict(NamedTuple):
    """A line of `forewarn diagnose run --json`, as texts; empty where it says nothing.

    `candidates` are those that are not named and not on the machine of a culprit. `waiting` are the
    ranks that are seen to wait for others only, and `cleared` the machines that nothing accuses.
    """

    kind: str
    cause: str
    since: str
    detected_at: str
    culprits: list[Suspect]
    candidates: list[Suspect]
    evidence: list[tuple[str, str]]
    steps: list[str]
    probes: list[tuple[str, str, str]]
    silent: list[str]
    waiting: list[str]
    cleared: list[str]


def parse_verdict(line: Mapping[str, Any]) -> JobVerdict:
    """Return the texts of a verdict; parts of another type are left out.

    Examples
    --------
    >>> parse_verdict({"kind": "hang", "culprits": [{"rank": 3, "machine": "a"}]}).culprits
    [Suspect(rank='3', machine='a', why='', weight=0.0)]
    """
    culprits, candidates = (_suspects(line.get(name)) for name in ("culprits", "also"))
    named = {culprit.machine for culprit in culprits} - {""}
    accused = named | {candidate.machine for candidate in candidates}
    probes, evidence = line.get("probes"), _rows(line, "evidence")
    return JobVerdict(
        kind=_text(line.get("kind")) or "unknown",
        cause=_text(line.get("cause")),
        since=_text(line.get("since")),
        detected_at=_text(line.get("detected_at")),
        culprits=culprits,
        candidates=[candidate for candidate in candidates if candidate.machine not in named],
        evidence=[(_text(row.get("part")), _text(row.get("says"))) for row in evidence],
        steps=_texts(line.get("next")),
        probes=[
            (str(name), _text(probe.get("state")), _text(probe.get("why")))
            for name, probe in (probes.items() if isinstance(probes, dict) else ())
            if isinstance(probe, dict)
        ],
        silent=_texts(line.get("blind")),
        waiting=_waiting(evidence),
        cleared=[name for name in _texts(line.get("machines")) if name not in accused],
    )


def _waiting(evidence: list[dict[str, Any]]) -> list[str]:
    """Return the ranks that wait for others, and that no other waits for."""
    details = [row["details"] for row in evidence if isinstance(row.get("details"), dict)]
    missed = {
        rank for part in details for name in ("absent", "silent") for rank in _ranks(part, name)
    }
    waits = {
        rank
        for part in details
        if _ranks(part, "absent") or _ranks(part, "silent")
        for rank in _ranks(part, "waiting")
    }
    return [str(rank) for rank in sorted(waits - missed)]


def _ranks(details: Mapping[str, Any], name: str) -> list[int]:
    values = details.get(name)
    return [value for value in values if type(value) is int] if isinstance(values, list) else []


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and value is not True else ""


def _texts(values: object) -> list[str]:
    if not isinstance(values, list):
        return []
    return [text for value in values if (text := _text(value))]


def _rows(line: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = line.get(name)
    if not isinstance(rows, list):
        return []
    return [row for row in rows if isinstance(row, dict)][:_MAX_ROWS]


def _suspects(rows: object) -> list[Suspect]:
    return [
        Suspect(
            _text(row.get("rank")),
            _text(row.get("machine")),
            _text(row.get("why")),
            finite_number(row.get("weight")) or 0.0,
        )
        for row in _rows({"rows": rows}, "rows")
    ]

"""A verdict on a job as its page shows it, whatever its file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["JobVerdict", "Suspect", "parse_verdict"]

_MAX_ROWS: Final = 60


class Suspect(NamedTuple):
    """A rank or machine, and why it is suspected; empty texts if unknown."""

    rank: str
    machine: str
    why: str


class JobVerdict(NamedTuple):
    """A line of `forewarn diagnose run --json`, as texts; empty where it says nothing."""

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
    cleared: list[str]


def parse_verdict(line: Mapping[str, Any]) -> JobVerdict:
    """Return the texts of a verdict; parts of another type are left out.

    Examples
    --------
    >>> parse_verdict({"kind": "hang", "culprits": [{"rank": 3, "machine": "a"}]}).culprits
    [Suspect(rank='3', machine='a', why='')]
    """
    culprits, candidates = (_suspects(line.get(name)) for name in ("culprits", "also"))
    accused = {suspect.machine for suspect in (*culprits, *candidates)}
    probes, evidence = line.get("probes"), _rows(line, "evidence")
    return JobVerdict(
        kind=_text(line.get("kind")) or "unknown",
        cause=_text(line.get("cause")),
        since=_text(line.get("since")),
        detected_at=_text(line.get("detected_at")),
        culprits=culprits,
        candidates=candidates,
        evidence=[(_text(row.get("part")), _text(row.get("says"))) for row in evidence],
        steps=_texts(line.get("next")),
        probes=[
            (str(name), _text(probe.get("state")), _text(probe.get("why")))
            for name, probe in (probes.items() if isinstance(probes, dict) else ())
            if isinstance(probe, dict)
        ],
        silent=_texts(line.get("blind")),
        cleared=[name for name in _texts(line.get("machines")) if name not in accused],
    )


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
        Suspect(_text(row.get("rank")), _text(row.get("machine")), _text(row.get("why")))
        for row in _rows({"rows": rows}, "rows")
    ]

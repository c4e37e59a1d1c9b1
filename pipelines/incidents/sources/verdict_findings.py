"""Findings from verdicts of `forewarn detect watch --json`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.incidents.sources.verdict_lines import parse_verdict_lines
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["verdict_findings"]

_SOURCE: Final = "detect"
_COMMAND: Final = "forewarn detect watch --json"
_VALID: Final = HOUR
_END_OF_TIME: Final = Nanoseconds(2**62)


def verdict_findings(
    path: Path, *, since: Nanoseconds, until: Nanoseconds = _END_OF_TIME
) -> list[Finding]:
    """Read the verdicts of a time span; invalid lines are skipped with one note.

    A verdict of a detector in observe-only mode is a report: it is shown, but is not evidence.

    Parameters
    ----------
    path : Path
        Lines of `forewarn detect watch --json` (formats.md, section 6). A missing file has no
        verdicts.
    since, until : int
        Nanoseconds since 1970 UTC, both inclusive. Later verdicts come from a wrong clock.

    Raises
    ------
    VerdictsError
        If the file cannot be read, or none of its lines is a verdict.
    """
    verdicts = parse_verdict_lines(path, lambda line: list(_findings(line)), _COMMAND)
    recent = [[item for item in items if item.at >= since] for items in verdicts]
    ahead = sum(any(item.at > until for item in items) for items in recent)
    if ahead:
        note(f"{path}: {ahead} verdicts from the future skipped")
    return [item for items in recent for item in items if item.at <= until]


def _findings(verdict: dict[str, Any]) -> Iterator[Finding]:
    """Yield a finding per machine of a verdict; none if no machine was identified."""
    job = str(verdict["task"])
    if verdict["machine"] is None:
        return
    observed = bool(verdict.get("observe_only"))
    kind = FindingKind.REPORT if observed else FindingKind.VERDICT
    read = [EvidenceKind.METRICS, *([EvidenceKind.LIST] if verdict.get("helped_by_list") else [])]
    detected = Nanoseconds(parse_moment(verdict["detected_at"]))
    for named in (verdict, *verdict["also"]):
        shown = {name: named[name] for name in ("metric", "score", "since")}
        evidence = {**shown, "kind": verdict.get("kind"), "task": job, "evidence_from": read}
        yield Finding(
            source=_SOURCE,
            # An observation and a later verdict are different findings, of different kinds.
            id=f"{job}/{named['machine']}/{named['since']}" + ("/observed" if observed else ""),
            kind=kind,
            cause="verdict",
            machine=str(named["machine"]),
            at=detected,
            valid_until=Nanoseconds(detected + _VALID),
            job=job,
            evidence=evidence | ({"observe_only": True} if observed else {}),
        )

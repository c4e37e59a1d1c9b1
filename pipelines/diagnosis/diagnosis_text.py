"""Verdict on a job as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["describe_culprit", "diagnosis_lines"]

_MAX_LINES = 12  # candidates, and lines of evidence
_MAX_UNREAD = 3
_KIND_TEXT = {
    "hang": "hangs",
    "slow": "is slowed down",
    "jitter": "has jitter",
    "crash": "has crashed",
    "ended": "was ended on request",
    "unknown": "cannot be judged",
    "none": "has no known problem",
}
_WITH_CULPRIT = ("hang", "slow", "jitter", "crash")
_STALLED_TEXT = "is stalled but not classified as a hang"


def diagnosis_lines(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the verdict as lines of text.

    Parameters
    ----------
    line : mapping
        Verdict as printed with `--json` (docs/formats.md, section 10).
    """
    since = f" since {line['since']}" if line["since"] else ""
    kind = _STALLED_TEXT if line["kind"] == "none" and since else _KIND_TEXT[line["kind"]]
    yield f"{line['job']} {kind}{since}"
    for culprit in line["culprits"]:
        yield f"  root cause: {describe_culprit(culprit)}"
    if not line["culprits"] and line["kind"] in _WITH_CULPRIT:
        yield "  no culprit identified"
    if line["cause"]:
        yield f"  cause: {line['cause']}"
    for sentence in line["next"]:
        yield f"  next: {sentence}"
    for candidate in line["also"][:_MAX_LINES]:
        yield f"  also: {describe_culprit(candidate)}: {candidate['why']}"
    for name, probe in line["probes"].items():
        yield f"  {name}: {probe['state']}, {probe['why']}"
    for evidence in line["evidence"][:_MAX_LINES]:
        yield f"  {evidence['part']}: {evidence['says']}"
    if len(line["evidence"]) > _MAX_LINES:
        yield f"  and {len(line['evidence']) - _MAX_LINES} more lines of evidence"
    if line["files"]:
        yield f"  files: {_describe_files(line['files'])}"
    if line["blind"]:
        yield f"  blind: {', '.join(line['blind'])}"


def _describe_files(files: Sequence[Mapping[str, Any]]) -> str:
    unread = [f"{file['path']} ({file['why']})" for file in files if file["read_as"] is None]
    shown = f": {', '.join(unread[:_MAX_UNREAD])}" if unread else ""
    more = f" and {len(unread) - _MAX_UNREAD} more" if len(unread) > _MAX_UNREAD else ""
    return f"{len(files) - len(unread)} read, {len(unread)} not read{shown}{more}"


def describe_culprit(suspect: Mapping[str, Any]) -> str:
    """Return the rank, the machine, or both, of a verdict or a candidate as text."""
    rank = "" if suspect["rank"] is None else f"rank {suspect['rank']}"
    machine = suspect["machine"] or ""
    return f"{rank} on {machine}" if rank and machine else rank or f"machine {machine}"

"""A verdict on a job in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["diagnosis_words", "named"]

_MOST = 12  # candidates and lines of evidence
_KINDS = {
    "hang": "hangs",
    "slow": "is slowed down",
    "jitter": "is slow at times",
    "crash": "has crashed",
    "none": "shows nothing wrong",
}
_STILL = "is not called a hang, though it stands still"


def diagnosis_words(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that a person reads.

    Parameters
    ----------
    line : mapping
        As `--json` prints it (formats.md, section 10).
    """
    since = f" since {line['since']}" if line["since"] else ""
    kind = _STILL if line["kind"] == "none" and since else _KINDS[line["kind"]]
    yield f"{line['job']} {kind}{since}"
    if line["rank"] is not None or line["machine"] is not None:
        yield f"  begun by {named(line)}"
    elif line["kind"] != "none":
        yield "  nobody is named"
    if line["cause"]:
        yield f"  cause: {line['cause']}"
    for candidate in line["also"][:_MOST]:
        yield f"  also: {named(candidate)}: {candidate['why']}"
    for name, probe in line["probes"].items():
        yield f"  {name}: {probe['state']}, {probe['why']}"
    for evidence in line["evidence"][:_MOST]:
        yield f"  {evidence['part']}: {evidence['says']}"
    if len(line["evidence"]) > _MOST:
        yield f"  and {len(line['evidence']) - _MOST} more lines of evidence"
    if line["blind"]:
        yield f"  blind: {', '.join(line['blind'])}"


def named(who: Mapping[str, Any]) -> str:
    """Write who a verdict or a candidate is: a rank, its machine, or both."""
    rank = "" if who["rank"] is None else f"rank {who['rank']}"
    machine = who["machine"] or ""
    return f"{rank} on {machine}" if rank and machine else rank or f"machine {machine}"

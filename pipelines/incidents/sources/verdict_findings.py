"""Verdicts of `forewarn detect watch --json` as findings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["VerdictsError", "verdict_findings"]

_SOURCE: Final = "detect"
_MAX_BYTES_READ: Final = 16 * 2**20  # of the end of the file: some ten thousand verdicts
_VALID: Final = HOUR
_END_OF_TIME: Final = Nanoseconds(2**62)


class VerdictsError(InputError):
    """A file of verdicts that cannot be used."""


def verdict_findings(
    path: Path, *, since: Nanoseconds, until: Nanoseconds = _END_OF_TIME
) -> list[Finding]:
    """Read the verdicts of a span; lines that are none are left out with one note.

    A verdict of a detector that observes only is a report: it is told, and supports nothing.

    Parameters
    ----------
    path : Path
        Lines as `forewarn detect watch --json` writes them (formats.md, section 6). A file
        that is not there has no verdicts yet.
    since, until : int
        Nanoseconds since 1970 UTC, both inclusive; what is later has the time of a wrong clock.

    Raises
    ------
    VerdictsError
        If it cannot be read, or no line of it is a verdict.
    """
    lines = _last_lines(path)
    findings, bad, ahead = list[Finding](), 0, 0
    for line in lines:
        try:
            verdicts = [item for item in _findings(json.loads(line)) if item.at >= since]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            bad += 1
        else:
            findings += [item for item in verdicts if item.at <= until]
            ahead += any(item.at > until for item in verdicts)
    if ahead:
        note(f"{path}: {ahead} verdicts are left out, their time is still to come")
    if bad == len(lines) > 0:
        raise VerdictsError(
            f"{path}: holds no verdict, expected lines of `forewarn detect watch --json`."
        )
    if bad:
        note(f"{path}: {bad} of {len(lines)} lines are left out, they are no verdicts")
    return findings


def _last_lines(path: Path) -> list[bytes]:
    """Return the whole lines at the end of a file that somebody may be writing to."""
    try:
        if path.exists() and not path.is_file():
            raise VerdictsError(f"{path}: cannot be read (no regular file).")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _MAX_BYTES_READ, 0))
            text = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise VerdictsError(f"{path}: cannot be read ({error.strerror}).") from None
    whole = text[: text.rfind(b"\n") + 1].split(b"\n")
    return [line for line in (whole[1:] if size > _MAX_BYTES_READ else whole) if line.strip()]


def _findings(verdict: dict[str, Any]) -> Iterator[Finding]:
    """Yield what a verdict says of each machine; of one with nobody in it, nothing."""
    job = str(verdict["task"])
    if verdict["machine"] is None:
        return
    observed = bool(verdict.get("observe_only"))
    kind = FindingKind.REPORT if observed else FindingKind.VERDICT
    detected = Nanoseconds(parse_moment(verdict["detected_at"]))
    for named in (verdict, *verdict["also"]):
        shown = {name: named[name] for name in ("metric", "score", "since")}
        evidence = {**shown, "kind": verdict.get("kind"), "task": job}
        yield Finding(
            source=_SOURCE,
            # An observation that becomes a verdict is another finding, of another kind.
            id=f"{job}/{named['machine']}/{named['since']}" + ("/observed" if observed else ""),
            kind=kind,
            cause="verdict",
            machine=str(named["machine"]),
            at=detected,
            valid_until=Nanoseconds(detected + _VALID),
            job=job,
            evidence=evidence | ({"observe_only": True} if observed else {}),
        )

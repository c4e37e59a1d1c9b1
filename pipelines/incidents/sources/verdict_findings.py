"""Findings from verdicts of `forewarn detect watch --json`."""

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
_MAX_BYTES_READ: Final = 16 * 2**20  # from the end of the file: about ten thousand verdicts
_VALID: Final = HOUR
_END_OF_TIME: Final = Nanoseconds(2**62)


class VerdictsError(InputError):
    """A verdicts file that cannot be used."""


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
        note(f"{path}: {ahead} verdicts from the future skipped")
    if bad == len(lines) > 0:
        raise VerdictsError(
            f"{path}: contains no verdict, expected lines of `forewarn detect watch --json`."
        )
    if bad:
        note(f"{path}: {bad} of {len(lines)} lines skipped, not verdicts")
    return findings


def _last_lines(path: Path) -> list[bytes]:
    """Return the complete lines at the end of a file that may be being written."""
    try:
        if path.exists() and not path.is_file():
            raise VerdictsError(f"{path}: cannot be read (not a regular file).")
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
    """Yield a finding per machine of a verdict; none if no machine was identified."""
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

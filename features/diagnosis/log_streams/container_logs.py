"""Lines of logs as container runtimes store them: Docker's JSON, and Kubernetes' CRI form."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from forewarn.features.diagnosis.log_streams.line_prefixes import clean_text, sample_lines

__all__ = ["has_envelope", "unwrap_container_log"]

_ISO = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_TIME = re.compile(_ISO)
_CRI = re.compile(rb"(" + _ISO + rb" (stdout|stderr) )([FP])(?::\S*)?(?: |$)")
_SPLIT_MARKS = (b" stdout P", b" stderr P", b"\r")
_DOCKER = re.compile(rb'\{"log":"')
_DOCKER_LINE = re.compile(rb'(?m)^\{"log":"[^\n]*')
_UNESCAPED = re.compile(  # most lines, which need no decoder
    rb'(?m)^\{"log":"([^"\\\n]*)\\n","stream":"(stdout|stderr)","time":"(' + _ISO + rb')"\}$'
)
_MIN_SHARE = 0.5  # of the lines; the first and the last one may be cut


def has_envelope(line: bytes) -> bool:
    """Return whether a line begins with the envelope of a container runtime."""
    return _DOCKER.match(line) is not None or _CRI.match(line) is not None


def unwrap_container_log(text: bytes) -> bytes:
    r"""Return the whole lines of a container in Kubernetes' form, or another text as it is.

    Lines that the runtime has split are joined, and have the time of their start. A carriage return
    overwrites only the line's own text.

    Parameters
    ----------
    text : bytes

    Examples
    --------
    >>> unwrap_container_log(b'{"log":"a\\n","stream":"stderr","time":"2026-01-01T00:00:00Z"}\n')
    b'2026-01-01T00:00:00Z stderr F a\n'
    """
    lines = sample_lines(text)
    if _has_form(_DOCKER, lines):
        text = _DOCKER_LINE.sub(_decode, _UNESCAPED.sub(rb"\3 \2 F \1", text))
    elif not _has_form(_CRI, lines):
        return text
    return _join(text) if any(mark in text for mark in _SPLIT_MARKS) else text


def _has_form(form: re.Pattern[bytes], lines: Sequence[bytes]) -> bool:
    number = sum(form.match(line) is not None for line in lines)
    return number > 0 and number >= _MIN_SHARE * len(lines)


def _decode(match: re.Match[bytes]) -> bytes:
    """Return a line of Docker in Kubernetes' form, or as it is if it is broken."""
    try:
        values = json.loads(match[0])
        data, stream, time = (
            str(values[key]).encode("utf-8", "replace") for key in ("log", "stream", "time")
        )
    except (ValueError, RecursionError, KeyError, TypeError):
        return match[0]
    if stream not in (b"stdout", b"stderr") or not _TIME.fullmatch(time):
        return match[0]
    tag = b"F" if data.endswith(b"\n") else b"P"
    return b" ".join((time, stream, tag, data.removesuffix(b"\n").replace(b"\n", b" ")))


def _join(text: bytes) -> bytes:
    """Return whole lines, in the order of their ends."""
    begun: dict[bytes, list[bytes]] = {}  # by stream, the first one with its envelope
    lines: list[bytes] = []
    for line in text.removesuffix(b"\n").split(b"\n"):
        match = _CRI.match(line)
        if match is None:
            lines.append(line)
            continue
        envelope, stream, tag = match.groups()
        if tag == b"F" and stream not in begun and b"\r" not in line:
            lines.append(line)
            continue
        begun.setdefault(stream, [envelope + b"F "]).append(line[match.end() :])
        if tag == b"F":
            lines.append(_whole(begun.pop(stream)))
    return b"\n".join([*lines, *map(_whole, begun.values()), b""])


def _whole(pieces: Sequence[bytes]) -> bytes:
    return pieces[0] + clean_text(b"".join(pieces[1:]) + b"\n")[:-1]

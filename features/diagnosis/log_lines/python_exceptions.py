"""Exceptions that end the stack traces of a log, and those that end a C++ program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from forewarn.features.diagnosis.log_lines.line_selection import JoinedLines

__all__ = [
    "CPP_EXCEPTION",
    "TRACEBACK",
    "cpp_exceptions",
    "cut_trace",
    "exception_text",
    "is_exception",
    "is_raised_in_wait",
    "names_others",
    "traceback_ends",
]

TRACEBACK: Final = b"Traceback (most recent call last)"
CPP_EXCEPTION: Final = b"what():  "  # printed by std::terminate, which ends the process
_MAX_CPP_EXCEPTIONS = 40  # the last ones
_WAIT = re.compile(
    rb"(?i)time[d -]{0,2}out|deadline|\bwait|barrier|\bpeers?\b|remote|connect|network|socket"
    rb"|\babort|reset by|broken pipe|unreachable|refused"
)
_MAX_TRACEBACKS = 40  # the last ones
_MAX_FRAMES = 400  # lines of one stack trace
_STAMP = r"\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d):?"  # of a container runtime
_CONTINUED = re.compile(
    rb"(?:" + _STAMP.encode() + rb"(?: |$))?"
    rb"(?:\s|$|\||\+|During handling of |The above exception was the direct cause)"
)
_FRAME_BYTES = 1_000
_CUT_BYTES = 2**15  # of a stack trace
_WAITING_CALL = re.compile(
    rb"\b(?:torch\.(?:cuda|npu|xpu|hpu)|torch_npu\.npu)\.synchronize\(|\b(?:work|handle|req)\.wait\("
    rb"|\b(?:dist|distributed|group|pg)\.(?:monitored_)?(?:barrier|all_?reduce|all_?gather\w*"
    rb"|all_?to_?all\w*|broadcast\w*|reduce_?scatter\w*|recv|send)\(|\bin (?:synchronize|barrier)\b"
    rb"|wait_for_(?:peer|rank|worker|other|node|all|everyone)\w*\("
)
_LETTER = re.compile(rb"[A-Za-z]")
_EXCEPTION = re.compile(
    rf"(?:^|[\]:>)|] {{0,2}}|ERROR +|^{_STAMP} +)(?P<name>(?:[A-Za-z_]\w*\.){{0,8}}"
    r"[A-Z]\w*(?:Error|Exception|Failure|Fault|Interrupt|Exit)): "
)

_OTHERS = (
    r"\b(?:ranks?(?:_\d+)?|peers?|others?|participants?|members?|clients?|nodes?|hosts?(?!=)|replicas?"
    r"|tasks?|all (?:workers|processes)|process group|(?:re)?store|barrier|monitored\w*|rendezvous"
    r"|collectives?|all-?_?(?:reduce|gather|to-?_?all)|broadcast|send|recv)\b"
)
_WAITED = (
    r"\b(?:timed[ -]?out|time-?outs?|deadline|unresponsive|wait(?:ing|ed)? (?:for|on)"
    r"|(?:was|were|been) lost|lost (?:the )?(?:connection|contact)|gone|disconnected|unreachable"
    r"|not respon\w+|no (?:response|heartbeat)"
    r"|(?:did not|didn't|never|has not|have not|failed to|could not) (?:be )?"
    r"(?:pass|enter|join|arrive|reach|respond|answer|connect|show up|check in)\w*)\b"
)
_NAMES_OTHERS = re.compile(
    rf"(?i)^(?=.*{_OTHERS}).*{_WAITED}"
    r"|\b(?:closed|reset|refused|aborted|dropped|terminated|ended) (?:by|on) (?:the )?(?:remote )?"
    r"(?:peer|rank|host|other)|\b(?:remote|peer)\b.{0,40}\b(?:closed|exited|ended|died|failed)\b"
    r"|\bwait timeout\b|\bConnection(?:Reset|Refused|Aborted)Error\b|\bBrokenPipeError\b"
)


def traceback_ends(text: bytes, lines: JoinedLines | None = None) -> Iterator[tuple[int, bytes]]:
    r"""Yield offset and text of the line that ends each stack trace, the last traces of a log only.

    It is the first line after the header that is not indented, so that an exception of any name is
    found.

    Parameters
    ----------
    text : bytes
    lines : JoinedLines, optional
        At least the lines of the text that contain `TRACEBACK`; all by default.

    Examples
    --------
    >>> text = b"a\nTraceback (most recent call last):\n  File x\n    y\nStopTraining: done\nb\n"
    >>> list(traceback_ends(text))
    [(52, b'StopTraining: done')]
    """
    lines = lines or JoinedLines.whole(text)
    starts: list[int] = []
    position = len(lines.text)
    while (
        len(starts) < _MAX_TRACEBACKS
        and (position := lines.text.rfind(TRACEBACK, 0, position)) >= 0
    ):
        starts.append(lines.original_offset(position))
    for start in reversed(starts):
        end = _end_of_trace(text, start)
        if end is not None:
            yield end


def cut_trace(text: bytes) -> tuple[int, bytes] | None:
    r"""Return offset and text of the header of a stack trace that the log ends in, or None.

    Its writer raised an exception, too, which is unknown.

    Examples
    --------
    >>> cut_trace(b"a\nTraceback (most recent call last):\n  File x\n")
    (2, b'Traceback (most recent call last):')
    """
    position = text.rfind(TRACEBACK, max(0, len(text) - _CUT_BYTES))  # logs may have gigabytes
    if position < 0:
        return None
    start = text.rfind(b"\n", 0, position) + 1
    header, *lines = text[start : start + _CUT_BYTES].splitlines()
    is_cut = start + _CUT_BYTES >= len(text) and all(map(_CONTINUED.match, lines[:-1]))
    is_end = bool(lines) and _EXCEPTION.search(lines[-1].decode("utf-8", "replace")) is not None
    return (start, header) if is_cut and not is_end else None


def is_raised_in_wait(text: bytes, offset: int) -> bool:
    r"""Return whether the exception at an offset was raised in a call that waits for other ranks.

    The last frame of its stack trace says so. The rank that writes it was alive, and is a witness.

    Examples
    --------
    >>> text = b'  File "a.py", line 3, in f\n    dist.barrier()\nRuntimeError: error 7\n'
    >>> is_raised_in_wait(text, text.index(b"RuntimeError"))
    True
    """
    frame = text.rfind(b"  File ", max(0, offset - _FRAME_BYTES), offset)
    return frame >= 0 and _WAITING_CALL.search(text, frame, offset) is not None


def cpp_exceptions(text: bytes, lines: JoinedLines | None = None) -> Iterator[tuple[int, bytes]]:
    r"""Yield offset and text of the lines in which a C++ program says what ended it.

    Lines about a wait or a connection are left out: they are consequences of another rank's end.

    Parameters
    ----------
    text : bytes
    lines : JoinedLines, optional
        At least the lines of the text that contain `CPP_EXCEPTION`; all by default.

    Examples
    --------
    >>> list(cpp_exceptions(b"a\n  what():  bad frame\n  what():  wait timed out\n"))
    [(2, b'  what():  bad frame')]
    """
    lines = lines or JoinedLines.whole(text)
    position = len(lines.text)
    for _ in range(_MAX_CPP_EXCEPTIONS):
        position = lines.text.rfind(CPP_EXCEPTION, 0, position)
        if position < 0:
            return
        where = lines.original_offset(position)
        start, stop = text.rfind(b"\n", 0, where) + 1, text.find(b"\n", where)
        line = text[start : len(text) if stop < 0 else stop]
        if not _WAIT.search(line):
            yield start, line


def _end_of_trace(text: bytes, start: int) -> tuple[int, bytes] | None:
    position = text.find(b"\n", start) + 1
    for _ in range(_MAX_FRAMES):
        if position <= 0 or position >= len(text):
            return None
        stop = text.find(b"\n", position)
        line = text[position : len(text) if stop < 0 else stop]
        if TRACEBACK in line:
            return None  # a nested trace, or one of another rank, is found by its own header
        if not _CONTINUED.match(line):
            return (position, line) if _LETTER.search(line) else None  # a launcher's banner
        position = stop + 1
    return None


def is_exception(line: str) -> bool:
    """Return whether a line is an exception, after any prefixes.

    Examples
    --------
    >>> is_exception("torch.OutOfMemoryError: CUDA out of memory"), is_exception("no error")
    (True, False)
    """
    return _EXCEPTION.match(line) is not None


def exception_text(line: str) -> str:
    """Return the exception in a line without what stands before it, or the line itself.

    Examples
    --------
    >>> exception_text("2026-03-04 12:05:11 [rank5]: ValueError: bad batch")
    'ValueError: bad batch'
    >>> exception_text("Caught signal 11")
    'Caught signal 11'
    """
    match = _EXCEPTION.search(line)
    return line if match is None else line[match.start("name") :]


def names_others(line: str) -> bool:
    """Return whether an error says that others did not come, or are gone.

    The rank that writes it was alive, and is a witness. A data loader is no other rank.

    Examples
    --------
    >>> names_others("RuntimeError: [Rank 1]: Ranks 2, 6 did not join the barrier")
    True
    >>> names_others("RuntimeError: DataLoader timed out after 60 seconds")
    False
    """
    return _NAMES_OTHERS.search(line) is not None

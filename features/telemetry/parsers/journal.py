"""Parser of `journalctl -o json` and `-o export`: messages and their writers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.log_prefix import Writer

__all__ = ["is_journal", "journal_line", "journal_messages"]

_JSON = re.compile(r'\{[^\n]*"__REALTIME_TIMESTAMP"')
_EXPORT = re.compile(r"(?:__[A-Z_]+=[^\n]*\n)*?__REALTIME_TIMESTAMP=\d")
_FIELD = re.compile(r"[A-Z_][A-Z0-9_]*=")
_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_LENGTH_BYTES = 8  # precede a value of several lines
_MAX_TIME = 2**63 - 1


def is_journal(text: str) -> bool:
    """Tell whether a text is a journal, as JSON or export, by the time of its first entry.

    Examples
    --------
    >>> is_journal('{"__REALTIME_TIMESTAMP": "1"}'), is_journal('{"readings": []}')
    (True, False)
    """
    return bool(_JSON.match(text) or _EXPORT.match(text))


def journal_messages(text: str, unread: Unread) -> Iterator[tuple[int | None, str, Writer]]:
    """Yield time, message and writer of each entry.

    Parameters
    ----------
    text : str
    unread : Unread
        Counts invalid entries.

    Yields
    ------
    int or None
        Nanoseconds since 1970 UTC.
    str
        A message, possibly of several lines.
    Writer
    """
    entries = _json_entries(text, unread) if text.startswith("{") else _export_entries(text)
    yield from map(_read, entries)


def journal_line(line: str) -> tuple[int | None, str, Writer] | None:
    """Return time, message and writer of one JSON entry; None if the line is invalid."""
    if not _JSON.match(line):
        return None
    entry = next(_json_entries(line, Unread()), None)
    return None if entry is None else _read(entry)


def _read(entry: Mapping[str, Any]) -> tuple[int | None, str, Writer]:
    time, message = _time(entry.get("__REALTIME_TIMESTAMP")), _message(entry.get("MESSAGE"))
    return time, message, _writer(entry)


def _writer(entry: Mapping[str, Any]) -> Writer:
    """Return the writer of an entry.

    A program can name itself `kernel`, but it cannot set a field that starts with `_`. Lines that
    programs write to /dev/kmsg use the kernel's transport with another facility.
    """
    names = [entry[name] for name in ("_TRANSPORT", "SYSLOG_IDENTIFIER") if name in entry]
    facility = entry.get("SYSLOG_FACILITY", "0")
    if not names:
        return None
    return "kernel" if names.count("kernel") == len(names) and facility == "0" else "program"


def _json_entries(text: str, unread: Unread) -> Iterator[dict[str, Any]]:
    for line in filter(str.strip, text.split("\n")):  # a message may contain other line separators
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield entry
        else:
            unread.add("an entry that is not JSON", line)


def _export_entries(text: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each entry; a blank line ends an entry."""
    for part in re.split(r"\n\n+", text):
        fields: dict[str, list[str]] = {}
        of_several_lines, name = set(), ""
        for line in part.split("\n"):
            if _FIELD.match(line):
                name, _, value = line.partition("=")
                fields[name] = [value]
            elif _NAME.fullmatch(line):  # its length and value follow
                name, fields[line] = line, []
                of_several_lines.add(line)
            elif name:
                fields[name].append(line)
        values = {name: "\n".join(lines) for name, lines in fields.items()}
        yield {
            n: text[_LENGTH_BYTES:] if n in of_several_lines else text for n, text in values.items()
        }


def _time(text: Any) -> int | None:
    if not isinstance(text, str) or not re.fullmatch("[0-9]{1,17}", text):
        return None
    time = int(text) * 1_000
    return time if time <= _MAX_TIME else None


def _message(value: Any) -> str:
    """Return a message; bytes that are not UTF-8 are encoded as a list of numbers."""
    if isinstance(value, list) and all(isinstance(n, int) and 0 <= n < 256 for n in value):
        return bytes(value).decode(errors="replace")
    return value if isinstance(value, str) else ""

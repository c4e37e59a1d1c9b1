"""From the output of a check to its values and statuses."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from forewarn.features.inspection.check_table import CheckTable, CheckValue

__all__ = ["CheckOutcome", "digest", "evaluate_run", "evaluate_values", "first_line", "read_values"]

Status = Literal["ok", "degraded", "failed", "timeout", "not_run", "blind"]
_EXIT_STATUSES: Final[dict[int, Status]] = {0: "ok", 1: "degraded", 2: "failed", 3: "blind"}
_MAX_VALUES: Final = 4096
_MAX_TEXT_CHARS: Final = 500
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """One value of a check, or the reason why there is none.

    Attributes
    ----------
    status : str
        One of `STATUSES` of the results.
    text : str
        The reason of the status, or the text behind a digest.
    value : float or None
    slot : str or None
        The part of the machine.
    """

    status: Status
    text: str = ""
    value: float | None = None
    slot: str | None = None


def digest(text: str) -> float:
    """Return a hash of a text that a float holds exactly.

    Examples
    --------
    >>> digest("550.54.15") == digest("550.54.15"), digest("a") == digest("b")
    (True, False)
    """
    return float(int(hashlib.sha256(text.encode()).hexdigest()[:12], 16))


def first_line(text: str) -> str:
    """Return the first line that is not blank, in printable characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "".join(char if char.isprintable() else " " for char in line)


def evaluate_run(check: CheckTable, code: int, output: str) -> list[CheckOutcome]:
    """Return the outcomes of a program that has ended; at least one.

    Without a source of values the exit code is the result, as Nagios defines it. Otherwise an exit
    code other than 0 makes a value at most `blind`: it may be wrong, and a value outside the limits
    is still a failure.

    Parameters
    ----------
    check : CheckTable
    code : int
        Negative for a signal.
    output : str
    """
    value = check.value
    if value.json_path is None and value.regex is None and value.lines is None:
        status = _EXIT_STATUSES.get(code)
        if status is None or status == "blind":
            return [CheckOutcome("blind", _ending(code, output), float(code))]
        text = first_line(output) or f"exit code {code}, no output"
        return [CheckOutcome(status, text[:_MAX_TEXT_CHARS], float(code))]
    values = read_values(value, output)
    failures = [o for o in evaluate_values(check, values) if o.status == "failed"]
    if code != 0:
        return failures or [CheckOutcome("blind", _ending(code, output))]
    if not values:
        line = first_line(output)
        return [CheckOutcome("blind", f"no value in the output{line and ': '}{line}")]
    return evaluate_values(check, values)


def _ending(code: int, output: str) -> str:
    end = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    line = first_line(output)
    return f"{end}{line and ': '}{line}"[:_MAX_TEXT_CHARS]


def evaluate_values(check: CheckTable, values: list[tuple[str | None, str]]) -> list[CheckOutcome]:
    """Return the outcome of each text of a value, by the words and limits of the check.

    Parameters
    ----------
    check : CheckTable
    values : list of (slot, text)
    """
    return [_outcome(check, slot, text) for slot, text in values[:_MAX_VALUES]]


def _outcome(check: CheckTable, slot: str | None, text: str) -> CheckOutcome:
    text = first_line(text)[:_MAX_TEXT_CHARS]
    number = _number(check.value, text)
    if number is None:
        return CheckOutcome("blind", f"{text!r} is not a number", None, slot)
    shown = text if check.value.unit in ("digest", "state") else ""
    limit = check.limit
    if limit is not None and limit.min is not None and number < limit.min:
        reason = f"{text} {check.value.unit} is below the limit {limit.min:g}"
        return CheckOutcome("failed", reason, number, slot)
    if limit is not None and limit.max is not None and number > limit.max:
        reason = f"{text} {check.value.unit} is above the limit {limit.max:g}"
        return CheckOutcome("failed", reason, number, slot)
    return CheckOutcome("ok", shown, number, slot)


def _number(value: CheckValue, text: str) -> float | None:
    if text in value.words:
        return value.words[text]
    if value.unit == "digest":
        return digest(text) if text else None
    match = _NUMBER.fullmatch(text)
    number = float(text.replace(",", "")) if match else math.nan
    return number if math.isfinite(number) else None


def read_values(
    value: CheckValue, output: str, slot: str | None = None
) -> list[tuple[str | None, str]]:
    """Return the values in an output, each with its slot.

    Parameters
    ----------
    value : CheckValue
    output : str
        Of a command, or the content of a file.
    slot : str, optional
        Of the file.
    """
    if value.json_path is not None:
        return [(name or slot, text) for name, text in _json_values(value.json_path, output)]
    if value.lines is not None:
        pattern = re.compile(value.lines)
        return [(slot, str(sum(bool(pattern.search(line)) for line in output.splitlines())))]
    if value.regex is None:
        return [(slot, output.strip())] if output.strip() else []
    pattern = re.compile(value.regex, re.MULTILINE)
    if "slot" not in pattern.groupindex:
        match = pattern.search(output)
        return [] if match is None else [(slot, _group(match))]
    return [(match["slot"], _group(match)) for match in pattern.finditer(output)]


def _group(match: re.Match[str]) -> str:
    name: str | int = "value" if "value" in match.re.groupindex else min(1, match.re.groups)
    return (match[name] or "").strip()


def _json_values(path: str, output: str) -> Iterator[tuple[str | None, str]]:
    """Yield what a path matches in the first JSON document of an output."""
    start = min((i for i in (output.find("{"), output.find("[")) if i >= 0), default=-1)
    try:
        document, _ = json.JSONDecoder().raw_decode(output[max(start, 0) :])
    except (ValueError, RecursionError):
        return
    level: list[tuple[str | None, Any]] = [(None, document)]
    for key in path.split("."):
        level = [(slot or name, item) for slot, node in level for name, item in _items(node, key)]
    for slot, item in level:
        if isinstance(item, bool):
            yield slot, str(int(item))
        elif isinstance(item, str | int | float):
            yield slot, str(item)


def _items(node: Any, key: str) -> Iterator[tuple[str | None, Any]]:
    """Yield what a key matches in an object or a list, with a name if the key is `*`."""
    if isinstance(node, Mapping):
        pairs = {str(name): item for name, item in node.items()}
    elif isinstance(node, list):
        pairs = {str(number): item for number, item in enumerate(node)}
    else:
        return
    if key == "*":
        yield from pairs.items()
    elif key in pairs:
        yield None, pairs[key]

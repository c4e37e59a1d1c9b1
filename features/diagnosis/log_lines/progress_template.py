"""Progress lines of an unknown trainer: the line that recurs with an integer that grows evenly."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forewarn.features.diagnosis.log_lines.progress_forms import is_mention

__all__ = ["learn_template"]

_MIN_LINES = 4
_MIN_EVEN_SHARE = 0.8  # of the differences between successive lines; a new epoch starts at 0 again
_MAX_LINE_BYTES = 300
_MAX_TEMPLATES = 50  # those with most lines
_MAX_TEMPLATE_LINES = 1_000
_VARIABLE = b"0123456789.,:+-eE \t"  # bytes of numbers and times, and the padding around them
_TOKEN = re.compile(
    rb"(?P<time>\d{2,4}[-/]\d\d[-/]\d\d(?:[T_ -]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
    rb"|\d+:\d\d(?::\d\d)?(?:[.,]\d+)?)"
    rb"|(?P<real>\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+|\b(?:nan|inf)\b)"
    rb"|(?P<integer>\d+)"
    rb"|(?P<gap>[ \t]+)",
    re.IGNORECASE,
)
_EXPRESSIONS = {
    "time": r"[\d:.,TZ/_ +-]+",
    "real": r"[-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|(?i:nan|inf))",
    "integer": r"\d+",
    "gap": r"[ \t]+",
}
_NOT_TRAINING = re.compile(
    rb"(?i)\bnccl\b|\balive\b|\bping\b|\bwatchdog\b|\bwait(?:ing|ed)?\b|\bmonitor|\buptime\b|\bpoll"
    rb"|\bsleep|\bwarn|\bgpu util|\btemperature\b|\bkernel:|\bpid\b[^a-z]*$"
)
_MEASURED_BEFORE = re.compile(  # names of clocks, amounts, and of the things that a start counts up
    rb"(?i)(?:time|elapsed|uptime|took|after|eta|mem(?:ory)?|rss|allocated|reserved|cached|used|free"
    rb"|size|timestamp|\bts|clock|bytes|rank|pid|process|node|host|worker|thread|port|device|gpu"
    rb"|group|layer|bucket|shard|channel|expert|stage|\bid)['\"]?[ \t]*[:=#(\[]*[ \t]*['\"]?"
    rb"(?:\d+,[ \t]*)?$"
)
_MEASURED_AFTER = re.compile(
    rb"(?i)[ \t]*(?:(?:[kmgt]i?b(?:ytes)?|b|bytes|[mun]?s|h|hours?|days?)\b|%|sec|min)"
)
_EPOCH_SECONDS = range(10**9, 2**32)


class _Line(NamedTuple):
    sample: int
    text: bytes


class _Field(NamedTuple):
    """An integer of a template that grows by the same step."""

    even_share: float
    line_count: int
    token: int


def learn_template(samples: Sequence[bytes]) -> str | None:
    r"""Return an expression for the line that recurs most with an integer that grows evenly.

    The integer must grow by the same positive step in 80 % of at least four successive lines.
    Clocks, amounts of memory, heartbeats, repeated attempts and lines of NCCL are no progress.

    Parameters
    ----------
    samples : sequence of bytes
        Parts of one log.

    Returns
    -------
    str or None
        In RE2 syntax; the group `number` is the integer.

    Examples
    --------
    >>> import re
    >>> text = b"".join(b"tick %d of 90, f=%d.5\n" % (n, 7 - n) for n in range(1, 6))
    >>> re.search(learn_template([text]).encode(), b"tick 31 of 90, f=0.25")["number"]
    b'31'
    """
    best: tuple[int, float, str] | None = None
    for lines in _recurring_lines(samples):
        template = Counter(_template(line.text) for line in lines).most_common(1)[0][0]
        alike = [line for line in lines if _template(line.text) == template]
        field = _growing_field(alike)
        if field is None:
            continue
        score = (field.line_count, field.even_share)
        if best is None or score > best[:2]:
            best = (*score, _expression(alike[-1].text, field.token))
    return best[2] if best else None


def _recurring_lines(samples: Sequence[bytes]) -> Iterable[list[_Line]]:
    """Return the lines that differ only in numbers, for each text that occurs four times."""
    groups: defaultdict[bytes, list[_Line]] = defaultdict(list)
    for number, sample in enumerate(samples):
        for raw in sample.split(b"\n"):
            line = raw.rstrip().rsplit(b"\r", 1)[-1][:_MAX_LINE_BYTES]
            group = groups[line.translate(None, _VARIABLE)]
            if len(group) < _MAX_TEMPLATE_LINES:
                group.append(_Line(number, line))
    groups.pop(b"", None)
    frequent = sorted(groups.values(), key=len, reverse=True)[:_MAX_TEMPLATES]
    return [lines for lines in frequent if len(lines) >= _MIN_LINES and _is_candidate(lines[-1])]


def _is_candidate(line: _Line) -> bool:
    return not is_mention(line.text, len(line.text)) and not _NOT_TRAINING.search(line.text)


def _template(line: bytes) -> bytes:
    return _TOKEN.sub(lambda match: b"\0" + (match.lastgroup or "").encode(), line)


def _growing_field(lines: Sequence[_Line]) -> _Field | None:
    """Return the integer that grows most evenly; of several, the first."""
    if len(lines) < _MIN_LINES:
        return None
    tokens = [list(_TOKEN.finditer(line.text)) for line in lines]
    fields = [
        _Field(share, len(lines), token)
        for token, match in enumerate(tokens[0])
        if match.lastgroup == "integer" and not _is_measurement(match)
        and (share := _even_share(lines, [int(each[token][0]) for each in tokens]))
        >= _MIN_EVEN_SHARE
    ]  # fmt: skip
    return max(fields, key=lambda field: (field.even_share, -field.token), default=None)


def _is_measurement(match: re.Match[bytes]) -> bool:
    """Return whether an integer is a clock, a duration, an amount of memory or a share."""
    line, start, end = match.string, match.start(), match.end()
    return (
        int(str(int(match[0]))[:10]) in _EPOCH_SECONDS
        or _MEASURED_BEFORE.search(line, max(0, start - 30), start) is not None
        or _MEASURED_AFTER.match(line, end) is not None
    )


def _even_share(lines: Sequence[_Line], values: Sequence[int]) -> float:
    """Return the share of successive lines between which a value grows by its usual step."""
    steps = Counter(
        values[n + 1] - values[n]
        for n in range(len(values) - 1)
        if lines[n].sample == lines[n + 1].sample
    )
    usual, count = steps.most_common(1)[0] if steps else (0, 0)
    return count / steps.total() if usual > 0 and count >= _MIN_LINES - 1 else 0.0


def _expression(line: bytes, token: int) -> str:
    """Return the expression of lines like this one, in which a token is the number."""
    parts, position = ["^[ \\t]*"], len(line) - len(line.lstrip())
    for number, match in enumerate(_TOKEN.finditer(line)):
        if match.start() < position:
            continue
        parts.append(_quote(line[position : match.start()]))
        expression = _EXPRESSIONS[match.lastgroup or ""]
        parts.append(rf"(?P<number>{expression})" if number == token else expression)
        position = match.end()
    return "".join((*parts, _quote(line[position:])))


def _quote(text: bytes) -> str:
    r"""Quote text for RE2; bytes outside ASCII as \x.."""
    return "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 else rf"\x{byte:02x}" for byte in text
    )

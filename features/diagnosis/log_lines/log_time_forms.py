"""Forms of the times in log lines, as expressions with common group names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import re2

from forewarn.features.diagnosis.log_lines.log_pattern import MAX_MATCHER_BYTES, re2_options

__all__ = ["HEAD_BYTES", "ISO", "OBJECT_KEY", "TimeForm", "matching_forms"]

HEAD_BYTES: Final = 160  # searched at the start of a line
_CLOCK = rb"(?P<clock>\d\d?:\d\d:\d\d)"
_TAIL = (  # look-around is for Python's expressions only
    rb"(?:[.,](?P<fraction>\d{1,9})(?:\.(?P<micros>\d{3})\b)?)?(?: (?P<half>[AaPp])[Mm]\b)?"
    rb"(?: ?(?P<zone>Z\b|(?:UTC|GMT)?[+-]\d\d:?\d\d\b|(?:(?<=\d)|UTC|GMT)[+-]\d\d\b(?!:)"
    rb"|UTC\b|GMT\b))?"  # other names of zones are ambiguous
)
_NAME = rb"(?P<month_name>[A-Za-z]{3,9})"
_DAY = rb"(?P<day>[0-3]?\d)"
_LEVEL = rb"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_KEY = (
    rb"(?:@|_)?(?:ts|t|(?:wall_?|event_?|unix_?)?time(?:_?stamp)?|asctime|created|epoch"
    rb"|date|datetime)['\"]?\s{0,2}[:=]\s{0,2}['\"]?"
)
_START = (  # of a line, with a key, brackets or the priority of syslog
    rb"^(?P<key>" + _KEY + rb")?[^\w\n]{0,3}(?:<\d{1,3}>)?"
)
_SINCE_1970 = rb"(?P<integer>1\d{9}|1\d{12}|1\d{15}|1\d{18})"

Kind = Literal["date", "short date", "no year", "no date", "epoch"]


@dataclass(frozen=True, slots=True)
class TimeForm:
    """One form of times.

    Attributes
    ----------
    kind : str
    expression : re.Pattern of bytes
        Has those of the groups `year`, `month` or `month_name`, `day`, `clock`, `fraction`,
        `micros`, `half` (a or p), `zone`; `first` to `third` of a short date; `integer`; `key`.
    """

    kind: Kind
    expression: re.Pattern[bytes]


ISO = re.compile(  # also of Ascend: 2026-03-04-12:15:00.123.456
    rb"(?P<year>\d{4})[-/.](?P<month>\d\d)[-/.]" + _DAY + rb"(?:[T_:-]|,? {1,2})" + _CLOCK + _TAIL
)
OBJECT_KEY = re.compile(rb"['\"]" + _KEY + rb"(?=\w)")

# Kind, expression without look-around, and the rest of the expression; in the order of precedence.
_FORMS: tuple[tuple[Kind, bytes, bytes], ...] = (
    # US: 03/04/2026 12:15:00 PM, [03/04/2026-12:15:00]
    (
        "date",
        rb"\b(?P<month>[01]?\d)/" + _DAY + rb"/(?P<year>\d{4})(?:[-: ]|, )" + _CLOCK,
        _TAIL,
    ),
    # access logs and `date`: 04/Mar/2026:12:15:00 +0800, 04 Mar 2026 12:15:00 PM UTC
    (
        "date",
        rb"\b" + _DAY + rb"[ /-]" + _NAME + rb"[ /-](?P<year>\d{4})[ :,T]{1,2}" + _CLOCK,
        _TAIL,
    ),
    # Mar 4, 2026 12:15:00
    (
        "date",
        _NAME + rb"\.? {1,2}" + _DAY + rb",? (?P<year>\d{4})(?:,? | at )" + _CLOCK,
        _TAIL,
    ),
    # ctime and `date`: Wed Mar  4 12:15:00 CST 2026
    (
        "date",
        _NAME + rb" {1,2}" + _DAY + rb" " + _CLOCK,
        _TAIL + rb"(?: [A-Z]{2,5})? (?P<year>\d{4})\b",
    ),
    # glog with a year: I20260304 12:15:00.123456
    (
        "date",
        rb"\b[IWEFDC](?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d) +" + _CLOCK,
        _TAIL,
    ),
    # Rich [03/04/26 12:15:00] or log4j 26/03/04 12:15:00, by the larger number
    (
        "short date",
        _START + rb"(?P<first>\d\d)/(?P<second>\d\d)/(?P<third>\d\d) " + _CLOCK,
        _TAIL,
    ),
    # 20260304T121500Z, 2026-03-04_12-15-00; elsewhere in a line it is part of a path
    (
        "date",
        _START + rb"(?P<year>20\d\d)-?(?P<month>\d\d)-?(?P<day>\d\d)[T_ -]?"
        rb"(?P<clock>\d\d[:-]?\d\d[:-]?\d\d)",
        rb"(?!\d)" + _TAIL,
    ),
    # glog, absl, klog, PyTorch: I0304 12:15:00.123456, [E304 12:15:00.123456789
    (
        "no year",
        rb"\b[IWEFDC](?P<month>1[0-2]|0?[1-9])(?P<day>\d\d) +" + _CLOCK,
        _TAIL,
    ),
    # syslog: Mar  4 12:15:00
    (
        "no year",
        _START + rb"(?:[A-Za-z]{3},? )?" + _NAME + rb" {1,2}" + _DAY + rb" " + _CLOCK,
        _TAIL,
    ),
    # MMEngine 03/04 12:15:00, vLLM INFO 03-04 12:15:00
    (
        "no year",
        rb"(?:" + _START + rb"|\b" + _LEVEL + rb" +)(?P<month>\d\d)[-/](?P<day>\d\d) " + _CLOCK,
        _TAIL,
    ),
    # [12:15:00], 12:15:00,123, 12:15:00 INFO
    (
        "no date",
        rb"^(?P<bracket>\[)?" + _CLOCK,
        rb"(?:[.,](?P<fraction>\d{1,9}))?"
        rb"(?(bracket)\]|(?(fraction)\b|(?= +\W?" + _LEVEL + rb"\b)))",
    ),
    # seconds, milliseconds, microseconds or nanoseconds since 1970
    (
        "epoch",
        _START + _SINCE_1970,
        rb"(?:\.(?P<fraction>\d{1,9}))?(?=[\s\]\"',:|}]|$)",
    ),
)


@lru_cache(maxsize=1)
def _compiled() -> tuple[re2.Set, tuple[TimeForm, ...]]:
    cores = re2.Set.SearchSet(re2_options(MAX_MATCHER_BYTES))
    for _, core, _ in _FORMS:
        cores.Add(core)
    cores.Compile()
    return cores, tuple(TimeForm(kind, re.compile(core + rest)) for kind, core, rest in _FORMS)


def matching_forms(head: bytes) -> list[TimeForm]:
    """Return the forms that the start of a line may have, in the order of precedence."""
    cores, forms = _compiled()
    return [forms[number] for number in sorted(cores.Match(head) or ())]

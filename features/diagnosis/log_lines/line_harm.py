"""Whether a log line says itself that it did no harm: its level, a retry, a fallback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

__all__ = ["is_harmless", "states_error"]

_HEAD_CHARS = 240  # in which a level is searched
_MAX_TOKENS = 24
Severity = Literal["low", "high"]
_LOW = ("trace", "debug", "info", "notice", "event", "diag", "warn", "warning", *"DIW")
_HIGH = ("error", "err", "critical", "fatal", "severe", "panic", "emerg", *"EFC")
_LEVELS: Final[dict[str, Severity]] = {  # glog writes one letter, as in `W0301 04:00:00`
    **dict.fromkeys(_LOW, "low"),
    **dict.fromkeys(_HIGH, "high"),
}
_TOKEN = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|<[^<>]*>|[^\s\[\](<]+|\S")
_WORD = re.compile(r"[^\s|\[\]()<>]+")
_GLOG = re.compile(r"([DIWEFC])(?:\d{3,8})?")
_TIME = re.compile(r"\d\d:\d\d")
_LEVEL_FIELD = re.compile(
    r"\b(?:level|lvl|levelname|severity|loglevel)[\"']?\s{0,3}[=:]\s{0,3}[\"']?([A-Za-z]{3,8})\b"
)
_EXCEPTION = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception):?")
_LIBRARIES = ("NCCL", "RCCL")  # their level WARN is for errors
_LIBRARY_ERROR = re.compile(r"libfabric:\S{1,200}<warn>")  # so is that of libfabric
_PREFIX = re.compile(
    r"[^A-Za-z]*|[A-Z][a-z]{2}|.*[\d:=./_|].*|[\w.-]*-[\w.-]*|NCCL|RCCL|UCX|[Rr]ank"
)

_TRACKER = re.compile(r"(?i)^\W{0,3}(?:wandb|mlflow|comet|neptune|clearml|swanlab)\b.{0,20}:")
_SHELL_PIPE = re.compile(r": line \d+: +\d+ Broken pipe\b")  # of a script, such as `yes | apt`
_KERNEL_REPORT = re.compile(r"blocked for more than \d|\brcu\b|\bXid\b")
_ENDS = re.compile(
    r"(?i)death signal|closing signal|shutting down|\babort(?:ed|ing|s)?\b|\bexiting\b"
    r"|\bterminat(?:ed?|ing|es)\b|\bgiv(?:ing|e) up\b|\bgave up\b|unrecoverable|cannot continue"
    r"|exceeded.{0,30}\bretr(?:y|ies)|\bretr(?:y|ies)\b.{0,30}(?:exceeded|exhausted|failed)"
    r"|(?:\bnot?|n't|no more|without) retr(?:y|ies|ying)|after \d+ (?:attempts|retries|tries)"
    r"|last attempt|attempts failed|entire process down|core dumped"
)
_RETRIES = re.compile(
    r"(?i)\bretrying\b|\bwill (?:be )?re-?tr(?:y|ied)|\btry(?:ing)? again (?:in|after)\b"
    r"|\bretry(?:ing)? (?:in|after|number|attempt|loop|#)|\bre-?connecting\b"
)
_ATTEMPT = re.compile(
    r"(?i)\b(?:attempt|retry|try)(?: number)?[ :#]{1,3}(\d{1,4}) ?(?:/|of|out of) ?(\d{1,4})"
)
_NO_HARM = re.compile(
    r"(?i)\bfall(?:ing|s)? ?back\b|\bfallback\b|\bignor(?:ing|ed)\b|\bskipp(?:ing|ed)\b"
    r"|\busing\b.{1,80}\binstead\b|\busing (?:the )?default|\bdefaulting to\b"
    r"|\bnon-?fatal\b|\bnot fatal\b|\brecovered\b|\bre-?connected\b|\bcorrected\b"
    r"|\b(?:be|safe to|safely) ignored?\b|\bOK\W*$|[A-Z]\w+Warning\b"
    r"|(?:^|[\s>])(?:cat|ls|rm|stat|find|grep|head|tail|readlink|which): .{0,300}no such file"
    r"|(?:^|[\s>])(?:chown|chmod|sysctl|dmesg|sudo|renice|bash): .{0,300}"
    r"(?:permission denied|not permitted)|\brestored\b"
)
_DENIED = re.compile(
    r"(?i)\b(?:no|not|never|cannot|failed to|unable to|without) (?:a )?(?:be )?"
    r"(?:fall|ignor|skip|recover|reconnect|correct)|fall ?back.{0,30}fail|uncorrect|unrecover"
)
_ERROR_NAMES = (
    r"(?:errors?|fail(?:ed|ures?)|faults?|exceptions?|fatal|panic|abort(?:ed)?|timed out)"
)
_NO_ERROR = re.compile(  # denials, measures, settings and advice
    r"(?i)\b(?:(?:no|0|zero|not|without|any|if)[ _-](?:\w+[ _-])?|(?:mean|squared|absolute"
    r"|relative|standard|percent\w*|rate|train\w*|valid\w*|eval\w*|test|prediction"
    r"|reconstruction|total)[ _-])"
    rf"{_ERROR_NAMES}\b|\b{_ERROR_NAMES}[ _-](?:toleran|handl|rate|bound|correct|check|log|file"
    rf"|policy|report|count)|^.*\byou (?:can|may)\b.*"
)
_AFTER_SETTING = r"[\w/-]|\.\w|[\"'\])]?\s{0,3}[=|]|[\"'\])]?\s{0,3}:?\s{0,3}[\d.-]"
_ERROR_WORD = re.compile(rf"(?i)(?<![\w/.-]){_ERROR_NAMES}(?!{_AFTER_SETTING})")


def is_harmless(line: str) -> bool:
    """Return whether a line says that it did no harm.

    It does so by a level below ERROR, a retry that follows, or words such as `falling back`. A line
    at the level ERROR or above, and an exception, is harmless only if a retry follows. A line that
    says that its program ends is never harmless. NCCL's WARN is its level for errors. Training goes
    on without an experiment tracker.

    Examples
    --------
    >>> is_harmless("NCCL INFO NET/Plugin: could not find libnccl-net.so")
    True
    >>> is_harmless("NCCL WARN Call to connect failed"), is_harmless("OSError: disk is gone")
    (False, False)
    >>> is_harmless("ERROR read failed, retrying"), is_harmless("ERROR attempt 5/5 failed")
    (True, False)
    """
    if _TRACKER.match(line) or _SHELL_PIPE.search(line):
        return True
    if _ENDS.search(line) or _KERNEL_REPORT.search(line):
        return False
    attempt = _ATTEMPT.search(line)
    if attempt is not None:
        return int(attempt[1]) < int(attempt[2])
    if _RETRIES.search(line):
        return True
    level = _level(line)
    if level is not None:
        return level == "low"
    return _NO_HARM.search(line) is not None and _DENIED.search(line) is None


def states_error(line: str) -> bool:
    """Return whether a line has the level ERROR or above, or is an exception, and did harm.

    A line without a level states an error by a word such as `failed`, unless it denies or measures
    errors.

    Examples
    --------
    >>> states_error("[E626 05:14:36 x.cpp:1] watchdog got stuck"), states_error("it failed")
    (True, True)
    >>> states_error("INFO it failed"), states_error("mean absolute error: 0.1, no failures")
    (False, False)
    """
    level = _level(line)
    is_error = level == "high" or (level is None and _states_error_in_words(line))
    return is_error and not is_harmless(line)


def _states_error_in_words(line: str) -> bool:
    return _ERROR_WORD.search(_NO_ERROR.sub("", line)) is not None


def _level(line: str) -> Severity | None:
    """Return the level of a line, or None if it has none; an exception counts as an error."""
    head = line[:_HEAD_CHARS]
    if match := _LEVEL_FIELD.search(line if line.lstrip().startswith("{") else head):
        return _LEVELS.get(match[1].lower())
    if _LIBRARY_ERROR.search(head):
        return "high"
    before = ""
    for token in _prefix_tokens(head):
        level = (_level_in_brackets if token[0] in "[(<" else _level_of_token)(token, before)
        if level is not None:
            return level
        before = token
    return None


def _prefix_tokens(head: str) -> Iterator[str]:
    """Yield the tokens before the message, and its first word."""
    before = ""
    for number, match in enumerate(_TOKEN.finditer(head)):
        token = match[0]
        yield token
        rest = head[match.end() :]
        is_name = before == "-" or rest.startswith(("[", " - "))  # `- name -`, `name[7]:`
        if number == _MAX_TOKENS or not (
            token[0] in "[(<" or is_name or _PREFIX.fullmatch(token) or token in _LEVELS
        ):
            return
        before = token


def _level_of_token(token: str, before: str) -> Severity | None:
    if _EXCEPTION.fullmatch(token):
        return "high"
    name, colon, _ = token.strip("*|").partition(":")
    letter = _GLOG.fullmatch(name)
    if letter is not None and (len(name) > 1 or _TIME.search(before)):
        return _LEVELS[letter[1]]
    if len(name) < 3 or not (colon or name.isupper()):
        return None
    level = _LEVELS.get(name.lower())
    return "high" if level == "low" and name == "WARN" and before in _LIBRARIES else level


def _level_in_brackets(token: str, _: str) -> Severity | None:
    words = _WORD.findall(token)
    for number, word in enumerate(words[:8]):
        is_first = number == 0 or _TIME.search(words[number - 1])
        letter = _GLOG.fullmatch(word)
        if letter is not None and is_first:
            return _LEVELS[letter[1]]
        if len(word) > 2 and word.lower() in _LEVELS and (is_first or word.isupper()):
            return _LEVELS[word.lower()]
    return None

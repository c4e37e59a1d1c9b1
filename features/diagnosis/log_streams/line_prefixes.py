"""Prefixes that launchers put before the lines of a log: known forms, and learned ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from forewarn.features.diagnosis.log_lines.any_digits import zero_digits

__all__ = [
    "MIN_LABELS",
    "RUNTIME_FORM",
    "PrefixForm",
    "clean_text",
    "has_hint",
    "learn_prefixes",
    "may_have_label",
    "sample_lines",
]

_COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\n]*\x07")
_OVERWRITTEN = re.compile(rb"[^\r\n]*\r+(?=[^\r\n])")
_MIN_SHARE = 0.5  # of the lines; a launcher's own lines carry no prefix
MIN_LABELS = 4
_SAMPLE_BYTES = 16 * 1024
_MAX_LAYERS = 5
_TRIED = 8
_MIN_RETURNS = 3
_MAX_NUMBERING_GAPS = 1.5  # numbers up to the highest, per number that occurs


@dataclass(frozen=True, slots=True)
class PrefixForm:
    """A form of prefix.

    Attributes
    ----------
    name : str
        For people.
    pattern : str
        Regular expression at the start of a line. Its named groups say what varies: `rank`,
        `local` (rank on a machine), `task` (number of a launcher), `host`, `pod`, `address`, `pid`.
    hint : bytes
        Text that no other line contains: one line with it is enough. Empty for a form that counts
        only if it recurs on most lines.
    """

    name: str
    pattern: str
    hint: bytes = b""

    def matches(self, line: bytes) -> re.Match[bytes] | None:
        """Match the start of a line."""
        return _compiled(self.pattern).match(line)


@cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


RUNTIME_FORM = "a container runtime"
FORMS = (
    PrefixForm("kubectl --prefix", r"\[pod/(?P<pod>[\w.-]+)/[\w.-]+\] ?", b"[pod/"),
    PrefixForm("mpirun", r"\[\d+,(?P<task>\d{1,7})\]<std(?:err|out|diag)>: ?", b"]<std"),
    PrefixForm("Horovod", r"\[(?P<task>\d{1,7})\]<std(?:err|out)>: ?", b"]<std"),
    *(
        PrefixForm(
            RUNTIME_FORM,
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
            rf" {stream} [FP](?::\S*)?(?: |$)",
            f" {stream} F".encode(),
        )
        for stream in ("stdout", "stderr")
    ),
    PrefixForm(
        "Ray",
        r"\((?:raylet|(?:[\w.<>-]+(?:\([^)\n]*\))? )?pid=(?P<pid>\d+))"
        r"(?:, ip=(?P<address>[\w.:]+))?\) ?",
        b"pid=",
    ),
    PrefixForm("torchrun", r"\[(?:default|trainer|worker)(?P<local>\d{1,4})\]: ?", b"]:"),
    PrefixForm("PyTorch", r"\[[Rr]ank ?(?P<rank>\d{1,7})\]: ?", b"]:"),
    PrefixForm("srun --label", r" *(?P<task>\d{1,7}): "),
    PrefixForm("docker compose", r"(?P<pod>(?:\d+\.)?[A-Za-z][\w.-]*) +\| "),
    PrefixForm("pdsh", r"(?P<host>(?:\d{1,3}\.){3}\d{1,3}|(?=[\w-]*[\d.])[A-Za-z][\w.-]*): "),
    PrefixForm(
        "time of the container runtime",
        r"(?: *\| )?\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)\]?:? "
        r"(?:\| )?",
    ),
)
_HINTS = frozenset(form.hint for form in FORMS if form.hint)
_UNKNOWN = re.compile(rb"([\[({<]?[A-Za-z_. -]{0,16})(\d{1,5})([\])}>:|]{1,2}(?: |$)|\]:| \| )")
_COUNTERS = re.compile(rb"(?i)step|iter|epoch|batch|line")


def clean_text(text: bytes) -> bytes:
    r"""Remove colours, and what a progress bar overwrote.

    Examples
    --------
    >>> clean_text(b"\x1b[31mred\x1b[0m\r\n 1%\r 2%\n")
    b'red\n 2%\n'
    """
    if b"\x1b" in text:
        text = _COLOUR.sub(b"", text)
    if b"\r" in text:
        text = _OVERWRITTEN.sub(b"", text.replace(b"\r\n", b"\n")).replace(b"\r", b"")
    return text


def sample_lines(text: bytes) -> list[bytes]:
    """Return lines of the start, the middle and the end of a text, without empty ones."""
    return _sample(text).split(b"\n")


def _sample(text: bytes) -> bytes:
    parts = [text]
    if len(text) > 4 * _SAMPLE_BYTES:
        middle = len(text) // 2
        starts = (0, middle, len(text) - _SAMPLE_BYTES)
        parts = [text[start : start + _SAMPLE_BYTES] for start in starts]
    first, *others = parts
    whole = (part[part.find(b"\n") + 1 :] for part in others)  # the first line is cut
    sample = b"\n".join(part.removesuffix(b"\n") for part in (first, *whole))
    if all(head.strip() for head in _heads(sample)):
        return sample
    return b"\n".join(line for line in sample.split(b"\n") if line.strip())


def _heads(sample: bytes) -> Counter[bytes]:
    """Return how often each line occurs, with zeros for digits, which no prefix tells apart."""
    return Counter(zero_digits(sample).split(b"\n"))


def has_hint(line: bytes) -> bool:
    """Return whether a line has the text of a prefix that need not recur."""
    return any(hint in line for hint in _HINTS)


def may_have_label(line: bytes) -> bool:
    """Return whether a line begins with what is a prefix if it recurs on most lines."""
    forms = (form for form in FORMS if not form.hint)
    return _UNKNOWN.match(line) is not None or any(form.matches(line) for form in forms)


def learn_prefixes(
    text: bytes, hinted: bytes | None = None, *, may_be_labelled: bool = True
) -> tuple[PrefixForm, ...]:
    r"""Return the prefixes of a log, outermost first.

    Parameters
    ----------
    text : bytes
        Without colours.
    hinted : bytes, optional
        At least the lines that `has_hint`; all by default.
    may_be_labelled : bool
        Whether four lines or more `may_have_label`.

    Examples
    --------
    >>> text = b"0: [rank0]: a\n1: [rank1]: b\n0: c\n1: d\n"
    >>> [form.name for form in learn_prefixes(text)]
    ['srun --label', 'PyTorch']
    """
    hinted = text if hinted is None else hinted
    present = {hint for hint in _HINTS if hint in hinted}
    if not present and not may_be_labelled:
        return ()
    sample = _sample(text)
    forms = [form for form in FORMS if form.hint in present]
    layers: list[PrefixForm] = []
    while len(layers) < _MAX_LAYERS:
        form = _outermost(
            sample, text, [*forms, *(form for form in FORMS if not form.hint)], layers
        )
        if form is None:
            break
        layers.append(form)
        sample = b"\n".join(_without(form, line) for line in sample.split(b"\n"))
    missing = [form for form in forms if form not in layers and _occurs(form, hinted)]
    return (*layers, *missing)


def _outermost(
    sample: bytes,
    text: bytes,
    forms: Sequence[PrefixForm],
    used: Sequence[PrefixForm],
) -> PrefixForm | None:
    """Return the form that most lines begin with, or None if none recurs."""
    heads = _heads(sample)
    frequent = [form for form in forms if form not in used and _is_frequent(form, heads)]
    if not frequent and not any(map(_UNKNOWN.match, heads)):
        return None
    lines = sample.split(b"\n")
    counts = {form: _recurrence(form, lines, text) for form in frequent}
    best = max(counts, key=lambda form: counts[form], default=None)
    if best is not None and counts[best]:
        return best
    return None if any(form.name.startswith("learned") for form in used) else _learn(lines)


def _is_frequent(form: PrefixForm, heads: Counter[bytes]) -> bool:
    """Return whether enough lines have a form, which ignores the digits in it."""
    count = sum(count for head, count in heads.items() if form.matches(head))
    return count >= (1 if form.hint else max(MIN_LABELS, _MIN_SHARE * heads.total()))


def _recurrence(form: PrefixForm, lines: Sequence[bytes], text: bytes) -> int:
    """Return the number of lines with a form, or 0 if they are too few to be a prefix."""
    matches = [match for line in lines if (match := form.matches(line))]
    if form.hint:
        return len(matches)
    if len(matches) < max(MIN_LABELS, _MIN_SHARE * len(lines)):
        return 0
    values = Counter(value for match in matches for value in match.groups())
    is_label = _is_label(values, len(matches)) or _returns(matches, text)
    return len(matches) if is_label else 0


def _returns(matches: Sequence[re.Match[bytes]], text: bytes) -> bool:
    """Return whether labels occur again far away, as those of a job of many ranks do."""
    tried = [match[0] for match in matches[:: 1 + len(matches) // _TRIED]]
    return all(_occurs_often(text, b"\n" + prefix) for prefix in tried)


def _occurs_often(text: bytes, part: bytes) -> bool:
    position = -1
    for _ in range(_MIN_RETURNS):
        position = text.find(part, position + 1)
        if position < 0:
            return False
    return True


def _is_label(values: Counter[bytes], lines: int) -> bool:
    """Return whether values look like labels of few writers rather than a counter."""
    if not values or 2 * len(values) <= lines:
        return True
    return all(value.isdigit() for value in values) and _is_numbering(map(int, values))


def _is_numbering(numbers: Iterable[int]) -> bool:
    """Return whether numbers count from 0; some writers may be silent."""
    distinct = set(numbers)
    return 0 in distinct and max(distinct) < _MAX_NUMBERING_GAPS * len(distinct)


def _learn(lines: Sequence[bytes]) -> PrefixForm | None:
    """Return a form that no table knows: equal on most lines but for a number from 0 to n - 1."""
    heads: dict[tuple[bytes, bytes], Counter[bytes]] = {}
    for line in lines:
        match = _UNKNOWN.match(line)
        if match:
            heads.setdefault((match[1], match[3]), Counter())[match[2]] += 1
    if not heads:
        return None
    (before, after), values = max(heads.items(), key=lambda item: item[1].total())
    if values.total() < max(MIN_LABELS, _MIN_SHARE * len(lines)) or _COUNTERS.search(before):
        return None
    if len(values) < 2 or not _is_numbering(map(int, values)):
        return None
    kind = "rank" if b"rank" in before.lower() else "task"
    head, tail = re.escape(before).decode(), re.escape(after).decode()
    return PrefixForm(
        f"learned ({before.decode()}N{after.decode().rstrip()})",
        rf"{head}(?P<{kind}>\d{{1,5}}){tail}",
    )


def _without(form: PrefixForm, line: bytes) -> bytes:
    match = form.matches(line)
    return line[match.end() :] if match else line


def _occurs(form: PrefixForm, text: bytes) -> bool:
    """Return whether a line of a text has a form, wherever it is."""
    return re.search(rb"(?m)^[^\n]{0,80}?" + form.pattern.encode(), text) is not None

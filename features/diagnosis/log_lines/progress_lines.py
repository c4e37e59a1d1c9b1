"""Progress lines of a job: which lines of a log report a finished training step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import re2

from forewarn.features.diagnosis.log_lines.any_digits import zero_digits
from forewarn.features.diagnosis.log_lines.log_pattern import (
    MAX_MATCHER_BYTES,
    expression_bytes,
    re2_options,
)
from forewarn.features.diagnosis.log_lines.progress_forms import (
    GENERIC_FORMS,
    KNOWN_FORMS,
    PROGRESS_BAR,
    is_mention,
)
from forewarn.features.diagnosis.log_lines.progress_template import learn_template

__all__ = ["ProgressForm", "ProgressLine", "ends_with_last_step", "learn_progress"]

_SAMPLE_BYTES = 2**16  # of the start, the middle and the end of a log each
_MAX_LINE_BYTES = 4_096
_FIRST_BLOCK_BYTES, _MAX_BLOCK_BYTES = 2**9, 2**20
_EPOCH_SCALE = 1_000_000
_MIN_LINES = 4  # fewer lines of a generic form are less evidence than a learned form
_SENTINEL = "sentinel of the progress forms"


# Steps of a plan, as in `200it/200it`, `step 90 of 200`; no date, no path, no size.
_OF_PLAN = re2.compile(
    rb"(?:^|[\s|\[(:])(\d{1,9})(?:it|s|steps?)?(?:\s?/\s?| of )"
    rb"(\d{2,9})(?:it|s|steps?)?(?:[\s|\])(,;]|$)"
)


def ends_with_last_step(tail: bytes) -> bool:
    r"""Return whether the last line of a text that states steps of a plan is at its end.

    If a line states several, as epochs and batches, each is at its end.

    Examples
    --------
    >>> ends_with_last_step(b"train 200it/200it loss=3.1\nsaved"), ends_with_last_step(b"9/200")
    (True, False)
    >>> ends_with_last_step(b"Epoch 10/10:  45%|####     | 90/200 [00:41<00:50]")
    False
    """
    for line in reversed(tail.splitlines()):
        steps = _OF_PLAN.findall(line.rpartition(b"\r")[2])
        if steps:
            return all(int(step) == int(planned) for step, planned in steps)
    return False


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """A line that reports a finished training step.

    Attributes
    ----------
    offset : int
        Bytes from the start of the text to the start of the line.
    number : int
        Grows with the training: the step, the batch counted over all epochs, or millionths of an
        epoch for trainers that print only that.
    """

    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class ProgressForm:
    """Form of the progress lines of one log.

    Attributes
    ----------
    name : str
        Trainer or kind of line, `learned` for a form learned from the log; empty if unknown.
    expressions : tuple of str
        RE2 expressions with the groups that `progress_forms` describes; empty if unknown.
    """

    name: str = ""
    expressions: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the log has progress lines."""
        return bool(self.expressions)

    @property
    def counts_steps(self) -> bool:
        """Whether its numbers are steps that the program itself would name so.

        Batches of an epoch, shares of an epoch and the numbers of a learned form are others.
        """
        groups = ("(?P<epoch>", "(?P<share>", "(?P<thousands>")
        is_other = any(group in each for each in self.expressions for group in groups)
        return self.is_known and self.name not in ("epoch", "learned") and not is_other

    def search(self, text: bytes, start: int = 0, end: int | None = None) -> ProgressLine | None:
        """Return the first progress line of a text, or None.

        Parameters
        ----------
        text : bytes
        start, end : int
            The lines to search: `start` is the start of a line.
        """
        return next(self._lines(text, start, len(text) if end is None else end), None)

    def lines_up_to(self, last: ProgressLine, text: bytes, start: int) -> Iterator[ProgressLine]:
        """Yield the progress lines from the start of a line to a progress line, backwards."""
        yield last
        end = last.offset
        while end > start:
            offset = text.rfind(b"\n", start, end - 1) + 1 or start
            number = _last_number(self.expressions, text[offset:end][:_MAX_LINE_BYTES])
            if number is not None:
                yield ProgressLine(offset, number)
            end = offset

    def first_lines(self, text: bytes, count: int) -> list[ProgressLine]:
        """Return the first progress lines of a text, at most `count`."""
        return list(islice(self._lines(text, 0, len(text)), count))

    def last(self, text: bytes, end: int | None = None) -> ProgressLine | None:
        """Return the last progress line that starts before `end`; the search begins there."""
        stop = len(text) if end is None else end
        if not self.is_known:
            return None
        last = text.rfind(b"\n", 0, max(stop - 1, 0)) + 1
        number = _last_number(self.expressions, text[last : min(stop, last + _MAX_LINE_BYTES)])
        if number is not None:
            return ProgressLine(last, number)
        stop, size = last, _FIRST_BLOCK_BYTES
        while stop > 0:
            start = text.rfind(b"\n", 0, max(stop - size, 0)) + 1
            lines = tuple(self._lines(text, start, stop))
            if lines:
                return lines[-1]
            stop, size = start, min(2 * size, _MAX_BLOCK_BYTES)
        return None

    def _lines(self, text: bytes, start: int, end: int) -> Iterator[ProgressLine]:
        """Yield progress lines in order; of several states in a line the last counts."""
        position = start
        while position < end:
            matches = (_compiled(each).search(text, position, end) for each in self.expressions)
            match = min(
                (match for match in matches if match is not None),
                key=lambda match: match.start(),
                default=None,
            )
            if match is None:
                return
            line_start = text.rfind(b"\n", 0, match.end()) + 1
            position = text.find(b"\n", match.end(), end) + 1 or end
            line = text[line_start : min(position, line_start + _MAX_LINE_BYTES)]
            number = _last_number(self.expressions, line)
            if number is not None:
                yield ProgressLine(line_start, number)


@lru_cache(maxsize=256)
def _compiled(expression: str) -> re2._Regexp:
    return re2.compile(expression_bytes(expression), re2_options(MAX_MATCHER_BYTES))


class _StateFields(NamedTuple):
    """Where a line shows its state.

    Attributes
    ----------
    number : slice
    epoch, total : slice or None
    scale : int
        Of the number.
    """

    number: slice
    epoch: slice | None
    total: slice | None
    scale: int


def _last_number(expressions: tuple[str, ...], line: bytes) -> int | None:
    """Return the number of the last state that a line shows; None if it only mentions a step."""
    fields = _state_fields(expressions, zero_digits(line))
    if fields is None:
        return None
    digits = line[fields.number].replace(b",", b"")
    value = int(digits) if digits.isdigit() else float(digits)
    if fields.scale != 1:
        return round(value * fields.scale)
    if fields.epoch is None or fields.total is None:
        return int(value)
    return int(value) + int(line[fields.epoch]) * int(line[fields.total])


@lru_cache(maxsize=4096)
def _state_fields(expressions: tuple[str, ...], line: bytes) -> _StateFields | None:
    """Return where lines show their state that are equal up to digits, which the forms ignore."""
    for expression in expressions:
        matches = list(_compiled(expression).finditer(line))
        if matches:
            return _fields_of_match(matches[-1], line)
    return None


def _fields_of_match(match: re2._Match[bytes], line: bytes) -> _StateFields | None:
    groups = match.re.groupindex.items()
    spans = {name.decode(): slice(*match.span(index)) for name, index in groups if match[index]}
    is_share = "share" in spans
    number = spans["share" if is_share else "number"]
    state_start = line.rfind(b"\r", 0, number.start) + 1
    if is_mention(line[state_start:].split(b"\r", 1)[0], number.start - state_start):
        return None
    scale = _EPOCH_SCALE if is_share else 1_000 if "thousands" in spans else 1
    return _StateFields(number, spans.get("epoch"), spans.get("total"), scale)


@lru_cache(maxsize=1)
def _known_forms() -> re2.Set:
    """Return all known expressions as one automaton: most texts match few of them."""
    forms = re2.Set.SearchSet(re2_options(MAX_MATCHER_BYTES))
    for expression in (*(expression for _, expression in KNOWN_FORMS), _SENTINEL):
        forms.Add(expression_bytes(expression))
    forms.Compile()
    if not forms.Match(_SENTINEL.encode()):
        raise RuntimeError("the progress forms are too large for one automaton")
    return forms


def learn_progress(text: bytes) -> ProgressForm:
    r"""Learn the form of the progress lines of a log; unknown if it has none.

    Forms of known trainers come first. Otherwise the form is the line that recurs most with an
    integer that grows by the same step, as `learn_template` describes. Only 64 KiB of the start,
    the middle and the end are read.

    Parameters
    ----------
    text : bytes
        Log of one rank without prefixes and colours, or a sample of it.

    Examples
    --------
    >>> form = learn_progress(b"step: 7  loss: 2.5\nsaving checkpoint at step 8\n")
    >>> form.name, form.search(b"x\nstep: 9  loss: 2.4\n")
    ('key and value', ProgressLine(offset=2, number=9))
    """
    samples = _samples(text)
    candidates = _candidates(samples)
    chosen = next((each for each in candidates if not _is_preparation(each, candidates)), None)
    if chosen is None or (chosen.form.name in GENERIC_FORMS and chosen.line_count < _MIN_LINES):
        expression = learn_template(samples)
        if expression is not None:
            return ProgressForm("learned", (expression,))
    return chosen.form if chosen else ProgressForm()


def _samples(text: bytes) -> list[bytes]:
    """Return the start, the middle and the end of a text, from the first whole line on."""
    if len(text) <= 3 * _SAMPLE_BYTES:
        return [text]
    starts = (0, (len(text) - _SAMPLE_BYTES) // 2, len(text) - _SAMPLE_BYTES)
    samples = [text[start : start + _SAMPLE_BYTES] for start in starts]
    return [samples[0], *(sample.partition(b"\n")[2] or sample for sample in samples[1:])]


class _Candidate(NamedTuple):
    """A known form of which the samples have lines.

    Attributes
    ----------
    form : ProgressForm
    first, last : (int, int)
        Sample and offset of the first and the last line.
    line_count : int
        At most 4.
    """

    form: ProgressForm
    first: tuple[int, int]
    last: tuple[int, int]
    line_count: int


def _candidates(samples: Sequence[bytes]) -> list[_Candidate]:
    """Return the known forms that the samples have lines of, in the order of the table."""
    matched = {number for sample in samples for number in _known_forms().Match(sample) or []}
    expressions: defaultdict[str, list[str]] = defaultdict(list)
    for number in sorted(matched - {len(KNOWN_FORMS)}):
        name, expression = KNOWN_FORMS[number]
        expressions[name].append(expression)
    candidates = []
    for name, those_of_form in expressions.items():
        form = ProgressForm(name, tuple(those_of_form))
        lines = [
            (number, line.offset)
            for number, sample in enumerate(samples)
            for line in (*form.first_lines(sample, _MIN_LINES), form.last(sample))
            if line is not None
        ]
        if lines:
            candidates.append(_Candidate(form, lines[0], lines[-1], len(set(lines))))
    return candidates


def _is_preparation(candidate: _Candidate, others: Sequence[_Candidate]) -> bool:
    """Return whether a bar ends before other progress begins: that of data or of weights."""
    return candidate.form.name == PROGRESS_BAR and any(
        other.first > candidate.last for other in others
    )

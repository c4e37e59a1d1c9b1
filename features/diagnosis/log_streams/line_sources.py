"""Lines of a file, divided by the writer that their prefixes name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from forewarn.features.diagnosis.log_streams.file_numbers import FileNumber, file_number
from forewarn.features.diagnosis.log_streams.labelled_lines import Values, read_labels
from forewarn.features.diagnosis.log_streams.line_prefixes import (
    RUNTIME_FORM,
    PrefixForm,
    learn_prefixes,
    sample_lines,
)

__all__ = ["Label", "Source", "split_by_writer"]

_NUMBERS = ("rank", "local", "task")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_OWN_TIME = re.compile(
    rb"\W{0,2}(?:\[[Rr]ank ?\d+\]:)?\W{0,2}(?:\d{4}-\d\d-\d\d|[IWEF]\d{3,4} \d\d:)"
)


@dataclass(frozen=True, slots=True)
class Label:
    """What the prefixes of a line say; None where they do not.

    Attributes
    ----------
    rank, local, task : int or None
        The rank, the rank on its machine, and the number of a launcher's task.
    host, pod, address, pid : str or None
    """

    rank: int | None = None
    local: int | None = None
    task: int | None = None
    host: str | None = None
    pod: str | None = None
    address: str | None = None
    pid: str | None = None

    @property
    def launcher(self) -> tuple[int | None, str | None, str | None, str | None]:
        """What one launcher on one machine has in common."""
        return (self.task, self.host, self.pod, self.address)


@dataclass(frozen=True, slots=True)
class Source:
    """Lines of one writer.

    Attributes
    ----------
    name : str
        File.
    label : Label
    text : bytes
        Without prefixes and colours.
    is_container : bool
        Whether a container runtime wrote the file, which counts the starts of the container.
    """

    name: str
    label: Label
    text: bytes
    is_container: bool = False


def split_by_writer(
    name: str, text: bytes, hinted: bytes | None = None, *, may_be_labelled: bool = True
) -> tuple[tuple[PrefixForm, ...], Iterator[Source]]:
    r"""Remove the prefixes of a file, and divide its lines by what they say.

    Parameters
    ----------
    name : str
    text : bytes
        Without colours.
    hinted : bytes, optional
    may_be_labelled : bool
        As in `learn_prefixes`.

    Returns
    -------
    tuple of PrefixForm
        Outermost first.
    iterator of Source
        In the order of their first lines.

    Examples
    --------
    >>> _, sources = split_by_writer("a.log", b"0: a\n1: b\n0: c\n1: d\n")
    >>> [(source.label.task, source.text) for source in sources]
    [(0, b'a\nc\n'), (1, b'b\nd\n')]
    """
    forms = learn_prefixes(text, hinted, may_be_labelled=may_be_labelled)
    return forms, _divided(name, text, forms) if forms else iter((Source(name, Label(), text),))


def _divided(name: str, text: bytes, forms: Sequence[PrefixForm]) -> Iterator[Source]:
    """Yield the lines without prefixes by their writers."""
    has_envelopes = any(not _GROUP.search(form.pattern) for form in forms)
    keeps_times = has_envelopes and not _programs_write_times(text, forms)
    lines = read_labels(text, _joined(forms), keeps_times=keeps_times)
    fields = _fields(forms)
    try:
        writers = _numbered_writers(lines.values, _Writers(fields, file_number(name)))
    except _SharedNumberError:
        writers = _numbered_writers(lines.values, _Writers(fields, None))
    is_container = any(form.name == RUNTIME_FORM for form in forms)
    numbers, labels = writers
    writer_of_line = np.array(numbers, np.int64)[lines.numbers]
    order = np.argsort(writer_of_line, kind="stable")
    limits = np.searchsorted(writer_of_line[order], np.arange(len(labels) + 1))
    for label, own in zip(labels, np.split(order, limits[1:-1]), strict=True):
        rest = lines.without_prefixes(own)
        if rest:
            yield Source(name, label, rest, is_container)


class _SharedNumberError(Exception):
    """Two ranks have the same local rank or task: a console of several machines."""


def _numbered_writers(values: Iterable[Values], writers: _Writers) -> tuple[list[int], list[Label]]:
    """Return the number of the writer under each of some values, and the writers' labels."""
    return [writers.number_of(each) for each in values], writers.labels()


@dataclass(slots=True)
class _Writers:
    """Numbers of writers, so that lines with and without a rank keep their order.

    Attributes
    ----------
    fields : tuple of str
    number : FileNumber or None
        Of the file's name. None if each label is a writer of its own.
    """

    fields: tuple[str, ...]
    number: FileNumber | None
    numbers: dict[Label, int] = field(default_factory=dict)
    ranks: dict[Label, int] = field(default_factory=dict)

    def number_of(self, values: Values) -> int:
        """Return the number of the writer that is met under these values."""
        label = _label(self.fields, values)
        base = replace(label, rank=None)
        if self.number is None or not self._is_one_writer(base, label.rank):
            return self.numbers.setdefault(label, len(self.numbers))
        if label.rank is not None and self.ranks.setdefault(base, label.rank) != label.rank:
            raise _SharedNumberError
        return self.numbers.setdefault(base, len(self.numbers))

    def _is_one_writer(self, base: Label, rank: int | None) -> bool:
        number = self.number
        if base != Label() or number is None or number.kind == "local":
            return True
        return number.value is not None and number.agrees(number.value if rank is None else rank)

    def labels(self) -> list[Label]:
        """Return the writers' labels, with the ranks that were met."""
        return [replace(each, rank=self.ranks.get(each, each.rank)) for each in self.numbers]


def _programs_write_times(text: bytes, forms: Sequence[PrefixForm]) -> bool:
    """Return whether the lines have times of their own, so that the container's are removed."""
    match = _joined(forms).match
    rests = [line[prefix.end() :] for line in sample_lines(text) if (prefix := match(line))]
    return 2 * sum(_OWN_TIME.match(rest) is not None for rest in rests) >= len(rests)


def _joined(forms: Sequence[PrefixForm]) -> re.Pattern[bytes]:
    """Return one pattern of all layers, each of them optional."""
    layers = [f"(?:{_GROUP.sub('(', form.pattern)})?" for form in forms]
    return re.compile("".join(layers).encode())


def _fields(forms: Sequence[PrefixForm]) -> tuple[str, ...]:
    """Return what the groups of the joined pattern mean."""
    return tuple(field for form in forms for field in _GROUP.findall(form.pattern))


def _label(fields: Sequence[str], values: Sequence[bytes | None]) -> Label:
    words: dict[str, int | str] = {}
    for name, value in zip(fields, values, strict=True):
        if value is not None and name not in words:
            words[name] = int(value) if name in _NUMBERS else value.decode()
    return Label(**words)  # type: ignore[arg-type]  # the name decides the type of a value

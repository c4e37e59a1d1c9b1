"""Lines of a file, divided by the writer that their prefixes name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from forewarn.features.diagnosis.log_streams.container_logs import unwrap_container_log
from forewarn.features.diagnosis.log_streams.file_numbers import FileNumber, file_number
from forewarn.features.diagnosis.log_streams.line_prefixes import (
    RUNTIME_FORM,
    PrefixForm,
    clean_text,
    learn_prefixes,
    sample_lines,
)

__all__ = ["Label", "Source", "split_by_writer"]

_NUMBERS = ("rank", "local", "task")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_ENVELOPE_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
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


def split_by_writer(name: str, text: bytes) -> tuple[tuple[PrefixForm, ...], list[Source]]:
    r"""Remove the prefixes of a file, and divide its lines by what they say.

    Returns
    -------
    tuple of PrefixForm
        Outermost first.
    list of Source
        In the order of their first lines.

    Examples
    --------
    >>> _, sources = split_by_writer("a.log", b"0: a\n1: b\n0: c\n1: d\n")
    >>> [(source.label.task, source.text) for source in sources]
    [(0, b'a\nc\n'), (1, b'b\nd\n')]
    """
    text = clean_text(unwrap_container_log(text))
    forms = learn_prefixes(text)
    if not forms:
        return (), [Source(name, Label(), text)]
    try:
        writers = _divided(text, forms, _Writers(_fields(forms), file_number(name)))
    except _SharedNumberError:
        writers = _divided(text, forms, _Writers(_fields(forms), None))
    is_container = any(form.name == RUNTIME_FORM for form in forms)
    return forms, [
        Source(name, label, b"\n".join(lines) + b"\n", is_container)
        for label, lines in writers
        if any(lines)
    ]


class _SharedNumberError(Exception):
    """Two ranks have the same local rank or task: a console of several machines."""


@dataclass(slots=True)
class _Writers:
    """Lists of lines by writer, so that lines with and without a rank keep their order.

    Attributes
    ----------
    fields : tuple of str
    number : FileNumber or None
        Of the file's name. None if each label is a writer of its own.
    """

    fields: tuple[str, ...]
    number: FileNumber | None
    lists: dict[Label, list[bytes]] = field(default_factory=dict)
    ranks: dict[Label, int] = field(default_factory=dict)

    def open(self, values: Sequence[bytes | None]) -> list[bytes]:
        """Return the list of a writer that is met for the first time under these values."""
        label = _label(self.fields, values)
        base = replace(label, rank=None)
        if self.number is None or not self._is_one_writer(base, label.rank):
            return self.lists.setdefault(label, [])
        if label.rank is not None and self.ranks.setdefault(base, label.rank) != label.rank:
            raise _SharedNumberError
        return self.lists.setdefault(base, [])

    def _is_one_writer(self, base: Label, rank: int | None) -> bool:
        number = self.number
        if base != Label() or number is None or number.kind == "local":
            return True
        return number.value is not None and number.agrees(number.value if rank is None else rank)

    def labelled(self) -> list[tuple[Label, list[bytes]]]:
        """Return the lines by label, with the ranks that were met."""
        return [
            (replace(label, rank=self.ranks.get(label, label.rank)), lines)
            for label, lines in self.lists.items()
        ]


def _divided(
    text: bytes, forms: Sequence[PrefixForm], writers: _Writers
) -> list[tuple[Label, list[bytes]]]:
    """Return the lines without prefixes by their writers."""
    match = _joined(forms).match
    lists: dict[tuple[bytes | None, ...], list[bytes]] = {}
    has_envelopes = any(not _GROUP.search(form.pattern) for form in forms)
    keeps_times = has_envelopes and not _programs_write_times(text, forms)
    seconds: dict[tuple[bytes | None, ...], bytes] = {}
    for line in text.removesuffix(b"\n").split(b"\n"):
        prefix = match(line)
        if prefix is None:  # every layer is optional, so that each line matches
            continue
        values, rest = prefix.groups(), line[prefix.end() :]
        if keeps_times and rest and (time := _ENVELOPE_TIME.search(line, 0, prefix.end())):
            # The lines of a traceback stay together: they have the time of the first one.
            if seconds.get(values) != time[1]:
                rest = time[0] + b" " + rest
            seconds[values] = time[1]
        if values in lists:
            lists[values].append(rest)
        else:
            lists[values] = writers.open(values)
            lists[values].append(rest)
    return writers.labelled()


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

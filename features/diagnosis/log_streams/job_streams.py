"""Streams of a job's logs by rank and machine, and how each file was understood."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias

from forewarn.features.diagnosis.log_lines.line_selection import (
    LinePurpose,
    LineSelection,
    LineSelector,
)
from forewarn.features.diagnosis.log_streams.container_files import continued_file
from forewarn.features.diagnosis.log_streams.container_logs import (
    has_envelope,
    unwrap_container_log,
)
from forewarn.features.diagnosis.log_streams.file_numbers import (
    file_number,
    is_kernel_log,
    is_worker_error,
    launcher_folder,
)
from forewarn.features.diagnosis.log_streams.heard_facts import Heard, hear
from forewarn.features.diagnosis.log_streams.heard_sources import (
    HeardSource,
    is_one_rank,
    split_by_speech,
)
from forewarn.features.diagnosis.log_streams.job_ranks import JobRanks
from forewarn.features.diagnosis.log_streams.line_prefixes import MIN_LABELS, PrefixForm, clean_text
from forewarn.features.diagnosis.log_streams.line_sources import Source, split_by_writer
from forewarn.features.diagnosis.log_streams.machine_names import JobMachines, learn_machines
from forewarn.features.diagnosis.log_streams.rank_numbers import learn_ranks
from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["FileReading", "JobStreams", "LogStream", "Visit", "read_streams"]

_HEAD_BYTES = 2**14
_MAX_BINARY_SHARE = 0.05  # of bytes that do not occur in text
_BINARY_BYTES = bytes((*range(7), *range(14, 27), *range(28, 32), 127))
_TABLES = (".csv", ".parquet", ".pkl", ".pickle", ".npz")


Visit: TypeAlias = Callable[[Source, LineSelection], None]
_Selected: TypeAlias = tuple[HeardSource, LineSelection]


@dataclass(frozen=True, slots=True)
class LogStream:
    """Lines of one writer.

    Attributes
    ----------
    name : str
        File.
    rank : int or None
        None for a machine, a launcher, or a rank that is not known.
    machine : str or None
    attempt : int
        Attempt in torchrun's tree.
    text : bytes
        Without prefixes and colours; empty if it was not kept.
    """

    name: str
    rank: int | None
    machine: str | None
    attempt: int
    text: bytes

    @property
    def is_kernel(self) -> bool:
        """Whether it is a machine's kernel log or a list of events."""
        return is_kernel_log(self.name)

    @property
    def is_torchrun(self) -> bool:
        """Whether it is in torchrun's tree."""
        return file_number(self.name).kind == "local"

    @property
    def launcher(self) -> str:
        """Folder of torchrun's tree that it is in; each launcher has its own."""
        return launcher_folder(self.name)


@dataclass(frozen=True, slots=True)
class FileReading:
    """How a file was understood.

    Attributes
    ----------
    name : str
    read_as : str or None
        None if it was not read.
    why : tuple of str
        What was ignored, and the reasons.
    """

    name: str
    read_as: str | None
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobStreams:
    """All streams of a job.

    Attributes
    ----------
    streams : tuple of LogStream
    readings : tuple of FileReading
        One a file, in order.
    machines : dict of int to str
        Machines by rank, as the ranks' table or the text state them.
    addresses : dict of str to str
        Machines by address.
    world : int or None
        Number of ranks, if the text states it.
    tasks_are_ranks : bool
        Whether the numbers of the launcher's tasks are ranks.
    nodes : int
        Machines that the job has at least; 0 if the text does not say.
    """

    streams: tuple[LogStream, ...]
    readings: tuple[FileReading, ...]
    machines: dict[int, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    world: int | None = None
    tasks_are_ranks: bool = False
    nodes: int = 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have a stream, in order."""
        return tuple(sorted({stream.rank for stream in self.streams if stream.rank is not None}))


def read_streams(
    files: Iterable[tuple[str, bytes]],
    ranks: Ranks | None = None,
    selector: LineSelector | None = None,
    visit: Visit | None = None,
) -> JobStreams:
    r"""Divide the files of a job into streams by rank and machine.

    Parameters
    ----------
    files : iterable of (str, bytes)
        Path below the job's folder, and content; of rotated files the oldest first.
    ranks : Ranks, optional
        From `ranks.csv`. Without it, ranks and machines are learned from the text.
    selector : LineSelector, optional
        Selects at least the lines that state facts or have prefixes; by default all lines.
    visit : callable, optional
        Reads each source in the order of the streams, with the lines that were selected. The texts
        are not kept then, so that those of one file at a time are in memory.

    Examples
    --------
    >>> job = read_streams([("slurm-812345.out", b"[rank1]: a\n[rank0]: b\n")])
    >>> [(stream.rank, stream.text) for stream in job.streams]
    [(1, b'a\n'), (0, b'b\n')]
    """
    table = Ranks({}, listed=False) if ranks is None else ranks
    selector = selector or LineSelector(lambda _: ~LinePurpose(0))
    heard: list[HeardSource] = []
    readings: dict[str, FileReading] = {}
    for _, parts in groupby(files, key=lambda file: continued_file(file[0])):
        name, text = _whole(list(parts), readings)
        reason = _why_no_log(name, text)
        if reason:
            readings[name] = FileReading(name, None, (reason,))
            continue
        forms, items = _read_file(name, text, selector)
        for item, selection in items:
            if visit is not None:
                visit(item.source, selection)
                item = replace(item, source=replace(item.source, text=b""))
            heard.append(item)
        readings[name] = FileReading(name, _read_as(name, [form.name for form in forms]))
    job = learn_ranks(heard, table)
    machines = learn_machines(heard, job, table)
    streams = tuple(_stream(item, job, machines) for item in heard)
    whole = tuple(
        FileReading(name, reading.read_as, (*reading.why, *job.ignored.get(name, ())))
        for name, reading in readings.items()
    )
    nodes = max((_least_nodes(item.heard) for item in heard), default=0)
    return JobStreams(
        streams, whole, machines.by_rank, machines.addresses, job.world, job.tasks_are_ranks, nodes
    )


def _least_nodes(heard: Heard) -> int:
    """Return the number of machines that a text states; a later one has a first rank above 0."""
    return max(heard.nodes, 2 if any(heard.offsets) else 0)


def _whole(
    parts: Sequence[tuple[str, bytes]], readings: dict[str, FileReading]
) -> tuple[str, bytes]:
    """Return name and text of a file with those that it was continued from."""
    *earlier, (name, text) = parts
    for before, _ in earlier:
        readings[before] = FileReading(before, f"the start of {name}")
    return name, b"".join([*(part.rstrip(b"\n") + b"\n" for _, part in earlier), text])


def _why_no_log(name: str, text: bytes) -> str:
    if name.lower().endswith(_TABLES):
        return "it is a table or a dump"
    return "binary file" if _is_binary(text[:_HEAD_BYTES]) else ""


def _is_binary(head: bytes) -> bool:
    binary = len(head) - len(head.translate(None, _BINARY_BYTES))
    return b"\0" in head or binary > _MAX_BINARY_SHARE * len(head)


def _read_file(
    name: str, text: bytes, selector: LineSelector
) -> tuple[tuple[PrefixForm, ...], Iterator[_Selected]]:
    """Return the prefixes of a file, and its sources."""
    selection = selector.select(text)
    raw = text
    enveloped = selection.joined(LinePurpose.ENVELOPE, text).text.split(b"\n")
    if any(map(has_envelope, enveloped)):
        text = unwrap_container_log(text)
    text = clean_text(text)
    if text is not raw:
        selection = selector.select(text)
    hinted = selection.joined(LinePurpose.HINT, text).text
    is_labelled = selection.count(LinePurpose.LABEL) >= MIN_LABELS
    forms, sources = split_by_writer(name, text, hinted, may_be_labelled=is_labelled)
    items = (_heard(source, selector, None if forms else selection) for source in sources)
    return forms, (part for item in items for part in _divided(item, selector))


def _heard(
    source: Source, selector: LineSelector, selection: LineSelection | None = None
) -> _Selected:
    """Return a source with what it states."""
    selection = selection or selector.select(source.text)
    facts = selection.joined(LinePurpose.FACT, source.text)
    return HeardSource(source, hear(source.text, facts)), selection


def _divided(selected: _Selected, selector: LineSelector) -> Iterator[_Selected]:
    """Yield a source, or a console's lines by the ranks that speak."""
    item, _ = selected
    speaks = item.heard.ranks or item.heard.communicators
    is_console = item.source.label.rank is None and speaks and not is_one_rank(item)
    if is_console and not is_kernel_log(item.source.name):
        yield from (_heard(part, selector) for part in split_by_speech(item.source))
    else:
        yield selected


def _read_as(name: str, forms: Sequence[str]) -> str:
    if is_kernel_log(name):
        return "a machine's log"
    if is_worker_error(name):
        return "the exception of a worker"
    return (
        f"a log with prefixes of {', '.join(dict.fromkeys(forms))}"
        if forms
        else "a log without prefixes"
    )


def _stream(item: HeardSource, job: JobRanks, machines: JobMachines) -> LogStream:
    rank = job.rank(item)
    return LogStream(
        item.source.name,
        rank,
        machines.machine(item, rank),
        item.number.attempt,
        item.source.text,
    )

"""Streams of a job's logs by rank and machine, and how each file was understood."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from forewarn.features.diagnosis.log_streams.container_files import continued_file
from forewarn.features.diagnosis.log_streams.file_numbers import file_number, is_kernel_log
from forewarn.features.diagnosis.log_streams.heard_facts import hear
from forewarn.features.diagnosis.log_streams.heard_sources import (
    HeardSource,
    is_one_rank,
    split_by_speech,
)
from forewarn.features.diagnosis.log_streams.job_ranks import JobRanks
from forewarn.features.diagnosis.log_streams.line_sources import Source, split_by_writer
from forewarn.features.diagnosis.log_streams.machine_names import JobMachines, learn_machines
from forewarn.features.diagnosis.log_streams.rank_numbers import learn_ranks
from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["FileReading", "JobStreams", "LogStream", "read_streams"]

_HEAD_BYTES = 2**14
_MAX_BINARY_SHARE = 0.05  # of bytes that do not occur in text
_BINARY_BYTES = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_TABLES = (".csv", ".parquet", ".pkl", ".pickle", ".npz")


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
        Without prefixes and colours.
    """

    name: str
    rank: int | None
    machine: str | None
    attempt: int
    text: bytes

    @property
    def is_error(self) -> bool:
        """Whether it is the exception of a worker rather than a log."""
        return self.name.rpartition("/")[2] == "error.json"

    @property
    def is_kernel(self) -> bool:
        """Whether it is a machine's kernel log or a list of events."""
        return is_kernel_log(self.name)

    @property
    def is_torchrun(self) -> bool:
        """Whether it is in torchrun's tree."""
        return file_number(self.name).kind == "local"


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
    """

    streams: tuple[LogStream, ...]
    readings: tuple[FileReading, ...]
    machines: dict[int, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    world: int | None = None
    tasks_are_ranks: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have a stream, in order."""
        return tuple(sorted({stream.rank for stream in self.streams if stream.rank is not None}))


def read_streams(files: Iterable[tuple[str, bytes]], ranks: Ranks | None = None) -> JobStreams:
    r"""Divide the files of a job into streams by rank and machine.

    Parameters
    ----------
    files : iterable of (str, bytes)
        Path below the job's folder, and content; of rotated files the oldest first.
    ranks : Ranks, optional
        From `ranks.csv`. Without it, ranks and machines are learned from the text.

    Examples
    --------
    >>> job = read_streams([("slurm-812345.out", b"[rank1]: a\n[rank0]: b\n")])
    >>> [(stream.rank, stream.text) for stream in job.streams]
    [(1, b'a\n'), (0, b'b\n')]
    """
    table = Ranks({}, listed=False) if ranks is None else ranks
    heard: list[HeardSource] = []
    readings: dict[str, FileReading] = {}
    for _, parts in groupby(files, key=lambda file: continued_file(file[0])):
        name, text = _whole(list(parts), readings)
        reason = _why_no_log(name, text)
        if reason:
            readings[name] = FileReading(name, None, (reason,))
            continue
        forms, sources = split_by_writer(name, text)
        heard += _heard(name, sources)
        readings[name] = FileReading(name, _read_as(name, [form.name for form in forms]))
    job = learn_ranks(heard, table)
    machines = learn_machines(heard, job, table)
    streams = tuple(_stream(item, job, machines) for item in heard)
    whole = tuple(
        FileReading(name, reading.read_as, (*reading.why, *job.ignored.get(name, ())))
        for name, reading in readings.items()
    )
    return JobStreams(
        streams, whole, machines.by_rank, machines.addresses, job.world, job.tasks_are_ranks
    )


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
    return b"\0" in head or len(_BINARY_BYTES.findall(head)) > _MAX_BINARY_SHARE * len(head)


def _heard(name: str, sources: Sequence[Source]) -> Iterator[HeardSource]:
    """Yield the sources with what they state; a console is divided by the ranks that speak."""
    for source in sources:
        heard = hear(source.text)
        item = HeardSource(source, heard)
        speaks = heard.ranks or heard.communicators
        if source.label.rank is None and speaks and not is_one_rank(item):
            parts = [source] if is_kernel_log(name) else split_by_speech(source)
            yield from (HeardSource(part, hear(part.text)) for part in parts)
        else:
            yield item


def _read_as(name: str, forms: Sequence[str]) -> str:
    if is_kernel_log(name):
        return "a machine's log"
    if name.rpartition("/")[2] == "error.json":
        return "the exception of a worker"
    return (
        f"a log with prefixes of {', '.join(dict.fromkeys(forms))}"
        if forms
        else "a log without prefixes"
    )


def _stream(item: HeardSource, job: JobRanks, machines: JobMachines) -> LogStream:
    rank = job.rank(item)
    return LogStream(
        item.source.name, rank, machines.machine(item, rank), item.number.attempt, item.source.text
    )

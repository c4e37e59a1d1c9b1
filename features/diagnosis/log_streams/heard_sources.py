"""Writers of a job with what their lines state, and consoles divided by the ranks that speak."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from forewarn.features.diagnosis.log_streams.file_numbers import (
    FileNumber,
    file_number,
)
from forewarn.features.diagnosis.log_streams.heard_facts import NCCL_PROCESS, Heard
from forewarn.features.diagnosis.log_streams.line_sources import Source

__all__ = ["HeardSource", "has_label", "is_one_rank", "split_by_speech"]

_SPOKEN = (
    rb"[^\n]{0,200}?\[(?:(?:PG (?:ID )?0 [^\n\]]{0,80})?R[Aa][Nn][Kk][ :]|rank(?=\d+\]:))"
    rb"(\d{1,7})\]"
)
_SPEECH = re.compile(rb"(?m)^" + _SPOKEN + rb"[^\n]*\n?")
_NCCL_LINE = re.compile(NCCL_PROCESS + rb"[^\n]*\n?")
_NCCL_RANK = re.compile(NCCL_PROCESS + rb"[^\n]*?\brank (\d{1,7}) n[rR]anks (\d{1,7})")


@dataclass(frozen=True, slots=True)
class HeardSource:
    """A source and what its lines state.

    Attributes
    ----------
    source : Source
    heard : Heard
    """

    source: Source
    heard: Heard

    @property
    def number(self) -> FileNumber:
        """Number of the file's name."""
        return file_number(self.source.name)


def is_one_rank(item: HeardSource) -> bool:
    """Return whether the only rank that speaks wrote all lines.

    In a console often one rank alone says its number, and the others write too.
    """
    spoken = set(item.heard.ranks)
    largest = max((size for _, size in item.heard.communicators), default=0)
    own = {rank for rank, size in item.heard.communicators if size == largest}
    if len(spoken | own) != 1:
        return False
    return bool(own) or has_label(item.source) or any(item.number.agrees(rank) for rank in spoken)


def split_by_speech(source: Source) -> Iterator[Source]:
    """Yield the lines of a console by the rank that each names as its writer.

    NCCL's lines name a process, whose rank the line on its largest communicator says.
    """
    text = source.text
    owners = _processes(text)
    parts: dict[int, list[bytes]] = {}

    def collect(match: re.Match[bytes]) -> bytes:
        rank = int(match[1]) if match[1].isdigit() else owners.get(match[1])
        if rank is None:
            return match[0]
        parts.setdefault(rank, []).append(match[0])
        return b""

    rest = _SPEECH.sub(collect, text)
    rest = _NCCL_LINE.sub(collect, rest) if owners else rest
    if rest.strip() or not parts:
        yield replace(source, text=rest)
    for rank, lines in parts.items():
        yield replace(source, label=replace(source.label, rank=rank), text=b"".join(lines))


def _processes(text: bytes) -> dict[bytes, int]:
    """Return the ranks of the processes that NCCL's lines name, of its largest communicator."""
    if b"NCCL" not in text:
        return {}
    inits = [(match[1], int(match[2]), int(match[3])) for match in _NCCL_RANK.finditer(text)]
    largest = max((size for _, _, size in inits), default=0)
    return {process: rank for process, rank, size in inits if size == largest}


def has_label(source: Source) -> bool:
    """Return whether a launcher's prefix names the writer."""
    label = source.label
    return any(value is not None for value in (label.local, label.task, label.pod, label.pid))

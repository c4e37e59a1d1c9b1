"""Metadata of a compacted date: one file whose row groups hold whole slices of GPUs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from forewarn.features.records.fleet_slices import MAX_SLICES

__all__ = [
    "COMPACTED_NAME",
    "CompactionMetadata",
    "SourceStamp",
    "compacted_name",
    "is_compacted_name",
]

# Sorts before the names that collectors and simulations use. Of two rows of one GPU and time the
# later file name wins, so that rows landed after a compaction are newer.
COMPACTED_NAME = "00-compacted.parquet"
_KEY = b"forewarn.compacted"
_VERSION = 1


def is_compacted_name(name: str) -> bool:
    """Tell whether a file name is that of a compacted file.

    Examples
    --------
    >>> is_compacted_name("00-compacted.parquet"), is_compacted_name("collected-00.parquet")
    (True, False)
    """
    return name.startswith(COMPACTED_NAME.removesuffix(".parquet"))


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """A source file of a compacted file.

    Attributes
    ----------
    name : str
    size : int
        Bytes.
    modified : int
        Nanoseconds since 1970 UTC.
    """

    name: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class CompactionMetadata:
    """The key-value metadata of a compacted file.

    Attributes
    ----------
    slices : tuple of (int, int)
        The slices [first, last) of each row group; a large slice continues in the next row group.
    sources : tuple of SourceStamp
        The merged files; one that still exists has not been deleted yet.
    """

    slices: tuple[tuple[int, int], ...]
    sources: tuple[SourceStamp, ...]

    def metadata(self) -> dict[str, str]:
        """Return the entry for the metadata of the file."""
        sources = [[source.name, source.size, source.modified] for source in self.sources]
        entry = {
            "version": _VERSION,
            "finest": MAX_SLICES,
            "slices": self.slices,
            "sources": sources,
        }
        return {_KEY.decode(): json.dumps(entry)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> CompactionMetadata | None:
        """Read the metadata of a file; None if it is not compacted, or by another version."""
        try:
            entry = json.loads((metadata or {})[_KEY])
            if (entry["version"], entry["finest"]) != (_VERSION, MAX_SLICES):
                return None
            slices = tuple((int(first), int(last)) for first, last in entry["slices"])
            sources = tuple(SourceStamp(str(n), int(s), int(m)) for n, s, m in entry["sources"])
        except (KeyError, ValueError, TypeError):
            return None
        return cls(slices, sources)

    def row_groups(self, first: int, last: int) -> list[int]:
        """Return the row groups that can hold GPUs of the slices [first, last).

        Examples
        --------
        >>> CompactionMetadata(((0, 32), (32, 64)), ()).row_groups(40, 41)
        [1]
        """
        pairs = enumerate(self.slices)
        return [number for number, (low, high) in pairs if low < last and first < high]

    def parts(self, rows_of_groups: Sequence[int], n_rows: int) -> list[list[int]]:
        """Split the row groups into parts of at least `n_rows` rows that share no slice.

        Examples
        --------
        >>> slices = ((0, 16), (16, 32), (32, 64), (32, 64))
        >>> CompactionMetadata(slices, ()).parts([5, 6, 10, 3], 10)
        [[0, 1], [2, 3]]
        """
        parts: list[list[int]] = [[]]
        held = 0
        for number, (rows, span) in enumerate(zip(rows_of_groups, self.slices, strict=True)):
            if held >= n_rows and span != self.slices[number - 1]:
                parts.append([])
                held = 0
            parts[-1].append(number)
            held += rows
        return parts


def compacted_name(sources: Sequence[SourceStamp]) -> str:
    """Return a name that is unique to the source files.

    An object store has no locks, so two concurrent runs must not write the same name.
    """
    digest = hashlib.sha256(repr([*map(astuple, sources)]).encode()).hexdigest()[:16]
    return f"{COMPACTED_NAME.removesuffix('.parquet')}-{digest}.parquet"

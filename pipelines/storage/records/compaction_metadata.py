"""The form of a compacted date: one file whose row groups hold whole slices of GPUs."""

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

# It comes before the names that collectors and simulations give: of two rows of one GPU and time
# the later file name wins, so that what lands after a compacting is the newer word.
COMPACTED_NAME = "00-compacted.parquet"
_KEY = b"forewarn.compacted"
_VERSION = 1


def is_compacted_name(name: str) -> bool:
    """Tell whether compacting gives this name to a file.

    Examples
    --------
    >>> is_compacted_name("00-compacted.parquet"), is_compacted_name("collected-00.parquet")
    (True, False)
    """
    return name.startswith(COMPACTED_NAME.removesuffix(".parquet"))


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """A file whose rows a compacted one has taken over.

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
    """What a compacted file says of itself, in its key-value metadata.

    Attributes
    ----------
    slices : tuple of (int, int)
        For each row group the finest slices [first, last) that it holds; a slice of many rows
        goes on in the next row group.
    sources : tuple of SourceStamp
        Files that were there before; one that still is has only not been deleted yet.
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
        """Return the row groups that can hold GPUs of the finest slices [first, last).

        Examples
        --------
        >>> CompactedForm(((0, 32), (32, 64)), ()).row_groups(40, 41)
        [1]
        """
        pairs = enumerate(self.slices)
        return [number for number, (low, high) in pairs if low < last and first < high]

    def parts(self, rows_of_groups: Sequence[int], n_rows: int) -> list[list[int]]:
        """Return the row groups in parts of `n_rows` or more, each of slices of its own.

        Examples
        --------
        >>> slices = ((0, 16), (16, 32), (32, 64), (32, 64))
        >>> CompactedForm(slices, ()).parts([5, 6, 10, 3], 10)
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
    """Return a name that no file made of other sources has.

    An object store has no locks: so two runs at a time cannot write one over the other.
    """
    digest = hashlib.sha256(repr([*map(astuple, sources)]).encode()).hexdigest()[:16]
    return f"{COMPACTED_NAME.removesuffix('.parquet')}-{digest}.parquet"

"""Names of columns in the data of a site, which may differ from ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["OUR_NAMES", "ColumnNames"]

_HIDDEN = " (not mapped)"  # of a column whose name another one takes


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """A mapping from our names of columns to those of a site.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Our name and theirs.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_mapping(cls, columns: Mapping[str, str] | None) -> ColumnNames:
        """Return the names of a mapping from our names to theirs."""
        return cls(tuple((columns or {}).items()))

    def renamed(self, names: Sequence[str]) -> list[str]:
        """Return the columns of a file by our names.

        A column keeps its name if the file lacks the one that is mapped. One whose name a mapped
        column takes is hidden.

        Examples
        --------
        >>> names = ColumnNames((("gpu_serial", "device"), ("xid", "code")))
        >>> names.renamed(["device", "xid", "gpu_serial"])
        ['gpu_serial', 'xid', 'gpu_serial (not mapped)']
        """
        ours = {theirs: our for our, theirs in self.pairs if theirs in names}
        taken = set(ours.values())
        return [ours.get(name, f"{name}{_HIDDEN}" if name in taken else name) for name in names]

    def absent(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the pairs of which a file has neither name."""
        known = set(names)
        return [pair for pair in self.pairs if not known & set(pair)]


OUR_NAMES: Final = ColumnNames()
"""No column has another name in the data."""

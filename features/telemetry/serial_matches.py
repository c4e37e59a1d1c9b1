"""Matching of the serials of a CMDB or of tickets to GPUs, with typical errors of people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["SerialMatches", "match_serials", "with_gpu_names"]


@dataclass(frozen=True, slots=True)
class SerialMatches:
    """Serials that are not the name of a GPU, and what they refer to.

    Attributes
    ----------
    gpus : mapping of str to sequence of str
        Names of the GPUs that a serial refers to.
    zeros : mapping of str to str
        Serials that differ from a known serial only by leading zeros, and that serial.
    unknown : frozenset of str
        Serials that match no GPU.
    """

    gpus: Mapping[str, Sequence[str]]
    zeros: Mapping[str, str]
    unknown: frozenset[str]

    @property
    def boards(self) -> dict[str, int]:
        """Number of GPUs by serial of a board with several GPUs."""
        board_of = {serial: self.zeros.get(serial, serial) for serial in sorted(self.gpus)}
        return {
            board: len(self.gpus[serial])
            for serial, board in board_of.items()
            if self.gpus[serial][0].startswith(f"{board}/")
        }


def match_serials(
    serials: Iterable[str | None], gpus: Mapping[str, Sequence[str]]
) -> SerialMatches:
    """Match serials to GPUs; an ambiguous serial matches none.

    Parameters
    ----------
    serials : iterable of str or None
    gpus : mapping of str to sequence of str
        Names of the GPUs with each serial (`gpus_by_serial`).

    Examples
    --------
    >>> match_serials(["324018069461"], {"0324018069461": ["0324018069461"]}).zeros
    {'324018069461': '0324018069461'}
    """
    names = {name for of_serial in gpus.values() for name in of_serial}
    written = {serial for serial in serials if serial is not None}
    meant = {serial: serial for serial in written if list(gpus.get(serial, [serial])) != [serial]}
    strange = written - names - gpus.keys()
    zeros = _match_without_leading_zeros(strange, gpus)
    return SerialMatches(
        {serial: gpus[known] for serial, known in (meant | zeros).items()},
        zeros,
        frozenset(strange - zeros.keys()),
    )


def _match_without_leading_zeros(
    strange: Collection[str], serials: Iterable[str]
) -> dict[str, str]:
    """Return the unique known serial that equals each serial except for leading zeros."""
    if not strange:
        return {}
    by_digits = defaultdict(list)
    for serial in filter(_is_number, serials):
        by_digits[serial.lstrip("0")].append(serial)
    alike = {s: by_digits.get(s.lstrip("0"), []) for s in sorted(strange) if _is_number(s)}
    return {s: candidates[0] for s, candidates in alike.items() if len(candidates) == 1}


def _is_number(serial: str) -> bool:
    return serial.isascii() and serial.isdigit()


def with_gpu_names(table: pa.Table, matches: SerialMatches) -> pa.Table:
    """Return a row for each matched GPU of a table by serial; exact names come last.

    Parameters
    ----------
    table : pyarrow.Table
        With `gpu_serial`.
    matches : SerialMatches
    """
    if not matches.gpus:
        return table
    pairs = [
        (row, name)
        for row, serial in enumerate(table["gpu_serial"].to_pylist())
        for name in matches.gpus.get(serial, ())
    ]
    rows = table.take(np.array([row for row, _ in pairs], dtype=np.int64))
    index = table.schema.get_field_index("gpu_serial")
    names = pa.array([name for _, name in pairs], table.schema.field(index).type)
    meant = pa.array(sorted(matches.gpus), table.schema.field(index).type)
    others = table.filter(pc.invert(pc.is_in(table["gpu_serial"], meant)))
    return pa.concat_tables([rows.set_column(index, table.schema.field(index), names), others])

"""The CMDB: what a site knows of its GPUs beside what they say themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from forewarn.features.records import RecordsError
from forewarn.features.telemetry.tables import newest
from forewarn.pipelines.store import open_parquet

__all__ = ["Cmdb", "read_cmdb", "read_texts"]

_SERIAL, _UUID = "gpu_serial", "gpu_uuid"
_DIGITS = 6  # of a slot: no host has a million


@dataclass(frozen=True, slots=True)
class Cmdb:
    """Static attributes of GPUs.

    Attributes
    ----------
    attributes : pyarrow.Table
        `gpu_serial`, once each, and columns of text.
    serial_of_uuid : mapping
        Where there is a column `gpu_uuid`.
    doubled : int
        Rows of a serial that came again: the last one counts.
    """

    attributes: pa.Table = field(
        default_factory=lambda: pa.table({_SERIAL: pa.array([], pa.string())})
    )
    serial_of_uuid: Mapping[str, str] = field(default_factory=dict)
    doubled: int = 0

    def unknown(self, serials: pa.ChunkedArray) -> list[str]:
        """Return those of some serials that the CMDB lacks; none where there is no CMDB."""
        if not len(self.attributes):
            return []
        found = pc.unique(serials).drop_null()
        strange = pc.invert(pc.is_in(found, self.attributes[_SERIAL].combine_chunks()))
        return sorted(found.filter(strange).to_pylist())


def read_texts(path: Path) -> pa.Table:
    """Read a CSV or Parquet file, every column as text; what is empty is null.

    Raises
    ------
    RecordsError
        If it is neither, or a column cannot be text.
    """
    table = open_parquet(path).read() if path.suffix == ".parquet" else _read_csv(path)
    if len(set(table.column_names)) < len(table.column_names):
        raise RecordsError(f"{path}: a column comes twice in {', '.join(table.column_names)}.")
    columns = {}
    for name in table.column_names:
        try:
            text = table[name].cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise RecordsError(
                f"{path}: column `{name}` is {table[name].type}, expected text."
            ) from None
        stripped = pc.utf8_trim_whitespace(text)
        columns[name] = pc.if_else(pc.equal(stripped, ""), None, stripped)
    return pa.table(columns)


def _read_csv(path: Path) -> pa.Table:
    options = csv.ConvertOptions(strings_can_be_null=False)
    try:
        names = csv.open_csv(path).schema.names
        options.column_types = dict.fromkeys(names, pa.string())
        return csv.read_csv(path, convert_options=options)
    except FileNotFoundError:
        raise RecordsError(f"{path}: no such file, expected CSV or Parquet.") from None
    except pa.ArrowInvalid as error:
        detail = str(error).splitlines()[0]
        raise RecordsError(f"{path}: is no CSV file with a header ({detail}).") from None


def read_cmdb(path: Path) -> Cmdb:
    """Read a CMDB: one row a GPU, `gpu_serial` and any attributes.

    Raises
    ------
    RecordsError
        If it cannot be read, has no column `gpu_serial`, or a `slot` that is no number.
    """
    table = read_texts(path)
    if _SERIAL not in table.column_names:
        found = ", ".join(table.column_names)
        raise RecordsError(f"{path}: column `{_SERIAL}` is missing, found {found}.")
    table = table.filter(pc.is_valid(table[_SERIAL]))
    _check_slots(table, path)
    attributes = newest(table, [_SERIAL])
    uuids: dict[str, str] = {}
    if _UUID in attributes.column_names:
        pairs = zip(attributes[_UUID].to_pylist(), attributes[_SERIAL].to_pylist(), strict=True)
        uuids = {uuid: serial for uuid, serial in pairs if uuid is not None}
        attributes = attributes.drop([_UUID])
    return Cmdb(attributes, uuids, len(table) - len(attributes))


def _check_slots(table: pa.Table, path: Path) -> None:
    if "slot" in table.column_names:
        slots = table["slot"].drop_null().to_pylist()
        wrong = [slot for slot in slots if not (slot.isascii() and slot.isdigit())]
        if wrong:
            raise RecordsError(f"{path}: column `slot` holds {wrong[0]!r}, expected a number.")
        large = [slot for slot in slots if len(slot) > _DIGITS]
        if large:
            raise RecordsError(
                f"{path}: column `slot` holds {large[0][:40]!r}, expected at most {_DIGITS} digits."
            )

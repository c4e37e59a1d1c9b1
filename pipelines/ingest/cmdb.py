"""The CMDB: what a site knows of its GPUs beside what they say themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from forewarn.features.records.table import RecordsError
from forewarn.features.records.text_columns import plain_text
from forewarn.features.telemetry.tables import newest
from forewarn.pipelines.storage.parquet_files import read_parquet
from forewarn.pipelines.storage.regular_files import require_regular

__all__ = ["Cmdb", "read_cmdb", "read_texts"]

_SERIAL, _UUID, _MACHINE = "gpu_serial", "gpu_uuid", "machine_id"
_EXPIRES = "expiration_date"
_LAST_SLOT = 2**31 - 1
# What is left of a serial that a table program took for a number.
_NUMBER = r"^\d+\.\d+(?:[eE][+-]?\d+)?$|^\d+[eE][+]?\d+$"


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
        reported = pc.unique(serials).drop_null()
        strange = pc.invert(pc.is_in(reported, self.attributes[_SERIAL].combine_chunks()))
        return sorted(reported.filter(strange).to_pylist())


def read_texts(path: Path) -> pa.Table:
    """Read a CSV or Parquet file, every column as text; what is empty is null.

    Raises
    ------
    RecordsError
        If it is neither, a column comes twice or cannot be text, or serials are no text.
    """
    require_regular(path, RecordsError)
    table = read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    columns = {}
    for name in table.column_names:
        try:
            text = plain_text(table[name], name=name in (_SERIAL, _MACHINE))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            detail = str(error).splitlines()[0]
            raise RecordsError(
                f"{path}: column `{name}` is {table[name].type}, expected text ({detail})."
            ) from None
        stripped = pc.utf8_trim_whitespace(text)
        columns[name] = pc.if_else(pc.equal(stripped, ""), None, stripped)
    _check_serials(columns.get(_SERIAL), path)
    return pa.table(columns)


def _check_serials(serials: pa.ChunkedArray | None, path: Path) -> None:
    if serials is not None:
        numbers = serials.filter(pc.match_substring_regex(serials, _NUMBER))
        if len(numbers):
            raise RecordsError(
                f"{path}: column `{_SERIAL}` holds {numbers[0].as_py()[:40]!r}, expected the "
                "serial as text: as a number it loses digits."
            )


def _read_csv(path: Path) -> pa.Table:
    options = csv.ConvertOptions(strings_can_be_null=False)
    try:
        names = csv.open_csv(path).schema.names
        doubled = [name for name in names if names.count(name) > 1]
        if doubled:
            raise RecordsError(f"{path}: column `{doubled[0]}` comes twice, expected it once.")
        options.column_types = dict.fromkeys(names, pa.string())
        return csv.read_csv(path, convert_options=options)
    except FileNotFoundError:
        raise RecordsError(f"{path}: no such file, expected CSV or Parquet.") from None
    except OSError as error:
        detail = error.strerror or str(error).splitlines()[0]
        raise RecordsError(f"{path}: cannot be read ({detail}).") from None
    except UnicodeDecodeError:
        raise RecordsError(f"{path}: holds text that is not UTF-8, expected UTF-8.") from None
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise RecordsError(f"{path}: holds text that is not UTF-8, expected UTF-8.") from None
        detail = str(error).splitlines()[0]
        raise RecordsError(f"{path}: is no CSV file with a header ({detail}).") from None


def read_cmdb(path: Path) -> Cmdb:
    """Read a CMDB: one row a GPU, `gpu_serial` and any attributes.

    Raises
    ------
    RecordsError
        If it cannot be read, has no column `gpu_serial`, a `slot` that is no number, or an
        `expiration_date` that is no date: the records would have it, and nobody could read them.
    """
    table = read_texts(path)
    if _SERIAL not in table.column_names:
        columns = ", ".join(table.column_names)
        raise RecordsError(f"{path}: column `{_SERIAL}` is missing, found {columns}.")
    table = table.filter(pc.is_valid(table[_SERIAL]))
    _check_slots(table, path)
    _check_dates(table, path)
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
        wrong = [slot for slot in slots if not _is_slot(slot)]
        if wrong:
            raise RecordsError(
                f"{path}: column `slot` holds {wrong[0][:40]!r}, expected a number from 0 to "
                f"{_LAST_SLOT}."
            )


def _check_dates(table: pa.Table, path: Path) -> None:
    if _EXPIRES in table.column_names:
        for text in pc.unique(table[_EXPIRES]).drop_null():
            try:
                text.cast(pa.timestamp("s"))
            except pa.ArrowInvalid:
                raise RecordsError(
                    f"{path}: column `{_EXPIRES}` holds {text.as_py()[:40]!r}, expected a date "
                    "such as 2026-03-01, or nothing."
                ) from None


def _is_slot(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= _LAST_SLOT

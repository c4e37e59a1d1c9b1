"""Tables exported by people: CSV of a spreadsheet, or Parquet, with all columns as text."""

from __future__ import annotations

import codecs
import csv as plain_csv
import io
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from forewarn.features.records.record_table import RecordsError
from forewarn.features.records.text_columns import plain_text
from forewarn.features.telemetry.export_columns import ExportReader
from forewarn.pipelines.storage.files.regular_files import require_regular
from forewarn.pipelines.storage.records.parquet_files import read_parquet

__all__ = ["SPREADSHEET_NUMBER", "TextRows", "read_checked_rows", "read_text_rows", "read_texts"]

_SERIAL, _MACHINE = "gpu_serial", "machine_id"
_DELIMITERS = ",;\t"
# A serial that a spreadsheet converted to a number.
SPREADSHEET_NUMBER = r"^\d+\.\d+(?:[eE][+-]?\d+)?$|^\d+[eE][+]?\d+$"
# A formula that keeps leading zeros in a spreadsheet.
_FORMULA = r'^="(.*)"$'


@dataclass(frozen=True, slots=True)
class TextRows:
    """A table of texts, with the position of its rows in the file.

    Attributes
    ----------
    table : pyarrow.Table
        Empty cells are null.
    numbers : list of int
        Row numbers as in a spreadsheet; the header of a CSV file is row 1.
    ragged : dict of int to str
        Rows whose number of columns differs from the header, with a description.
    note : str
        How an export of another system was understood.
    """

    table: pa.Table
    numbers: list[int]
    ragged: dict[int, str]
    note: str = ""

    def cell(self, column: str, text: str) -> str:
        """Describe the first row in which a column has a text."""
        number = self.numbers[self.table[column].index(text).as_py()]
        return f"row {number}: column `{column}` holds {text[:40]!r}"


def read_texts(path: Path) -> pa.Table:
    """Read a CSV or Parquet file with all columns as text; empty cells are null.

    Raises
    ------
    RecordsError
        If it is neither, a column is duplicate or cannot be text, the number of columns of a row
        differs from the header, or serials are not text.
    """
    return read_checked_rows(path).table


def read_checked_rows(path: Path, export: ExportReader | None = None) -> TextRows:
    """Read a file as `read_texts`, with the numbers of its rows.

    Raises
    ------
    RecordsError
        As `read_texts`.
    """
    rows = read_text_rows(path, export)
    for number, what in rows.ragged.items():
        raise RecordsError(f"{path}: is not a CSV file with a header (row {number}: {what}).")
    if _SERIAL in rows.table.column_names:
        serials = rows.table[_SERIAL]
        for serial in serials.filter(
            pc.match_substring_regex(serials, SPREADSHEET_NUMBER)
        ).to_pylist():
            raise RecordsError(
                f"{path}: {rows.cell(_SERIAL, serial)}, expected the serial as text: as a number "
                "it loses digits."
            )
    return rows


def read_text_rows(path: Path, export: ExportReader | None = None) -> TextRows:
    """Read a CSV or Parquet file with all columns as text and the numbers of its rows.

    A CSV file is UTF-8 or UTF-16 with commas, semicolons or tabs as separators.

    Parameters
    ----------
    path : Path
    export : ExportReader, optional
        Finds our columns if the file has other names for them.

    Raises
    ------
    RecordsError
        If it is neither, or a column is duplicate or cannot be text.
    """
    require_regular(path, RecordsError)
    if path.suffix == ".parquet":
        table, ragged = read_parquet(path), dict[int, str]()
        numbers = list(range(1, len(table) + 1))
    else:
        table, ragged = _read_csv(path)
        last = len(table) + len(ragged) + 2
        numbers = [number for number in range(2, last) if number not in ragged]
    table, note = _by_our_names(table, path, export)
    columns = {name: _texts(table, name, path) for name in table.column_names}
    return TextRows(pa.table(columns), numbers, ragged, note)


def _by_our_names(table: pa.Table, path: Path, export: ExportReader | None) -> tuple[pa.Table, str]:
    """Return the columns by our names, and how an export was understood."""
    if export is None:
        return table, ""
    try:
        header = export.named(table.column_names)
    except ValueError as error:
        columns = ", ".join(table.column_names)
        raise RecordsError(f"{path}: {error}, found {columns}.") from None
    theirs, ours = zip(*header.names, strict=True) if header.names else ((), ())
    return table.select(theirs).rename_columns(ours), header.note


def _texts(table: pa.Table, name: str, path: Path) -> pa.ChunkedArray:
    try:
        text = plain_text(table[name], name=name in (_SERIAL, _MACHINE))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        detail = str(error).splitlines()[0]
        raise RecordsError(
            f"{path}: column `{name}` is {table[name].type}, expected text ({detail})."
        ) from None
    bare = pc.replace_substring_regex(pc.utf8_trim_whitespace(text), _FORMULA, r"\1")
    stripped = pc.utf8_trim_whitespace(bare)
    return pc.if_else(pc.equal(stripped, ""), None, stripped)


def _read_csv(path: Path) -> tuple[pa.Table, dict[int, str]]:
    """Return the table and its ragged rows."""
    text = _decoded(path)
    names, delimiter = _header(text)
    ragged: dict[int, str] = {}

    def set_aside(row: csv.InvalidRow) -> str:
        ragged[row.number] = f"{row.actual_columns} columns, expected {row.expected_columns}"
        return "skip"

    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise RecordsError(f"{path}: column `{doubled[0]}` occurs twice, expected once.")
    try:
        table = csv.read_csv(
            io.BytesIO(text.encode()),
            csv.ReadOptions(use_threads=False),  # row numbers are unknown in threads
            csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=True,
                ignore_empty_lines=False,
                invalid_row_handler=set_aside,
            ),
            csv.ConvertOptions(
                strings_can_be_null=False, column_types=dict.fromkeys(names, pa.string())
            ),
        )
    except pa.ArrowInvalid as error:
        detail = str(error).splitlines()[0]
        raise RecordsError(f"{path}: is not a CSV file with a header ({detail}).") from None
    return table, ragged


def _decoded(path: Path) -> str:
    """Decode a file as UTF-8, or as UTF-16 if it starts with a byte order mark."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RecordsError(f"{path}: no such file, expected CSV or Parquet.") from None
    except OSError as error:
        raise RecordsError(f"{path}: cannot be read ({error.strerror or error}).") from None
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        kind, row = "UTF-16" if is_wide else "UTF-8", data[: error.start].count(b"\n") + 1
        raise RecordsError(
            f"{path}: holds text that is not {kind} (row {row}), expected UTF-8."
        ) from None


def _header(text: str) -> tuple[list[str], str]:
    """Return the column names and the separator.

    It is the one that yields a serial column, or most columns if the names are not ours.
    """
    line = text.partition("\n")[0].rstrip("\r")
    headers = [(next(plain_csv.reader([line], delimiter=d), []), d) for d in _DELIMITERS]
    most = max(headers, key=lambda header: len(header[0]))
    return next((header for header in headers if _SERIAL in header[0]), most)

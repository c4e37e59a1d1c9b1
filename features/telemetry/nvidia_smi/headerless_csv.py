"""CSV of `nvidia-smi --query-gpu` without a header line: which field each column is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from forewarn.features.telemetry.nvidia_smi.query_csv import is_header
from forewarn.features.telemetry.parsers.script_time import split_time

__all__ = ["CsvHeader", "csv_header_line", "find_header", "is_headerless_csv"]

_MAX_SAMPLED_ROWS = 2000
_UNKNOWN = "?"
_MEMORY_USED, _TEMPERATURE, _POWER = "memory.used", "temperature.gpu", "power.draw"
# Forms that only one field has. A serial of a GPU has 13 digits.
_FORMS = {
    "timestamp": re.compile(r"20\d\d/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?"),
    "uuid": re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "pci.bus_id": re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"),
    "name": re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce|GRID|TITAN)\b.*"),
    "driver_version": re.compile(r"\d{3}\.\d{2,3}\.\d{2}"),
    "serial": re.compile(r"[01]\d{12}"),
}
_RECOGNISED = ("uuid", "pci.bus_id", "name")  # fields whose values only nvidia-smi prints
_ALIASES = {"gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "gpu_name": "name"} | {
    "gpu_serial": "serial"
}
_MEASURED = re.compile(r"\d+ (?:%|MiB|MHz)|\d+\.\d\d W")  # as nvidia-smi prints numbers
_MIN_MEASURED = 2  # cells of such a form that only nvidia-smi prints in one row
_WATTS = re.compile(r"(?P<number>\d+\.\d\d) W")
_DEGREES = re.compile(r"\d{2,3}")
_MIN_DEGREES, _MAX_DEGREES = 15, 110  # of a GPU that runs
_ABSENT = re.compile(r"\[?N/A\]?|\[Not Supported\]|\[.*\]|")


class CsvHeader(NamedTuple):
    """The fields of a table without a header.

    Attributes
    ----------
    fields : tuple of str
        One a column; `?` where the field is not certain.
    source : {"user", "file", "guess"}
        Named by the user, taken from another file of the host, or guessed from the values.
    """

    fields: tuple[str, ...]
    source: str

    @property
    def line(self) -> str:
        """The header line."""
        return ", ".join(self.fields)


def csv_header_line(text: str) -> tuple[str, ...] | None:
    """Return the fields of the first header line of a file, None if it has none."""
    line = next((line for line in islice(text.splitlines(), 200) if is_header(line)), None)
    return None if line is None else tuple(cell.split(" [")[0] for cell in _cells(line))


def is_headerless_csv(text: str, csv_fields: Sequence[Sequence[str]] = ()) -> bool:
    """Tell whether a text is such a table.

    It has rows that name a GPU, have several numbers with units, or fit the named fields.
    """
    if csv_header_line(text) is not None or text.lstrip().startswith(("{", "[{", "<")):
        return False
    return any(
        any(_FORMS[name].fullmatch(cell) for cell in cells for name in _RECOGNISED)
        or sum(bool(_MEASURED.fullmatch(cell)) for cell in cells) >= _MIN_MEASURED
        or any(_fits(fields, [cells]) for fields in csv_fields)
        for cells in _rows(text[:20_000])
    )


def find_header(
    text: str, csv_fields: Sequence[Sequence[str]], known: Sequence[Sequence[str]]
) -> CsvHeader:
    """Return the fields of a table: of the user, of another file of the host, or guessed.

    A field is guessed where only one can have such values; the others are `?`.

    Parameters
    ----------
    text : str
    csv_fields, known : sequence of sequence of str
        Fields that the user named, and those of headers of other files.
    """
    rows = _commonest(list(islice(_rows(text), _MAX_SAMPLED_ROWS)))
    for fields in csv_fields:
        if _fits(fields, rows):
            return CsvHeader(tuple(fields), "user")
    fitting = {tuple(fields) for fields in known if _fits(fields, rows)}
    if len(fitting) == 1:
        return CsvHeader(fitting.pop(), "file")
    return CsvHeader(_guess(rows), "guess")


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of lines with several, without a time that a script put before them."""
    for line in text.replace("\0", "").splitlines():
        cells = _cells(line)
        own, rest = split_time(line)
        if own is not None and not _FORMS["timestamp"].fullmatch(cells[0]):
            cells = _cells(rest)
        if len(cells) > 1:
            yield cells


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def _commonest(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows of the number of cells that most rows have."""
    counts = [len(row) for row in rows]
    width = max(set(counts), key=counts.count, default=0)
    return [row for row in rows if len(row) == width]


def _fits(fields: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether rows have a cell for each field, and none of the form of another field."""
    names = [_ALIASES.get(field, field) for field in fields]
    for row in rows:
        if len(row) != len(names):
            return False
        for name, cell in zip(names, row, strict=True):
            form = _FORMS.get(name) if name not in ("driver_version", "serial", "name") else None
            if form is not None and not form.fullmatch(cell) and not _ABSENT.fullmatch(cell):
                return False
            if form is None and any(_FORMS[other].fullmatch(cell) for other in ("uuid",)):
                return False
    return bool(rows)


def _guess(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    columns = list(zip(*rows, strict=True)) if rows else []
    fields = [_of_form(column) for column in columns]
    for name in {*fields} - {_UNKNOWN}:  # two columns of one form are not told apart
        if fields.count(name) > 1:
            fields = [_UNKNOWN if field == name else field for field in fields]
    if _UNKNOWN in fields and (index := _index_column(columns, fields)) is not None:
        fields[index] = "index"
    watts = [i for i, column in enumerate(columns) if _all(column, _WATTS)]
    if len(watts) == 1 and _is_measured_power(columns[watts[0]]):
        fields[watts[0]] = _POWER
    with_units = any(cell.endswith((" MiB", " %", " W", " MHz")) for cell in rows[0]) if rows else 0
    degrees = [i for i, f in enumerate(fields) if f == _UNKNOWN and _is_degrees(columns[i])]
    if with_units and len(degrees) == 1:  # other fields without a unit are smaller, or constant
        fields[degrees[0]] = _TEMPERATURE
    return tuple(fields)


def _of_form(column: Sequence[str]) -> str:
    return next((name for name, form in _FORMS.items() if _all(column, form)), _UNKNOWN)


def _all(column: Sequence[str], form: re.Pattern[str]) -> bool:
    """Tell whether all values are of a form, but for those that the driver lacks."""
    present = [cell for cell in column if not _ABSENT.fullmatch(cell)]
    return bool(present) and all(form.fullmatch(cell) for cell in present)


def _index_column(columns: Sequence[Sequence[str]], fields: Sequence[str]) -> int | None:
    """Return the column that counts the GPUs of each round: 0, 1, ..., and again 0."""
    for i, column in enumerate(columns):
        numbers = [int(cell) if cell.isdecimal() else -1 for cell in column]
        follows = all(b in (a + 1, 0) for a, b in pairwise(numbers))
        if fields[i] == _UNKNOWN and numbers[0] == 0 and max(numbers) > 0 and follows:
            return i
    return None


def _is_measured_power(column: Sequence[str]) -> bool:
    """Tell whether watts are measured: limits are whole and do not change."""
    values = {match["number"] for cell in column if (match := _WATTS.fullmatch(cell))}
    return len(values) > 1 and any(not value.endswith(".00") for value in values)


def _is_degrees(column: Sequence[str]) -> bool:
    """Tell whether values can be temperatures that change up and down, as no counter does."""
    if not _all(column, _DEGREES):
        return False
    values = [int(cell) for cell in column if cell.isdecimal()]
    within = all(_MIN_DEGREES <= value <= _MAX_DEGREES for value in values)
    return within and len(set(values)) > 1

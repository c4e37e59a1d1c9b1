"""CSV tables that are safe to open in a spreadsheet: no cell is a formula."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

__all__ = ["write_csv"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV with ISO 8601 times and a `'` before text that looks like a formula.

    A spreadsheet would evaluate such a cell, or run a program that it names, and hosts choose
    names. A plain number such as `-3.5` is unchanged. Programs should read the Parquet or JSON
    files, which have no such prefix.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.csv")
    ...     write_csv(pd.DataFrame({"machine": ["=cmd|' /C calc'!A0", "-7"]}), path)
    ...     print(path.read_text())
    machine
    '=cmd|' /C calc'!A0
    -7
    <BLANKLINE>
    """
    texts = {
        name: column.map({cell: _as_text(cell) for cell in column.unique().tolist()})
        for name, column in table.items()
        if not pd.api.types.is_numeric_dtype(column)
        and not pd.api.types.is_datetime64_any_dtype(column)
    }
    safe = table.copy(deep=False)
    for name, cells in texts.items():
        safe[name] = cells
    safe = safe.rename(columns=_as_text)
    safe.to_csv(path, index=False, date_format="%Y-%m-%dT%H:%M:%SZ")


def _as_text(cell: object) -> object:
    """Return a cell that no spreadsheet evaluates."""
    if not isinstance(cell, str):
        return cell
    formula = cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)
    text = cell.replace("\r", "\\r")  # unquoted it would start a new row
    return f"'{text}" if formula else text

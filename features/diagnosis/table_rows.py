"""Rows of the CSV tables of a job's folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from forewarn.features.errors import InputError

__all__ = ["table_rows"]


def table_rows(
    text: str, name: str, columns: Sequence[str], error: type[InputError]
) -> Iterator[tuple[dict[str, str], str]]:
    r"""Yield the cells of each row by column, and where the row stands, for error messages.

    Parameters
    ----------
    text : str
    name : str
        File name for error messages.
    columns : sequence of str
        Columns that the table needs; others are allowed.
    error : type
        Class of the errors.

    Raises
    ------
    InputError
        Of the class `error`, if a column is missing or the text is no CSV table.

    Examples
    --------
    >>> list(table_rows("rank\n3\n", "a.csv", ["rank"], InputError))
    [({'rank': '3'}, 'a.csv: line 2')]
    """
    reader = csv.DictReader(io.StringIO(text), restval="")
    for column in columns:
        if column not in (reader.fieldnames or ()):
            raise error(f"{name}: column `{column}` is missing.")
    try:
        for cells in reader:
            yield cells, f"{name}: line {reader.line_num}"
    except csv.Error as reason:
        raise error(f"{name}: is not a valid CSV table ({reason}).") from None

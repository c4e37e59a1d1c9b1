"""Tables as sources of records."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from forewarn.features.records.file_check import Columns

__all__ = ["TableSource"]


@dataclass(frozen=True)
class TableSource:
    """A table as a file of records."""

    name: str
    table: pa.Table

    @property
    def n_rows(self) -> int:
        return len(self.table)

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def columns(self) -> AbstractContextManager[Columns]:
        return nullcontext(self.table)

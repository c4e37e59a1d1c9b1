"""A landing whose process ends before a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from forewarn.pipelines.ingest.landing_folder import LandingFolder

__all__ = ["killed_without"]


class _KilledError(Exception):
    """Stands for the end of a process."""


@contextmanager
def killed_without(writes: Iterator[int]) -> Iterator[None]:
    """End what is done inside at the first write for which `writes` has no item left."""
    write = LandingFolder.write

    def counted(self: LandingFolder, path: Path, table: pa.Table) -> None:
        if next(writes, None) is None:
            raise _KilledError
        write(self, path, table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LandingFolder, "write", counted)
        try:
            yield
        except _KilledError:
            return

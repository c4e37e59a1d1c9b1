"""A landing whose process is killed before a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from forewarn.pipelines.ingest.landing_folder import LandingFolder

__all__ = ["killed_without"]


class _KilledError(Exception):
    """Simulates the end of a process."""


@contextmanager
def killed_without(writes: Iterator[int]) -> Iterator[None]:
    """Abort the block at the first write for which `writes` is exhausted."""
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

"""Parallel reading of dumps in processes that import little and therefore start fast."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from forewarn.features.diagnosis.flight_recorder_dump import (
    BrokenDumpError,
    FlightRecorderDump,
    parse_dump,
)
from forewarn.features.diagnosis.plain_pickle import ForbiddenOpcodeError
from forewarn.features.errors import InputError
from forewarn.pipelines.runtime.progress import progress_bar

__all__ = ["FlightError", "read_dumps"]

_MIN_PARALLEL_BYTES = 64 * 2**20  # total size below which processes cost more than they save


class FlightError(InputError):
    """Dumps that cannot be used."""


def read_dumps(files: Sequence[Path]) -> Iterator[FlightRecorderDump | str]:
    """Yield the dump of each file, or the reason why it cannot be used; use one process per core.

    Raises
    ------
    FlightError
        If a file is a pickle that contains more than plain values.
    """
    size = sum(file.stat().st_size for file in files)
    workers = min(len(os.sched_getaffinity(0)), len(files))
    if size < _MIN_PARALLEL_BYTES or workers < 2:
        yield from map(_read, files)
        return
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        progress_bar(len(files), "flight recorder", "dump") as bar,
    ):
        for result in pool.map(_read, files, chunksize=8):
            yield result
            bar.update()


def _read(file: Path) -> FlightRecorderDump | str:
    """Read one dump; forbidden content is an error, broken content a reason."""
    try:
        return parse_dump(file.read_bytes())
    except ForbiddenOpcodeError as error:
        raise FlightError(f"{file}: {error} of the pickle, expected plain values only.") from None
    except BrokenDumpError as error:
        return str(error)

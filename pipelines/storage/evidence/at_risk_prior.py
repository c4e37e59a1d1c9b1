"""At-risk lists as a prior for faulty machines of a running task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from forewarn.features.errors import InputError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.parquet_files import open_parquet

__all__ = ["Prior", "PriorError", "list_weights"]

_COLUMNS = ("machine_id", "flagged", "window_end", "valid_until")
_MAX_WEIGHT, _MIN_WEIGHT = 4.0, 0.5


class PriorError(InputError):
    """Invalid at-risk lists."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Flagged machines with the span, in nanoseconds, in which their list is valid."""

    machine: tuple[str, ...]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path) -> Prior:
        """Read all lists of a folder (formats.md, section 4); a note names each invalid list.

        Raises
        ------
        PriorError
            If there is no list, or none can be read.
        """
        paths = matching_paths(folder, "date=*/at_risk.parquet")
        if not paths:
            raise PriorError(f"{folder}: holds no list, expected date=YYYY-MM-DD/at_risk.parquet.")
        parts, problems = [], list[InputError]()
        for path in paths:
            try:
                parts.append(_read(path))
            except InputError as error:
                problems.append(error)
        if not parts:
            raise problems[0]
        for problem in problems:
            note(f"skipped list: {problem}")
        table = pd.concat(parts)
        return cls(
            tuple(table["machine_id"]),
            table["window_end"].to_numpy(),
            table["valid_until"].to_numpy(),
        )

    def listed(self, machines: Sequence[str], moment: int) -> npt.NDArray[np.bool_]:
        """Tell which machines have a GPU on a list that is valid at a moment."""
        valid = (self.start <= moment) & (moment <= self.end)
        names = {name for name, is_valid in zip(self.machine, valid, strict=True) if is_valid}
        return np.array([name in names for name in machines], dtype=bool)

    def weights(self, machines: Sequence[str], moment: int) -> npt.NDArray[np.float64]:
        """Return `list_weights` of the machines of a task."""
        return list_weights(self.listed(machines, moment))


def _read(path: Path) -> pd.DataFrame:
    """Read the flagged machines of one list."""
    file = open_parquet(path)
    missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
    if missing:
        raise PriorError(f"{path}: column `{missing[0]}` is missing.")
    for name in ("window_end", "valid_until"):
        kind = file.schema_arrow.field(name).type
        if not pa.types.is_timestamp(kind):
            raise PriorError(f"{path}: column `{name}` is {kind}, expected a timestamp.")
    try:
        return _flagged(file.read(columns=list(_COLUMNS)))
    except (pa.ArrowException, ValueError, TypeError, OSError) as error:
        detail = (str(error).splitlines() or [""])[0][:100]
        raise PriorError(f"{path}: is not a valid at-risk list ({detail}).") from None


def _flagged(table: pa.Table) -> pd.DataFrame:
    rows: pd.DataFrame = table.to_pandas()
    rows = rows[rows["flagged"].astype(bool) & rows["machine_id"].notna()].copy()
    for name in ("window_end", "valid_until"):
        rows[name] = pd.to_datetime(rows[name], utc=True).dt.as_unit("ns").astype("int64")
    return rows


def list_weights(listed: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the weight of the false alarm rate of each machine; the mean weight is 1.

    Listed machines get a higher rate and the others a lower one, so that even a wrong list does not
    change the false alarms of a task (weighted hypothesis testing, Genovese, Roeder and Wasserman
    2006).

    Examples
    --------
    >>> list_weights(np.array([True, False, False, False])).tolist()
    [2.5, 0.5, 0.5, 0.5]
    """
    n, m = len(listed), int(listed.sum())
    if m in (0, n):
        return np.ones(n)
    more = min(_MAX_WEIGHT, (n - _MIN_WEIGHT * (n - m)) / m)
    return np.where(listed, more, (n - more * m) / (n - m))

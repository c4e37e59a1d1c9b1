"""Windows of the machines of a task, stored so that overlapping windows share samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array, Int64Array

__all__ = ["Windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows as rows of one table; overlapping windows share rows.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_machines), float32
    first : ndarray of shape (n_windows,), int64
        First row of each window; ascending.
    n_places : int
        Number of consecutive rows per window.
    """

    rows: Float32Array
    first: Int64Array
    n_places: int

    @staticmethod
    def from_values(values: Float32Array) -> Windows:
        """Return windows that share nothing, from an array (n_windows, n_places, n_machines)."""
        n_windows, n_places, n_machines = values.shape
        rows = np.ascontiguousarray(values).reshape(-1, n_machines)
        return Windows(rows, np.arange(n_windows, dtype=np.int64) * n_places, n_places)

    @staticmethod
    def from_series(series: Float32Array, length: int, positions: Int64Array) -> Windows:
        """Return the windows that begin at some ticks of a series.

        Parameters
        ----------
        series : ndarray of shape (n_parts, n_machines, n_ticks), float32
        length : int
            Ticks.
        positions : ndarray of shape (n_windows,), int64
            Ascending.
        """
        n_parts, n_machines, n_ticks = series.shape
        begin = int(positions[0]) if len(positions) else n_ticks
        ticks = series[:, :, begin:].transpose(2, 0, 1)
        rows = np.ascontiguousarray(ticks).reshape(-1, n_machines)
        return Windows(rows, (positions - begin) * n_parts, length * n_parts)

    def ends(self, n_places: int) -> Windows:
        """Return the last places of each window."""
        return Windows(self.rows, self.first + self.n_places - n_places, n_places)

    def __len__(self) -> int:
        return len(self.first)

    def apart(self) -> Float32Array:
        """Return each window separately, shape (n_windows, n_places, n_machines).

        Examples
        --------
        >>> series = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
        >>> Windows.from_series(series, 2, np.array([0, 2])).apart()[:, :, 0].tolist()
        [[0.0, 1.0], [2.0, 3.0]]
        """
        windows: Float32Array = self.rows[self.first[:, None] + np.arange(self.n_places)]
        return windows

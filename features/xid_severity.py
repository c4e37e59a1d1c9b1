"""Severity of arrays of Xids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.xid_catalogue import APPLICATION, DEGRADED, DEGRADED_XIDS, FATAL, FATAL_XIDS

__all__ = ["GRADED_CODES", "severity", "severity_of_codes"]

GRADED_CODES = ("xid", "gpu_error")
"""Columns of event codes with a known severity."""

_MAX_CODE = 1023


def _table() -> npt.NDArray[np.float32]:
    table = np.full(_MAX_CODE + 1, APPLICATION, dtype=np.float32)
    table[list(DEGRADED_XIDS)] = DEGRADED
    table[list(FATAL_XIDS)] = FATAL
    table[0] = 0
    return table


_SEVERITY = _table()


def severity(codes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the severity of each Xid: 0 none, 1 application, 2 degraded hardware, 3 fatal.

    Parameters
    ----------
    codes : ndarray
        Xid numbers; a code that is not in the table counts as 1.

    Examples
    --------
    >>> severity(np.array([0, 13, 63, 79, 9999], np.float32)).tolist()
    [0.0, 1.0, 2.0, 3.0, 1.0]
    """
    known = np.where((codes >= 0) & (codes <= _MAX_CODE), codes, 13)
    return _SEVERITY[known.astype(np.int64)]


def severity_of_codes(column: str, codes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the severity of each code of a column of GRADED_CODES.

    `gpu_error` is a severity itself: vendors without Xids have no common codes.

    Examples
    --------
    >>> severity_of_codes("gpu_error", np.array([0, 2], np.float32)).tolist()
    [0.0, 2.0]
    """
    return severity(codes) if column == "xid" else codes

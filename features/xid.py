"""How grave an Xid is: a table of our own, from NVIDIA's catalogue and the practice of eight tools.

Where they disagree, the code counts as grave only if NVIDIA asks for a reset, a restart of the
machine or support at once, or if most tools take the GPU out for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["APPLICATION", "DEGRADED", "FATAL", "severity"]

APPLICATION, DEGRADED, FATAL = 1, 2, 3

# The GPU or its memory, link or firmware does not work until it is reset or replaced.
_FATAL = (
    46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158, 167,
    171, 172,
)  # fmt: skip
# It works, but something in the hardware was repaired, retired or is wearing out.
_DEGRADED = (
    61, 63, 92, 93, 94, 121, 123, 137, 144, 145, 146, 147, 148, 149, 150, 154, 157, 159, 160, 161,
    168,
)  # fmt: skip

_HIGHEST = 1023


def _table() -> npt.NDArray[np.float32]:
    table = np.full(_HIGHEST + 1, APPLICATION, dtype=np.float32)
    table[list(_DEGRADED)] = DEGRADED
    table[list(_FATAL)] = FATAL
    table[0] = 0
    return table


_SEVERITY = _table()


def severity(codes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return how grave each Xid is: 0 none, 1 application, 2 degraded hardware, 3 fatal.

    Parameters
    ----------
    codes : ndarray
        Xid numbers; a code that the table does not have counts as 1.

    Examples
    --------
    >>> severity(np.array([0, 13, 63, 79, 9999], np.float32)).tolist()
    [0.0, 1.0, 2.0, 3.0, 1.0]
    """
    known = np.where((codes >= 0) & (codes <= _HIGHEST), codes, 13)
    return _SEVERITY[known.astype(np.int64)]

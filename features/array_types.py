"""Types of numpy arrays, named by their element type."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BoolArray",
    "Float32Array",
    "Float64Array",
    "FloatingArray",
    "Int8Array",
    "Int32Array",
    "Int64Array",
    "SignedIntArray",
    "UInt8Array",
    "UInt64Array",
]

BoolArray: TypeAlias = npt.NDArray[np.bool_]
Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
FloatingArray: TypeAlias = npt.NDArray[np.floating]
Int8Array: TypeAlias = npt.NDArray[np.int8]
Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
SignedIntArray: TypeAlias = npt.NDArray[np.signedinteger]
UInt8Array: TypeAlias = npt.NDArray[np.uint8]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]

"""Paths as pyarrow is told them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["arrow_path"]


def arrow_path(path: Path) -> Path:
    """Return the path of a local file in a form that pyarrow does not take for a URI.

    To pyarrow `run:1/part.parquet` is a URI of the scheme `run`; what begins with a slash is none.

    Examples
    --------
    >>> arrow_path(Path("run:1/part.parquet")).is_absolute()
    True
    """
    return path.absolute()

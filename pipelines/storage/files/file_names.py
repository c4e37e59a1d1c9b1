"""Safe file names and paths for names that users or hosts choose."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

__all__ = ["arrow_path", "safe_file_name"]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
_MAX_READABLE_LENGTH = 40  # characters of the original name that are kept


def safe_file_name(name: str) -> str:
    """Return a file name that is unique to a name and cannot leave its folder.

    Plain names are unchanged. In other names each character except letters, digits, `_`, `.` and
    `-` becomes `_`, and `~` with a digest is appended. Plain names contain no `~`.

    Examples
    --------
    >>> safe_file_name("job-7"), safe_file_name("a job")
    ('job-7', 'a_job~cec0dd209335167a990350dc5dbe04b7')
    >>> safe_file_name("..") == safe_file_name("é")
    False
    """
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", name[:_MAX_READABLE_LENGTH]).lstrip("._-") or "x"
    return f"{readable}~{digest}"


def arrow_path(path: Path) -> Path:
    """Return the path of a local file in a form that pyarrow does not read as a URI.

    pyarrow reads `run:1/part.parquet` as a URI of the scheme `run`, but never an absolute path.

    Examples
    --------
    >>> arrow_path(Path("run:1/part.parquet")).is_absolute()
    True
    """
    return path.absolute()

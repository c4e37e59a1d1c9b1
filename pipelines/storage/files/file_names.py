"""Names that others choose (a task, a machine, a folder) as file systems and pyarrow take them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

__all__ = ["arrow_path", "safe_file_name"]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
_MAX_READABLE_LENGTH = 40  # characters of another name that stay, for people


def safe_file_name(name: str) -> str:
    """Return a file name that no other name gives, and that stays in its folder.

    A plain name stays as it is. In any other, what is no letter, digit, `_`, `.` or `-` becomes
    `_`, and a digest follows; `~` stands in no plain name.

    Examples
    --------
    >>> file_name("job-7"), file_name("a job")
    ('job-7', 'a_job~cec0dd209335167a990350dc5dbe04b7')
    >>> file_name("..") == file_name("é")
    False
    """
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", name[:_MAX_READABLE_LENGTH]).lstrip("._-") or "x"
    return f"{readable}~{digest}"


def arrow_path(path: Path) -> Path:
    """Return the path of a local file in a form that pyarrow does not read as a URI.

    To pyarrow `run:1/part.parquet` is a URI of the scheme `run`; a path that begins with a slash
    is none.

    Examples
    --------
    >>> arrow_path(Path("run:1/part.parquet")).is_absolute()
    True
    """
    return path.absolute()

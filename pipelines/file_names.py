"""File names made of names that others chose: of a task, a machine, a GPU."""

from __future__ import annotations

import hashlib
import re

__all__ = ["file_name"]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
_READABLE = 40  # characters of another name that stay, for people


def file_name(name: str) -> str:
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
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", name[:_READABLE]).lstrip("._-") or "x"
    return f"{readable}~{digest}"

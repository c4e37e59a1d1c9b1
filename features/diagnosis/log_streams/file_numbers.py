"""Numbers in names of files, which are ranks only where nothing speaks against it."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, replace
from functools import lru_cache

from forewarn.features.diagnosis.host_names import host_key
from forewarn.features.diagnosis.log_streams.container_files import (
    ContainerFile,
    container_file,
    is_docker_file,
)

__all__ = [
    "FileNumber",
    "file_number",
    "is_kernel_log",
    "is_worker_error",
    "launcher_folder",
    "machine_of_path",
]

_TREE = re.compile(r"(?:^|/)attempt_(\d{1,6})/(\d{1,4})/[^/]+$")
_SAID_RANK = re.compile(r"(?i)rank[._-]?(\d{1,7})(?!\d)")
_NUMBER = re.compile(r"\d+")
_NO_RANK = re.compile(r"(?i)(?:node|host|slurm|job|gpu|train|run|attempt)[._-]?$")
_MACHINE = re.compile(r"(?i)^(?:[a-z][\w-]*[-_])?(?:node|host)[\w.]*-?\d+$")
_KERNEL = re.compile(r"(?i)^(?:kernel|dmesg|messages|syslog|journal|events)[^/]*$")
_SUFFIX = re.compile(r"(?i)\.(?:log|txt|out|err|json)(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class FileNumber:
    """The number of a file's name that may be a rank.

    Attributes
    ----------
    value : int or None
    kind : str
        `local` in torchrun's tree, `rank` after that word, `number` otherwise, `none` for a number
        that cannot be a rank.
    family : str
        The name with `#` for the number.
    why : str
        For `none`.
    attempt : int
        Attempt in torchrun's tree.
    """

    value: int | None
    kind: str
    family: str
    why: str = ""
    attempt: int = 0

    def agrees(self, rank: int) -> bool:
        """Return whether the name says a rank that the text says too.

        A first pod or worker is often number 0 and has several ranks, of which only rank 0 speaks.
        """
        if self.kind == "local":
            return True
        is_bare = self.kind == "rank" or self.family.endswith("/#")
        return self.kind != "none" and self.value == rank and (is_bare or rank > 0)


def launcher_folder(name: str) -> str:
    """Return the folder of torchrun's tree that a file is in; each launcher has its own.

    Examples
    --------
    >>> launcher_folder("logs/n1/attempt_0/3/stdout.log")
    'logs/n1/'
    """
    return name.rpartition("attempt_")[0]


@lru_cache(maxsize=2**14)  # asked for in turn by those who learn ranks and machines
def file_number(name: str) -> FileNumber:
    """Read the number of a file's name.

    Examples
    --------
    >>> file_number("logs/rank.3/stdout").value, file_number("slurm-812345.out").kind
    (3, 'none')
    """
    if tree := _TREE.search(name):
        family = name[: tree.start(2)] + "#"
        return FileNumber(int(tree[2]), "local", family, attempt=int(tree[1]))
    if word_rank := _SAID_RANK.search(name):
        return FileNumber(
            int(word_rank[1]), "rank", f"{name[: word_rank.start(1)]}#{name[word_rank.end(1) :]}"
        )
    if container := container_file(name):
        return _pod_number(container)
    folder, _, last = name.rpartition("/")
    stem = _SUFFIX.sub("", last)
    if is_docker_file(name):
        return FileNumber(None, "none", name, "the name is the ID of a container")
    numbers = list(_NUMBER.finditer(stem))
    if not numbers:
        return FileNumber(None, "none", name)
    number = numbers[-1]
    why = _why_no_rank(stem, number)
    family = f"{folder}/{stem[: number.start()]}#{stem[number.end() :]}"
    return FileNumber(
        int(number[0]) if len(number[0]) < 8 else None, "none" if why else "number", family, why
    )


def _pod_number(container: ContainerFile) -> FileNumber:
    """Return the number of a pod, as of a file that is named after the pod.

    The other containers of the pod have it, too, so that only one that says its rank is believed.
    """
    number = file_number(f"{container.pod}.log")
    folder = f"{container.container}/{container.namespace}_"
    return replace(number, family=folder + number.family.removeprefix("/"))


def _why_no_rank(stem: str, number: re.Match[str]) -> str:
    """Return why a number cannot be a rank, or an empty string."""
    before = stem[: number.start()]
    if word := _NO_RANK.search(before):
        return f"the number after {word[0].rstrip('._-')!r} is no rank"
    if len(number[0]) >= 6 or re.search(r"\d{8}[._-]?$", before):
        return "the number is a date, a time or the number of a job"
    return ""


def is_kernel_log(name: str) -> bool:
    """Return whether a file is a machine's kernel log or a list of events."""
    return _KERNEL.match(name.rpartition("/")[2]) is not None


def is_worker_error(name: str) -> bool:
    """Return whether a file is the exception of a torchrun worker rather than a log."""
    return name.rpartition("/")[2] == "error.json"


def machine_of_path(name: str, keys: Container[str]) -> str | None:
    """Return the machine that a folder or a file is named after.

    Parameters
    ----------
    name : str
    keys : container of str
        Keys of machines known from elsewhere, as `host_key` returns them.

    Examples
    --------
    >>> machine_of_path("logs/node-3/dmesg.log", []), machine_of_path("logs/a.log", ["a"])
    ('node-3', 'a')
    """
    *folders, last = name.split("/")
    container = container_file(name)
    parts = [*folders, container.pod if container else _SUFFIX.sub("", last)]
    for part in reversed(parts):
        if host_key(part) in keys or _MACHINE.match(part):
            return part
    return None

"""Assigns machines to tasks, for metrics without a task label."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.errors import InputError
from forewarn.pipelines.storage.files.regular_files import require_all_regular

__all__ = ["Membership", "MembershipError"]


class MembershipError(InputError):
    """The table of tasks cannot be used."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Task and group of every machine that is assigned to a task."""

    task: dict[str, str]
    group: dict[str, str]

    @classmethod
    def open(cls, path: Path) -> Membership:
        """Read a CSV with `task`, `machine` and optionally `group`, as a scheduler can write it.

        Raises
        ------
        MembershipError
            If it cannot be read, lacks a column, or lists a machine twice with different values.
        """
        members = cls({}, {})
        for line, row in _rows(path):
            task, machine, group = (row.get(name, "") for name in ("task", "machine", "group"))
            if not task or not machine:
                raise MembershipError(f"{path}: line {line} lacks a task or a machine.")
            known = (members.task.get(machine, task), members.group.get(machine, group))
            if known != (task, group):
                raise MembershipError(
                    f"{path}: line {line}: machine {machine!r} occurs twice, before with task and "
                    f"group {known}; expected each once."
                )
            members.task[machine], members.group[machine] = task, group
        return members


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells of every row."""
    require_all_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[cell.strip() for cell in line] for line in csv.reader(file)]
    except (OSError, ValueError, csv.Error) as error:
        detail = str(error).splitlines()[0][:100]
        raise MembershipError(f"{path}: cannot be read as CSV ({detail}).") from None
    head = lines[0] if lines else []
    for name in ("task", "machine"):
        if name not in head:
            raise MembershipError(
                f"{path}: column `{name}` is missing, found {', '.join(head) or 'nothing'}."
            )
    for number, line in enumerate(lines[1:], 2):
        if line and len(line) != len(head):
            raise MembershipError(
                f"{path}: line {number} has {len(line)} cells, expected {len(head)} as the header."
            )
        if line:
            yield number, dict(zip(head, line, strict=True))

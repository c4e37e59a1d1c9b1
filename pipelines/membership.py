"""Which machine works on which task, where the metrics themselves do not say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forewarn.features.errors import InputError

__all__ = ["Membership", "MembershipError"]


class MembershipError(InputError):
    """A table of tasks that cannot be used."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Task and group of every machine that works on one."""

    task: dict[str, str]
    group: dict[str, str]

    @classmethod
    def open(cls, path: Path) -> Membership:
        """Read a CSV with `task`, `machine` and perhaps `group`: what a scheduler can write.

        Raises
        ------
        MembershipError
            If it cannot be read, lacks a column, or a machine is in two tasks.
        """
        try:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as error:
            raise MembershipError(f"{path}: cannot be read as CSV ({str(error)[:100]}).") from None
        for name in ("task", "machine"):
            if name not in table.columns:
                raise MembershipError(
                    f"{path}: column `{name}` is missing, found {', '.join(table.columns)}."
                )
        table = table.drop_duplicates()
        twice = table["machine"][table["machine"].duplicated()]
        if len(twice):
            raise MembershipError(
                f"{path}: machine {twice.iloc[0]!r} is there twice, expected each in one task."
            )
        groups = table["group"] if "group" in table.columns else [""] * len(table)
        machines = table["machine"]
        return cls(
            dict(zip(machines, table["task"], strict=True)),
            dict(zip(machines, groups, strict=True)),
        )

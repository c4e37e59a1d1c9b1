"""Inspections of machines that earlier plans drew at random, and what they found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pandas as pd
from pydantic import AwareDatetime, BaseModel, ValidationError

from forewarn.features.errors import InputError
from forewarn.features.inspection.check_table import CheckCategory, CheckTable
from forewarn.pipelines.storage.files.regular_files import matching_paths

__all__ = ["BAD_STATUSES", "DrawnInspections", "read_drawn"]

BAD_STATUSES: Final = ("failed", "timeout")
_DAYS: Final = 2.0  # later, a machine may have been inspected for another reason
_NO_RESULT: Final = ("not_run", "blind")


@dataclass(frozen=True, slots=True)
class DrawnInspections:
    """Inspections of machines drawn at random.

    Attributes
    ----------
    machines : int
        Inspected ones; a machine counts each time that it was drawn.
    defective : int
        Those with a defect.
    by_category : mapping of str to (int, int)
        Those with a defect, and all whose checks of the category ran.
    """

    machines: int = 0
    defective: int = 0
    by_category: Mapping[CheckCategory, tuple[int, int]] = field(default_factory=dict)


class _Line(BaseModel):
    machine: str
    is_random: bool


class _Plan(BaseModel):
    at: AwareDatetime
    lines: list[_Line]


def read_drawn(
    plans: Path,
    results: pd.DataFrame,
    checks: Mapping[str, CheckTable],
    *,
    until: pd.Timestamp,
) -> DrawnInspections:
    """Match the machines that plans drew at random with their results of the next two days.

    Parameters
    ----------
    plans : Path
        Folder of `*.json`, each as `inspect plan --json` prints it.
    results : DataFrame
        Of `read_result_frame`.
    checks : mapping of str to CheckTable
        A failure of a check of level `note` is no defect.
    until : Timestamp
        Later plans do not count.

    Raises
    ------
    InputError
        If a file is no plan.
    """
    ran = results[results["check"].isin(list(checks)) & ~results["status"].isin(_NO_RESULT)]
    by_machine = dict(list(ran.groupby("machine")))
    machines = defective = 0
    counts: dict[CheckCategory, tuple[int, int]] = {}
    for machine, at in _draws(plans):
        rows = by_machine.get(machine)
        if rows is None or at >= until:
            continue
        rows = rows[rows["timestamp"].between(at, at + pd.Timedelta(days=_DAYS))]
        bad = _bad_categories(rows, checks)
        for name in {checks[check].category for check in rows["check"]}:
            hits, total = counts.get(name, (0, 0))
            counts[name] = (hits + (name in bad), total + 1)
        machines += not rows.empty
        defective += bool(bad)
    return DrawnInspections(machines, defective, counts)


def _bad_categories(rows: pd.DataFrame, checks: Mapping[str, CheckTable]) -> set[CheckCategory]:
    names = rows.loc[rows["status"].isin(BAD_STATUSES), "check"]
    return {checks[name].category for name in names if checks[name].level != "note"}


def _draws(plans: Path) -> list[tuple[str, pd.Timestamp]]:
    draws = []
    for path in matching_paths(plans, "*.json"):
        try:
            plan = _Plan.model_validate_json(path.read_bytes())
        except ValidationError as error:
            detail = error.errors()[0]
            key = ".".join(map(str, detail["loc"])) or "the content"
            raise InputError(
                f"{path}: {key}: {detail['msg']}, expected a plan of `inspect plan --json`."
            ) from None
        draws += [(line.machine, pd.Timestamp(plan.at)) for line in plan.lines if line.is_random]
    return draws

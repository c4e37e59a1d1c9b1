"""Answers about daily lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from forewarn.pipelines.storage.evidence.daily_lists import DailyList

__all__ = ["ListAnswer", "ListedGpu", "as_number", "as_text"]

_REASON_SEPARATOR: Final = " | "  # as `forewarn score` writes


def as_text(value: object) -> str | None:
    """Return a value of a row as text; None for an empty one."""
    return None if value is None or value == "" else str(value)


def as_number(value: object) -> float | None:
    """Return a value of a row as a finite number; None for anything else."""
    if not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        return None
    return float(value)


def _iso(value: object) -> str | None:
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ListedGpu(_Answer):
    """A row of a list."""

    rank: int
    gpu_serial: str
    machine: str | None
    slot: str | None
    probability: float | None = Field(description="Null where rules made the list.")
    flagged: bool
    action: str = Field(description="`avoid`, `check`, `move` or `drain`; empty without costs.")
    reasons: tuple[str, ...] = Field(description="Strongest first.")
    note: str
    window_end: str | None
    valid_until: str | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return a row of the file in the form of the API."""
        reasons = str(row.get("reasons") or "")
        return cls(
            rank=row["rank"],
            gpu_serial=str(row["gpu_serial"]),
            machine=as_text(row.get("machine_id")),
            slot=as_text(row.get("slot")),
            probability=as_number(row.get("probability")),
            flagged=bool(row["flagged"]),
            action=str(row.get("action") or ""),
            reasons=tuple(reasons.split(_REASON_SEPARATOR)) if reasons else (),
            note=str(row.get("note") or ""),
            window_end=_iso(row.get("window_end")),
            valid_until=_iso(row.get("valid_until")),
        )


class ListAnswer(_Answer):
    """A page of a daily list, highest risk first."""

    date: str
    at: str | None = Field(description="Time of the list.")
    model_version: str
    hindsight: bool
    scored: int
    flagged: int
    unscored: dict[str, int] = Field(description="GPUs that are not scored, by reason.")
    sentences: tuple[str, ...] = Field(description="How GPUs were flagged.")
    calibration: dict[str, Any] | None = Field(description="Of past lists, as monitored.")
    gpus: tuple[ListedGpu, ...]
    next: int | None = Field(description="`after` of the next page; null on the last one.")

    @classmethod
    def from_list(cls, daily: DailyList, *, after: int, limit: int, flagged: bool) -> Self:
        """Return the rows with a rank above `after`."""
        rows = daily.rows(after, limit, flagged=flagged)
        summary = daily.summary
        return cls(
            date=daily.date,
            at=as_text(summary.get("at")),
            model_version=str(summary.get("model_version") or ""),
            hindsight=bool(summary.get("hindsight")),
            scored=daily.table.num_rows,
            flagged=daily.n_flagged,
            unscored=dict(Counter(row.get("reason") or "" for row in daily.unscored)),
            sentences=tuple(map(str, summary.get("sentences") or ())),
            calibration=summary.get("promise"),
            gpus=tuple(map(ListedGpu.from_row, rows)),
            next=rows[-1]["rank"] if len(rows) == limit else None,
        )

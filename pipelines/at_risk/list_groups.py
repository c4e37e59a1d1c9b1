"""Rows of an at-risk list, grouped by machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd
from markupsafe import Markup

from forewarn.pipelines.at_risk.channel_charts import Chart
from forewarn.pipelines.at_risk.first_checks import Check, first_checks
from forewarn.pipelines.at_risk.flagging_criteria import ACTION_WORDS
from forewarn.pipelines.at_risk.reasons import REASON_SEPARATOR
from forewarn.pipelines.rendering.templates import finite_number, moment, visible

__all__ = [
    "EXPECTED_REASONS",
    "FlaggedGpu",
    "FlaggedMachine",
    "UnscoredGroup",
    "exclude_replaced",
    "flagged_machines",
    "group_unscored",
    "split_reasons",
]

EXPECTED_REASONS = (
    "failed",
    "too new",
)  # reasons for exclusion other than missing data
_ENSEMBLES = {
    "parallel+cascade": "flagged by both ensembles",
    "parallel": "flagged by the parallel ensemble",
    "cascade": "flagged by the cascade",
}
Row = Mapping[Any, Any]
_MAX_SHOWN_SERIALS = 8  # shown before "and N more"; a usual machine has eight GPUs


@dataclass(frozen=True, slots=True)
class ChartImage:
    """Chart of a channel of a flagged GPU."""

    title: str
    limits: str
    picture: Markup


@dataclass(frozen=True, slots=True)
class FlaggedGpu:
    """A flagged GPU, formatted for display."""

    serial: str
    slot: str
    rank: str
    probability: float | None
    agreement: str
    reasons: tuple[str, ...]
    valid_until: str
    action: str = ""
    note: str = ""
    drawings: tuple[ChartImage, ...] = ()


@dataclass(frozen=True, slots=True)
class FlaggedMachine:
    """A machine with flagged GPUs."""

    name: str  # empty: unknown
    gpus: tuple[FlaggedGpu, ...]
    n_flagged: int
    expected: float | None  # expected failures among its flagged GPUs; None without probabilities
    n_gpus: int  # GPUs of this machine, scored or not, without those that were replaced
    n_without_data: int
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class UnscoredGroup:
    """Unscored GPUs of one machine with the same reason."""

    reason: str
    machine: str  # empty: unknown
    serials: tuple[str, ...]
    n: int
    n_gpus: int  # GPUs of this machine, scored or not, without those that were replaced
    note: str


def flagged_machines(
    table: pd.DataFrame,
    unscored: pd.DataFrame,
    charts: Mapping[str, Sequence[Chart]] = MappingProxyType({}),
) -> list[FlaggedMachine]:
    """Group the flagged GPUs by machine, highest risk first.

    Machines are ordered by the expected number of failures among their flagged GPUs. It is the sum
    of their probabilities, whether or not the failures are independent. Without probabilities the
    best rank decides. GPUs without a machine form their own group.

    Parameters
    ----------
    table : DataFrame
        The list sorted by rank, with all columns of `at_risk.csv`; machines are strings.
    unscored : DataFrame
        Unscored GPUs: `gpu_serial`, `machine_id` and `reason`.
    charts : mapping of str to sequence of Chart, optional
        By serial.
    """
    unscored = exclude_replaced(unscored)
    n_gpus = _gpus_by_machine(table, unscored)
    blind = (
        unscored.loc[~unscored["reason"].isin(EXPECTED_REASONS), "machine_id"]
        .value_counts()
        .to_dict()
    )
    rows_of: dict[tuple[str, str], list[Row]] = {}
    for row in table[table["flagged"]].to_dict("records"):
        machine = row["machine_id"]
        known = isinstance(machine, str)
        whose = (machine, "") if known else ("", str(row["gpu_serial"]))
        rows_of.setdefault(whose, []).append(row)
    machines = [
        _flagged_machine(rows, name, n_gpus, blind, charts) for (name, _), rows in rows_of.items()
    ]
    return sorted(
        machines, key=lambda machine: -(machine.expected or 0.0)
    )  # stable sort: ties keep the order of ranks


def exclude_replaced(unscored: pd.DataFrame) -> pd.DataFrame:
    """Return the unscored GPUs that were not replaced by another GPU."""
    return unscored[~unscored["replaced"]] if "replaced" in unscored else unscored


def _gpus_by_machine(table: pd.DataFrame, unscored: pd.DataFrame) -> dict[Any, int]:
    """Count the known GPUs of each machine, scored or not."""
    machines = pd.concat([table["machine_id"], unscored["machine_id"]]).dropna()
    return {name: int(n) for name, n in machines.value_counts().items()}


def _flagged_machine(
    rows: Sequence[Row],
    name: str,
    n_gpus: Mapping[Any, int],
    blind: Mapping[Any, int],
    charts: Mapping[str, Sequence[Chart]],
) -> FlaggedMachine:
    """Build a machine from its flagged rows."""
    gpus = tuple(_flagged_gpu(row, charts) for row in rows)
    known = [gpu.probability for gpu in gpus if gpu.probability is not None]
    return FlaggedMachine(
        name=visible(name),
        gpus=gpus,
        n_flagged=len(gpus),
        expected=sum(known) if known else None,
        n_gpus=n_gpus.get(name, len(gpus)),
        n_without_data=blind.get(name, 0),
        checks=first_checks(reason for gpu in gpus for reason in gpu.reasons),
    )


def _flagged_gpu(row: Row, charts: Mapping[str, Sequence[Chart]]) -> FlaggedGpu:
    """Format a row for display."""
    rank, slot = finite_number(row["rank"]), finite_number(row["slot"])
    by = visible(row["flagged_by"])
    return FlaggedGpu(
        serial=visible(row["gpu_serial"]),
        slot="" if slot is None else f"{slot:.0f}",
        rank="" if rank is None else f"{rank:.0f}",
        probability=finite_number(row["probability"]),
        agreement=_ENSEMBLES.get(by, by and f"flagged by {by}"),
        reasons=split_reasons(row["reasons"]),
        valid_until=moment(row["valid_until"], year=False),
        note=visible(row.get("note")),
        action=ACTION_WORDS.get(visible(row.get("action")), ""),
        drawings=tuple(map(_chart_image, charts.get(str(row["gpu_serial"]), ()))),
    )


def _chart_image(chart: Chart) -> ChartImage:
    from forewarn.pipelines.at_risk.channel_chart_svg import (
        draw_chart,  # slow to import, and a list may have no charts
    )

    return ChartImage(chart.title, chart.limits, draw_chart(chart))


def split_reasons(reasons: object) -> tuple[str, ...]:
    """Split the reasons of one GPU, strongest first."""
    parts = visible(reasons, limit=2000).split(REASON_SEPARATOR.strip())
    return tuple(visible(part.strip(), limit=240) for part in parts if part.strip())


def group_unscored(table: pd.DataFrame, unscored: pd.DataFrame) -> list[UnscoredGroup]:
    """Group unscored GPUs by reason and machine, most urgent first.

    Silent GPUs in machines that otherwise report come first, because a GPU that fell off the bus
    looks like that. Machines that are silent as a whole follow, then gaps, new and failed GPUs.
    """
    n_gpus = _gpus_by_machine(table, exclude_replaced(unscored))
    reporting = set(table["machine_id"].dropna())
    replaced = unscored["replaced"] if "replaced" in unscored else [False] * len(unscored)
    serials_of: dict[tuple[str, str, bool], list[str]] = {}
    rows = unscored[["reason", "machine_id", "gpu_serial"]].itertuples(index=False)
    for row, is_replaced in zip(rows, replaced, strict=True):
        machine = row.machine_id if isinstance(row.machine_id, str) else ""
        group = visible(row.reason), machine, bool(is_replaced)
        serials_of.setdefault(group, []).append(visible(row.gpu_serial))
    groups = [
        _replaced_group(reason, machine, serials)
        if is_replaced
        else _unscored_group(reason, machine, serials, n_gpus, partly=machine in reporting)
        for (reason, machine, is_replaced), serials in sorted(serials_of.items())
    ]
    return sorted(groups, key=_urgency_key)


def _unscored_group(
    reason: str, machine: str, serials: Sequence[str], n_gpus: Mapping[Any, int], *, partly: bool
) -> UnscoredGroup:
    """Build a group with a note on the probable cause."""
    note = ""
    if reason == "stale" and partly:
        note = "the rest of the machine reports: this GPU may have fallen off the bus"
    elif reason == "stale" and len(serials) == n_gpus.get(machine) and len(serials) > 1:
        note = "no GPU of this machine reports: the machine or its agent is down"
    return UnscoredGroup(
        reason=reason or "no reason given",
        machine=visible(machine),
        serials=tuple(sorted(serials)[:_MAX_SHOWN_SERIALS]),
        n=len(serials),
        n_gpus=n_gpus.get(machine, 0),
        note=note,
    )


def _replaced_group(reason: str, machine: str, serials: Sequence[str]) -> UnscoredGroup:
    return UnscoredGroup(
        reason=reason,
        machine=visible(machine),
        serials=tuple(sorted(serials)[:_MAX_SHOWN_SERIALS]),
        n=len(serials),
        n_gpus=0,  # it no longer belongs to the machine
        note="another GPU is in its slot: it was replaced",
    )


def _urgency_key(group: UnscoredGroup) -> tuple[int, int, str]:
    """Return the sort key of a group: undetected faults come first."""
    order = {"stale": 1, "gap": 2, "too new": 4, "failed": 5}
    urgency = 0 if group.note.startswith("the rest") else order.get(group.reason, 3)
    urgency = 5 if group.note.startswith("another") else urgency
    return urgency, -group.n, group.machine

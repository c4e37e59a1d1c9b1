"""HTML page of the at-risk list, for the person on call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pandas as pd

from forewarn.pipelines.at_risk.channel_charts import Chart
from forewarn.pipelines.at_risk.list_groups import (
    EXPECTED_REASONS,
    FlaggedMachine,
    exclude_replaced,
    flagged_machines,
    group_unscored,
    split_reasons,
)
from forewarn.pipelines.at_risk.list_headline import ListFigures, headline
from forewarn.pipelines.rendering.templates import (
    count,
    finite_number,
    moment,
    parse_utc,
    render_page,
    visible,
)

__all__ = ["render_at_risk"]

_MAX_SHOWN_FLAGGED = 60  # more than one person can check in a night
_MAX_SHOWN_NEXT = 20
_MAX_SHOWN_UNSCORED_GROUPS = 40
_MAX_SHOWN_FAILED = 40
_COLUMNS = [
    "rank",
    "gpu_serial",
    "machine_id",
    "slot",
    "probability",
    "flagged",
    "flagged_by",
    "reasons",
    "window_end",
    "valid_until",
    "action",
    "listed",
    "note",
]
_FAILED_COLUMNS = ["failed_since", "cause", "ended_by"]
_MEANING = {
    "stale": "no recent record: the agent, the machine or the GPU is not reporting",
    "gap": "records are missing inside the last window",
    "too new": "not enough records yet",
    "failed": "known to have failed and not repaired yet",
}


def render_at_risk(
    table: pd.DataFrame,
    unscored: pd.DataFrame,
    *,
    at: str,
    share: float,
    horizon_hours: float,
    model_version: str,
    n_flagged: int,
    hindsight: bool = False,
    charts: Mapping[str, Sequence[Chart]] | None = None,
    sentences: Sequence[str] = (),
    priced: bool = False,
) -> str:
    """Render the at-risk list as a self-contained page.

    Parameters
    ----------
    table : DataFrame
        The list as in `at_risk.csv`, one row per scored GPU. Columns other than `gpu_serial` and
        `flagged` may be missing or null.
    unscored : DataFrame
        `gpu_serial`, `machine_id` and `reason` of unscored GPUs; `failed_since`, `cause` and
        `ended_by` of those whose failure has no end.
    at : str
        Time of the list.
    share : float
        Share of the fleet that is flagged each day.
    horizon_hours : float
        Horizon in hours.
    model_version : str
        Model that made the list.
    n_flagged : int
        Number of flagged rows of `table`.
    hindsight : bool
        Whether the model was trained after `at`; the page then shows a notice.
    charts : mapping of str to sequence of Chart, optional
        Charts of flagged GPUs, by serial.
    sentences : sequence of str
        Notes on how GPUs were flagged.
    priced : bool
        Whether action costs limit the list.

    Returns
    -------
    str
        An HTML document. The same arguments give the same bytes.

    Raises
    ------
    ValueError
        If `n_flagged` is not the number of flagged rows.
    """
    table = _complete(table, _COLUMNS).sort_values("rank", kind="stable")
    names = ["gpu_serial", "machine_id", "reason", "replaced", *_FAILED_COLUMNS]
    unscored = _complete(unscored, names)
    unscored = unscored.assign(replaced=unscored["replaced"].eq(True))
    table = table.assign(flagged=table["flagged"].eq(True))
    if n_flagged != (flagged_rows := int(table["flagged"].sum())):
        raise ValueError(
            f"`n_flagged` must be the number of flagged rows ({flagged_rows}), got {n_flagged}."
        )
    machines = flagged_machines(table, unscored, charts or {})
    listed = _figures(table, unscored, machines, _deadline(table, at, horizon_hours))
    context = {
        "headline": headline(listed),
        "listed": listed,
        "at": at,
        "share": share,
        "sentences": sentences,
        "priced": priced,
        "horizon_hours": horizon_hours,
        "model_version": model_version,
        "hindsight": hindsight,
        "last_record": _latest(table["window_end"]),
        "machines": _first(machines, _MAX_SHOWN_FLAGGED),
        "drawn": any(gpu.drawings for machine in machines for gpu in machine.gpus),
        "shown_flagged": min(n_flagged, _MAX_SHOWN_FLAGGED),
        "watched": _next_on_list(table),
        **_unscored_section(table, unscored),
    }
    return render_page("at_risk/at_risk_page.html", context)


def _complete(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Add missing columns, and convert each machine to a string or None."""
    table = table.reindex(columns=columns)
    names = table["machine_id"]
    pairs = zip(names.tolist(), names.notna().tolist(), strict=True)
    machines = [str(name) if known else None for name, known in pairs]
    return table.assign(machine_id=pd.Series(machines, index=table.index, dtype=object))


def _latest(times: pd.Series) -> pd.Timestamp | None:
    """Return the latest time, or None."""
    return max((time for time in map(parse_utc, times.unique()) if time), default=None)


def _deadline(table: pd.DataFrame, at: str, horizon_hours: float) -> str:
    """Return the time by which the flagged GPUs are expected to fail, as text."""
    latest = _latest(table.loc[table["flagged"], "valid_until"])
    start = parse_utc(at)
    if latest is None and start is not None:
        latest = start + timedelta(hours=horizon_hours)
    if latest is None:
        return f"{horizon_hours:g} hours after the list was made"
    return moment(latest, year=False)


def _figures(
    table: pd.DataFrame, unscored: pd.DataFrame, machines: Sequence[FlaggedMachine], deadline: str
) -> ListFigures:
    """Return the numbers of the headline."""
    named = [machine for machine in machines if machine.name]
    probabilities = table.loc[table["flagged"], "probability"]
    return ListFigures(
        n_scored=len(table),
        n_unscored=len(unscored),
        n_without_data=int((~exclude_replaced(unscored)["reason"].isin(EXPECTED_REASONS)).sum()),
        n_machines=len(named),
        n_on_machines=sum(machine.n_gpus for machine in named),
        probabilities=[finite_number(value) for value in probabilities],
        deadline=deadline,
        n_blocked=int((table["listed"].eq(True) & ~table["flagged"]).sum()),
    )


def _first(machines: Sequence[FlaggedMachine], most: int) -> list[FlaggedMachine]:
    """Keep the machines of the first `most` GPUs."""
    shortened: list[FlaggedMachine] = []
    for machine in machines:
        if most <= 0:
            break
        shortened.append(replace(machine, gpus=machine.gpus[:most]))
        most -= len(machine.gpus)
    return shortened


def _next_on_list(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the GPUs after the flagged ones that have a probability, a reason or a note."""
    suspected = table["probability"].notna()
    for name in ("reasons", "note"):
        suspected |= table[name].map(visible).ne("")
    rows = table[~table["flagged"] & suspected].head(_MAX_SHOWN_NEXT).to_dict("records")
    return [
        {
            "rank": count(row["rank"]),
            "serial": visible(row["gpu_serial"]),
            "machine": visible(row["machine_id"]),
            "slot": "" if finite_number(row["slot"]) is None else count(row["slot"]),
            "probability": finite_number(row["probability"]),
            "reason": next(iter(split_reasons(row["reasons"])), ""),
            "note": visible(row["note"]),
        }
        for row in rows
    ]


def _unscored_section(table: pd.DataFrame, unscored: pd.DataFrame) -> dict[str, Any]:
    """Count and group the unscored GPUs."""
    counts = unscored["reason"].map(visible).value_counts()
    order = [reason for reason in _MEANING if reason in counts]
    order += sorted(set(counts.index) - set(order))
    groups = group_unscored(table, unscored)
    return {
        "left_out": [
            (name or "no reason given", counts[name], _MEANING.get(name, "")) for name in order
        ],
        "unscored_groups": groups[:_MAX_SHOWN_UNSCORED_GROUPS],
        "unscored_left": sum(group.n for group in groups[_MAX_SHOWN_UNSCORED_GROUPS:]),
        **_failed(unscored),
    }


def _failed(unscored: pd.DataFrame) -> dict[str, Any]:
    """List the GPUs whose failure has no end, oldest first, and what would end the failures."""
    failed = unscored[unscored["failed_since"].notna()]
    rows = failed.sort_values(["failed_since", "gpu_serial"], kind="stable")
    return {
        "failed": [
            {
                "serial": visible(row["gpu_serial"]),
                "machine": visible(row["machine_id"]),
                "since": moment(row["failed_since"]),
                "cause": visible(row["cause"]) or "unknown",
            }
            for row in rows.head(_MAX_SHOWN_FAILED).to_dict("records")
        ],
        "failed_left": max(len(rows) - _MAX_SHOWN_FAILED, 0),
        "failed_ends": [visible(text) for text in sorted(failed["ended_by"].unique())],
    }

"""`forewarn advise checkpoint`: how often a job should save, and what today's list asks of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import Field, ValidationError

from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.features.hostlist import HostlistError, expand
from forewarn.features.time_units import SECOND, SECONDS_PER_DAY
from forewarn.pipelines.at_risk.stored_lists import read_lists
from forewarn.pipelines.config.toml_tables import (
    Count,
    Duration,
    StrictTable,
    describe_validation_error,
    read_toml,
)
from forewarn.pipelines.rendering.templates import chance_text, plural
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.recovery.checkpoint_advice import (
    advise_checkpoint,
    failure_rate,
    move_pays_from,
    save_pays_after_seconds,
)

__all__ = ["AdviceError", "ListQuality", "advice_lines", "advise_job", "read_review"]


class AdviceError(InputError):
    """Files from which no advice can be given; the message is one line."""


class _JobTable(StrictTable):
    """What a job says of itself."""

    machines: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    step: Duration
    save: Duration
    restart: Duration
    detect: Duration | None = None
    since_save: Duration | None = None
    interruptions_per_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    gpus: Count | None = None
    spares: Annotated[int, Field(ge=0, strict=True)] = 0


class _RiskOfJob(NamedTuple):
    """What the newest list says of a job's GPUs.

    Attributes
    ----------
    rate : float
        Failures a second.
    scored : int
        GPUs of the job on the list.
    flagged : dict of str to float
        Probability by machine, of its flagged GPU that is most at risk.
    """

    rate: float
    scored: int
    flagged: dict[str, float]


def advise_job(job: Path, at_risk: Path | None, review: Path | None, *, at: int) -> dict[str, Any]:
    """Return the advice as the command prints it (docs/reference/formats.md, section 11).

    Parameters
    ----------
    job : Path
        TOML.
    at_risk : Path or None
        Folder of lists; the newest one before `at` counts.
    review : Path or None
        Output of `forewarn review --json`. Its precision says what a flag is worth; without it,
        there is no advice about flagged machines.
    at : int
        Nanoseconds since 1970 UTC.

    Raises
    ------
    AdviceError, SettingsError, JobError
        If a file cannot be used, or the newest list is of another day.
    """
    table, machines = _read_job(job)
    risk = _RiskOfJob(0.0, 0, {}) if at_risk is None else _read_risk(at_risk, machines, at)
    precision = None if review is None else read_review(review).precision
    step, save, restart = (length / SECOND for length in (table.step, table.save, table.restart))
    restart += (table.detect or 0) / SECOND
    rate = risk.rate + table.interruptions_per_day / SECONDS_PER_DAY
    advice = advise_checkpoint(
        step_seconds=step, save_seconds=save, restart_seconds=restart, rate=rate
    )
    interval = advice.interval_seconds
    line = {
        "at": format_iso(at),
        "machines": len(machines),
        "gpus_on_list": risk.scored,
        "gpus_not_on_list": None if table.gpus is None else max(0, table.gpus - risk.scored),
        "chance_of_interruption": advice.chance_of_interruption,
        "interruptions_per_day": advice.interruptions_per_day,
        "interval_steps": advice.interval_steps,
        "interval_seconds": None if math.isinf(interval) else interval,
        "lost_share": advice.lost_share,
        "lost_share_at_a_third": advice.lost_share_third,
        "lost_share_at_three_times": advice.lost_share_triple,
        "flagged": risk.flagged,
        "precision": precision,
    }
    return line | _warnings(table, risk, precision, restart, interval)


def _warnings(
    table: _JobTable, risk: _RiskOfJob, precision: float | None, restart: float, interval: float
) -> dict[str, Any]:
    """Return whether to save or to move because of flagged machines; null if nothing can tell."""
    if not risk.flagged or not precision:
        return {"save_now": None, "move_now": None, "move_at_next_stop": None}
    save = table.save / SECOND
    since = interval if table.since_save is None else table.since_save / SECOND
    planned = save + table.restart / SECOND
    unplanned = restart + since / 2
    return {
        "save_now": since > save_pays_after_seconds(save, precision),
        "move_now": precision > move_pays_from(planned, unplanned),
        "move_at_next_stop": table.spares >= 1,
    }


def _read_job(path: Path) -> tuple[_JobTable, frozenset[str]]:
    try:
        table = _JobTable.model_validate(read_toml(path))
    except ValidationError as error:
        raise AdviceError(f"{path}: {describe_validation_error(error)}") from None
    try:
        names = [name for entry in table.machines for name in expand(entry)]
    except HostlistError as error:
        raise AdviceError(f"{path}: machines: {error}.") from None
    return table, frozenset(names)


def _read_risk(folder: Path, machines: frozenset[str], at: int) -> _RiskOfJob:
    newest = _newest_list(folder, at)
    rows = newest[newest["machine_id"].isin(machines)]
    date = newest["list"].iloc[0]
    if rows.empty:
        raise AdviceError(f"{folder}: the list of {date} has no machine of the job.")
    if rows["probability"].isna().any():
        raise AdviceError(f"{folder}: the list of {date} has no probabilities (builtin:rules).")
    horizons = (rows["valid_until"] - rows["window_end"]).dt.total_seconds()
    rate = failure_rate(rows["probability"], float(horizons.median()))
    flagged = rows[rows["flagged"]].groupby("machine_id")["probability"].max()
    return _RiskOfJob(rate, len(rows), {str(name): float(p) for name, p in flagged.items()})


def _newest_list(folder: Path, at: int) -> pd.DataFrame:
    """Return the rows of the newest list that is valid at a time."""
    lists = read_lists(folder)
    missing = [name for name in ("machine_id", "probability") if name not in lists]
    if missing:
        raise AdviceError(f"{folder}: its lists have no column {missing[0]}.")
    moment = pd.Timestamp(at, tz="UTC")
    valid = lists[(lists["window_end"] <= moment) & (lists["valid_until"] > moment)]
    if valid.empty:
        dates = f"{lists['list'].min()} to {lists['list'].max()}"
        raise AdviceError(
            f"{folder}: has no list that is valid at {format_iso(at)}, found {dates}."
        )
    newest: pd.DataFrame = valid[valid["list"] == valid["list"].max()]
    return newest


class ListQuality(NamedTuple):
    """What a review measured of past lists.

    Attributes
    ----------
    precision : float
        Share of alerts that came true.
    recall : float or None
        Share of failures that were caught; None if the review does not count them.
    """

    precision: float
    recall: float | None


def read_review(path: Path) -> ListQuality:
    """Read the output of `forewarn review --json`.

    Raises
    ------
    AdviceError
        If it has no precision from 0 to 1.
    """
    try:
        review = json.loads(path.read_text(encoding="utf-8"))
        precision = review["precision"]
    except (ValueError, KeyError, TypeError):
        raise AdviceError(
            f"{path}: has no `precision`, expected the output of `forewarn review --json`."
        ) from None
    if not isinstance(precision, int | float) or not 0 <= precision <= 1:
        raise AdviceError(f"{path}: precision: found {precision!r}, expected 0 to 1.")
    caught, failures = review.get("caught"), review.get("failures")
    is_counted = isinstance(caught, int) and isinstance(failures, int) and 0 <= caught <= failures
    return ListQuality(float(precision), caught / failures if is_counted and failures else None)


def advice_lines(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the advice as text."""
    chance, steps = line["chance_of_interruption"], line["interval_steps"]
    if steps is None:
        yield "Nothing is known that interrupts this job: checkpoints need no interval."
        return
    yield f"The chance that the job is interrupted within a day is {chance_text(chance)}."
    yield (
        f"Save each {plural(steps, 'step')} ({format_duration(line['interval_seconds'])}): "
        f"checkpoints and interruptions then cost {line['lost_share']:.1%}; with a third of it "
        f"{line['lost_share_at_a_third']:.1%}, with three times of it "
        f"{line['lost_share_at_three_times']:.1%}."
    )
    if line["gpus_not_on_list"]:
        yield f"{plural(line['gpus_not_on_list'], 'GPU')} of the job are not on the list."
    if line["flagged"]:
        yield from _warning_lines(line)


def _warning_lines(line: Mapping[str, Any]) -> Iterator[str]:
    names: Sequence[str] = sorted(line["flagged"])
    yield f"Flagged: {', '.join(names[:8])}{' and others' if len(names) > 8 else ''}."
    if line["save_now"] is None:
        yield "Whether to save or move because of it: unknown without a review (--review)."
        return
    yield "Save now." if line["save_now"] else "A checkpoint now does not pay."
    yield "Move now." if line["move_now"] else "Moving now does not pay."
    if line["move_at_next_stop"]:
        yield "At the next stop, leave these machines: a spare is there."

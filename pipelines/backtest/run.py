"""`forewarn backtest`: walk through time as production would, and report how it went."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.evaluation.bootstrap import INTERVAL_LEVEL
from forewarn.evaluation.prediction.backtest_figures import report_strategy
from forewarn.evaluation.prediction.daily_list import lists_of
from forewarn.evaluation.prediction.list_worth import list_promise, list_worth
from forewarn.evaluation.prediction.retraining_schedule import retraining_times
from forewarn.evaluation.prediction.score_table import ScoreTable
from forewarn.evaluation.prediction.strategies import Strategy
from forewarn.evaluation.prediction.walk import Walk, scorable
from forewarn.features.records.table import Records
from forewarn.features.records.timeline import Timeline, lay_out
from forewarn.features.time_units import DAY
from forewarn.models.prediction.trained_recipe import FEWEST_POSITIVES, RecipeTrainer
from forewarn.pipelines.backtest.page import render_report
from forewarn.pipelines.backtest.score_frames import strategy_frame
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import Stages, note, progress_bar
from forewarn.pipelines.runtime.timestamps import iso
from forewarn.pipelines.storage.atomic_files import replacing

__all__ = ["run_backtest"]

_THOSE_OF_THE_PAPER = (Strategy.FIXED, Strategy.SLIDING, Strategy.VARIABLE)


def run_backtest(
    job: Job,
    out: Path,
    *,
    start: int | None = None,
    end: int | None = None,
    strategies: Sequence[str] = _THOSE_OF_THE_PAPER,
) -> dict[str, Any]:
    """Backtest and write scores, `report.json` and `report.html` into `out`.

    Parameters
    ----------
    job : Job
    out : Path
    start, end : int, optional
        First retraining no earlier than `start`; all before `end`; nanoseconds.
    strategies : sequence of str
        Of `fixed`, `sliding`, `variable`, `steady` and `expanding`.

    Returns
    -------
    dict
        What `report.json` holds.

    Raises
    ------
    RecordsError, JobError
        If the records break the contract, or no retraining is left.
    """
    stages, settings = Stages(), job.walk_settings
    with stages("read records"):
        records, failures = job.store.read_known()
    with stages("find instances"):
        timeline = lay_out(records, failures)
        instances = scorable(records, failures, settings)
    trainer = RecipeTrainer(settings.recipe, stage=stages)
    walk = Walk(settings, trainer, records, failures, instances)
    times = _times(job, records, start, end)
    _walk_through(walk, job, times, strategies)
    with stages("evaluate"):
        tables = {name: _table(walk, timeline, name, job) for name in strategies}
        report = _report(job, walk, tables) | {"left_out": _left_out(walk, times)}
    report |= {"notes": [*records.seen.notes(), *job.notes, *walk.notes], **stages.figures()}
    _write(out, tables, report)
    return report


def _times(job: Job, records: Records, start: int | None, end: int | None) -> list[int]:
    first, last = records.first, records.last
    times = retraining_times(
        first,
        last,
        longest=job.walk_settings.longest,
        horizon=job.walk_settings.recipe.horizon,
        every=job.walk_settings.every,
        start=start,
        end=end,
    )
    if not times:
        need = (job.walk_settings.longest + job.walk_settings.recipe.horizon) / DAY
        raise JobError(
            f"{job.store.folder}: no retraining time is left between {iso(first)} and "
            f"{iso(last)}, expected records of more than {need:g} days."
        )
    return times


def _walk_through(walk: Walk, job: Job, times: list[int], strategies: Sequence[str]) -> None:
    with progress_bar(len(times), "backtest", "retraining") as bar:
        for moment in times:
            bar.set_postfix_str(iso(moment)[:10])
            if walk.retrain(moment, strategies) is None:
                walk.notes.append(
                    f"retraining of {iso(moment)} skipped: fewer than {FEWEST_POSITIVES} positives "
                    "known, no negatives, or no known label after it (records must go on for a "
                    "horizon)"
                )
                note(walk.notes[-1])
            bar.update()
    if not walk.windows:
        raise JobError(
            f"{job.store.folder}: no retraining is left of {len(times)}. Each needs "
            f"{FEWEST_POSITIVES} positives before it (instances that a failure follows within the "
            "horizon), a negative, and records for at least one horizon after it."
        )


def _table(walk: Walk, timeline: Timeline, strategy: str, job: Job) -> ScoreTable:
    """Return the table of scores of a strategy (docs/formats.md, section 3)."""
    frames = [strategy_frame(walk, timeline, window, strategy) for window in walk.windows]
    return ScoreTable(pd.concat(frames, ignore_index=True), job.protocol, walk.unseen_from)


def _left_out(walk: Walk, times: Sequence[int]) -> dict[str, Any]:
    """Return what would have been tested, had the records gone on for a horizon."""
    instances = walk.instances.between(times[0], times[-1] + walk.settings.every)
    instances = instances.take(instances.end > walk.last_tested)
    _, midnights = lists_of(instances.end, step=walk.settings.recipe.step, day=DAY)
    return {
        "last_record": iso(walk.records.last),
        "from": iso(int(instances.end.min())) if len(instances) else None,
        "instances": len(instances),
        "positives": int((instances.label == 1).sum()),
        "days": [iso(moment)[:10] for moment in np.unique(midnights).tolist()],
    }


def _report(job: Job, walk: Walk, tables: dict[str, ScoreTable]) -> dict[str, Any]:
    """Return the figures of all strategies, and what they were made from."""
    records, instances = walk.records, walk.instances
    report: dict[str, Any] = {"methods": {}, "fleet": {}, "calibration": {}}
    report |= {"worth": {}, "promise": {}}
    costs = job.settings.list.costs
    with progress_bar(len(tables), "evaluate", "strategy") as bar:
        for strategy, table in tables.items():
            figures = report_strategy(table, progress=bar.set_postfix_str)
            for part in ("methods", "fleet"):
                report[part] |= {f"{n}_{strategy}": f for n, f in figures[part].items()}
            report["calibration"][strategy] = figures["calibration"]
            report["worth"][strategy] = list_worth(table, costs, job.settings.evaluation.k)
            promise = list_promise(table, costs)
            report["promise"][strategy] = None if promise is None else promise.to_dict()
            bar.update()
    known = (instances.label >= 0) & (instances.end <= walk.last_tested)
    return report | {
        "prevalence": float((instances.label[known] == 1).mean()) if known.any() else None,
        "share": job.settings.list.share,
        "k": job.settings.evaluation.k,
        "interval_level": INTERVAL_LEVEL,
        "horizon_hours": job.settings.horizon / 3.6e12,
        "records": len(records) - records.seen.filled,
        "instances": len(instances),
        "positives": int((instances.label == 1).sum()),
        "gpus": len(records.serials),
    }


def _file_name(strategy: str) -> str:
    return "scores.parquet" if strategy == Strategy.VARIABLE else f"scores_{strategy}.parquet"


def _write(out: Path, tables: dict[str, ScoreTable], report: dict[str, Any]) -> None:
    """Write all files under temporary names first, so that none is new if one fails."""
    page = render_report(report)
    with ExitStack() as files:
        for strategy, table in tables.items():
            path = files.enter_context(replacing(out / _file_name(strategy)))
            arrow = pa.Table.from_pandas(table.frame, preserve_index=False)
            pq.write_table(arrow, path, compression="zstd")
        path = files.enter_context(replacing(out / "report.json"))
        path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        path = files.enter_context(replacing(out / "report.html"))
        path.write_text(page, encoding="utf-8")

"""`forewarn retrain`: compare lengths, refit, judge, register, and promote what has earned it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forewarn.evaluation.gate import Verdict, judge
from forewarn.evaluation.report import Comparison, ScoreTable, compare
from forewarn.evaluation.walk import Walk, WindowScores
from forewarn.features.instances import latest_instances
from forewarn.features.records import DAY
from forewarn.features.timeline import Timeline, lay_out
from forewarn.models.predictor import Predictor
from forewarn.pipelines.alerts import alert
from forewarn.pipelines.job import Job
from forewarn.pipelines.moments import iso
from forewarn.pipelines.recipes import Recipes
from forewarn.pipelines.registry import CHALLENGER, Registry, Version
from forewarn.pipelines.retrain_log import log_drift, log_reasons, log_retraining, log_windows
from forewarn.pipelines.scoring_day import ScoringDay, drift_between
from forewarn.pipelines.stages import Stages
from forewarn.pipelines.train import trained_walk
from forewarn.pipelines.window_frame import scores_frame

__all__ = ["Retrained", "retrain"]


@dataclass(frozen=True, slots=True)
class Retrained:
    """What came of a retraining.

    Attributes
    ----------
    version : str
        Number of the registered predictor.
    name : str
        `Predictor.version`.
    length_days : float
        Training length that was chosen.
    promoted : bool
    reasons : tuple of str
        Why not.
    comparison : Comparison or None
    champion : str or None
        Number of the champion now.
    run : str
        Of MLflow.
    """

    version: str
    name: str
    length_days: float
    promoted: bool
    reasons: tuple[str, ...]
    comparison: Comparison | None
    champion: str | None
    run: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return dataclasses.asdict(self)


def retrain(job: Job, moment: int, registry: Registry) -> Retrained:
    """Retrain as of `moment`; the champion changes only if the challenger has earned it.

    A retraining that is done is not done again, and one that was killed goes on with what it had
    trained.

    Parameters
    ----------
    job : Job
    moment : int
        Nothing from then on is read.
    registry : Registry

    Raises
    ------
    RecordsError, JobError, RegistryError
        If the records break the contract or hold too few failures, or the registry cannot be used.
    """
    tags = {"forewarn.kind": "retraining", "forewarn.at": str(moment)}
    tags["forewarn.recipe"] = Recipes(registry, job, "").digest
    done = registry.find(tags)
    if done:
        return _recorded(done[0].data.tags["forewarn.outcome"])
    registry.abandon({"forewarn.at": str(moment)})
    with registry.run(f"retraining {iso(moment)[:16]}", tags) as run:
        outcome = _retrain(job, moment, registry, run)
        registry.tag(run, {"forewarn.outcome": json.dumps(outcome.as_dict())})
    return outcome


def _recorded(outcome: str) -> Retrained:
    stored = json.loads(outcome)
    found = stored.pop("comparison")
    if found is not None:
        pairs = {
            name: found[name] and tuple(found[name]) for name in ("interval", "list_precision")
        }
        found = Comparison(**{**found, **pairs})
    reasons = tuple(stored.pop("reasons"))
    return Retrained(**stored, reasons=reasons, comparison=found)


def _retrain(job: Job, moment: int, registry: Registry, run: str) -> Retrained:
    stages, champion = Stages(), registry.champion()
    recipes = Recipes(registry, job, run)
    current = champion.length if champion and champion.length in job.terms.lengths else None
    walk, predictor = trained_walk(job, moment, memory=recipes, current=current, stages=stages)
    timeline = lay_out(walk.records, walk.failures)
    with stages("compare with the champion"):
        comparison = _compare(walk, timeline, registry, job)
        day = ScoringDay.of(walk, timeline, moment, predictor)
        drift = drift_between(walk, predictor, day)
        verdict = _judge(job, predictor, day, registry, comparison, drift)
    with stages("log"):
        log_windows(registry, run, walk, timeline, job)
        log_retraining(registry, run, job, walk, predictor, verdict, stages)
        log_drift(registry, run, drift)
        log_reasons(registry, run, predictor, day)
    number = _register(registry, run, predictor, walk, verdict)
    if verdict.promoted:
        registry.promote(number)
    now = registry.champion()
    outcome = Retrained(
        version=number,
        name=predictor.version,
        length_days=predictor.facts["train_length_days"],
        promoted=verdict.promoted,
        reasons=verdict.reasons,
        comparison=comparison,
        champion=None if now is None else now.number,
        run=run,
    )
    _alerts(job, outcome, now, moment, drift)
    return outcome


def _compare(walk: Walk, timeline: Timeline, registry: Registry, job: Job) -> Comparison | None:
    """Compare recipe and champion on the finished windows, each as trained before the window."""
    frames = []
    for window in walk.windows:
        champion = registry.champion_before(window.start)
        if champion is not None:
            frames.append(_paired(walk, timeline, window, registry.load_version(champion)))
    there = [frame for frame in frames if frame is not None]
    if not there:
        return None
    return compare(ScoreTable(pd.concat(there, ignore_index=True), job.protocol, walk.unseen_from))


def _paired(
    walk: Walk, timeline: Timeline, window: WindowScores, champion: Predictor
) -> pd.DataFrame | None:
    """Return the scores of both; None where the champion needs columns that are not read now."""
    kinds = champion.encoder.measures.plan.kinds
    if kinds != walk.terms.recipe.plan.kinds:
        return None
    future = walk.measured_in(window.start, window.instances)
    theirs = champion.scores(champion.encoder.measures.values(*future))["blend"]
    length, scores = window.by_strategy["steady"]
    pair = {"challenger": scores["blend"], "champion": theirs}
    return scores_frame(walk, timeline, window, length, pair)


def _judge(
    job: Job,
    predictor: Predictor,
    day: ScoringDay,
    registry: Registry,
    comparison: Comparison | None,
    drift: dict[str, Any],
) -> Verdict:
    champion, theirs = registry.champion(), None
    if champion is not None:
        other = registry.load_version(champion)
        if other.encoder.measures.plan.kinds == predictor.encoder.measures.plan.kinds:
            measured = other.encoder.measures.values(day.timeline, day.instances)
            theirs = other.calibration.apply(other.scores(measured)["blend"])
    return judge(
        comparison,
        margin=job.settings.gate.margin,
        scores=day.scores,
        probability=predictor.calibration.apply(day.scores),
        champion=theirs,
        broken={name: one.state for name, one in drift.items() if one.state},
    )


def _register(
    registry: Registry, run: str, predictor: Predictor, walk: Walk, verdict: Verdict
) -> str:
    facts = predictor.facts
    tags = {
        "forewarn.version": predictor.version,
        "forewarn.at": str(int(pd.Timestamp(facts["trained_at"]).value)),
        "forewarn.length": str(round(facts["train_length_days"] * DAY)),
        "forewarn.gate": "passed" if verdict.promoted else "refused: " + "; ".join(verdict.reasons),
    }
    number = registry.register(run, predictor, _example(walk, predictor), tags)
    registry.name(CHALLENGER, number)
    return number


def _example(walk: Walk, predictor: Predictor) -> pd.DataFrame:
    """Return the newest records of two GPUs, enough for a window, as an input example."""
    plan = predictor.encoder.measures.plan
    records = walk.records
    newest = latest_instances(
        lay_out(records, walk.failures), length=plan.length, since=records.last - DAY
    )
    rows = np.concatenate([np.arange(r - plan.length + 1, r + 1) for r in newest.row[:2]])
    columns: dict[str, Any] = {
        "gpu_serial": np.array(records.serials, dtype=object)[records.gpu[rows]],
        "timestamp": pd.to_datetime(records.time[rows]),
    }
    for name in dict.fromkeys((*plan.kinds.categorical, *plan.peers)):
        names = np.array([*records.texts[name].texts, ""], dtype=object)
        columns[name] = names[records.codes(name, rows)]
    for name in (*plan.kinds.float, *plan.kinds.binary, *plan.kinds.code):
        columns[name] = records.numbers(name, rows).astype(np.float64)
    for name in plan.kinds.counter:  # kept as increases; any start of a count will do
        gained = pd.Series(np.nan_to_num(records.numbers(name, rows).astype(np.float64)))
        columns[name] = gained.groupby(columns["gpu_serial"]).cumsum()
    for name in plan.kinds.date:
        days = records.numbers(name, rows).astype(np.float64)
        columns[name] = pd.to_datetime(pd.Series(days), unit="D").dt.strftime("%Y-%m-%d")
    return pd.DataFrame(columns)


def _alerts(
    job: Job, outcome: Retrained, champion: Version | None, moment: int, drift: dict[str, Any]
) -> None:
    gate = job.settings.gate
    facts = {"version": outcome.version, "run": outcome.run}
    if not outcome.promoted:
        alert("refused", f"version {outcome.version}: {'; '.join(outcome.reasons)}", facts)
    if champion is not None and moment - champion.trained_at > gate.champion_max_age:
        days = (moment - champion.trained_at) / DAY
        alert("stale champion", f"version {champion.number} was trained {days:g} days ago", facts)
    moved = [
        f"{name} ({one.stability:.2f}, missing {one.missing_before:.0%} to {one.missing_now:.0%})"
        for name, one in sorted(drift.items())
        if one.stability > gate.drift or one.missing_now - one.missing_before > gate.missing
    ]
    if moved:
        alert("drift", ", ".join(moved), facts)

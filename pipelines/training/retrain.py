"""`forewarn retrain`: compare training lengths, refit, check, register and promote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mlflow.entities import Run

from forewarn.evaluation.prediction.metrics.backtest_metrics import ChampionComparison
from forewarn.evaluation.prediction.metrics.drift import Drift
from forewarn.evaluation.prediction.metrics.promotion_gate import GateDecision, decide_promotion
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.backtest.blend_section import blend_text
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.alerts import alert
from forewarn.pipelines.runtime.progress import Stages, note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.stale_temporary_files import remove_stale_scratch
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.registry.model_registry import CHALLENGER, Registry
from forewarn.pipelines.storage.registry.registered_version import Version, length_tag
from forewarn.pipelines.training.champion_comparison import compare_models, load_champion
from forewarn.pipelines.training.drift_check import (
    SCORES,
    ScoringDay,
    blend_scores,
    drift_between,
    moved_columns,
    report_drift,
    score_drift,
)
from forewarn.pipelines.training.mlflow_log import log_drift, log_reasons, log_retraining
from forewarn.pipelines.training.mlflow_model import ServedPredictor, input_example, signature_of
from forewarn.pipelines.training.retraining_decision import RetrainingDecision, RetrainingOutcome
from forewarn.pipelines.training.train import trained_walk
from forewarn.pipelines.training.training_cache import RecipeCache
from forewarn.pipelines.training.window_log import log_windows

__all__ = ["retrain"]


def retrain(job: Job, moment: int, registry: Registry) -> RetrainingOutcome:
    """Retrain as of `moment`; promote the challenger if it passes the gate.

    A finished retraining is not repeated. An interrupted one resumes with what it had trained,
    registered or decided. One retraining at a time works on a registry.

    Parameters
    ----------
    job : Job
    moment : int
        No later data is read.
    registry : Registry

    Raises
    ------
    RecordsError, JobError, RegistryError
        If the records are invalid or hold too few failures, or the registry cannot be used.
    """
    tags = {"forewarn.kind": "retraining", "forewarn.at": format_iso(moment)}
    tags["forewarn.recipe"] = RecipeCache(registry, job.walk_settings, "").digest
    with registry.in_one_line(), registry.locked("retraining"):
        remove_stale_scratch()
        for run in registry.find(tags, status=None):
            decision = _recorded_decision(run)
            if decision is not None:
                return _resume(registry, run, decision)
            if run.info.status == "FINISHED":  # a finished run without an outcome was interrupted
                registry.end(run.info.run_id, "KILLED")
        registry.abandon({"forewarn.at": format_iso(moment)})
        name = f"retrain {format_iso(moment)[:16].removesuffix('T00:00')}"
        with registry.run(name, tags) as number:
            return _apply_decision(registry, _retrain(job, moment, registry, number))


def _recorded_decision(run: Run) -> RetrainingDecision | None:
    """Return the decision that an earlier process recorded in a run, or None."""
    text = run.data.tags.get("forewarn.outcome")
    if text is None:
        return None
    try:
        return RetrainingDecision.from_text(text)
    except (ValueError, TypeError, KeyError, AttributeError):
        note(f"MLflow run {run.info.run_id}: its outcome cannot be read; it will be repeated")
        return None


def _resume(registry: Registry, run: Run, decision: RetrainingDecision) -> RetrainingOutcome:
    """Complete a recorded decision; nothing is left to do if its run is finished."""
    if run.info.status == "FINISHED":
        return decision.outcome
    outcome = _apply_decision(registry, decision)
    registry.end(run.info.run_id)
    return outcome


def _apply_decision(registry: Registry, decision: RetrainingDecision) -> RetrainingOutcome:
    """Record a decision, promote, and send alerts. Repeating it has no further effect."""
    with registry.locked("promotion"):
        decision = _check_champion(registry, decision)
        outcome = decision.outcome
        registry.tag(outcome.run, {"forewarn.outcome": decision.as_text()})
        gate = "passed" if outcome.promoted else "refused: " + "; ".join(outcome.reasons)
        text = outcome.describe(decision.over)
        registry.tag(outcome.run, {"forewarn.gate": gate, "forewarn.version": outcome.version})
        registry.describe(outcome.run, text)
        registry.describe_version(outcome.version, text)
        registry.mark(outcome.version, {"forewarn.gate": gate})
        registry.name(CHALLENGER, outcome.version)
        if outcome.promoted:
            registry.promote(outcome.version)
    for what, text in decision.alerts:
        alert(what, text, {"version": outcome.version, "run": outcome.run})
    return outcome


def _check_champion(registry: Registry, decision: RetrainingDecision) -> RetrainingDecision:
    """Refuse a promotion if the champion is not the one the challenger was compared with."""
    outcome, champion = decision.outcome, registry.champion()
    number = None if champion is None else champion.number
    if not outcome.promoted:
        return decision
    if registry.version(outcome.version).rolled_back:
        reason = "it was rolled back before its retraining ended"
    elif number not in (decision.over, outcome.version):
        before, now = decision.over or "none", number or "none"
        reason = f"the champion changed in the meantime, from version {before} to {now}"
    else:
        return decision
    outcome = replace(outcome, promoted=False, reasons=(reason,), champion=number)
    return replace(decision, outcome=outcome, alerts=(_refusal(outcome), *decision.alerts))


def _retrain(job: Job, moment: int, registry: Registry, run: str) -> RetrainingDecision:
    stages, champion, gate = Stages(), registry.champion(), job.settings.gate
    cache = RecipeCache(registry, job.walk_settings, run)
    span = _span_in_use(job.walk_settings.training_spans, champion)
    trained = trained_walk(job, moment, cache=cache, span_in_use=span, stages=stages)
    walk, predictor, records = trained
    truth, store = walk.truth, records.store
    with stages("compare with the champion"):
        compared = compare_models(walk, truth, registry, job.protocol)
        comparison = None if compared is None else compared.comparison
        day = ScoringDay.from_store(store, walk.settings.recipe.step, moment, predictor)
        drift = _drift(store, walk, day, moment, predictor)
        moved = moved_columns(drift, gate)
        report_drift(store.folder, moment, moved)
        decision = _decide(gate.margin, predictor, day, registry, champion, comparison, drift)
        decision = _refuse_older(decision, champion, moment)
    with stages("log"):
        finished, costs = log_windows(registry, run, walk, truth, job.protocol), stages.figures()
        for text in [] if finished is None else blend_text(finished.blend):
            note(text)
        log_retraining(registry, run, job, records, predictor, finished, compared, costs)
        registry.log(run, metrics={"promoted": float(decision.promoted)})
        log_drift(registry, run, drift)
        log_reasons(registry, run, predictor, day)
    number = _register(registry, run, predictor, records, cache.digest)
    over = None if champion is None else champion.number
    outcome = RetrainingOutcome(
        version=number,
        name=predictor.version,
        length_days=predictor.facts.train_length_days,
        promoted=decision.promoted,
        reasons=decision.reasons,
        comparison=comparison,
        champion=number if decision.promoted else over,
        run=run,
    )
    return RetrainingDecision(
        outcome, over, tuple(_alerts(gate.champion_max_age, outcome, champion, moment, moved))
    )


def _drift(
    store: RecordStore, walk: WalkForward, day: ScoringDay, moment: int, predictor: Predictor
) -> dict[str, Drift]:
    """Return the drift of every column and, with a finished test window, of the scores."""
    kinds = predictor.encoder.measures.plan.kinds
    span = round(predictor.facts.train_length_days * DAY)
    drifts = drift_between(store, kinds, span, moment)
    if walk.windows:
        _, scores = walk.windows[-1].by_strategy[walk.settings.strategy]
        drifts[SCORES] = score_drift(scores["blend"], day.scores)
    return drifts


def _span_in_use(spans: Sequence[Nanoseconds], champion: Version | None) -> Nanoseconds | None:
    """Return the champion's training span; None if it is not among the candidates."""
    return next((span for span in spans if champion and span == champion.length), None)


def _refuse_older(decision: GateDecision, champion: Version | None, moment: int) -> GateDecision:
    """Refuse a challenger with an earlier training cutoff than the champion."""
    if champion is None or champion.trained_at is None or champion.trained_at <= moment:
        return decision
    reason = (
        f"its training cutoff {format_iso(moment)} is before that of the champion (version "
        f"{champion.number}), {format_iso(champion.trained_at)}; use `forewarn models promote`"
    )
    return replace(decision, promoted=False, reasons=(*decision.reasons, reason))


def _decide(
    margin: float,
    predictor: Predictor,
    day: ScoringDay,
    registry: Registry,
    champion: Version | None,
    comparison: ChampionComparison | None,
    drift: Mapping[str, Drift],
) -> GateDecision:
    other, theirs = load_champion(registry, champion), None
    kinds = predictor.encoder.measures.plan.kinds
    if other is not None and other.encoder.measures.plan.kinds == kinds:
        theirs = other.calibration.apply(blend_scores(other, day.fleet, day.instances))
    return decide_promotion(
        comparison,
        margin=margin,
        scores=day.scores,
        probability=predictor.calibration.apply(day.scores),
        champion=theirs,
        broken={name: moved.state for name, moved in drift.items() if moved.state},
        first=champion is None,
    )


def _register(
    registry: Registry, run: str, predictor: Predictor, records: WindowedRecords, recipe: str
) -> str:
    """Register a predictor, unless an interrupted process has registered the same one."""
    facts = predictor.facts
    tags = {
        "forewarn.version": predictor.version,
        "forewarn.at": facts.trained_at,
        "forewarn.length": length_tag(round(facts.train_length_days * DAY)),
        "forewarn.recipe": recipe,
    }
    for version in registry.versions():
        if tags.items() <= dict(version.tags).items() and load_champion(registry, version):
            return version.number
    example = input_example(records.store, records.fleet.last, predictor.encoder.measures.plan)
    signature = signature_of(predictor, ServedPredictor(predictor).predict(example))
    return registry.register(run, predictor, example, signature, tags)


def _alerts(
    champion_max_age: int,
    outcome: RetrainingOutcome,
    before: Version | None,
    moment: int,
    moved: Mapping[str, Drift],
) -> Iterator[tuple[str, str]]:
    """Yield the alerts of a retraining."""
    if not outcome.promoted:
        yield _refusal(outcome)
    stays = before if before is not None and not outcome.promoted else None
    if stays is not None and stays.trained_at is not None:
        age = moment - stays.trained_at
        if age > champion_max_age:
            text = f"version {stays.number} was trained {age / DAY:g} days ago"
            yield "stale champion", text
    if moved:
        yield (
            "drift",
            ", ".join(
                f"{name} ({drift.stability:.2f}, "
                f"missing {drift.missing_before:.0%} to {drift.missing_now:.0%})"
                for name, drift in moved.items()
            ),
        )


def _refusal(outcome: RetrainingOutcome) -> tuple[str, str]:
    return "refused", f"version {outcome.version}: {'; '.join(outcome.reasons)}"

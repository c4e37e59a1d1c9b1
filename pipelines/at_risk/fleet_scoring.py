"""`forewarn score`: the daily at-risk list, from a predictor or from the built-in rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.prediction.span_sums import GatheredSums
from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.record_table import RACK, FeatureKinds, RecordsError
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.time_units import Nanoseconds, RecordCount
from forewarn.models.prediction.builtin_rules import rule_points, rule_scores
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.model_names import LINEAR
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.at_risk_list import AtRiskList, ListCandidates
from forewarn.pipelines.at_risk.day_records import RecordingFleet
from forewarn.pipelines.at_risk.flagging_criteria import FlaggingCriteria
from forewarn.pipelines.at_risk.past_alerts import past_calibration
from forewarn.pipelines.at_risk.reasons import Contributions
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.files.regular_files import require_all_regular
from forewarn.pipelines.storage.records.record_store import RecordStore

if TYPE_CHECKING:
    from forewarn.models.prediction.linear.linear_model import LinearModel
    from forewarn.models.prediction.trees.gbdt import GbdtModel

__all__ = ["BUILTIN_RULES", "load_predictor", "score_with", "score_with_rules"]

BUILTIN_RULES = "builtin:rules"


def load_predictor(
    model: str, settings: Settings | None = None, option: str = "--model"
) -> Predictor:
    """Load a predictor from a folder or, given an MLflow URI, from a registry.

    Raises
    ------
    JobError, RegistryError
        If there is none, or it needs a plug-in model that the settings do not allow.
    """
    settings = settings or Settings()
    if ":/" in model:
        # Imported here because MLflow takes a second to import and folders do not need it.
        from forewarn.pipelines.storage.registry.model_registry import Registry

        return Registry.from_settings(settings).load(model)
    require_all_regular(Path(model))
    try:
        return Predictor.load(Path(model), settings.models.catalogue)
    except OSError as error:
        reason = error.strerror or error
        raise JobError(f"{option} {error.filename or model}: cannot be read ({reason}).") from None
    except (ValueError, RecursionError) as error:
        raise JobError(f"{option} {error}") from None


def score_with(
    predictor: Predictor,
    model: str,
    records: Location,
    at: int,
    *,
    hindsight: bool = False,
    costs: ActionCosts | None = None,
    lists: Path | None = None,
    names: ColumnNames = OUR_NAMES,
) -> AtRiskList:
    """Make the list of a trained predictor as of `at`.

    Parameters
    ----------
    predictor : Predictor
    model : str
        Its source, for messages.
    records : Path or RemotePath
    at : int
        No later data is read.
    hindsight : bool
        Allow times before the training cutoff, and mark the list.
    costs : ActionCosts, optional
        Costs of the site; by default those of the training.
    lists : Path, optional
        Past lists for the calibration monitor.
    names : ColumnNames, optional
        Names of the columns in the data; without them those of the training.

    Raises
    ------
    JobError
        If the predictor was trained after `at`, and `hindsight` is not set.
    RecordsError
        If the records lack a column of the model or have another interval.
    """
    seen = at < parse_moment(predictor.facts.trained_at)
    if seen and not hindsight:
        raise JobError(
            f"--at {format_iso(at)} is before the training cutoff of {model} "
            f"({predictor.facts.trained_at}). Use a later time, or --hindsight to score anyway "
            "(the result is not a forecast)."
        )
    plan, facts = predictor.encoder.measures.plan, predictor.facts
    names = names if names.pairs else ColumnNames.from_mapping(facts.columns)
    store = RecordStore(records, plan.kinds, plan.interval, (*plan.peers, RACK), names)
    absent = sorted({*plan.kinds.names, *plan.peers} - store.columns())
    if absent:
        raise RecordsError(f"{records}: column `{absent[0]}` is missing; {model} requires it.")
    day, gathered = RecordingFleet.from_store(store, plan, at, facts.step), GatheredSums()
    values = predictor.encoder.measures.values(day, day.instances, gathered)
    candidates = ListCandidates(
        day.records(),
        values,
        plan,
        at,
        step=facts.step,
        horizon=facts.horizon,
        criteria=FlaggingCriteria(
            facts.share,
            costs or (ActionCosts.from_dict(facts.costs) if facts.costs else None),
            None if lists is None or seen else past_calibration(lists, store, at, facts.horizon),
        ),
        version=predictor.version,
        hindsight=seen,
        span_sums=gathered.sums(len(values)),
        causes=store.causes(at),
    )
    scores = predictor.scores(values)
    return candidates.ranked(
        scores["blend"],
        probability=predictor.calibration.apply(scores["blend"]),
        flagged_by=_flagged_by(predictor.committee, scores, facts.k),
        contributions=list_contributions(predictor, values),
    )


def score_with_rules(settings: Settings, records: Location, at: int) -> AtRiskList:
    """Make the list of the built-in rules, which need no training, as of `at`.

    Configured columns that the records lack are ignored. The list has no probabilities.
    """
    store, plan = _rules_plan(settings, records)
    day, gathered = RecordingFleet.from_store(store, plan, at, settings.step), GatheredSums()
    _, values = FeatureExtractor.fit_values(plan, day, day.instances, gathered)
    candidates = ListCandidates(
        day.records(),
        values,
        plan,
        at,
        step=settings.step,
        horizon=settings.horizon,
        criteria=FlaggingCriteria(settings.list.share, settings.list.costs),
        version=BUILTIN_RULES,
        span_sums=gathered.sums(len(values)),
        causes=store.causes(at),
    )
    points = rule_points(values, plan)
    return candidates.ranked(
        rule_scores(values, plan),
        probability=np.full(len(values), np.nan),
        flagged_by=np.full(len(values), "", dtype=object),
        contributions=Contributions.from_columns(_named_points(points, values)),
        suspected=sum(points.values(), np.zeros(len(values))) > 0,
    )


def _rules_plan(settings: Settings, records: Location) -> tuple[RecordStore, FeaturePlan]:
    """Return the part of the configuration that the rules can use with these records."""
    features, interval = settings.features, Nanoseconds(settings.records.interval)
    names = settings.records.names
    columns = RecordStore(records, FeatureKinds(), interval, names=names).columns()
    known = features.kinds.among(columns)
    # The rules use no other columns, so the others are not read.
    errors = () if GPU_ERROR in known.code or GPU_ERROR not in columns else (GPU_ERROR,)
    kinds = FeatureKinds(counter=known.counter, code=(*known.code, *errors))
    if not (kinds.counter or kinds.code):
        raise JobError(
            f"{records}: has no counter or event code column; {BUILTIN_RULES} requires one."
        )
    peers = tuple(name for name in features.peers if name in columns)
    length = RecordCount(settings.windows.length)
    plan = FeaturePlan(kinds, length, interval, features.history, peers)
    return RecordStore(records, kinds, interval, (*peers, RACK), names), plan


def _flagged_by(
    committee: Committee, scores: Mapping[str, Float64Array], k: float
) -> npt.NDArray[np.object_]:
    """Return which ensembles flag each GPU of the day."""
    order = np.arange(len(scores["blend"]))
    flagged_by = np.full(len(order), "", dtype=object)
    if not len(order):
        return flagged_by
    parallel, cascade = (
        committee.flags(method, scores, k, order) for method in ("parallel", "cascade")
    )
    flagged_by[parallel], flagged_by[cascade] = "parallel", "cascade"
    flagged_by[parallel & cascade] = "parallel+cascade"
    return flagged_by


def list_contributions(predictor: Predictor, values: InstanceValues) -> Contributions:
    """Return the contributions of trees, linear model and rules, weighted by their votes.

    Networks provide no contributions. Without trees and a linear model, only rules contribute.
    """
    points = _named_points(rule_points(values, predictor.encoder.measures.plan), values)
    models, factor = _explaining_models(predictor), predictor.committee.rules
    if not models:
        return Contributions.from_columns(points)
    names = tuple(dict.fromkeys(name for model, _ in models for name in model.feature_names))
    column = {name: number for number, name in enumerate(names)}

    def compute(rows: Int64Array) -> Float64Array:
        inputs = predictor.encoder.encode(values.select(rows))
        contributions = np.zeros((len(rows), len(names)))
        for model, share in models:
            columns = [column[name] for name in model.feature_names]
            contributions[:, columns] += share * model.contributions(inputs)
        for name, more in points.items():
            contributions[:, column[name]] += factor * more[rows]
        return contributions

    return Contributions(names, compute)


def _explaining_models(predictor: Predictor) -> list[tuple[GbdtModel | LinearModel, float]]:
    """Return the models that provide contributions, and their weights."""
    from forewarn.models.prediction.linear.linear_model import LinearModel
    from forewarn.models.prediction.trees.gbdt import GbdtModel

    linear, trees = (predictor.models.get(name) for name in (LINEAR, "gbdt"))
    share = predictor.committee.linear
    models: list[tuple[GbdtModel | LinearModel, float]] = []
    if isinstance(trees, GbdtModel):
        models.append((trees, 1.0 - share))
    if isinstance(linear, LinearModel) and share:
        models.append((linear, share))
    return models


def _named_points(
    points: dict[str, Float64Array], values: InstanceValues
) -> dict[str, Float64Array]:
    """Return the points of the rules by feature name."""
    named = {}
    for name, channel_points in points.items():
        longest = [n for n in values.context_names if n.startswith(f"{name}:")]
        if name in values.context_names:
            named[name] = channel_points
        else:
            named[longest[-1] if longest else f"{name}[-0]"] = channel_points
    return named

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.evaluation.prediction.walk_forward.comparison_rows import ComparisonRows
from forewarn.evaluation.prediction.walk_forward.fleet_survey import Span, survey_fleet
from forewarn.evaluation.prediction.walk_forward.instance_survey import survey_instances
from forewarn.evaluation.prediction.walk_forward.negative_sampling import negative_sampling_mask
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.records.record_table import FeatureKinds, Records
from forewarn.features.time_units import HOUR, Nanoseconds, RecordCount
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.training_set import Recipe

START, N_GPUS, N_HOURS = 20_500 * 24 * HOUR, 6, 120
EVERY, HORIZON = 12, 8
TERMS = WalkForwardSettings(
    recipe=Recipe(
        plan=FeaturePlan(FeatureKinds(float=("x",)), RecordCount(2), HOUR),
        step=HOUR,
        horizon=Nanoseconds(HORIZON * HOUR),
        cascade_model="gbdt",
        negatives_per_positive=1.0,
        positive_weight=1.0,
        cascade_positive_weight=1.0,
        seed=0,
    ),
    committee=Committee.from_models(("gbdt",), ("gbdt",), (("gbdt", 0.2),)),
    models=("gbdt",),
    training_spans=(Nanoseconds(20 * HOUR),),
    every=Nanoseconds(EVERY * HOUR),
    k=0.1,
    negatives_per_positive=2.0,
    select_by="parallel",
)


def records_of(hours: list[int]) -> Records:
    """Return hourly records of GPUs whose last record is at a given hour."""
    gpu = np.concatenate([np.full(last, number, np.int32) for number, last in enumerate(hours)])
    time = np.concatenate([START + np.arange(last) * HOUR for last in hours])
    n, serials = len(gpu), tuple(f"G{number}" for number in range(N_GPUS))
    no, order = np.zeros(n, dtype=bool), np.arange(n)
    return Records(HOUR, serials, gpu, time, no, no, order)


tickets = st.tuples(
    *(st.integers(0, most) for most in (N_GPUS - 1, N_HOURS, 30, 40)),
    st.booleans(),
    st.sampled_from([0, 0, 3, 20]),  # hours until the repair is reported
    st.sampled_from([0, 0, 60]),  # hours with unknown health
)


@settings(max_examples=40)
@given(
    st.lists(st.integers(40, N_HOURS), min_size=N_GPUS, max_size=N_GPUS),
    st.lists(tickets, max_size=6),
)
def test_comparison_rows_contain_every_later_sample(
    hours: list[int], tickets: list[tuple[int, int, int, int, bool, int, int]]
) -> None:
    records = records_of(hours)
    table = np.array(tickets, dtype=np.int64).reshape(-1, 7)
    failed = START + table[:, 1] * HOUR
    repaired = np.where(table[:, 4] == 1, failed + (table[:, 2] + 1) * HOUR, NEVER)
    failures = Failures.from_spans(
        table[:, 0].astype(np.int32), failed, repaired, failed + table[:, 3] * HOUR
    )
    ended = repaired < NEVER
    failures = replace(
        failures,
        end_known_at=np.where(ended, repaired + table[:, 5] * ended * HOUR, NEVER),
        unknown_until=failed + table[:, 6] * ended * HOUR,
    )
    span, margin = [Span(START, START + N_HOURS * HOUR)], Nanoseconds(0)
    times = [START + hour * HOUR for hour in range(36, N_HOURS, EVERY)]
    fleet = survey_fleet(lambda _: records, span, margin, lambda *_: failures)
    found = survey_instances(lambda _: records, span, margin, fleet, TERMS.recipe, times)
    rows_of = ComparisonRows(TERMS, fleet, found.seen_before)
    for start in times[:4]:
        instances = found.instances.between(start, start + TERMS.every)
        hashes = sampling_hash(0, records.serials, instances.gpu, instances.end)
        window = WindowScores(start, instances, hashes, instances.label >= 0)
        rows = set(rows_of(window).tolist())
        for moment in times:
            if start + TERMS.every + TERMS.recipe.horizon <= moment:
                timeline = as_of(records, failures, moment, TERMS.reach)
                labels = window.known_labels(timeline, TERMS.recipe)
                sampled = negative_sampling_mask(labels, hashes, TERMS.negatives_per_positive)
                assert set(np.flatnonzero(sampled).tolist()) <= rows


def test_unfinished_window_has_no_comparison_rows() -> None:
    records = records_of([N_HOURS] * N_GPUS)
    span, margin = [Span(START, START + N_HOURS * HOUR)], Nanoseconds(0)
    failures = replace(Failures.empty(), gpu=np.zeros(0, dtype=np.int32))
    fleet = survey_fleet(lambda _: records, span, margin, lambda *_: failures)
    found = survey_instances(lambda _: records, span, margin, fleet, TERMS.recipe)
    start = START + 100 * HOUR
    instances = found.instances.between(start, start + TERMS.every)
    hashes = sampling_hash(0, records.serials, instances.gpu, instances.end)
    window = WindowScores(start, instances, hashes, instances.label >= 0)
    rows_of = ComparisonRows(TERMS, fleet, {start: fleet.newest.time})
    assert len(rows_of(window)) == 0

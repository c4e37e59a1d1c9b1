from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.features.table_source import TableSource

from forewarn.evaluation.prediction.walk_forward.fleet_survey import FleetSurvey, Span, survey_fleet
from forewarn.evaluation.prediction.walk_forward.instance_survey import (
    InstanceSurvey,
    survey_instances,
)
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances, find_instances, label_instances
from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.file_check import States
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.records.record_table import FeatureKinds, NoRecordsError, Records
from forewarn.features.records.row_cleaning import SpacingCheck
from forewarn.features.time_units import HOUR, Nanoseconds, RecordCount
from forewarn.models.prediction.training_set import Recipe

START, HOURS, KINDS = 20_500 * 24 * HOUR, 60, FeatureKinds()
MARGIN = Nanoseconds(6 * HOUR)


def recipe_of(length: int, step: int, horizon: int) -> Recipe:
    return Recipe(
        plan=FeaturePlan(FeatureKinds(float=("x",)), RecordCount(length), HOUR),
        step=Nanoseconds(step * HOUR),
        horizon=Nanoseconds(horizon * HOUR),
        cascade_model="gbdt",
        negatives_per_positive=1.0,
        positive_weight=1.0,
        cascade_positive_weight=1.0,
        seed=0,
    )


class Fleet(NamedTuple):
    """Keys of records in hours since the start, and a table of failures."""

    frame: pd.DataFrame
    tickets: list[tuple[str, int, int, int]]

    def read(self, span: Span) -> Records:
        time = START + np.round(self.frame["hour"].to_numpy() * HOUR).astype(np.int64)
        rows = (time >= span.start) & (time < span.end)
        if not rows.any():
            raise NoRecordsError("none")
        frame = self.frame[rows]
        table = pa.table(
            {
                "gpu_serial": pa.array(frame["gpu"].tolist()),
                "timestamp": pa.array(time[rows]).cast(pa.timestamp("ns", "UTC")),
                "failure": pa.array(frame["failure"].tolist()),
                "machine_id": pa.array(frame["machine"].tolist()),
            }
        )
        query = RecordsQuery("hand", KINDS, HOUR, ("machine_id",))
        records = assemble([TableSource("hand", table)], query, spacings=SpacingCheck())
        return records

    def reported(self, serials: Sequence[str]) -> Failures:
        known = [ticket for ticket in self.tickets if ticket[0] in serials]
        gpu = np.array([serials.index(ticket[0]) for ticket in known], dtype=np.int32)
        hours = np.array([ticket[1:] for ticket in known], dtype=np.int64).reshape(-1, 3)
        at = START + hours * HOUR
        ended = hours[:, 1] <= HOURS
        repaired = np.where(ended, at[:, 1], NEVER)
        # Every third end became known later; some of those are presumed.
        late, presumed = hours[:, 2] % 3 == 0, hours[:, 2] % 2 == 0
        return Failures(
            gpu,
            at[:, 0],
            repaired,
            at[:, 2],
            np.where(ended, repaired + late * ended * 5 * HOUR, NEVER),
            at[:, 0] + late * presumed * ended * 30 * HOUR,
        )

    def failures(self, serials: Sequence[str], states: States) -> Failures:
        return Failures.from_rows(*states).joined(self.reported(serials))


def lists_of(most: int, *parts: st.SearchStrategy[int]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.tuples(st.integers(0, 59), *parts), max_size=most)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Draw GPUs with gaps, late clocks, duplicate rows, rows too close, repairs and tickets."""
    parts, tickets = [], []
    spans = st.integers(1, 9)
    for number in range(draw(st.integers(1, 3))):
        hours = np.arange(HOURS, dtype=float)
        present, failure = np.ones(HOURS, dtype=bool), np.zeros(HOURS, dtype=int)
        for begin, length in draw(lists_of(4, st.sampled_from([1, 1, 2, 12]))):
            present[begin : begin + length] = False
        present[draw(st.integers(0, 59))] = True
        for begin, length in draw(lists_of(2, spans)):
            failure[begin : begin + length] = 1
        frame = pd.DataFrame({"gpu": f"G{number}", "hour": hours, "failure": failure})
        frame["machine"] = np.where(hours < draw(st.integers(0, 90)), f"m{number % 2}", "m9")
        again = frame.iloc[draw(st.lists(st.integers(0, 59), max_size=3))]
        close = again.assign(hour=again["hour"] + 0.2)
        frame["hour"] += draw(st.sampled_from([0.0, 0.3]))
        parts += [frame[present], again, close]
        for begin, length, late in draw(lists_of(2, spans, st.integers(0, 9))):
            tickets.append((f"G{number}", begin, begin + length, begin + late))
    frame = pd.concat(parts, ignore_index=True)
    return Fleet(frame.sort_values("hour", kind="stable", ignore_index=True), tickets)


def spans_of(cuts: list[int], fleet: Fleet) -> list[Span]:
    """Split all records into spans, each with a record."""
    edges = [START, *(START + cut * HOUR for cut in sorted(set(cuts))), START + 99 * HOUR]
    time = START + np.round(fleet.frame["hour"].to_numpy() * HOUR)
    spans, start = [], START
    for end in edges[1:]:
        within = (time >= start) & (time < end)
        if (within.any() and (time >= end).any()) or end == edges[-1]:
            spans.append(Span(start, end))
            start = end
    return spans


def surveyed(
    fleet: Fleet, recipe: Recipe, spans: list[Span], moments: list[int]
) -> tuple[FleetSurvey, InstanceSurvey]:
    survey = survey_fleet(fleet.read, spans, MARGIN, fleet.failures)
    return survey, survey_instances(fleet.read, spans, MARGIN, survey, recipe, moments)


def whole(fleet: Fleet, recipe: Recipe) -> tuple[Records, Failures, Instances]:
    """Read everything at once and find the instances."""
    records = fleet.read(Span(START, START + 99 * HOUR))
    failures = Failures.from_records(records).joined(fleet.reported(records.serials))
    found = find_instances(
        build_timeline(records, failures.as_observed()),
        window_records=recipe.plan.window_records,
        step_records=recipe.step_records,
        horizon=recipe.horizon,
    )
    labels = label_instances(
        build_timeline(records, failures), found.gpu, found.end, recipe.horizon
    )
    return records, failures, Instances(found.row, found.gpu, found.end, labels)


@settings(max_examples=40, phases=(Phase.reuse, Phase.generate))
@given(
    fleets(),
    st.lists(st.integers(1, 60), max_size=6),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_surveys_do_not_depend_on_spans(
    fleet: Fleet, cuts: list[int], length: int, step: int, horizon: int
) -> None:
    recipe = recipe_of(length, step, horizon)
    records, failures, expected = whole(fleet, recipe)
    survey, found = surveyed(fleet, recipe, spans_of(cuts, fleet), [START + 30 * HOUR])
    assert survey.serials == records.serials
    assert (survey.first, survey.last) == (records.first, records.last)
    for name in ("gpu", "end", "label"):
        assert getattr(found.instances, name).tolist() == getattr(expected, name).tolist()
    for name in ("gpu", "failed_at", "repaired_at", "known_at"):
        assert getattr(survey.failures, name).tolist() == getattr(failures, name).tolist()
    assert found.n_records == len(records) - records.seen.filled
    assert (found.filled, found.gaps) == (records.seen.filled, records.seen.gaps)
    for name in ("without_key", "doubled", "too_close"):
        assert getattr(survey.seen, name) == getattr(records.seen, name)
    before = records.time < START + 30 * HOUR
    for number in range(len(records.serials)):
        times = records.time[before & (records.gpu == number) & ~records.filled]
        expected_last = times.max() if len(times) else np.iinfo(np.int64).min
        assert found.seen_before[START + 30 * HOUR][number] == expected_last
    again = survey.rows_in(survey.numbered(records), found.instances)
    assert again.row.tolist() == expected.row.tolist()
    machines = [of.codes("machine_id", again.row) for of in (survey.numbered(records), records)]
    assert machines[0].tolist() == machines[1].tolist()

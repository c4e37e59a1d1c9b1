"""Features and labels as of a time do not depend on later data (leakage tests)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import find_instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import FeatureKinds, Records
from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds, RecordCount
from forewarn.models.prediction.training_candidates import instances_known_at
from forewarn.models.prediction.training_set import (
    Recipe,
    UndersampledInstances,
    build_training_sets,
)

Make = Callable[..., Records]
Row = dict[str, Any]
Rows = Callable[..., list[Row]]
Fail = Callable[..., Failures]
At = Callable[[float], int]
# Serial; times of failure, repair and report; time at which the end became known; time until which
# health is unknown.
Ticket = tuple[str, float, float | None, float, float | None, float | None]

LENGTH, STEP, HORIZON = 4, 2, Nanoseconds(3 * HOUR)
START, END = 600.0, 4_200.0  # minutes of the training start and the last record
PLAN = FeaturePlan(
    kinds=FeatureKinds(
        categorical=("kind",),
        float=("temperature", "power"),
        counter=("count",),
        binary=("throttled",),
        code=("xid",),
        date=("until",),
    ),
    window_records=RecordCount(LENGTH),
    interval=Nanoseconds(30 * MINUTE),
    history=(2, 6),
    peers=("machine_id", "kind"),
    residuals=(("temperature", "power"),),
)
RECIPE = Recipe(
    plan=PLAN,
    step=Nanoseconds(STEP * 30 * MINUTE),
    horizon=HORIZON,
    cascade_model="mlp",
    negatives_per_positive=0.1,
    positive_weight=1.0,
    cascade_positive_weight=10.0,
    seed=3,
)
TEXTS = ("machine_id", "slot")


@dataclass(frozen=True)
class _Fleet:
    """Rows of all records and a table of failures, times in minutes."""

    rows: list[tuple[float, Row]]
    tickets: list[Ticket]


def _reading(source: random.Random) -> Row:
    return {
        "temperature": source.choice([None, source.uniform(30, 90), source.uniform(30, 90)]),
        "power": source.uniform(50, 400),
        "count": source.choice([None, *range(8)]),
        "throttled": source.choice([None, 0, 0, 1]),
        "xid": source.choice([None, 0, 0, 0, 0, 13, 63, 79, source.randrange(1, 173)]),
        "until": source.choice([None, "2026-05-01", "2027-01-01"]),
        "kind": source.choice(["V100", "P4", None]) if source.random() < 0.05 else "V100",
        "machine_id": source.choice(["m", "n"]) if source.random() < 0.05 else "m",
        "slot": source.choice([0, 1]),
        "failure": int(source.random() < 0.02),
    }


def _ticket(source: random.Random, serial: str, low: float, high: float) -> Ticket:
    failed = source.uniform(low, high)
    known = failed + source.choice([0.0, source.uniform(0, 900)])
    repaired, end_known, until = _end(source, failed, failed)
    return serial, failed, repaired, known, end_known, until


def _end(
    source: random.Random, failed: float, low: float
) -> tuple[float | None, float | None, float | None]:
    """Return times of repair and of its report, and the time until which health is unknown."""
    repaired = source.choice([None, low + source.uniform(1, 600)])
    if repaired is None:
        return None, None, None
    known = repaired + source.choice([0.0, source.uniform(0, 900)])
    return repaired, known, source.choice([None, known, failed + source.uniform(1, 1_500)])


def _fleet(source: random.Random, rows: Rows) -> _Fleet:
    """Return five GPUs with jitter, gaps and failures; E comes late or not at all."""
    listed: list[tuple[float, Row]] = []
    for serial in "ABCDE":
        first = source.choice([0, 0, 10]) if serial != "E" else source.randrange(200)
        last = source.choice([140, 140, 80]) if serial != "A" else 140
        for i in range(first, last):
            if source.random() < 0.06:
                continue
            time = 30 * i + source.randint(-8, 8)
            listed += [(time, rows(serial, [time], **_reading(source))[0])]
    tickets = [
        _ticket(source, source.choice("ABCD"), -600, END) for _ in range(source.randrange(6))
    ]
    return _Fleet(listed, tickets)


def _altered(fleet: _Fleet, moment: float, source: random.Random, rows: Rows) -> _Fleet:
    """Return the fleet with a different future: everything after `moment` may differ."""
    past = [one for one in fleet.rows if one[0] < moment]
    future = [one for one in fleet.rows if one[0] >= moment]
    how = source.choice(["altered", "shuffled", "removed", "more"])
    if how == "altered":
        future = [(time, row | _reading(source)) for time, row in future]
    elif how == "shuffled":
        readings = [row for _, row in future]
        source.shuffle(readings)
        keys = ("gpu_serial", "timestamp")
        future = [
            (time, other | {key: row[key] for key in keys})
            for (time, row), other in zip(future, readings, strict=True)
        ]
    elif how == "removed":
        future = [one for one in future if source.random() < 0.3]
    else:
        times = [moment + 30 * i + source.random() for i in range(40)]
        future += [(time, rows("0", [time], **_reading(source))[0]) for time in times]
    return _Fleet(past + future, [_altered_ticket(one, moment, source) for one in fleet.tickets])


def _altered_ticket(ticket: Ticket, moment: float, source: random.Random) -> Ticket:
    """Return a ticket with a different future."""
    serial, failed, repaired, when, end_known, until = ticket
    if when >= moment:
        serial, failed, *end = _ticket(source, serial, moment, END)
        return serial, failed, end[0], moment + source.uniform(0, 900), end[2], end[3]
    if repaired is not None and max(repaired, end_known or repaired) >= moment:
        repaired, end_known, until = _end(source, failed, moment)
        if repaired is not None and source.random() < 0.5:  # already repaired, but not reported
            repaired = failed + source.uniform(0, moment - failed)
    return serial, failed, repaired, when, end_known, until


def _loaded(
    fleet: _Fleet, assembled: Make, failures: Fail, n_files: int = 1
) -> tuple[Records, Failures]:
    listed = [row for _, row in fleet.rows]
    size = -(-len(listed) // n_files)
    files = [listed[i : i + size] for i in range(0, len(listed), size)]
    records = assembled(*files, kinds=PLAN.kinds, texts=TEXTS, interval=30)
    tickets = [one for one in fleet.tickets if one[0] in records.serials]
    return records, Failures.from_records(records).joined(failures(records, *tickets))


def _training(records: Records, found: Failures, at: At, moment: float) -> dict[str, Any] | None:
    """Return every array of the training set as of `moment`; None without positives."""
    timeline = build_timeline(
        records.between(at(START), at(moment)), found.known_before(at(moment))
    )
    everything = find_instances(
        timeline,
        window_records=RecordCount(LENGTH),
        step_records=RecordCount(STEP),
        horizon=HORIZON,
    )
    chosen = instances_known_at(
        everything, at(moment), Nanoseconds(at(moment) - at(START)), HORIZON
    )
    if not (chosen.label == 1).any():
        return None
    thinned = UndersampledInstances.from_instances(RECIPE, timeline, chosen)
    encoder, training = next(build_training_sets(RECIPE, timeline, [thinned]))
    inputs = training.inputs
    return {
        "sequence": inputs.sequence.tobytes(),
        "context": inputs.context.tobytes(),
        "names": (inputs.sequence_names, inputs.context_names),
        "levels": (inputs.sequence_levels, inputs.context_levels),
        "labels": training.labels.tolist(),
        "weights": training.weights.tolist(),
        "ends": training.ends.tolist(),
        "prevalence": training.prevalence,
        "serials": [timeline.records.serials[gpu] for gpu in chosen.gpu],
        "encoder": encoder.to_dict(),
    }


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1_800, 3_900), st.integers(0, 2**32))
def test_later_data_changes_no_training_array(
    assembled: Make, rows: Rows, failures: Fail, at: At, seed: int, moment: int, other: int
) -> None:
    fleet = _fleet(random.Random(seed), rows)
    before = _training(*_loaded(fleet, assembled, failures), at, moment)
    assume(before is not None)
    changed = _altered(fleet, moment, random.Random(other), rows)
    assert _training(*_loaded(changed, assembled, failures), at, moment) == before


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.integers(1, 5))
def test_training_arrays_ignore_file_and_row_order(
    assembled: Make, rows: Rows, failures: Fail, at: At, seed: int, other: int, n_files: int
) -> None:
    fleet = _fleet(random.Random(seed), rows)
    before = _training(*_loaded(fleet, assembled, failures), at, 3_000)
    assume(before is not None)
    shuffled = fleet.rows.copy()
    random.Random(other).shuffle(shuffled)
    again = _loaded(_Fleet(shuffled, fleet.tickets[::-1]), assembled, failures, n_files)
    assert _training(*again, at, 3_000) == before


def _measured(
    measures: FeatureExtractor, timeline: Timeline, end: int
) -> dict[tuple[str, int], Any]:
    """Return the measured values of every instance that ends at or before `end`."""
    found = find_instances(
        timeline, window_records=RecordCount(LENGTH), step_records=RecordCount(1), horizon=HORIZON
    )
    found = found.select(found.end <= end)
    values = measures.values(timeline, found)
    keys = zip(
        (timeline.records.serials[gpu] for gpu in found.gpu), found.end.tolist(), strict=True
    )
    return {
        key: (values.sequence[i].tobytes(), values.context[i].tobytes())
        for i, key in enumerate(keys)
    }


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1_200, 3_900), st.integers(0, 2**32))
def test_later_records_change_no_features(
    assembled: Make, rows: Rows, failures: Fail, at: At, seed: int, end: int, other: int
) -> None:
    fleet = _fleet(random.Random(seed), rows)
    records, found = _loaded(fleet, assembled, failures)
    timeline = build_timeline(records.between(at(START), at(END)), found.as_observed())
    instances = find_instances(
        timeline,
        window_records=RecordCount(LENGTH),
        step_records=RecordCount(STEP),
        horizon=HORIZON,
    )
    assume(len(instances) > 0)
    measures = FeatureExtractor.fit(PLAN, timeline, instances)
    changed = _altered(fleet, end + 1 / MINUTE, random.Random(other), rows)
    records, found = _loaded(changed, assembled, failures)
    future = build_timeline(records.between(at(START), at(END)), found.as_observed())
    one, two = (_measured(measures, line, at(end)) for line in (timeline, future))
    # A last record that is filled is part of a window only if the next record arrives.
    shared = one.keys() & two.keys()
    assert len(shared) >= min(len(one), len(two)) - 5
    assert {key: one[key] for key in shared} == {key: two[key] for key in shared}


# --- the same, by hand -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(rows: Rows) -> list[Row]:
    return [
        one
        for serial in "ABC"
        for one in rows(
            serial,
            range(0, 4_200, 30),
            temperature=[40.0 + i % 5 for i in range(140)],
            power=100.0,
            count=0,
            throttled=0,
            xid=0,
            until=None,
            kind="V100",
            machine_id="m",
            slot=0,
        )
    ]


@pytest.mark.parametrize(
    ("now", "otherwise"),
    [
        (("B", 3_100, None, 3_100), ("B", 3_900, None, 3_900)),
        (("B", 2_400, None, 3_001), ("B", 2_800, None, 3_500)),
        (("B", 2_400, None, 3_000), ("B", 3_600, None, 3_600)),
        (("B", 900, 1_200, 900, 3_000), ("B", 900, None, 900)),
        (("B", 900, 1_200, 900, 3_000), ("B", 900, 2_000, 900, 3_500)),
        (("B", 900, 1_200, 900, 3_000, 3_600), ("B", 900, None, 900)),
    ],
    ids=[
        *("failed later", "known later", "known at the moment"),
        *("end known at the moment", "end known later", "presumed at the moment"),
    ],
)
def test_failure_after_moment_changes_no_training_array(
    now: tuple[Any, ...],
    otherwise: tuple[Any, ...],
    plain: list[Row],
    assembled: Make,
    failures: Fail,
    at: At,
) -> None:
    records = assembled(plain, kinds=PLAN.kinds, texts=TEXTS, interval=30)
    known_long_ago = ("A", 1_500, 1_800)
    one = _training(records, failures(records, known_long_ago, now), at, 3_000)
    two = _training(records, failures(records, known_long_ago, otherwise), at, 3_000)
    assert one is not None
    assert one == two


def test_later_cancelled_end_changes_no_training_array(
    plain: list[Row], assembled: Make, failures: Fail, at: At
) -> None:
    records = assembled(plain, kinds=PLAN.kinds, texts=TEXTS, interval=30)
    listed = [("A", 1_500, 1_800), ("B", 900, 1_000, 900, 1_200, 1_600)]
    one = _training(records, failures(records, *listed), at, 3_000)
    two = _training(records, failures(records, *listed, ("B", 1_400, None, 3_000)), at, 3_000)
    assert one is not None
    assert one == two


def test_labels_are_unknown_until_presumed_end_counts(
    plain: list[Row], assembled: Make, failures: Fail, at: At
) -> None:
    records = assembled(plain, kinds=PLAN.kinds, texts=TEXTS, interval=30)
    presumed = failures(records, ("B", 900, 1_000, 900, 1_200, 2_000), ("B", 2_100, None, 2_100))
    found = find_instances(
        build_timeline(records, presumed.known_before(at(4_000))),
        window_records=RecordCount(LENGTH),
        step_records=RecordCount(1),
        horizon=HORIZON,
    )
    found = found.select(found.gpu == 1)
    labels = {
        round((end - at(0)) / MINUTE): label
        for end, label in zip(found.end, found.label, strict=True)
    }
    # It fails at 900 and at 2,100, and has instances again 90 minutes after each repair.
    assert {end for end, label in labels.items() if label == 1} == {
        *range(720, 900, 30),
        *range(2_010, 2_100, 30),
    }
    assert {end for end, label in labels.items() if label == -1} == set(range(1_110, 2_000, 30))
    assert {end for end, label in labels.items() if label == 0} == set(range(90, 720, 30))


def test_earlier_known_failure_changes_training_set(
    plain: list[Row], assembled: Make, failures: Fail, at: At
) -> None:
    records = assembled(plain, kinds=PLAN.kinds, texts=TEXTS, interval=30)
    known_long_ago = ("A", 1_500, 1_800)
    one = _training(records, failures(records, known_long_ago), at, 3_000)
    two = _training(
        records, failures(records, known_long_ago, ("B", 2_400, None, 2_999)), at, 3_000
    )
    assert one is not None
    assert two is not None
    assert sum(two["labels"]) > sum(one["labels"])


def test_filled_record_determines_no_label(assembled: Make, rows: Rows, at: At) -> None:
    # The record at 40 is filled because 50 arrived, which is not known at 45.
    records = assembled(rows("A", [0, 10, 20, 30, 50, 60, 70]))
    timeline = build_timeline(records.between(at(0), at(45)), Failures.empty())
    found = find_instances(
        timeline,
        window_records=RecordCount(1),
        step_records=RecordCount(1),
        horizon=Nanoseconds(10 * MINUTE),
    )
    assert found.label.tolist() == [0, 0, 0, -1]


def test_bucket_edges_use_training_instances_only(
    plain: list[Row], assembled: Make, at: At
) -> None:
    hot = [row | {"temperature": 500.0} if i % 140 >= 110 else row for i, row in enumerate(plain)]
    edges = []
    for listed in (plain, hot):
        records = assembled(listed, kinds=PLAN.kinds, texts=TEXTS, interval=30)
        timeline = build_timeline(records.between(at(0), at(4_200)), Failures.empty())
        found = find_instances(
            timeline,
            window_records=RecordCount(LENGTH),
            step_records=RecordCount(STEP),
            horizon=HORIZON,
        )
        encoder, _ = Encoder.fit(PLAN, timeline, found.select(found.end < at(3_000)))
        edges.append([one.tolist() for one in encoder.sequence.edges])
    assert edges[0] == edges[1]

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances, find_instances
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import DAY, HOUR, FeatureKinds, Records
from forewarn.features.time_units import MINUTE, Nanoseconds, RecordCount
from forewarn.features.xid_catalogue import APPLICATION, FATAL

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, Any]]]
Minutes = Callable[..., list[float]]
Fail = Callable[..., Failures]
At = Callable[[float], int]

KINDS = FeatureKinds(
    categorical=("kind",),
    float=("temperature",),
    counter=("count",),
    binary=("throttled",),
    code=("xid",),
    date=("until",),
)


def _plan(kinds: FeatureKinds, length: int = 3, **asked: Any) -> FeaturePlan:
    return FeaturePlan(
        kinds, window_records=RecordCount(length), interval=Nanoseconds(10 * MINUTE), **asked
    )


def _find(timeline: Timeline, plan: FeaturePlan) -> Instances:
    return find_instances(
        timeline, window_records=plan.window_records, step_records=RecordCount(1), horizon=MINUTE
    )


def _values(plan: FeaturePlan, timeline: Timeline) -> InstanceValues:
    instances = _find(timeline, plan)
    return FeatureExtractor.fit(plan, timeline, instances).values(timeline, instances)


def _column(values: InstanceValues, name: str) -> list[float]:
    found: list[float] = values.context[:, values.context_names.index(name)].tolist()
    return found


# --- the plan ----------------------------------------------------------------------------------


def test_window_duration() -> None:
    assert _plan(KINDS, length=18).window == 3 * HOUR


@pytest.mark.parametrize(("history", "hours"), [((), 3), ((4, 16, 56), 168), ((2, 1), 6)])
def test_reach_covers_longest_span(history: tuple[int, ...], hours: int) -> None:
    plan = _plan(KINDS, length=18, history=history)
    assert plan.reach == hours * HOUR + 3 * HOUR + DAY


def test_plan_round_trip() -> None:
    plan = _plan(KINDS, history=(4, 16), peers=("machine_id",), residuals=(("a", "b"), ("b", "c")))
    assert FeaturePlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


# --- windows -----------------------------------------------------------------------------------


def test_windows_are_ordered_oldest_first(assembled: Make, rows: Rows) -> None:
    kinds = KINDS.among({"temperature", "count", "throttled", "xid"})
    records = assembled(
        rows(
            "A",
            [0, 10, 30, 40],
            temperature=[1.0, 2.0, None, 5.0],
            count=[7, 9, 9, 12],
            throttled=[True, False, True, None],
            xid=[13, 31, 0, 79],
        ),
        kinds=kinds,
    )
    values = _values(_plan(kinds), build_timeline(records, Failures.empty()))
    assert values.sequence_names == ("temperature", "count", "throttled", "xid")
    assert values.sequence.shape == (2, 3, 4)
    nan = math.nan
    # Minute 20 is filled from minute 10, without event and increment.
    first = [[2.0, 2.0, 0.0, 31.0], [2.0, 0.0, 0.0, 0.0], [nan, 0.0, 1.0, 0.0]]
    second = [[2.0, 0.0, 0.0, 0.0], [nan, 0.0, 1.0, 0.0], [5.0, 3.0, nan, 79.0]]
    assert np.array_equal(values.sequence, [first, second], equal_nan=True)


def test_windows_stay_within_gpu(assembled: Make, rows: Rows) -> None:
    kinds = KINDS.among({"temperature"})
    records = assembled(
        rows("A", [0, 10, 20], temperature=1.0) + rows("B", [0, 10, 20, 30], temperature=2.0),
        kinds=kinds,
    )
    sequence = _values(_plan(kinds), build_timeline(records, Failures.empty())).sequence
    assert sequence[:, :, 0].tolist() == [[1.0] * 3, [2.0] * 3, [2.0] * 3]


def test_no_instances_no_values(assembled: Make, rows: Rows) -> None:
    records = assembled(
        rows("A", [0, 10], temperature=1.0, count=1, throttled=0, xid=0)
        + rows("A", [20], temperature=1.0, count=1, throttled=0, xid=0),
        kinds=KINDS.among({"temperature", "count", "throttled", "xid"}),
        texts=(),
    )
    timeline = build_timeline(records, Failures.empty())
    plan = _plan(KINDS.among({"temperature", "count", "throttled", "xid"}), history=(2,))
    nothing = _find(timeline, plan).select(np.zeros(0, dtype=np.int64))
    values = FeatureExtractor.fit(plan, timeline, _find(timeline, plan)).values(timeline, nothing)
    assert values.sequence.shape == (0, 3, 4)
    assert values.context.shape == (0, len(values.context_names))


# --- what does not change over a window --------------------------------------------------------


def test_training_categories_have_columns(assembled: Make, rows: Rows) -> None:
    kinds = KINDS.among({"kind"})
    records = assembled(
        rows("A", [0, 10, 20], kind=["T4", "T4", "P4"])
        + rows("B", [0, 10, 20, 30], kind="V100")
        + rows("C", [0, 10, 20], kind=None),
        kinds=kinds,
    )
    values = _values(_plan(kinds), build_timeline(records, Failures.empty()))
    # T4 occurs only in records without an instance. V100 has two instances, so it comes first.
    assert values.context_names == ("category:kind=V100", "category:kind=P4")
    assert values.context.tolist() == [[0, 1], [1, 0], [1, 0], [0, 0]]


def test_unseen_category_has_no_column(assembled: Make, rows: Rows) -> None:
    kinds = KINDS.among({"kind"})
    plan = _plan(kinds)
    seen = build_timeline(
        assembled(rows("A", [0, 10, 20], kind="T4"), kinds=kinds), Failures.empty()
    )
    measures = FeatureExtractor.fit(plan, seen, _find(seen, plan))
    listed = rows("A", [0, 10, 20], kind="H100") + rows("B", [0, 10, 20], kind="T4")
    later = build_timeline(assembled(listed, kinds=kinds), Failures.empty())
    assert measures.values(later, _find(later, plan)).context.tolist() == [[0], [1]]
    other = assembled(rows("A", [0, 10, 20], kind="H100"), kinds=kinds)
    later = build_timeline(other, Failures.empty())
    assert measures.values(later, _find(later, plan)).context.tolist() == [[0]]


def test_most_frequent_categories_have_columns(assembled: Make, rows: Rows) -> None:
    kinds = KINDS.among({"kind"})
    listed = [one for i in range(60) for one in rows(f"G{i}", [0, 10, 20], kind=f"k{i:02}")]
    listed += rows("H", [0, 10, 20], kind="k59")
    values = _values(_plan(kinds), build_timeline(assembled(listed, kinds=kinds), Failures.empty()))
    assert len(values.context_names) == 32
    assert values.context_names[0] == "category:kind=k59"
    assert values.context.sum() == 32 + 1


def test_days_until_date_count_from_window_end(assembled: Make, rows: Rows, at: At) -> None:
    kinds = KINDS.among({"until"})
    today = at(0) // DAY
    soon, past = (str(np.datetime64(int(today + days), "D")) for days in (10, -1))
    listed = rows("A", [700, 710, 720], until=soon) + rows("B", [1420, 1430, 1440], until=past)
    listed += rows("C", [0, 10, 20], until=None)
    timeline = build_timeline(assembled(listed, kinds=kinds), Failures.empty())
    days = _column(_values(_plan(kinds), timeline), "days_until:until")
    assert days[:2] == pytest.approx([9.5, -2.0], abs=0.01)
    assert math.isnan(days[2])


# --- event codes -------------------------------------------------------------------------------


@pytest.fixture
def coded(assembled: Make, rows: Rows) -> InstanceValues:
    # Windows of three records; the last one has no event.
    kinds = KINDS.among({"xid"})
    records = assembled(rows("A", range(0, 70, 10), xid=[13, 0, 13, 79, 0, 0, 0]), kinds=kinds)
    return _values(_plan(kinds), build_timeline(records, Failures.empty()))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("count:xid", [2, 2, 2, 1, 0]),
        ("count:xid=13", [2, 1, 1, 0, 0]),
        ("count:xid=79", [0, 1, 1, 1, 0]),
        ("window_since:xid", [0, 0, 1 / 6, 2 / 6, 3 / 6]),  # no event: the length of the window
        ("severity:xid", [APPLICATION, FATAL, FATAL, FATAL, 0]),
    ],
)
def test_codes_in_window_are_counted(
    column: str, expected: list[float], coded: InstanceValues
) -> None:
    assert _column(coded, column) == pytest.approx(expected)


def test_filled_record_code_counts_once(assembled: Make, rows: Rows) -> None:
    kinds = KINDS.among({"xid"})
    records = assembled(rows("A", [0, 10, 30], xid=[0, 79, 0]), kinds=kinds)
    values = _values(_plan(kinds, length=4), build_timeline(records, Failures.empty()))
    assert _column(values, "count:xid") == [1]
    assert _column(values, "window_since:xid") == pytest.approx([2 / 6])


def test_codes_are_ranked_by_number_of_gpus(assembled: Make, rows: Rows) -> None:
    kinds = KINDS.among({"xid"})
    chatty = rows("A", range(0, 900, 10), xid=[100 + i % 9 for i in range(90)])
    others = [one for s in "BC" for one in rows(s, range(0, 40, 10), xid=[13, 31, 79, 0])]
    timeline = build_timeline(assembled(chatty + others, kinds=kinds), Failures.empty())
    plan = _plan(kinds)
    codes = FeatureExtractor.fit(plan, timeline, _find(timeline, plan)).codes["xid"]
    assert len(codes) == 8
    assert {13, 31, 79} < set(codes)
    assert list(codes) == sorted(codes)


def test_failed_records_select_no_codes(assembled: Make, rows: Rows, failures: Fail) -> None:
    kinds = KINDS.among({"xid"})
    codes = [13, 0, 0, 0, 79, 79, 31, 0, 0]
    records = assembled(rows("A", range(0, 90, 10), xid=codes), kinds=kinds)
    timeline = build_timeline(records, failures(records, ("A", 40, 60)))
    plan = _plan(kinds)
    assert FeatureExtractor.fit(plan, timeline, _find(timeline, plan)).codes == {"xid": (13, 31)}


# --- earlier failures --------------------------------------------------------------------------


def _places(rows: Rows, **where: Any) -> list[dict[str, Any]]:
    """Return seven records of each GPU; `where` is serial = (machine, slot)."""
    return [
        one
        for serial, (machine, slot) in where.items()
        for one in rows(serial, range(0, 70, 10), machine_id=machine, slot=slot)
    ]


def _counted(
    assembled: Make, listed: list[dict[str, Any]], of: Callable[[Records], Failures], which: str
) -> Callable[[str, float], float]:
    """Return the count of earlier failures by serial and minute of the end."""
    records = assembled(listed, texts=("machine_id", "slot"))
    timeline = build_timeline(records, of(records))
    plan = _plan(FeatureKinds(), length=1, history=(1,))
    instances = _find(timeline, plan)
    counts = _column(_values(plan, timeline), f"failures:{which}")
    keys = [(records.serials[g], int(e)) for g, e in zip(instances.gpu, instances.end, strict=True)]
    by_key = dict(zip(keys, counts, strict=True))
    start = int(records.time.min())
    return lambda serial, minute: by_key[serial, start + round(minute * MINUTE)]


def test_failure_counts_for_serial_once_known(assembled: Make, rows: Rows, failures: Fail) -> None:
    listed = _places(rows, A=("m", 0), B=("m", 1))
    count = _counted(
        assembled, listed, lambda r: failures(r, ("A", 15, 25, 40), ("A", -99, -90)), "serial"
    )
    assert [count("A", minute) for minute in (0, 10, 30, 40, 50, 60)] == [1, 1, 1, 1, 2, 2]
    assert count("B", 60) == 0


def test_earlier_failures_persist_after_repair(assembled: Make, rows: Rows, failures: Fail) -> None:
    listed = _places(rows, A=("m", 0))
    count = _counted(assembled, listed, lambda r: failures(r, ("A", 5, 8), ("A", 25, 35)), "serial")
    assert [count("A", minute) for minute in (0, 10, 20, 40, 60)] == [0, 1, 1, 2, 2]


def test_failure_counts_for_slot(assembled: Make, rows: Rows, failures: Fail) -> None:
    # A fails in slot 0 of m and moves to n; B takes its place.
    a = (["m", "m", "m", "n", "n", "n", "n"], 0)
    b = (["n", "n", "n", "n", "m", "m", "m"], [5, 5, 5, 5, 0, 0, 0])
    listed = _places(rows, A=a, B=b, C=("m", 1), D=("n", 5))
    count = _counted(assembled, listed, lambda r: failures(r, ("A", 15, 28)), "slot")
    assert [count("A", minute) for minute in (0, 10, 30, 40)] == [0, 0, 0, 0]
    assert [count("B", minute) for minute in (20, 30, 40, 60)] == [0, 0, 1, 1]
    assert count("C", 60) == count("D", 60) == 0


def test_slot_failures_ignore_extra_records(assembled: Make, rows: Rows, failures: Fail) -> None:
    day = 1440
    minutes = [*range(0, 60, 10), *range(day, day + 60, 10), *range(2 * day, 2 * day + 60, 10)]
    listed = rows("A", minutes[:3], machine_id="m", slot=0)
    listed += rows("B", minutes, machine_id="m", slot=0) + rows("C", minutes)
    found = []
    for since in (0, day):
        records = assembled(listed, texts=("machine_id", "slot"))
        seen = records.between(int(records.time.min()) + since * MINUTE, NEVER)
        timeline = build_timeline(seen, failures(records, ("A", 25)))
        plan = _plan(FeatureKinds(), length=1, history=(1,))
        instances = _find(timeline, plan)
        late = instances.select(instances.end == records.time.max())
        values = FeatureExtractor.fit(plan, timeline, late).values(timeline, late)
        found.append(_column(values, "failures:slot"))
    assert found[0] == found[1] == [0.0, 0.0]


def test_unknown_slot_has_no_failures(assembled: Make, rows: Rows, failures: Fail) -> None:
    listed = _places(rows, A=(None, 0), B=("m", None), C=(None, 0))
    count = _counted(assembled, listed, lambda r: failures(r, ("A", 5, 8), ("B", 5, 8)), "slot")
    assert [count(serial, 60) for serial in "ABC"] == [0, 0, 0]


def test_future_slot_is_unknown(assembled: Make, rows: Rows, failures: Fail) -> None:
    # A failed long ago on another machine; its first record here is at minute 40, in the slot of B.
    listed = rows("A", [40, 50, 60], machine_id="m", slot=0) + _places(rows, B=("m", 0))
    count = _counted(assembled, listed, lambda r: failures(r, ("A", -99, -90)), "slot")
    assert [count("B", minute) for minute in (0, 10, 20, 30)] == [0, 0, 0, 0]


def test_slot_failures_missing_without_slot_columns(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 20], machine_id="m"), texts=("machine_id",))
    found = _values(_plan(FeatureKinds(), history=(1,)), build_timeline(records, Failures.empty()))
    assert found.context_names == ("failures:serial", "failures:slot")
    assert np.isnan(found.context[:, 1]).all()


# --- saved and read ----------------------------------------------------------------------------


def test_columns_follow_plan_order(assembled: Make, rows: Rows) -> None:
    # Not in alphabetical order, which a file with sorted keys would change.
    kinds = FeatureKinds(categorical=("kind", "driver", "centre"), code=("xid", "event"))
    listed = rows("A", range(0, 80, 10), kind="T4", driver="5", centre="n", xid=13, event=2)
    listed += rows("B", range(0, 80, 10), kind="P4", driver="4", centre="e", xid=0, event=1)
    timeline = build_timeline(assembled(listed, kinds=kinds), Failures.empty())
    plan = _plan(kinds)
    instances = _find(timeline, plan)
    measures = FeatureExtractor.fit(plan, timeline, instances)
    again = FeatureExtractor.from_dict(json.loads(json.dumps(measures.to_dict(), sort_keys=True)))
    one, other = (m.values(timeline, instances) for m in (measures, again))
    assert one.columns == other.columns
    assert one.context.tobytes() == other.context.tobytes()
    categories = [name.partition("=")[0] for name in one.context_names if "category" in name]
    assert list(dict.fromkeys(categories)) == [
        "category:kind",
        "category:driver",
        "category:centre",
    ]


def test_extractor_round_trip(assembled: Make, rows: Rows) -> None:
    listed = [
        one
        for serial, kind in (("A", "T4"), ("B", "V100"))
        for one in rows(
            serial,
            range(0, 1_200, 10),
            kind=kind,
            temperature=[float(40 + i % 7) for i in range(120)],
            power=[float(100 + i % 11) for i in range(120)],
            count=[i // 9 for i in range(120)],
            throttled=0,
            xid=[13 if i % 17 == 0 else 0 for i in range(120)],
            until="2027-01-01",
            machine_id="m",
            slot=1,
        )
    ]
    kinds = FeatureKinds(
        ("kind",), ("temperature", "power"), *((n,) for n in ("count", "throttled", "xid", "until"))
    )
    plan = _plan(
        kinds, length=6, history=(2,), peers=("machine_id",), residuals=(("temperature", "power"),)
    )
    records = assembled(listed, kinds=kinds, texts=("machine_id", "slot"))
    timeline = build_timeline(records, Failures.empty())
    instances = _find(timeline, plan)
    measures = FeatureExtractor.fit(plan, timeline, instances)
    again = FeatureExtractor.from_dict(json.loads(json.dumps(measures.to_dict())))
    one, other = (m.values(timeline, instances) for m in (measures, again))
    assert one.context_names == other.context_names
    assert one.context.tobytes() == other.context.tobytes()
    assert one.sequence.tobytes() == other.sequence.tobytes()
    assert len(set(one.context_names)) == one.context.shape[1]

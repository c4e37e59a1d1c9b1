from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instance_history import span_name
from forewarn.features.prediction.instances import Instances, find_instances
from forewarn.features.prediction.residuals import ResidualFit
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import HOUR, FeatureKinds, Records
from forewarn.features.time_units import MINUTE, Nanoseconds, RecordCount
from forewarn.features.xid_catalogue import DEGRADED
from forewarn.features.xid_severity import severity

Make = Callable[..., Records]
Row = dict[str, Any]
Rows = Callable[..., list[Row]]
Minutes = Callable[..., list[float]]
Fail = Callable[..., Failures]
Context = dict[str, npt.NDArray[np.float32]]


def _plan(interval: float = 60, length: int = 2, **asked: Any) -> FeaturePlan:
    kinds = FeatureKinds(float=("temperature",), counter=("count",), code=("xid",))
    wanted: dict[str, Any] = {"kinds": kinds, "history": (2,)} | asked
    return FeaturePlan(
        window_records=RecordCount(length), interval=Nanoseconds(round(interval * MINUTE)), **wanted
    )


def _find(timeline: Timeline, plan: FeaturePlan) -> Instances:
    return find_instances(
        timeline, window_records=plan.window_records, step_records=RecordCount(1), horizon=MINUTE
    )


def _context(plan: FeaturePlan, timeline: Timeline, instances: Instances | None = None) -> Context:
    """Return the context columns of all instances by name."""
    instances = _find(timeline, plan) if instances is None else instances
    values = FeatureExtractor.fit(plan, timeline, instances).values(timeline, instances)
    return {name: values.context[:, i] for i, name in enumerate(values.context_names)}


def _at_end(plan: FeaturePlan, timeline: Timeline, column: str, serial: str, end: int) -> float:
    instances = _find(timeline, plan)
    gpu = timeline.records.serials.index(serial)
    (mine,) = np.flatnonzero((instances.gpu == gpu) & (instances.end == end))
    return float(_context(plan, timeline, instances)[column][mine])


@pytest.mark.parametrize(
    ("hours", "name"), [(3, "3h"), (1.5, "1.5h"), (24, "24h"), (48, "2d"), (49, "49h"), (168, "7d")]
)
def test_span_names(hours: float, name: str) -> None:
    assert span_name(Nanoseconds(round(hours * HOUR))) == name


# --- one GPU, one record an hour, windows of two, a span of four -------------------------------


@pytest.fixture(scope="module")
def hourly(assembled: Make, rows: Rows) -> Timeline:
    # Temperature 0 to 9; count increments 0, 1, 2, ...; Xid 13 in hour 3, 79 in hour 6.
    records = assembled(
        rows(
            "A",
            range(0, 600, 60),
            temperature=[float(i) for i in range(10)],
            count=[0, 0, 1, 3, 6, 10, 15, 21, 28, 36],
            xid=[0, 0, 0, 13, 0, 0, 79, 0, 0, 0],
            machine_id="m",
        ),
        kinds=_plan().kinds,
        texts=("machine_id",),
        interval=60,
    )
    return build_timeline(records, Failures.empty())


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("mean:temperature:4h", 6.5),  # of 5, 6, 7, 8: the last hour is incomplete
        ("spread:temperature:4h", math.sqrt(1.25)),
        ("trend:temperature:4h", 2.0),  # 7.5 - 5.5
        ("rate:count:4h", (4 + 5 + 6 + 7) / 4),
        ("since:count", 1.0),  # last increment in hour 8, which starts an hour before hour 9
        ("rate:xid:4h", 0.25),
        ("rate:grave xid:4h", 0.25),
        ("since:xid", 3.0),
        ("since:grave xid", 3.0),
    ],
)
def test_history_at_hour_nine(
    column: str, expected: float, hourly: Timeline, at: Callable[[float], int]
) -> None:
    assert _at_end(_plan(), hourly, column, "A", at(540)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("column", "expected"), [("rate:xid:4h", 0.5), ("rate:grave xid:4h", 0.25), ("since:xid", 1.0)]
)
def test_history_at_hour_seven(
    column: str, expected: float, hourly: Timeline, at: Callable[[float], int]
) -> None:
    assert _at_end(_plan(), hourly, column, "A", at(420)) == pytest.approx(expected)


def test_no_event_gives_longest_span(hourly: Timeline, at: Callable[[float], int]) -> None:
    assert _at_end(_plan(history=(1,)), hourly, "since:xid", "A", at(540)) == 2.0
    assert _at_end(_plan(history=(1, 2)), hourly, "since:grave xid", "A", at(300)) == 4.0


def test_no_event_in_short_history_is_missing(hourly: Timeline, at: Callable[[float], int]) -> None:
    assert math.isnan(_at_end(_plan(history=(2,)), hourly, "since:xid", "A", at(180)))
    assert _at_end(_plan(history=(4,)), hourly, "since:xid", "A", at(240)) == 1.0


def test_short_history_is_missing(hourly: Timeline, at: Callable[[float], int]) -> None:
    missing = [
        math.isnan(_at_end(_plan(), hourly, "mean:temperature:4h", "A", at(60 * hour)))
        for hour in range(1, 10)
    ]
    assert missing == [True, True, True, False, False, False, False, False, False]
    assert _at_end(_plan(), hourly, "mean:temperature:4h", "A", at(240)) == 1.5


def test_every_span_has_columns(hourly: Timeline) -> None:
    names = _context(_plan(history=(1, 3)), hourly).keys()
    means = [name for name in names if name.startswith("mean:")]
    assert means == ["mean:temperature:2h", "mean:temperature:6h"]
    assert [name for name in names if name.startswith("since:")] == [
        "since:count",
        "since:xid",
        "since:grave xid",
    ]


def test_no_history_columns_without_plan(hourly: Timeline) -> None:
    names = _context(_plan(history=()), hourly).keys()
    assert not any(
        name.startswith(("mean:", "rate:", "since:", "peers:", "failures:")) for name in names
    )


def test_only_xid_column_has_severity(assembled: Make, rows: Rows) -> None:
    plan = _plan(kinds=FeatureKinds(code=("error",)))
    records = assembled(rows("A", range(0, 600, 60), error=79), kinds=plan.kinds, interval=60)
    names = _context(plan, build_timeline(records, Failures.empty())).keys()
    assert "rate:error:4h" in names
    assert not any("grave" in name or "severity" in name for name in names)


def test_repair_restarts_history(
    assembled: Make, rows: Rows, failures: Fail, at: Callable[[float], int]
) -> None:
    records = assembled(
        rows("A", range(0, 900, 60), temperature=[90.0] * 4 + [50.0] * 11, count=0, xid=0),
        kinds=_plan().kinds,
        interval=60,
    )
    timeline = build_timeline(records, failures(records, ("A", 180, 300)))
    column = "mean:temperature:4h"
    assert math.isnan(_at_end(_plan(), timeline, column, "A", at(480)))
    assert _at_end(_plan(), timeline, column, "A", at(540)) == 50.0


def test_filled_record_counts_once(assembled: Make, rows: Rows, at: Callable[[float], int]) -> None:
    records = assembled(
        rows("A", [0, 60, 180, 240, 300], temperature=[1.0, 2.0, 4.0, 6.0, 0.0], count=0, xid=13),
        kinds=_plan().kinds,
        interval=60,
    )
    timeline = build_timeline(records, Failures.empty())
    assert _at_end(_plan(), timeline, "mean:temperature:4h", "A", at(300)) == 4.0
    assert _at_end(_plan(), timeline, "rate:xid:4h", "A", at(300)) == 1.0


# --- peers -------------------------------------------------------------------------------------

PEERS = _plan(kinds=FeatureKinds(float=("temperature",)), peers=("machine_id",))


@pytest.fixture(scope="module")
def neighbours(assembled: Make, rows: Rows) -> Callable[..., Records]:
    """Return `neighbours(**(serial: (machine, temperature)))`: hourly records of ten hours."""

    def of(**listed: tuple[Any, Any]) -> Records:
        found = [
            one
            for serial, (machine, temperature) in listed.items()
            for one in rows(serial, range(0, 600, 60), temperature=temperature, machine_id=machine)
        ]
        return assembled(found, kinds=PEERS.kinds, texts=("machine_id",), interval=60)

    return of


Neighbours = Callable[..., Records]


def test_gpu_is_compared_with_peers(neighbours: Neighbours, at: Callable[[float], int]) -> None:
    records = neighbours(A=("m", 10.0), B=("m", 20.0), C=("m", 60.0), D=("other", 500.0))
    timeline = build_timeline(records, Failures.empty())
    for span in ("2h", "4h"):
        column = f"peers:machine_id:temperature:{span}"
        found = {s: _at_end(PEERS, timeline, column, s, at(540)) for s in "ABC"}
        assert found == {"A": -30.0, "B": -15.0, "C": 45.0}


def test_single_member_group_is_missing(neighbours: Neighbours, at: Callable[[float], int]) -> None:
    records = neighbours(A=("m", 10.0), B=("n", 20.0), C=(None, 60.0), D=(None, 70.0))
    timeline = build_timeline(records, Failures.empty())
    column = "peers:machine_id:temperature:2h"
    assert all(math.isnan(_at_end(PEERS, timeline, column, s, at(540))) for s in "ABCD")


def test_window_is_compared_despite_short_history(
    neighbours: Neighbours, at: Callable[[float], int]
) -> None:
    timeline = build_timeline(neighbours(A=("m", 10.0), B=("m", 20.0)), Failures.empty())
    assert _at_end(PEERS, timeline, "peers:machine_id:temperature:2h", "A", at(60)) == -10.0
    assert math.isnan(_at_end(PEERS, timeline, "peers:machine_id:temperature:4h", "A", at(60)))


def test_failed_peer_does_not_count(
    neighbours: Neighbours, failures: Fail, at: Callable[[float], int]
) -> None:
    records = neighbours(A=("m", 10.0), B=("m", 20.0), C=("m", 60.0))
    timeline = build_timeline(records, failures(records, ("C", 400)))
    column = "peers:machine_id:temperature:2h"
    assert _at_end(PEERS, timeline, column, "A", at(540)) == -10.0
    assert _at_end(PEERS, timeline, column, "A", at(360)) == -30.0


def test_moved_gpu_is_compared_with_new_peers(
    neighbours: Neighbours, at: Callable[[float], int]
) -> None:
    moved = ["n"] * 8 + ["m"] * 2
    records = neighbours(A=(moved, 10.0), B=("m", 20.0), C=("m", 60.0), D=("n", 100.0))
    timeline = build_timeline(records, Failures.empty())
    for span in ("2h", "4h"):
        column = f"peers:machine_id:temperature:{span}"
        assert _at_end(PEERS, timeline, column, "A", at(540)) == -30.0


def test_moved_gpu_without_peers_is_missing(
    neighbours: Neighbours, at: Callable[[float], int]
) -> None:
    records = neighbours(A=(["n"] * 8 + ["m"] * 2, 10.0), B=("n", 20.0), C=("n", 30.0))
    timeline = build_timeline(records, Failures.empty())
    for span in ("2h", "4h"):
        column = f"peers:machine_id:temperature:{span}"
        assert math.isnan(_at_end(PEERS, timeline, column, "A", at(540)))


# --- residuals ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm(assembled: Make, rows: Rows) -> Timeline:
    # 40 degrees are usual at 100 W. A is 6 degrees hotter from hour 6 on, and one reading is
    # missing.
    usual, power = [40.0] * 6 + [46.0] * 4, [100.0] * 10
    kinds = FeatureKinds(float=("temperature", "power"))
    found = rows("A", range(0, 600, 60), temperature=usual, power=power)
    found[8]["power"] = None
    found += rows("B", range(0, 600, 60), temperature=40.0, power=100.0)
    return build_timeline(assembled(found, kinds=kinds, interval=60), Failures.empty())


def _given_power(history: tuple[int, ...]) -> FeatureExtractor:
    plan = FeaturePlan(
        FeatureKinds(float=("temperature", "power")),
        window_records=RecordCount(2),
        interval=Nanoseconds(60 * MINUTE),
        history=history,
        residuals=(("temperature", "power"),),
    )
    ten_watts_a_degree = ResidualFit(np.array([0.0, 500.0]), np.array([30.0, 50.0]), np.zeros(0))
    return FeatureExtractor(plan, residuals=(ten_watts_a_degree,))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("mean:temperature|power:2h", 6.0),  # of the hours 7 and 8; 8 has no power reading
        ("mean:temperature|power:4h", (0.0 + 6.0 + 6.0) / 3),
        ("trend:temperature|power:4h", 3.0),
        ("spread:temperature|power:4h", math.sqrt(8.0)),
    ],
)
def test_residuals_by_hand(
    column: str, expected: float, warm: Timeline, at: Callable[[float], int]
) -> None:
    measures = _given_power((2,))
    instances = _find(warm, measures.plan)
    values = measures.values(warm, instances.select(instances.end == at(540)))
    found = dict(zip(values.context_names, values.context[0].tolist(), strict=True))
    assert found[column] == pytest.approx(expected, abs=1e-5)


def test_residuals_need_no_history(warm: Timeline) -> None:
    measures = _given_power(())
    names = measures.values(warm, _find(warm, measures.plan)).context_names
    assert names == ("mean:temperature|power:2h",)


def test_residuals_are_fitted_by_type(assembled: Make, rows: Rows) -> None:
    kinds = FeatureKinds(categorical=("kind",), float=("y", "x"))
    found = [
        one
        for serial, kind, base in (("A", "P4", 0.0), ("B", "V100", 20.0))
        for hour in range(30)
        for one in rows(serial, [60 * hour], kind=kind, x=float(hour % 7), y=base + hour % 7)
    ]
    timeline = build_timeline(assembled(found, kinds=kinds, interval=60), Failures.empty())
    plan = FeaturePlan(kinds, RecordCount(2), Nanoseconds(60 * MINUTE), residuals=(("y", "x"),))
    left = _context(plan, timeline)["mean:y|x:2h"]
    assert np.abs(left[np.isfinite(left)]).max() < 0.05


# --- extreme readings --------------------------------------------------------------------------


@pytest.mark.parametrize("wild", [140_737_488_355_328.0, 9.2233720368547748e18, math.inf])
def test_outlier_affects_only_its_spans(
    wild: float, neighbours: Neighbours, at: Callable[[float], int]
) -> None:
    # Blank values of real exporters look like this.
    steady: list[float] = [41.0, 42.0, 41.0, 43.0, 42.0, 41.0, 44.0, 42.0, 41.0, 43.0]
    tame = neighbours(A=("m", steady), B=("m", steady[::-1]))
    hurt = neighbours(A=("m", [*steady[:1], wild, *steady[2:]]), B=("m", steady[::-1]))
    for serial in "AB":
        for name in ("mean:temperature:4h", "spread:temperature:4h", "trend:temperature:4h"):
            expected = _at_end(PEERS, build_timeline(tame, Failures.empty()), name, serial, at(540))
            found = _at_end(PEERS, build_timeline(hurt, Failures.empty()), name, serial, at(540))
            assert found == pytest.approx(expected, abs=1e-3)
        name = "peers:machine_id:temperature:4h"
        expected = _at_end(PEERS, build_timeline(tame, Failures.empty()), name, serial, at(540))
        found = _at_end(PEERS, build_timeline(hurt, Failures.empty()), name, serial, at(540))
        assert found == pytest.approx(expected, abs=1e-3)


def test_spread_of_constant_is_zero(neighbours: Neighbours, at: Callable[[float], int]) -> None:
    # As with memory in bytes: squares lose the digits in which a small spread would show.
    timeline = build_timeline(neighbours(A=("m", 8.5e10), B=("m", 20.0)), Failures.empty())
    column = "spread:temperature:4h"
    assert _at_end(PEERS, timeline, column, "A", at(540)) == pytest.approx(0.0, abs=1.0)


# --- brute force -------------------------------------------------------------------------------

BRUTE = FeaturePlan(
    kinds=FeatureKinds(float=("temperature",), counter=("count",), code=("xid",)),
    window_records=RecordCount(3),
    interval=Nanoseconds(20 * MINUTE),
    history=(2, 6),
    peers=("machine_id",),
)


def _brute_fleet(source: random.Random, rows: Rows) -> list[Row]:
    """Return rows of four GPUs; some change their machine, or it is unknown."""
    listed: list[Row] = []
    for serial in ("A", "B", "C"):
        moves = source.randrange(5, 60)
        for i in range(source.randrange(8), source.randrange(20, 40)):
            if source.random() < 0.08:
                continue
            listed += rows(
                serial,
                [20 * i + source.randint(-5, 5)],
                temperature=source.choice([None, *(float(v) for v in range(30, 60))]),
                count=source.choice([None, *range(6)]),
                xid=source.choice([0, 0, 0, 13, 79]),
                failure=int(source.random() < 0.03),
                machine_id=source.choice(["m", "m", "m", None]) if i < moves else "n",
            )
    source.shuffle(listed)
    regular = rows("Z", range(0, 800, 20), temperature=50.0, count=1, xid=0, failure=0)
    return listed + [one | {"machine_id": "m"} for one in regular]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


class _Plain:
    """History of one instance, computed record by record."""

    def __init__(self, timeline: Timeline, row: int) -> None:
        records, failed = timeline.records, timeline.failures
        self.records, self.gpu, self.end = records, int(records.gpu[row]), int(records.time[row])
        self.group = int(records.codes("machine_id", np.array([row]))[0])
        repairs = [
            int(repaired)
            for number, repaired in zip(failed.gpu, failed.repaired_at, strict=True)
            if number == self.gpu and repaired <= self.end
        ]
        self.life = max([int(records.time[records.gpu == self.gpu].min()), *repairs])
        self.readings = [
            (int(gpu), int(time), number)
            for number, (gpu, time) in enumerate(zip(records.gpu, records.time, strict=True))
            if timeline.alive[number] and not records.filled[number]
        ]

    def bounds(self, hours: int) -> tuple[int, int, bool]:
        stop = self.end // HOUR * HOUR
        born = -(-self.life // HOUR) * HOUR
        start = max(stop - hours * HOUR, born)
        return min(start, stop), stop, stop - hours * HOUR >= born

    def read(self, name: str, numbers: list[int]) -> list[float]:
        rows = np.array(numbers, dtype=np.int64)
        found: list[float] = self.records.numbers(name, rows).tolist()
        return [value for value in found if not math.isnan(value)]

    def own(self, name: str, start: int, stop: int) -> list[float]:
        rows = [row for gpu, time, row in self.readings if gpu == self.gpu and start <= time < stop]
        return self.read(name, rows)

    def others(self, name: str, start: int, stop: int) -> list[float]:
        """Return the readings of other GPUs, in hours that they started in the same group."""
        group: dict[tuple[int, int], int] = {}
        rows = []
        for gpu, time, row in self.readings:
            code = int(self.records.codes("machine_id", np.array([row]))[0])
            here = group.setdefault((gpu, time // HOUR), code)
            if gpu != self.gpu and here == self.group >= 0 and start <= time < stop:
                rows.append(row)
        return self.read(name, rows)

    def columns(self, hours: int) -> dict[str, float]:
        start, stop, known = self.bounds(hours)
        middle = (start // HOUR + (stop - start) // HOUR // 2) * HOUR
        temperature = self.own("temperature", start, stop)
        codes = [float(one) for one in severity(np.array(self.own("xid", start, stop)))]
        found = {
            "mean:temperature": _mean(temperature),
            "spread:temperature": float(np.std(temperature)) if temperature else math.nan,
            "trend:temperature": _mean(self.own("temperature", middle, stop))
            - _mean(self.own("temperature", start, middle)),
            "rate:count": 3 * _mean(self.own("count", start, stop)),
            "rate:xid": 3 * _mean([float(one > 0) for one in codes]),
            "rate:grave xid": 3 * _mean([float(one >= DEGRADED) for one in codes]),
        }
        span = span_name(Nanoseconds(hours * HOUR))
        return {f"{name}:{span}": value if known else math.nan for name, value in found.items()}

    def peers(self, name: str, hours: int, *, always: bool) -> float:
        start, stop, known = self.bounds(hours)
        difference = _mean(self.own(name, start, stop)) - _mean(self.others(name, start, stop))
        return difference if known or always else math.nan

    def since(self, name: str, hours: int, least: float) -> float:
        start, stop, known = self.bounds(hours)
        rows = [
            (time, row)
            for gpu, time, row in self.readings
            if gpu == self.gpu and start <= time < stop
        ]
        events = [time for time, row in rows if self.read(name, [row])[:1] >= [least]]
        if events:
            return (stop - max(events) // HOUR * HOUR) / HOUR
        return hours if known else math.nan


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(0, 400), st.integers(30, 200))
def test_history_matches_brute_force(
    assembled: Make, rows: Rows, failures: Fail, seed: int, failed: int, lasted: int
) -> None:
    listed = _brute_fleet(random.Random(seed), rows)
    records = assembled(listed, kinds=BRUTE.kinds, texts=("machine_id",), interval=20)
    tickets = failures(records, ("A", 200 + failed, 200 + failed + lasted))
    timeline = build_timeline(records, Failures.from_records(records).joined(tickets))
    instances = _find(timeline, BRUTE)
    found = _context(BRUTE, timeline, instances)
    for i in range(0, len(instances), 3):
        plain = _Plain(timeline, int(instances.row[i]))
        expected = plain.columns(2) | plain.columns(6)
        expected |= {
            "since:count": plain.since("count", 6, 0.5),
            "since:xid": plain.since("xid", 6, 1),
            "since:grave xid": plain.since("xid", 6, 63),
        }
        for name in ("temperature", "count"):
            expected[f"peers:machine_id:{name}:1h"] = plain.peers(name, 1, always=True)
            expected[f"peers:machine_id:{name}:6h"] = plain.peers(name, 6, always=False)
        for name, value in expected.items():
            assert float(found[name][i]) == pytest.approx(value, abs=2e-3, nan_ok=True), name


def test_row_numbers_do_not_matter(assembled: Make, rows: Rows, at: Callable[[float], int]) -> None:
    # A test window is computed on a section of the records that covers its history.
    source = random.Random(3)
    listed = [
        one
        for serial in "AB"
        for i in range(400)
        for one in rows(
            serial, [20 * i], temperature=float(source.randrange(40, 60)), count=i // 3, xid=0
        )
    ]
    listed = [one | {"machine_id": "m"} for one in listed]
    records = assembled(listed, kinds=BRUTE.kinds, texts=("machine_id",), interval=20)
    whole = build_timeline(records, Failures.empty())
    instances = _find(whole, BRUTE)
    instances = instances.select(instances.end >= at(7_000))
    start = int(instances.end.min()) - BRUTE.reach
    kept = records.rows_between(start, at(9_000))
    part = build_timeline(records.between(start, at(9_000)), Failures.empty())
    moved = replace(instances, row=np.searchsorted(kept, instances.row))
    one, other = _context(BRUTE, whole, instances), _context(BRUTE, part, moved)
    for name in one:
        assert np.allclose(one[name], other[name], atol=1e-3, equal_nan=True), name

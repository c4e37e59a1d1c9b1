from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import HOUR, RecordCount
from forewarn.features.xid_severity import severity
from forewarn.models.prediction.builtin_rules import rule_points, rule_scores

LENGTH = 4
COUNTERS = ("ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays")
PLAN = FeaturePlan(
    kinds=FeatureKinds(float=("temperature_gpu",), counter=COUNTERS, code=("xid",)),
    window_records=RecordCount(LENGTH),
    interval=HOUR,
    history=(4, 16),
    peers=("machine_id",),
)
CONTEXT = (
    "severity:xid",
    "count:xid",
    *(f"rate:{name}:{span}" for name in (*COUNTERS, "grave xid") for span in ("16h", "64h")),
    *(f"peers:machine_id:{name}:{span}" for name in COUNTERS for span in ("4h", "64h")),
    "failures:serial",
    "failures:slot",
)
Gpu = dict[str, float]


def values_of(*gpus: Mapping[str, float], without: str = "-") -> InstanceValues:
    """Return values of GPUs, of which only the differences from a quiet GPU are given.

    A counter is its increment in the window, with no increment at the peers. An `xid` occurs in the
    window.
    """
    names = tuple(name for name in CONTEXT if not name.startswith(without))
    channels = ("temperature_gpu", *COUNTERS, "xid")
    sequence = np.zeros((len(gpus), LENGTH, len(channels)), dtype=np.float32)
    context = np.zeros((len(gpus), len(names)), dtype=np.float32)
    for i, gpu in enumerate(gpus):
        known = {f"peers:machine_id:{name}:4h": gpu.get(name, 0) / LENGTH for name in COUNTERS}
        known |= {f"peers:machine_id:{name}:64h": gpu.get(name, 0) / LENGTH for name in COUNTERS}
        known["severity:xid"] = float(severity(np.array([gpu.get("xid", 0)], np.float32))[0])
        known |= dict(gpu)
        for name, value in known.items():
            if name in channels:
                sequence[i, -1, channels.index(name)] = value
            elif name in names:
                context[i, names.index(name)] = value
    return InstanceValues(sequence, context, channels, names)


def scores(*gpus: Mapping[str, float]) -> list[float]:
    return [round(score, 9) for score in rule_scores(values_of(*gpus), PLAN).tolist()]


QUIET: Gpu = {}
MUCH = 1e6
# The strongest case of every rule except that of fatal Xids in the window.
SINGLY: list[Gpu] = [
    {"xid": 63},
    {"xid": 13},
    {"rate:grave xid:64h": MUCH},
    *({name: MUCH} for name in COUNTERS),
    *({f"rate:{name}:64h": MUCH} for name in COUNTERS),
    {"failures:serial": 9},
    {"failures:slot": 9},
]


def test_healthy_gpu_has_no_points() -> None:
    assert scores(QUIET)[0] < 0.01
    assert all((points == 0).all() for points in rule_points(values_of(QUIET), PLAN).values())


@pytest.mark.parametrize("other", SINGLY, ids=str)
def test_fatal_xid_outranks_any_other_rule(other: Gpu) -> None:
    fatal, worst = scores({"xid": 79}, other)
    assert fatal > worst


def test_fatal_xid_outranks_all_rules_combined() -> None:
    everything: Gpu = {key: value for one in SINGLY for key, value in one.items()} | {"xid": 63}
    fatal, worst = scores({"xid": 79}, everything)
    assert fatal > worst


@pytest.mark.parametrize(
    ("xid", "grade"), [(0, 0), (13, 0), (31, 0), (63, 1), (94, 1), (48, 2), (79, 2)]
)
def test_application_xids_do_not_count(xid: int, grade: int) -> None:
    graded = scores({"xid": 13}, {"xid": 63}, {"xid": 79})
    assert graded == sorted(graded)
    assert len(set(graded)) == 3
    assert scores({"xid": xid})[0] == graded[grade]


def test_earlier_xid_counts_less() -> None:
    now, earlier, never = scores({"xid": 79}, {"rate:grave xid:64h": 0.1}, QUIET)
    assert now > earlier > never


@pytest.mark.parametrize("name", ["ecc_uncorrected", "rows_remapped"])
def test_single_uncorrected_error_scores(name: str) -> None:
    once, often, earlier, never = scores({name: 1}, {name: 9}, {f"rate:{name}:64h": 0.1}, QUIET)
    assert once == often
    assert once > earlier > never


def test_short_history_counts_over_the_span_it_has() -> None:
    new = {"rate:grave xid:64h": np.nan, "rate:rows_remapped:64h": np.nan}
    seen = new | {"rate:grave xid:16h": 0.1, "rate:rows_remapped:16h": 0.1}
    known, none, quiet = scores(seen, new, QUIET)
    assert known > none == quiet


@pytest.mark.parametrize("name", ["ecc_corrected", "pcie_replays"])
def test_soft_counters_are_compared_with_peers(name: str) -> None:
    as_peers = {name: 50, f"peers:machine_id:{name}:4h": 0, f"peers:machine_id:{name}:64h": 0}
    more, alike, never = scores({name: 50}, as_peers, QUIET)
    assert more > alike == never


def test_young_gpu_is_compared_over_window() -> None:
    # No history span is known on a site's first day, which the rules are meant for.
    young, never = scores(
        {"ecc_corrected": 500, "peers:machine_id:ecc_corrected:64h": float("nan")}, QUIET
    )
    assert young > never


def test_gpu_without_peers_uses_own_increase() -> None:
    spans = ("4h", "64h")
    alone = {f"peers:machine_id:ecc_corrected:{span}": float("nan") for span in spans}
    lonely, never = scores({"ecc_corrected": 500} | alone, QUIET)
    ungrouped = rule_scores(values_of({"ecc_corrected": 500}, without="peers"), PLAN)
    assert lonely == pytest.approx(ungrouped[0])
    assert lonely > never


def test_repeat_failures_have_limited_points() -> None:
    found = scores(*({"failures:serial": n} for n in range(5)))
    assert found[0] < found[1] < found[2] == found[3] == found[4]
    assert scores({"failures:slot": 1})[0] > found[0]


def test_missing_readings_have_no_points() -> None:
    nothing = {name: float("nan") for name in (*CONTEXT, *COUNTERS)}
    assert scores(nothing) == scores(QUIET)


def test_absent_columns_are_ignored() -> None:
    bare = values_of({"xid": 79, "ecc_uncorrected": 1}, QUIET, without="rate")
    found = rule_scores(bare, PLAN)
    assert found[0] > found[1]
    assert "rate:grave xid" not in rule_points(bare, PLAN)
    floats = FeaturePlan(FeatureKinds(float=("temperature_gpu",)), RecordCount(LENGTH), HOUR)
    assert rule_points(values_of(QUIET, without=""), floats) == {}
    assert len(rule_scores(values_of(QUIET, QUIET, without=""), floats)) == 2


def test_codes_without_severity_count_by_frequency() -> None:
    plan = FeaturePlan(FeatureKinds(code=("error",)), RecordCount(LENGTH), HOUR)
    context = np.array([[0.0], [1.0], [3.0]], dtype=np.float32)
    values = InstanceValues(
        np.zeros((3, LENGTH, 1), np.float32), context, ("error",), ("count:error",)
    )
    found = rule_scores(values, plan)
    assert found[0] < found[1] < found[2]


AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.integers(0, 1000).map(float) for name in COUNTERS},
        **{f"rate:{name}:64h": st.floats(0, 100) for name in (*COUNTERS, "grave xid")},
        "failures:serial": st.integers(0, 5).map(float),
        "failures:slot": st.integers(0, 5).map(float),
    },
)


@given(AMOUNTS, AMOUNTS, st.sampled_from([0, 13, 63, 79]), st.sampled_from([0, 13, 63, 79]))
def test_points_are_monotone(less: Gpu, added: Gpu, xid: int, other: int) -> None:
    more = less | {name: less.get(name, 0.0) + value for name, value in added.items()}
    grades = severity(np.array([xid, other], np.float32))
    mild, grave = (xid, other) if grades[0] <= grades[1] else (other, xid)
    points = rule_points(values_of(less | {"xid": mild}, more | {"xid": grave}), PLAN)
    for name, (low, high) in points.items():
        assert low <= high, name
    assert all((mine >= 0).all() for mine in points.values())

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.prediction.inputs import InstanceValues
from forewarn.features.prediction.plan import Plan
from forewarn.features.records.table import FeatureKinds
from forewarn.features.time_units import Nanoseconds, RecordCount
from forewarn.pipelines.at_risk.reasons import reasons_of

HOUR = 3_600_000_000_000
NAN = float("nan")
PLAN = Plan(
    kinds=FeatureKinds(
        categorical=("gpu_type",),
        float=("temperature_gpu", "power_draw"),
        counter=("ecc_corrected",),
        binary=("throttled",),
        code=("xid",),
    ),
    window_records=RecordCount(3),
    interval=Nanoseconds(HOUR),
    history=(4,),
)
CHANNELS = ("temperature_gpu", "power_draw", "ecc_corrected", "throttled", "xid")
Floats = npt.NDArray[np.float64]


def values_of(
    windows: list[list[list[float]]], context: Mapping[str, Sequence[float]] | None = None
) -> InstanceValues:
    """Return values of n GPUs: windows of shape (n, 3, 5), and context columns by name."""
    context = context or {}
    columns = [np.array(column, dtype=np.float32) for column in context.values()]
    table = np.stack(columns, axis=1) if columns else np.zeros((len(windows), 0), np.float32)
    return InstanceValues(np.array(windows, dtype=np.float32), table, CHANNELS, tuple(context))


def window(
    temperature: float = 60, gained: float = 0, xids: tuple[int, int, int] = (0, 0, 0)
) -> list[list[float]]:
    """Return one window; the counter gains in its first record."""
    return [[temperature + i - 2, 300, gained * (i == 0), 0, xids[i]] for i in range(3)]


def reasons(
    values: InstanceValues,
    speaks: Mapping[str, Sequence[float]],
    group: Sequence[int] | None = None,
) -> list[str]:
    contributions = {name: np.array(column, dtype=np.float64) for name, column in speaks.items()}
    groups = np.array(group or [0] * len(values), dtype=np.int64)
    return reasons_of(values, contributions, PLAN, groups)


def test_the_strongest_channel_comes_first() -> None:
    values = values_of([window(71, 41)], {"failures:serial": [2]})
    speaks = {"temperature_gpu[-0]": [0.5], "failures:serial": [2.0], "ecc_corrected[-2]": [1.0]}
    assert reasons(values, speaks) == [
        "2 earlier failures of this GPU; ecc_corrected +41 within 3h (peers 41); "
        "temperature_gpu 71 °C (peers 71)"
    ]


def test_features_of_one_channel_add_up_and_the_strongest_speaks() -> None:
    values = values_of([window()], {"mean:temperature_gpu:12h": [70], "count:xid": [0]})
    speaks = {
        "temperature_gpu[-0]": [0.3],
        "temperature_gpu[-1]": [0.3],
        "mean:temperature_gpu:12h": [0.5],
        "power_draw[-0]": [1.0],
    }
    found = reasons(values, speaks)[0].split("; ")
    assert found == [
        "temperature_gpu 70 °C on average over 12h (peers 70)",
        "power_draw 300 W (peers 300)",
    ]


def test_what_speaks_against_a_failure_is_no_reason() -> None:
    values = values_of([window()], {"failures:serial": [0]})
    speaks = {"temperature_gpu[-0]": [-3.0], "failures:serial": [-0.1], "xid[-0]": [0.0]}
    assert reasons(values, speaks) == [""]
    mixed = {"temperature_gpu[-0]": [-3.0], "temperature_gpu[-1]": [2.0], "power_draw[-0]": [0.5]}
    assert reasons(values, mixed) == ["power_draw 300 W (peers 300)"]


def test_at_most_three_reasons_and_none_of_little_weight() -> None:
    values = values_of([window()], {"failures:serial": [1], "failures:slot": [2]})
    speaks = {
        "temperature_gpu[-0]": [1.0],
        "power_draw[-0]": [0.9],
        "failures:serial": [0.8],
        "failures:slot": [0.7],
    }
    assert reasons(values, speaks)[0].count("; ") == 2
    little = {"temperature_gpu[-0]": [1.0], "power_draw[-0]": [0.04]}
    assert reasons(values, little) == ["temperature_gpu 60 °C (peers 60)"]


def test_every_gpu_has_its_own_reasons() -> None:
    values = values_of([window(70), window(60, 9), window(60)])
    speaks = {"temperature_gpu[-0]": [1.0, 0.0, 0.0], "ecc_corrected[-0]": [0.0, 1.0, 0.0]}
    assert reasons(values, speaks) == [
        "temperature_gpu 70 °C (peers 60)",
        "ecc_corrected +9 within 3h (peers 0)",
        "",
    ]


def test_usual_is_the_median_of_the_peers_that_have_a_value() -> None:
    hot = [80.0, 60.0, 64.0, NAN, 90.0]
    values = values_of([window()] * 5, {"mean:temperature_gpu:12h": hot})
    speaks = {"mean:temperature_gpu:12h": [1.0] * 5}
    found = reasons(values, speaks, [0, 0, 0, 0, 7])
    average = "°C on average over 12h"
    assert found == [
        f"temperature_gpu 80 {average} (peers 64)",
        f"temperature_gpu 60 {average} (peers 64)",
        f"temperature_gpu 64 {average} (peers 64)",
        "a past shorter than 12h",
        f"temperature_gpu 90 {average} (peers 90)",
    ]


def test_peers_without_any_value_are_not_mentioned() -> None:
    values = values_of([window(), window()], {"mean:power_draw:12h": [300, NAN]})
    found = reasons(values, {"mean:power_draw:12h": [1.0, 1.0]}, [1, 2])
    assert found == ["power_draw 300 W on average over 12h (peers 300)", "a past shorter than 12h"]


def test_the_window_of_a_channel_is_summed_up_by_its_kind() -> None:
    values = values_of([window(71, 41, (13, 79, 0))])
    for name, expected in (
        ("temperature_gpu[-2]", "temperature_gpu 71 °C (peers 71)"),
        ("ecc_corrected[-1]", "ecc_corrected +41 within 3h (peers 41)"),
        ("xid[-0]", "xid 79 within 3h"),
        ("throttled[-0]", "throttled 0 (peers 0)"),
    ):
        assert reasons(values, {name: [1.0]}) == [expected]


def test_the_gravest_xid_of_the_window_is_named() -> None:
    # 94 is a contained error, 79 a GPU that has fallen off the bus.
    values = values_of([window(xids=(79, 94, 0))])
    assert reasons(values, {"xid[-0]": [1.0]}) == ["xid 79 within 3h"]


def test_missing_records_of_the_window() -> None:
    broken = window(NAN, NAN)
    broken[1][2] = 5.0
    values = values_of([broken])
    found = reasons(values, {"temperature_gpu[-0]": [1.0], "ecc_corrected[-0]": [0.5]})
    assert found == ["temperature_gpu not known; ecc_corrected +5 within 3h (peers 5)"]


def test_a_counter_of_which_nothing_was_read_is_not_known() -> None:
    values = values_of([[[60, 300, NAN, 0, 0]] * 3])
    assert reasons(values, {"ecc_corrected[-0]": [1.0]}) == ["ecc_corrected not known"]


@pytest.mark.parametrize("text", ["A100 [80 GB]", "eu:west", "a=b"])
def test_a_category_may_hold_any_text(text: str) -> None:
    name = f"category:gpu_type={text}"
    values = values_of([window()], {name: [1.0]})
    assert reasons(values, {name: [1.0]}) == [f"gpu_type is {text}"]


@pytest.mark.parametrize("feature", ["window_since:xid", "since:xid"])
def test_a_code_that_was_never_seen_was_not_last_seen(feature: str) -> None:
    # Both features are as long as what was looked at where there was none.
    hours = 3.0 if feature == "window_since:xid" else 12.0
    values = values_of([window()], {feature: [hours]})
    (found,) = reasons(values, {feature: [1.0]})
    assert "last seen" not in found
    assert "xid" in found


def test_nothing_contributes() -> None:
    values = values_of([window(), window()])
    assert reasons(values, {}) == ["", ""]


def test_no_gpus_have_no_reasons() -> None:
    values = InstanceValues(
        np.zeros((0, 3, 5), np.float32),
        np.zeros((0, 1), np.float32),
        CHANNELS,
        ("failures:serial",),
    )
    assert reasons_of(values, {"failures:serial": np.zeros(0)}, PLAN, np.zeros(0, np.int64)) == []


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 2**32))
def test_reasons_do_not_depend_on_the_order_of_gpus(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    windows = [window(float(rng.normal(60, 9)), float(rng.integers(0, 9))) for _ in range(n)]
    means = rng.normal(60, 9, n).tolist()
    names = ("temperature_gpu[-0]", "ecc_corrected[-1]", "xid[-2]", "mean:temperature_gpu:12h")
    speaks: dict[str, Floats] = {name: rng.normal(0, 1, n) for name in names}
    group = rng.integers(0, 2, n)
    values = values_of(windows, {"mean:temperature_gpu:12h": means})
    here = reasons_of(values, speaks, PLAN, group)
    order = rng.permutation(n)
    turned = InstanceValues(values.sequence[order], values.context[order], *names_of(values))
    other = {name: column[order] for name, column in speaks.items()}
    assert reasons_of(turned, other, PLAN, group[order]) == [here[i] for i in order]
    assert all(one.count("; ") <= 2 for one in here)


def names_of(values: InstanceValues) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return values.sequence_names, values.context_names

from __future__ import annotations

import math
from array import array

import pytest

from forewarn.features.telemetry.joined_series import GpuSeries, LabelGroup
from forewarn.features.telemetry.parsers.prometheus_answers import GpuLabels

NAN = math.nan


def group(*counts: float) -> LabelGroup:
    return LabelGroup(array("d", counts))


def gpu(column: str, *rows: tuple[LabelGroup, list[float]], part: int = 0) -> GpuSeries:
    series = GpuSeries(GpuLabels(uuid="GPU-1", serial="165"), "gn01", ("UUID", "GPU-1"))
    series.values[column, part] = list(rows)
    return series


def test_mean_weights_series_by_samples() -> None:
    series = gpu("temperature_gpu", (group(3, 10), [80.0, 80.0]), (group(7, 0), [30.0, NAN]))
    assert dict(series.numbers(0)) == {"temperature_gpu": pytest.approx(45.0)}
    assert dict(series.numbers(1)) == {"temperature_gpu": 80.0}


@pytest.mark.parametrize("swapped", [False, True])
def test_last_value_is_of_continuing_series(swapped: bool) -> None:
    """The counter restarted in a new series."""
    old, new = (group(9, 3, 0), [900.0, 950.0, NAN]), (group(0, 7, 9), [NAN, 20.0, 80.0])
    rows = (new, old) if swapped else (old, new)
    series = gpu("energy_consumption", *rows)
    values = [dict(series.numbers(i)).get("energy_consumption") for i in range(3)]
    assert values == pytest.approx([0.9, 0.02, 0.08])


def test_a_state_is_the_largest_value() -> None:
    series = gpu("recovery_action", (group(1), [0.0]), (group(1), [2.0]))
    assert dict(series.numbers(0)) == {"recovery_action": 2.0}


def test_sum_with_and_without_missing_parts() -> None:
    assert not dict(gpu("rows_remapped", (group(1), [4.0])).numbers(0))
    links = gpu("nvlink_errors", (group(1), [4.0]), part=2)
    assert dict(links.numbers(0)) == {"nvlink_errors": 4.0}


def test_labels_of_whole_gpu_win() -> None:
    series = gpu("temperature_gpu")
    part, whole = GpuLabels(uuid="GPU-1", part="3"), GpuLabels(uuid="GPU-1", slot=2)
    series.describe(part, 0)
    series.describe(whole, 0)
    series.describe(part, 0)
    assert (series.labels_at(0).slot, series.labels_at(0).serial) == (2, "165")
    assert series.labels_at(1) == series.labels

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import find_instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import FeatureKinds, Records
from forewarn.features.time_units import MINUTE, Nanoseconds, RecordCount

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, Any]]]

PLAN = FeaturePlan(
    FeatureKinds(categorical=("kind",), float=("value",), code=("xid",)),
    window_records=RecordCount(2),
    interval=Nanoseconds(10 * MINUTE),
    history=(3,),
)


@pytest.fixture(scope="module")
def fleet(assembled: Make, rows: Rows) -> Callable[..., Timeline]:
    """Return `fleet(values, kind)`: a GPU with a record for every value."""

    def of(values: list[float | None], kind: str = "T4") -> Timeline:
        listed = rows("A", [10 * i for i in range(len(values))], value=values, xid=0, kind=kind)
        return build_timeline(assembled(listed, kinds=PLAN.kinds), Failures.empty())

    return of


Fleet = Callable[..., Timeline]


def _fit(timeline: Timeline) -> tuple[Encoder, Any, Any]:
    instances = find_instances(
        timeline, window_records=RecordCount(2), step_records=RecordCount(1), horizon=MINUTE
    )
    encoder, values = Encoder.fit(PLAN, timeline, instances)
    return encoder, values, instances


def test_values_are_below_levels(fleet: Fleet) -> None:
    encoder, values, _ = _fit(fleet([float(i % 13) for i in range(60)]))
    inputs = encoder.encode(values)
    assert inputs.sequence.shape == values.sequence.shape == (59, 2, 2)
    assert inputs.context.shape == values.context.shape
    assert inputs.sequence_names == values.sequence_names == ("value", "xid")
    assert inputs.context_names == values.context_names
    assert (inputs.sequence < np.array(inputs.sequence_levels)).all()
    assert (inputs.context < np.array(inputs.context_levels)).all()
    assert inputs.sequence_levels[0] == 14


def test_zero_means_missing(fleet: Fleet) -> None:
    encoder, values, _ = _fit(fleet([1.0, None, 3.0] * 15))
    inputs = encoder.encode(values)
    assert np.array_equal(inputs.sequence == 0, np.isnan(values.sequence))
    assert np.array_equal(inputs.context == 0, np.isnan(values.context))
    assert (inputs.sequence == 0).any()
    assert (inputs.context == 0).any()


def test_fitted_values_equal_recomputed_values(fleet: Fleet) -> None:
    timeline = fleet([float(i) for i in range(40)])
    encoder, values, instances = _fit(timeline)
    again = encoder.measures.values(timeline, instances)
    assert again.sequence.tobytes() == values.sequence.tobytes()
    assert again.context.tobytes() == values.context.tobytes()


def test_later_values_use_training_buckets(fleet: Fleet) -> None:
    encoder, _, _ = _fit(fleet([0.0, 10.0, 20.0, 30.0] * 5))
    later = fleet([-500.0, 4.0, 6.0, 29.0, 1e9])
    instances = find_instances(
        later, window_records=RecordCount(2), step_records=RecordCount(1), horizon=MINUTE
    )
    inputs = encoder.encode(encoder.measures.values(later, instances))
    assert inputs.sequence[:, 1, 0].tolist() == [1, 2, 4, 4]
    assert inputs.sequence[0, 0, 0] == 1


def test_encoder_round_trip(fleet: Fleet) -> None:
    timeline = fleet([0.1 * i**2 for i in range(200)])
    encoder, values, instances = _fit(timeline)
    again = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    one, other = encoder.encode(values), again.encode(again.measures.values(timeline, instances))
    assert one.sequence.tobytes() == other.sequence.tobytes()
    assert one.context.tobytes() == other.context.tobytes()
    assert one.sequence_levels == other.sequence_levels
    assert one.context_levels == other.context_levels
    assert one.context_names == other.context_names


def test_unseen_gpu_type_is_encoded(fleet: Fleet) -> None:
    encoder, _, _ = _fit(fleet([1.0, 2.0] * 10))
    later = fleet([1.0, 2.0, 1.0], kind="H100")
    instances = find_instances(
        later, window_records=RecordCount(2), step_records=RecordCount(1), horizon=MINUTE
    )
    values = encoder.measures.values(later, instances)
    assert values.context[:, values.context_names.index("category:kind=T4")].tolist() == [0, 0]
    assert encoder.encode(values).context.shape == (2, len(values.context_names))

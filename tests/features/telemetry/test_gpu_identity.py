from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.gpu_identity import (
    HostConflict,
    merge_places,
    places_from_readings,
    with_event_serials,
    with_one_host,
    with_serials,
)
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading

Rows = Callable[..., pa.Table]
PLACE = {"pci": "0000:03:00"}


def test_serial_order_own_cmdb_uuid(readings: Rows) -> None:
    table = readings(
        (0, "S1", {"gpu_uuid": "U1"}),
        (0, "S2", {"gpu_serial": None, "gpu_uuid": "U2"}),
        (0, "S3", {"gpu_serial": "", "gpu_uuid": "U3"}),
        (0, "S4", {"gpu_serial": None}),
        (0, "S5", {"gpu_serial": "0000", "gpu_uuid": "U5"}),
    )
    named = with_serials(table, {"U1": "other", "U2": "S2"})
    assert named["gpu_serial"].to_pylist() == ["S1", "S2", "U3", None, "U5"]


def test_uuid_of_zeros_is_missing(readings: Rows) -> None:
    for zeros in ("GPU-00000000-0000-0000-0000-000000000000", "MIG-00000000-0000", "GPU-", ""):
        row = (0, "S1", {"gpu_serial": None, "gpu_uuid": zeros})
        assert with_serials(readings(row), {zeros: "S1"})["gpu_serial"].to_pylist() == [None]
        assert GpuReading(uuid=zeros).uuid is None
    for name in ("GPU-0000000a-0000", "GPU-00", "GPU-0"):
        row = (0, "S1", {"gpu_serial": None, "gpu_uuid": name})
        assert with_serials(readings(row), {name: "S1"})["gpu_serial"].to_pylist() == ["S1"]
        assert GpuReading(uuid=name).uuid == name


def test_first_host_keeps_the_gpu(readings: Rows) -> None:
    rows = [
        (10, "S1", {"machine_id": "node-2"}),
        (10, "S2", {"machine_id": "node-1"}),
        (20, "S1", {"machine_id": "node-1"}),
        (21, "S1", {"machine_id": "node-2"}),
        (22, "S1", {"machine_id": "node-1"}),
        (22, "S1", {"machine_id": None}),
        (30, "S1", {"machine_id": "node-1"}),
    ]
    table = readings(*rows)
    ticks = np.array([10, 10, 20, 20, 20, 20, 30])
    for order in (slice(None), slice(None, None, -1)):
        some = table.take(np.arange(len(rows))[order])
        kept, left_out = with_one_host(some, places_from_readings(table), ticks[order])
        assert left_out == {HostConflict("S1", "node-1", "node-2"): 2}
        assert len(kept) == 5
        hosts = kept.filter(pc.equal(kept["gpu_serial"], "S1"))["machine_id"].to_pylist()
        # A moved GPU belongs to its new host where only that host reports it.
        assert sorted(map(str, hosts)) == ["None", "node-1", "node-2", "node-2"]


def test_event_belongs_to_gpu_at_address(readings: Rows, events: Rows) -> None:
    places = places_from_readings(
        readings((0, "S1", PLACE), (20, "S1", PLACE), (40, "S2", PLACE), (60, "S2", PLACE))
    )
    moments = events(*((minute, None, 79, PLACE) for minute in (-5, 10, 30, 50, 90)))
    named = with_event_serials(moments, places, {})
    # Between two GPUs the earlier one is chosen, since it may have been removed for the event.
    assert named["gpu_serial"].to_pylist() == ["S1", "S1", "S1", "S2", "S2"]


def test_returned_gpu_differs_from_intermediate_one(readings: Rows, events: Rows) -> None:
    swapped = [(0, "S1"), (10, "S1"), (20, "S2"), (30, "S2"), (40, "S1"), (60, "S1")]
    places = places_from_readings(
        readings(*((minute, serial, PLACE) for minute, serial in swapped))
    )
    named = with_event_serials(events((25, None, 79, PLACE), (50, None, 79, PLACE)), places, {})
    assert named["gpu_serial"].to_pylist() == ["S2", "S1"]


def test_serial_of_event_comes_first(readings: Rows, events: Rows) -> None:
    places = places_from_readings(readings((0, "S1", PLACE)))
    table = events((5, "S7", 79, PLACE), (5, None, 79, PLACE | {"gpu_uuid": "U8"}), (5, None, 79))
    assert with_event_serials(table, places, {"U8": "S8"})["gpu_serial"].to_pylist() == [
        "S7",
        "S8",
        None,
    ]


def test_places_merge_in_any_order(readings: Rows) -> None:
    parts = [
        places_from_readings(readings((m, s, PLACE))) for m, s in ((0, "S1"), (9, "S2"), (5, "S1"))
    ]
    whole = places_from_readings(readings((0, "S1", PLACE), (9, "S2", PLACE), (5, "S1", PLACE)))
    assert merge_places(*parts).equals(whole)
    assert merge_places(*reversed(parts), whole).equals(whole)

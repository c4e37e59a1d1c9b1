from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import MINUTE, SECOND

START = 1_740_787_200 * SECOND  # 2025-03-01

Rows = Callable[..., pa.Table]


@pytest.fixture(scope="session")
def readings() -> Rows:
    """Return `readings(*rows)`: rows of minute, serial and further columns."""

    def make(*rows: tuple[float, str] | tuple[float, str, dict[str, Any]]) -> pa.Table:
        return build_table([_reading(*row) for row in rows], READINGS)

    return make


def _reading(minute: float, serial: str, more: dict[str, Any] | None = None) -> dict[str, Any]:
    row = {"machine_id": "node-1", "gpu_serial": serial, "pci": f"0000:0{serial[-1]}:00"}
    return row | {"timestamp": START + round(minute * MINUTE)} | (more or {})


@pytest.fixture(scope="session")
def events() -> Rows:
    """Return `events(*rows)`: rows of minute, serial or None, code or kind, and further columns."""

    def make(*rows: tuple[Any, ...]) -> pa.Table:
        return build_table([_event(i, *row) for i, row in enumerate(rows)], EVENTS)

    return make


def _event(
    number: int, minute: float, serial: str | None, what: int | str, more: Any = None
) -> dict[str, Any]:
    row: dict[str, Any] = {"timestamp": START + round(minute * MINUTE), "machine_id": "node-1"}
    row |= {"gpu_serial": serial, "id": f"event-{number}"}
    row |= {"kind": "xid", "code": what} if isinstance(what, int) else {"kind": what}
    return row | (more or {})

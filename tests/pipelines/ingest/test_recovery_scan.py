"""Ends of failures from telemetry, landed hour by hour."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.telemetry.failure_evidence import TICKETS, FailureRules
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import HOUR, SECOND
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.recovery_scan import RecoveryScan

pytestmark = pytest.mark.long

START = 1_740_787_200 * SECOND  # 2025-03-01
NO_READINGS, NO_EVENTS = READINGS.empty_table(), EVENTS.empty_table()


def reading(hour: int, serial: str = "S1", **more: Any) -> dict[str, Any]:
    row = {"machine_id": "node-1", "gpu_serial": serial, "timestamp": START + hour * HOUR}
    return row | {"temperature_gpu": 40.0, "utilization_gpu": 90.0} | more


def xid(hour: float, serial: str = "S1", code: int = 79) -> dict[str, Any]:
    row = {"machine_id": "node-1", "gpu_serial": serial, "kind": "xid", "code": code}
    return row | {"timestamp": START + round(hour * HOUR), "id": f"{serial}-{hour}-{code}"}


def land(
    folder: Path, *rows: dict[str, Any], tickets: pa.Table | None = None, **rules: Any
) -> list[tuple[Any, ...]]:
    """Land readings and events; return the failures, times in hours."""
    event_rows = [row for row in rows if "kind" in row]
    seen = [row for row in rows if "kind" not in row]
    landing = Landing(folder, HOUR, FailureRules(**rules))
    landing.land(build_table(seen, READINGS), build_table(event_rows, EVENTS), tickets)
    return failures(folder)


def failures(folder: Path) -> list[tuple[Any, ...]]:
    """Return serial, failed, repaired, known time and source of the end."""
    rows = pq.read_table(folder / "failures.parquet").to_pylist()
    names = ("failed_at", "repaired_at", "end_known_at")
    return [
        (
            row["gpu_serial"],
            *(row[name] and (row[name].value - START) / HOUR for name in names),
            row["end_source"],
        )
        for row in rows
    ]


def test_working_gpu_is_presumed_repaired(tmp_path: Path) -> None:
    land(tmp_path, *(reading(hour) for hour in range(5)), xid(4.5))
    for hour in range(5, 40):
        seen = land(tmp_path, reading(hour), reading(hour, "S2"))
        expected = ("S1", 4.5, 6, 29, "presumed") if hour >= 29 else ("S1", 4.5, None, None, None)
        assert seen == [expected], hour
    assert land(tmp_path, xid(40)) == [expected, ("S1", 40, None, None, None)]


def test_exporter_rollout_repairs_nothing(tmp_path: Path) -> None:
    """All gauges restart at 0 and energy continues; nothing was repaired."""
    fleet = [f"S{number}" for number in range(20)]
    energy: dict[str, Any] = {"energy_consumption": 1e9}
    land(tmp_path, *(reading(h, gpu, **energy) for h in range(3) for gpu in fleet))
    land(tmp_path, *(xid(2.5, gpu) for gpu in fleet))
    nulls = {"utilization_gpu": None, "energy_consumption": None}
    after = [reading(3, gpu, **nulls) for gpu in fleet]
    after += [reading(hour, gpu, energy_consumption=1e9 + hour) for gpu in fleet for hour in (4, 5)]
    assert {row[2:] for row in land(tmp_path, *after)} == {(None, None, None)}


def test_energy_decrease_with_load_is_boot(tmp_path: Path) -> None:
    land(tmp_path, reading(1, energy_consumption=1e9), xid(1.5))
    idle: dict[str, Any] = {"energy_consumption": 1e4, "utilization_gpu": 0.0}
    assert land(tmp_path, reading(5, **idle)) == [("S1", 1.5, None, None, None)]
    worked = land(tmp_path, reading(6, energy_consumption=1e6))
    assert worked == [("S1", 1.5, 5, 6, "boot")]
    # The rule can be switched off, and on again.
    assert land(tmp_path, restart_repairs=False) == [("S1", 1.5, None, None, None)]
    assert land(tmp_path) == worked


def test_single_zero_counter_ends_nothing(tmp_path: Path) -> None:
    rows = [reading(hour, energy_consumption=1e9 + hour) for hour in range(12)]
    rows[5]["energy_consumption"] = 0.0
    rows[8]["energy_consumption"] = 1e3
    for row in (xid(1.5), *rows):
        assert land(tmp_path, row)[:1] == [("S1", 1.5, None, None, None)]


def test_reboot_precedes_presumed_repair(tmp_path: Path) -> None:
    rows = [reading(hour) for hour in range(60)]
    restarted = [row | {"boot_time": START + 10 * HOUR} for row in rows[12:]]
    assert land(tmp_path, *rows[:12], *restarted, xid(4.5)) == [("S1", 4.5, 12, 12, "boot")]


def test_ticket_precedes_presumed_repair(tmp_path: Path) -> None:
    ticket = {"gpu_serial": "S1", "failed_at": START + 4 * HOUR, "repaired_at": START + 50 * HOUR}
    told = pa.Table.from_pylist([ticket], schema=TICKETS)
    rows = [reading(hour) for hour in range(60)]
    assert land(tmp_path, *rows, xid(4.5), tickets=told) == [("S1", 4, 50, 50, "ticket")]


def test_late_row_counts_fully(tmp_path: Path) -> None:
    rows = [reading(hour) for hour in range(40)]
    land(tmp_path, *rows[:10], *rows[20:], xid(4.5))
    assert failures(tmp_path) == [("S1", 4.5, 6, 39, "presumed")]
    land(tmp_path, *rows[10:20])
    assert failures(tmp_path) == [("S1", 4.5, 6, 29, "presumed")]
    # It requested a reset then, so it was not healthy.
    land(tmp_path, rows[10] | {"recovery_action": 1.0})
    assert failures(tmp_path) == [("S1", 4.5, 11, 34, "presumed")]
    assert land(tmp_path, xid(20.5)) == [("S1", 4.5, None, None, None)]


def test_lost_recoveries_are_rebuilt(tmp_path: Path) -> None:
    land(tmp_path, *(reading(hour) for hour in range(40)), xid(4.5))
    before = (tmp_path / "failures.parquet").read_bytes()
    state = tmp_path / "_state" / "recoveries.parquet"
    for damage in (state.unlink, lambda: state.write_bytes(b"no table")):
        damage()
        land(tmp_path)
        assert (tmp_path / "failures.parquet").read_bytes() == before


def test_only_new_hours_of_failed_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = RecoveryScan._records

    def noted(scan: RecoveryScan, hour: int, serials: Any) -> Any:
        assert serials <= {"S1"}
        asked.append(hour - START // HOUR)
        return original(scan, hour, serials)

    monkeypatch.setattr(RecoveryScan, "_records", noted)
    land(tmp_path, *(reading(hour, gpu) for hour in range(50) for gpu in ("S1", "S2")))
    assert not asked
    idle: dict[str, Any] = {"utilization_gpu": 0.0}
    land(tmp_path, xid(4.5), *(reading(hour, **idle) for hour in range(5, 50)))
    assert asked == list(range(3, 50))
    asked.clear()
    land(tmp_path, reading(50, **idle), reading(50, "S2"))
    assert asked == [50]
    asked.clear()
    land(tmp_path, reading(20, "S2"))
    assert not asked
    # A row some hours late requires reading the hours since then, an older one all hours.
    land(tmp_path, reading(48, **idle))
    assert asked == [48, 49, 50]
    for hour in range(51, 60):
        asked.clear()
        land(tmp_path, reading(hour, **idle))
        assert asked == [hour]
    assert len(pq.read_table(tmp_path / "_state" / "recoveries.parquet")) == 4
    asked.clear()
    land(tmp_path, reading(40, **idle))
    assert asked == list(range(3, 60))


class Killed(BaseException):
    """Simulates a killed process."""


@given(st.randoms(use_true_random=False), st.integers(1, 8), st.integers(0, 40))
@settings(max_examples=4, deadline=None)
def test_recoveries_are_order_independent(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, parts: int, killed_at: int
) -> None:
    rows: list[dict[str, Any]] = []
    for gpu in ("S1", "S2"):
        energy = 0.0
        for hour in range(50):
            energy = 0.0 if chance.random() < 0.04 else energy + chance.random()
            use = 90.0 * (chance.random() < 0.4)
            asks = float(chance.random() < 0.02)
            more = {"utilization_gpu": use, "recovery_action": asks, "energy_consumption": energy}
            if chance.random() < 0.9:
                rows.append(reading(hour, gpu, **more))
    rows += [xid(chance.randrange(40) + 0.5, chance.choice(["S1", "S2"])) for _ in range(4)]
    whole, split = (tmp_path_factory.mktemp("landed") for _ in range(2))
    expected = land(whole, *rows)
    rows += chance.sample(rows, 10)
    chance.shuffle(rows)
    for part in range(parts):
        if part == parts - 1:
            _land_until_killed(split, rows[part::parts], killed_at)
        land(split, *rows[part::parts])
    assert failures(split) == expected


def _land_until_killed(folder: Path, rows: list[dict[str, Any]], writes: int) -> None:
    """Land rows in a process that is killed after a number of files."""
    landing = Landing(folder, HOUR)
    write = landing._folder.write
    left = iter(range(writes))

    def counted(path: Path, table: pa.Table) -> None:
        if next(left, None) is None:
            raise Killed
        write(path, table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(landing._folder), "write", lambda _, path, table: counted(path, table))
        event_rows = [row for row in rows if "kind" in row]
        seen = [row for row in rows if "kind" not in row]
        try:
            landing.land(build_table(seen, READINGS), build_table(event_rows, EVENTS))
        except Killed:
            return

"""Training labels from a ledger, on SQLite and PostgreSQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.records.column_names import ColumnNames
from forewarn.features.records.failures import NEVER
from forewarn.features.records.out_of_service import OutOfServiceSpan
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.incidents.learning.gpu_locations import GpuLocations
from forewarn.pipelines.incidents.learning.label_tables import write_ledger_labels
from forewarn.pipelines.incidents.learning.out_of_service_spans import read_absences
from forewarn.pipelines.incidents.learning.training_labels import (
    SerialResolver,
    TrainingLabels,
    labels_from_ledger,
)
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.service_log import record_service
from forewarn.pipelines.storage.records.failures_table import INCIDENT_FAILURES
from forewarn.response.follow_up.external_drain import find_external_drains
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Outcome
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.step import Step

MakeFinding = Callable[..., Finding]
MakeAction = Callable[..., Action]
PATTERNS = ("*gpu*", "*xid*")


def at(hour: float) -> Nanoseconds:
    return Nanoseconds(int(20_000 * DAY + hour * HOUR))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two GPUs in m1 and one in m2, recorded on the first day."""
    folder = tmp_path / "records"
    date = dt.date(1970, 1, 1) + dt.timedelta(days=20_000)
    (folder / f"date={date}").mkdir(parents=True)
    columns = {
        "gpu_serial": ["A", "B", "C"],
        "machine_id": ["m1", "m1", "m2"],
        "slot": [0, 1, 0],
        "timestamp": pa.array([at(1)] * 3, pa.timestamp("ns", "UTC")),
    }
    pq.write_table(pa.table(columns), folder / f"date={date}" / "0.parquet")
    return folder


def learned(ledger: Ledger, records: Path) -> TrainingLabels:
    return labels_from_ledger(ledger, PATTERNS, SerialResolver(GpuLocations(records), at(40)))


def report(ledger: Ledger, finding: Finding) -> int:
    ledger.record_findings([finding], now=finding.at)
    return ledger.incidents()[0].id


def drain(ledger: Ledger, wanted: Action) -> Action:
    written = ledger.act(wanted, lambda _: None)
    assert isinstance(written, Action)
    return written


def test_drained_machine_is_absent_until_return(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    incident = report(ledger, finding(at=at(5)))
    begun = drain(ledger, action(incident, at=at(6), valid_until=at(30), changed_at=at(6)))
    assert read_absences(ledger) == [OutOfServiceSpan("m1", None, at(6), Nanoseconds(NEVER))]
    ledger.advance(begun, ActionState.RELEASED, now=at(9))
    assert read_absences(ledger) == [OutOfServiceSpan("m1", None, at(6), at(9))]


@pytest.mark.parametrize(
    ("step", "state"), [(Step.AVOID, ActionState.HOLDING), (Step.DRAIN, ActionState.FAILED)]
)
def test_avoided_machine_is_in_service(
    ledger: Ledger, finding: MakeFinding, action: MakeAction, step: Step, state: ActionState
) -> None:
    incident = report(ledger, finding(at=at(5)))
    begun = drain(ledger, action(incident, at=at(6), valid_until=at(30), step=step, mode=None))
    ledger.advance(begun, state, now=at(7))
    assert read_absences(ledger) == []


def foreign(ledger: Ledger, name: str, reason: str, **hours: float) -> None:
    """Record an external drain of a machine that returns to service at `back`."""
    machine = Machine(
        *(name, ServiceState.DRAINED, reason),
        gpus=2,
        reason_at=at(hours["since"]),
        reason_by="tom",
    )
    now = at(hours["seen"])
    ledger.record_findings(ledger.new_findings(find_external_drains([machine], now=now)), now=now)
    log: dict[str, Any] = {"before": None, "longest": HOUR}
    record_service(ledger, [machine], now=now, **log)
    if "back" in hours:
        again = replace(machine, state=ServiceState.IN_SERVICE, reason="")
        record_service(ledger, [again], now=at(hours["back"]), **log)


def test_external_drain_naming_gpu_is_failure(ledger: Ledger, records: Path) -> None:
    foreign(ledger, "m1", "Xid 79, GPU 1 fell off", since=5, seen=6, back=9)
    labels = learned(ledger, records)
    (failure,) = labels.failures
    assert (failure.gpu_serial, failure.cause) == ("B", "Xid 79, GPU 1 fell off")
    assert (failure.failed_at, failure.known_at, failure.repaired_at) == (at(5), at(5), at(9))
    assert labels.absences == [OutOfServiceSpan("m1", None, at(5), at(9))]
    assert labels.without_gpu == []


@pytest.mark.parametrize(
    ("reason", "unplaced"), [("gpu trouble", 1), ("GPU 7 bad", 1), ("change of the fan", 0)]
)
def test_external_drain_without_gpu_is_absence(
    ledger: Ledger, records: Path, reason: str, unplaced: int
) -> None:
    foreign(ledger, "m1", reason, since=5, seen=6)
    labels = learned(ledger, records)
    assert labels.failures == []
    assert len(labels.without_gpu) == unplaced
    assert labels.absences == [OutOfServiceSpan("m1", None, at(5), Nanoseconds(NEVER))]


def test_single_gpu_machine_needs_no_slot(ledger: Ledger, records: Path) -> None:
    foreign(ledger, "m2", "gpu trouble", since=5, seen=6)
    (failure,) = learned(ledger, records).failures
    assert (failure.gpu_serial, failure.repaired_at) == ("C", None)


def records_of(folder: Path, *rows: tuple[str, int, float]) -> GpuLocations:
    """Return locations for rows of serial, slot and hour in m1."""
    date = dt.date(1970, 1, 1) + dt.timedelta(days=20_000)
    serials, slots, hours = zip(*rows, strict=True)
    columns = {
        "gpu_serial": pa.array(serials),
        "machine_id": pa.array(["m1"] * len(rows)),
        "slot": pa.array(slots),
        "timestamp": pa.array([at(hour) for hour in hours], pa.timestamp("ns", "UTC")),
    }
    path = folder / "records" / f"date={date}" / "0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), path)
    return GpuLocations(folder / "records")


def test_replaced_gpu_is_not_in_slot(tmp_path: Path) -> None:
    places = records_of(tmp_path, ("A", 0, 1), ("A", 0, 3), ("B", 0, 4), ("B", 0, 9))
    assert places.serial("m1", at(6), slot=0) == "B"
    assert places.serial("m1", at(6)) == "B"
    assert places.serial("m1", at(2), slot=0) is None


def test_lost_gpu_with_shifted_slot_is_present(tmp_path: Path) -> None:
    places = records_of(tmp_path, ("A", 0, 1), ("B", 1, 1), ("B", 0, 2), ("B", 0, 9))
    assert places.serial("m1", at(6), slot=0) is None
    assert places.serial("m1", at(6)) is None


def test_address_resolves_gpu_at_time(tmp_path: Path) -> None:
    state = tmp_path / "records" / "_state"
    state.mkdir(parents=True)
    rows = [
        {"machine_id": "m1", "pci": "0000:19:00", "gpu_serial": gpu, "first": first, "last": last}
        for gpu, first, last in (("A", at(1), at(3)), ("B", at(4), at(9)))
    ]
    pq.write_table(pa.Table.from_pylist(rows), state / "places.parquet")
    places = GpuLocations(tmp_path / "records")
    assert [places.serial("m1", at(hour), pci="0000:19:00") for hour in (2, 6)] == ["A", "B"]
    assert places.serial("m1", at(6), pci="0000:3b:00") is None


def test_confirmed_failure_lasts_until_return(
    ledger: Ledger, finding: MakeFinding, action: MakeAction, records: Path
) -> None:
    incident = report(ledger, finding(at=at(5), gpu_serial="A"))
    begun = drain(ledger, action(incident, at=at(6), valid_until=at(30), changed_at=at(6)))
    said = {"who": "ann", "why": "ticket 4711", "failed_at": at(7), "known_at": at(8)}
    ledger.outcome(incident, Outcome.CONFIRMED, now=at(8), **said)  # type: ignore[arg-type]
    (failure,) = learned(ledger, records).failures
    assert (failure.gpu_serial, failure.failed_at, failure.known_at) == ("A", at(7), at(8))
    assert (failure.cause, failure.repaired_at) == ("ticket 4711", None)
    ledger.advance(begun, ActionState.RELEASED, now=at(12))
    (failure,) = learned(ledger, records).failures
    assert failure.repaired_at == at(12)
    # A withdrawn confirmation gives no negative label either: the machine was drained.
    ledger.outcome(incident, Outcome.UNKNOWN, now=at(13), who="ann", why="it was the cable")
    labels = learned(ledger, records)
    assert (labels.failures, labels.absences) == (
        [],
        [OutOfServiceSpan("m1", None, at(6), at(12))],
    )


def test_failures_of_two_sources_are_merged(
    ledger: Ledger, finding: MakeFinding, records: Path
) -> None:
    foreign(ledger, "m1", "GPU 0 RMA", since=5, seen=6, back=9)
    incident = report(ledger, finding(at=at(5), gpu_serial="A"))
    said = {"who": "ann", "why": "ticket", "failed_at": at(6), "known_at": at(7)}
    ledger.outcome(incident, Outcome.CONFIRMED, now=at(8), **said)  # type: ignore[arg-type]
    (failure,) = learned(ledger, records).failures
    assert (failure.gpu_serial, failure.failed_at, failure.known_at) == ("A", at(5), at(5))


def test_confirmed_failure_of_unknown_gpu_is_absence(
    ledger: Ledger, finding: MakeFinding, records: Path
) -> None:
    incident = report(ledger, finding(at=at(5)))
    said = {"who": "ann", "why": "ticket", "failed_at": at(6), "known_at": at(7)}
    ledger.outcome(incident, Outcome.CONFIRMED, now=at(8), **said)  # type: ignore[arg-type]
    labels = learned(ledger, records)
    assert (labels.failures, labels.absences) == (
        [],
        [OutOfServiceSpan("m1", None, at(6), at(7))],
    )


def test_resolved_serial_is_not_resolved_again(ledger: Ledger, tmp_path: Path) -> None:
    foreign(ledger, "m1", "GPU 1 bad", since=5, seen=6)
    nowhere = GpuLocations(tmp_path / "none")
    known = {("m1", int(at(5))): "B"}
    late = labels_from_ledger(ledger, PATTERNS, SerialResolver(nowhere, at(400), known))
    assert [failure.gpu_serial for failure in late.failures] == ["B"]
    assert (
        len(labels_from_ledger(ledger, PATTERNS, SerialResolver(nowhere, at(400), {})).without_gpu)
        == 1
    )


def test_labels_use_names_of_site(ledger: Ledger, records: Path) -> None:
    (path,) = records.glob("date=*/*.parquet")
    pq.write_table(pq.read_table(path).rename_columns(["device", "host", "slot", "ts"]), path)
    theirs = {"gpu_serial": "device", "machine_id": "host", "timestamp": "ts"}
    foreign(ledger, "m1", "Xid 79, GPU 1 fell off", since=5, seen=6)
    names = ColumnNames.from_mapping(theirs)
    write_ledger_labels(records, ledger, PATTERNS, now=at(40), names=names)
    assert pq.read_table(records / INCIDENT_FAILURES)["gpu_serial"].to_pylist() == ["B"]

"""Tests of finding identity, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.finding_rows import MAX_INT64
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import RecordedCounts
from forewarn.pipelines.incidents.ledger.ledger_tables import findings as table
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, FindingKind, Provenance, Severity
from forewarn.response.state.incident import IncidentState

MakeFinding = Callable[..., Finding]


def at(moment: int) -> Nanoseconds:
    return Nanoseconds(moment)


def test_other_machine_is_a_new_finding(ledger: Ledger, finding: MakeFinding) -> None:
    both = [finding("nvlink-down", machine) for machine in ("m1", "m2")]
    assert ledger.record_findings(both, now=at(20)) == RecordedCounts(new=2, repeated=0)
    assert ledger.record_findings(both, now=at(21)) == RecordedCounts(new=0, repeated=2)
    assert [incident.machine for incident in ledger.open_incidents()] == ["m1", "m2"]


def test_same_id_after_validity_is_new_finding(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding(at=10, valid_until=30)], now=at(10))
    assert ledger.record_findings([finding(at=29, valid_until=49)], now=at(29)) == RecordedCounts(
        0, 1
    )
    assert ledger.record_findings([finding(at=30, valid_until=50)], now=at(30)) == RecordedCounts(
        1, 0
    )
    assert ledger.record_findings([finding(at=31, valid_until=51)], now=at(31)) == RecordedCounts(
        0, 1
    )
    (incident,) = ledger.open_incidents()  # still open, with both findings
    assert [(f.at, f.valid(at(40)), f.count) for f in incident.findings] == [
        (10, False, 2),
        (30, True, 2),
    ]


def test_returning_fault_opens_new_incident(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding()], now=at(20))
    ledger.end_incident(1, IncidentState.OVERRIDDEN, now=at(30), who="ann", why="")
    assert ledger.new_findings([finding()]) == []  # reading a list again is no new fault
    assert ledger.record_findings([finding(at=31)], now=at(31)) == RecordedCounts(1, 0)
    assert ledger.record_findings([finding(at=32)], now=at(32)) == RecordedCounts(0, 1)
    assert [incident.id for incident in ledger.open_incidents()] == [2]


def test_findings_of_shared_incident_parts_are_open(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding("a", "m1"), finding("b", "m2")], now=at(20))
    ledger.share([1, 2], shared="rack r1", machine="m1", now=at(25), why="")
    assert ledger.record_findings([finding("a", "m1", at=30)], now=at(30)) == RecordedCounts(0, 1)


@pytest.mark.parametrize(
    ("field", "fields"),
    [("kind", {"kind": FindingKind.CHECK}), ("gpu_serial", {"gpu_serial": "1650000000001"})],
)
def test_conflicting_finding_is_refused_with_note(
    ledger: Ledger,
    finding: MakeFinding,
    capsys: pytest.CaptureFixture[str],
    field: str,
    fields: dict[str, object],
) -> None:
    ledger.record_findings([finding(gpu_serial="1650000000000")], now=at(20))
    before = ledger.open_incidents()
    other = finding(at=12, **fields)
    assert ledger.record_findings([other, finding("b")], now=at(21)) == RecordedCounts(
        new=1, repeated=0
    )
    message = f"finding 'a' of 'records' about 'm1' is refused: `{field}` found "
    assert message in capsys.readouterr().err
    assert ledger.new_findings([other]) == []
    assert message in capsys.readouterr().err
    assert ledger.open_incidents()[0].findings[:1] == before[0].findings
    assert (
        ledger.record_findings([finding(at=2000, valid_until=3000, **fields)], now=at(2000)).new
        == 1
    )


def test_repeat_may_add_the_serial(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding()], now=at(20))
    repeats = [finding(at=11, gpu_serial="165"), finding(at=12), finding(at=13, gpu_serial="166")]
    assert ledger.record_findings(repeats, now=at(21)) == RecordedCounts(
        new=0, repeated=2
    )  # another GPU is refused
    (incident,) = ledger.open_incidents()
    assert (incident.gpu_serial, incident.findings[0].gpu_serial) == ("165", "165")
    assert ledger.record_findings([finding("b", gpu_serial="165")], now=at(22)).new == 1
    assert len(ledger.open_incidents()) == 1


def test_gpus_without_serials_are_separate_incidents(ledger: Ledger, finding: MakeFinding) -> None:
    places = [finding(bus, evidence={"pci": f"0000:{bus}:00"}) for bus in ("1a", "1b")]
    ledger.record_findings([*places, finding("machine finding")], now=at(20))
    again = finding("2", at=11, evidence={"pci": "00000000:1A:00.0"}, gpu_serial="165")
    ledger.record_findings([again], now=at(21))
    ledger.record_findings([finding("3", at=12, gpu_serial="165")], now=at(22))
    ledger.record_findings(
        [finding("4", evidence={"pci": "0000:1a:00"}, gpu_serial="166")], now=at(23)
    )
    members = [(i.gpu_serial, [f.id for f in i.findings]) for i in ledger.open_incidents()]
    assert members == [
        ("165", ["1a", "2", "3"]),
        (None, ["1b"]),
        (None, ["machine finding"]),
        ("166", ["4"]),
    ]


def test_shared_token_location_joins_no_host_finding(ledger: Ledger, finding: MakeFinding) -> None:
    place = {"pci": "0000:1a:00"}
    forged = finding(evidence=place, gpu_serial="999", vouched=Provenance.SHARED)
    ledger.record_findings([forged, finding("own", evidence=place)], now=at(20))
    assert [i.gpu_serial for i in ledger.open_incidents()] == ["999", None]


def test_latest_severity_counts_and_is_noted(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding(severity=Severity.WARNING)], now=at(20))
    critical = finding(at=14, severity=Severity.CRITICAL)
    assert ledger.record_findings([critical], now=at(21), who="nhc-m1") == RecordedCounts(0, 1)
    ledger.record_findings([finding(at=12, severity=Severity.NOTICE)], now=at(22))  # late arrival
    ledger.record_findings([finding(at=15, severity=None)], now=at(23))  # no severity given
    ledger.record_findings([critical], now=at(24))
    (incident,) = ledger.open_incidents()
    assert incident.findings[0].severity is Severity.CRITICAL
    (change,) = ledger.notes()
    assert (change.at, change.who, change.act) == (21, "nhc-m1", "severity")
    assert (change.target, change.detail) == ("a of records about m1", "warning to critical")


def test_shared_token_findings_are_separate(ledger: Ledger, finding: MakeFinding) -> None:
    """Otherwise any host with the token could block, soften or count reports of a machine."""
    forged = finding(kind=FindingKind.CHECK, severity=Severity.NOTICE, vouched=Provenance.SHARED)
    ledger.record_findings([forged], now=at(20))
    assert ledger.record_findings(
        [finding(severity=Severity.CRITICAL)], now=at(21)
    ) == RecordedCounts(1, 0)
    assert ledger.record_findings([forged], now=at(22)) == RecordedCounts(0, 1)
    (incident,) = ledger.open_incidents()
    assert {f.vouched: (f.severity, f.count) for f in incident.findings} == {
        Provenance.SHARED: (Severity.NOTICE, 2),
        Provenance.HOST: (Severity.CRITICAL, 1),
    }


def test_count_saturates_at_64_bits(ledger: Ledger, finding: MakeFinding) -> None:
    for moment in (20, 21):
        ledger.record_findings([finding(count=MAX_INT64), finding(count=MAX_INT64)], now=at(moment))
        ledger.record_findings([finding(count=7)], now=at(moment))
    (incident,) = ledger.open_incidents()
    assert incident.findings[0].count == MAX_INT64


def test_shared_token_override_blocks_no_host_report(ledger: Ledger, finding: MakeFinding) -> None:
    forged = [finding(machine=f"m{n}", vouched=Provenance.SHARED) for n in (1, 2)]
    ledger.record_findings([*forged, finding(machine="m2")], now=at(20))
    for number in (1, 2):
        ledger.end_incident(number, IncidentState.OVERRIDDEN, now=at(30), who="ann", why="forged")
    overrides = {override.machine: override for override in ledger.overrides(at(0))}
    assert {name: o.vouched for name, o in overrides.items()} == {"m1": "shared", "m2": "host"}
    own = finding(machine="m1", at=31)
    assert overrides["m1"].blocks(forged[0])
    assert not overrides["m1"].blocks(own)
    assert overrides["m2"].blocks(finding(machine="m2", at=31))


def flood(make: MakeFinding, machine: str) -> list[Finding]:
    reports = {"source": "nhc", "kind": FindingKind.REPORT, "vouched": Provenance.SHARED}
    return [make(f"f{n}", machine, at=15, cause="report by nhc", **reports) for n in range(1_200)]


@pytest.mark.parametrize("fields", [{}, {"kind": FindingKind.REPORT, "cause": MANUAL_CAUSE}])
def test_shared_token_flood_displaces_no_other_finding(
    ledger: Ledger, finding: MakeFinding, fields: dict[str, object]
) -> None:
    ledger.record_findings([finding(**fields)], now=at(20))
    ledger.record_findings(flood(finding, "m1"), now=at(21))
    (incident,) = ledger.open_incidents()
    assert incident.findings[0].id == "a"
    assert len(incident.findings) == 1_001


@pytest.mark.parametrize("column", ["severity", "kind", "evidence"])
def test_damaged_row_is_not_recorded_again(
    ledger: Ledger, finding: MakeFinding, column: str
) -> None:
    ledger.record_findings([finding(), finding("b")], now=at(20))
    with ledger.database.writing() as connection:
        connection.execute(table.update().where(table.c.key == "a").values({column: "bogus"}))
    again = [finding(), finding("b"), finding("c")]
    assert ledger.record_findings(ledger.new_findings(again), now=at(21)) == RecordedCounts(1, 0)
    assert ledger.record_findings(again, now=at(22)) == RecordedCounts(0, 3)
    assert ledger.record_findings([finding(at=11)], now=at(23)).new == (column != "evidence")


def test_duplicate_in_batch_stops_no_other_finding(ledger: Ledger, finding: MakeFinding) -> None:
    twice = [finding(valid_until=30), finding(valid_until=60, last=40)]
    assert ledger.record_findings([*twice, finding("b")], now=at(50)) == RecordedCounts(2, 1)

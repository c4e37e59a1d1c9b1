"""Tests of the ledger by examples, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger import incident_rows
from forewarn.pipelines.incidents.ledger.decision_rows import ApprovalError
from forewarn.pipelines.incidents.ledger.finding_rows import FindingError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import (
    AuditNote,
    RecordedCounts,
    SwitchChange,
)
from forewarn.response.decision.manual_override import Override
from forewarn.response.decision.situation import Approval
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Incident, IncidentState, Outcome
from forewarn.response.state.step import DrainMode, Step

MakeFinding = Callable[..., Finding]
MakeDecision = Callable[..., Decision]
MakeAction = Callable[..., Action]


def at(moment: int) -> Nanoseconds:
    return Nanoseconds(moment)


def only(incidents: list[Incident]) -> Incident:
    (incident,) = incidents
    return incident


# --- findings -------------------------------------------------------------------------------------


def test_finding_is_stored_unchanged(ledger: Ledger, finding: MakeFinding) -> None:
    original = finding(
        gpu_serial="165", job="4711", severity=None, model_version="v3", evidence={"a": [1, None]}
    )
    assert ledger.record_findings([original], now=at(20)) == RecordedCounts(new=1, repeated=0)
    stored = replace(original, first=at(10), last=at(10))
    assert only(ledger.open_incidents()) == Incident(
        1, "m1", "165", at(20), machines=("m1",), findings=(stored,)
    )


def test_repeats_update_first_last_and_count(ledger: Ledger, finding: MakeFinding) -> None:
    assert (
        ledger.record_findings(
            [finding(at=10), finding(at=14), finding(at=12)], now=at(20)
        ).repeated
        == 2
    )
    assert ledger.record_findings(
        [finding(at=11, count=5), finding("b")], now=at(21)
    ) == RecordedCounts(1, 1)
    (first, _) = only(ledger.open_incidents()).findings
    assert (first.at, first.first, first.last, first.count) == (10, 10, 14, 8)


def test_other_source_is_a_new_finding(ledger: Ledger, finding: MakeFinding) -> None:
    assert ledger.record_findings([finding(), finding(source="site")], now=at(20)).new == 2


def test_findings_join_open_incident_of_gpu(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings(
        [finding("a"), finding("b", gpu_serial="1"), finding("c", "m2")], now=at(20)
    )
    ledger.record_findings([finding("d", at=12), finding("e", gpu_serial="1")], now=at(21))
    members = {
        (incident.machine, incident.gpu_serial): [finding.id for finding in incident.findings]
        for incident in ledger.open_incidents()
    }
    assert members == {("m1", None): ["a", "d"], ("m1", "1"): ["b", "e"], ("m2", None): ["c"]}


def test_new_finding_after_close_opens_incident(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding()], now=at(20))
    ledger.end_incident(1, IncidentState.CLOSED, now=at(30), who="ann", why="repaired")
    assert ledger.record_findings([finding(at=29)], now=at(40)) == RecordedCounts(
        new=0, repeated=1
    )  # late arrival
    assert ledger.new_findings([finding()]) == []
    assert ledger.open_incidents() == []
    assert ledger.record_findings([finding(at=40)], now=at(41)) == RecordedCounts(new=1, repeated=0)
    assert [incident.id for incident in ledger.open_incidents()] == [2]
    with pytest.raises(ValueError, match="incident 1 is closed"):
        ledger.end_incident(1, IncidentState.OPEN, now=at(50), who="ann", why="")


def test_long_evidence_is_truncated(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding(evidence={"log": 'é"\\' * 10_000})], now=at(20))
    evidence = only(ledger.open_incidents()).findings[0].evidence
    assert set(evidence) == {"cut_from_bytes", "begin"}
    assert evidence["cut_from_bytes"] > 100_000
    assert 7_000 < len(json.dumps(evidence)) <= 16 * 1024


def test_newest_findings_are_read(
    ledger: Ledger, finding: MakeFinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incident_rows, "MAX_FINDINGS_READ", 3)
    ledger.record_findings([finding(f"{n}", at=n) for n in range(9)], now=at(20))
    assert [row.id for row in only(ledger.open_incidents()).findings] == ["6", "7", "8"]
    ledger.record_findings([finding(f"m{n}", f"m{n}") for n in range(9)], now=at(20))
    parts = [incident.id for incident in ledger.open_incidents()]
    ledger.share(parts, shared="rack r1", machine="m0", now=at(21), why="")
    shared = only(ledger.open_incidents())
    assert (len(shared.findings), len(shared.machines)) == (3, 9)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"machine": "a\0b"}, "`machine` has a NUL"),
    ({"machine": ""}, "`machine` has 0 bytes, expected 1 to 512"),
    ({"cause": "é" * 257}, "`cause` has 514 bytes"),
    ({"job": "\ud800"}, "`job` has a lone surrogate"),
    ({"valid_until": 2**62}, "`valid_until` is not between 1970 and 2116"),
    ({"at": -1}, "`at` is not between 1970 and 2116"),
    ({"count": 0}, "`count` is not between 1 and 2^63 - 1"),
    ({"count": 2**63}, "`count` is not between 1 and 2^63 - 1"),
]


def test_unstorable_finding_is_refused_with_note(
    ledger: Ledger, finding: MakeFinding, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (fields, message) in enumerate(REFUSED):
        new = finding(f"a{number}")
        assert ledger.record_findings([finding("b", **fields), new], now=at(20)) == RecordedCounts(
            1, 0
        )
        assert message in capsys.readouterr().err
    assert len(only(ledger.open_incidents()).findings) == len(REFUSED)


def refuse(error: FindingError) -> None:
    raise error


def test_raising_refusal_rejects_all_findings(ledger: Ledger, finding: MakeFinding) -> None:
    for fields, message in REFUSED:
        with pytest.raises(FindingError, match=re.escape(message)):
            ledger.record_findings([finding(), finding("b", **fields)], now=at(20), refuse=refuse)
    assert ledger.open_incidents() == []


# --- incidents ------------------------------------------------------------------------------------


def test_shared_incident_receives_findings_and_closes_parts(
    ledger: Ledger, finding: MakeFinding
) -> None:
    ledger.record_findings([finding("a", "m1", at=12), finding("b", "m2", at=11)], now=at(20))
    number = ledger.share([1, 2], shared="job 4711", machine="m2", now=at(25), why="one crash")
    shared = only(ledger.open_incidents())
    assert (shared.id, shared.shared, shared.machine) == (number, "job 4711", "m2")
    assert shared.machines == ("m2", "m1")
    assert [member.id for member in shared.findings] == ["b", "a"]
    parts = ledger.incidents(state=IncidentState.CLOSED)
    assert [part.id for part in parts] == [2, 1]


def test_late_machines_join_open_shared_incident(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding("a", "m1"), finding("b", "m2")], now=at(20))
    number = ledger.share([1, 2], shared="job 4711", machine="m1", now=at(25), why="one crash")
    ledger.record_findings([finding("c", "m3")], now=at(26))
    late = ledger.open_incidents()[-1].id
    again = ledger.share([number, late], shared="job 4711", machine="m3", now=at(27), why="late")
    assert again == number
    assert only(ledger.open_incidents()).machines == ("m1", "m2", "m3")


def test_incidents_are_paged_newest_first(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding(str(n), f"m{n}") for n in range(5)], now=at(20))
    page = ledger.incidents(limit=2)
    assert [incident.id for incident in page] == [5, 4]
    assert [incident.id for incident in ledger.incidents(before=4, limit=2)] == [3, 2]
    ledger.end_incident(3, IncidentState.OVERRIDDEN, now=at(30), who="ann", why="")
    ledger.end_incident(3, IncidentState.CLOSED, now=at(31), who="ann", why="")
    ledger.end_incident(4, IncidentState.OVERRIDDEN, now=at(30), who="ann", why="")
    numbers = {
        state: [incident.id for incident in ledger.incidents(state=state)]
        for state in IncidentState
    }
    assert numbers == {
        IncidentState.OPEN: [5, 2, 1],
        IncidentState.OVERRIDDEN: [4],
        IncidentState.CLOSED: [3],
    }


def test_machine_filter_includes_shared_incidents(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding("a", "m1"), finding("b", "m2"), finding("c", "m3")], now=at(20))
    ledger.share([1, 2], shared="rack r1", machine="m1", now=at(25), why="")
    assert [incident.id for incident in ledger.incidents(machine="m2")] == [4, 2]
    assert [incident.id for incident in ledger.incidents(machine="m3")] == [3]


def test_sql_in_search_is_harmless(ledger: Ledger, finding: MakeFinding) -> None:
    ledger.record_findings([finding()], now=at(20))
    for text in ("' OR 1=1 --", "m1'; DROP TABLE findings; --", "%", "m\0", "\ud800"):
        assert ledger.incidents(machine=text) == []
        assert ledger.last_heartbeat(text) is None
    assert len(ledger.incidents(machine="m1")) == 1


def test_impossible_numbers_return_none(ledger: Ledger) -> None:
    for number in (-1, 0, 7, 2**80):
        assert ledger.incident(number) is None
        assert ledger.action(number) is None


def test_newest_outcome_and_first_acknowledgement_count(
    ledger: Ledger, finding: MakeFinding
) -> None:
    ledger.record_findings([finding()], now=at(20))
    ledger.outcome(1, Outcome.UNKNOWN, now=at(30), who="forewarn", why="drained, then healthy")
    times = {"failed_at": at(25), "known_at": at(31)}
    ledger.outcome(1, Outcome.CONFIRMED, now=at(31), who="ann", why="ticket 7", **times)
    ledger.acknowledge(1, now=at(32), who="ann")
    ledger.acknowledge(1, now=at(33), who="bob")
    incident = only(ledger.open_incidents())
    assert (incident.outcome, incident.acknowledged) == (Outcome.CONFIRMED, True)


# --- decisions ------------------------------------------------------------------------------------


def test_unchanged_decision_is_not_added(
    ledger: Ledger, finding: MakeFinding, decision: MakeDecision
) -> None:
    ledger.record_findings([finding()], now=at(20))
    first = decision(1)
    assert ledger.decide(first)
    assert not ledger.decide(replace(first, at=at(21), until=at(99)))
    on_hold = replace(first, at=at(22), ruling=Ruling.HOLD, reason="2 of 2 are out", until=at(50))
    assert ledger.decide(on_hold)
    assert ledger.decide(replace(first, at=at(23)))
    assert [row.at for row in ledger.decisions(1)] == [20, 22, 23]
    assert ledger.decisions(1)[1] == on_hold
    assert only(ledger.open_incidents()).decision == replace(first, at=at(23))


def test_holdout_decision_stores_propensity(
    ledger: Ledger, finding: MakeFinding, decision: MakeDecision
) -> None:
    ledger.record_findings([finding()], now=at(20))
    ledger.decide(decision(1, ruling=Ruling.HOLD, mode=None, propensity=0.1, control=True))
    (row,) = ledger.decisions(1)
    assert (row.propensity, row.control, row.mode) == (0.1, True, None)


def test_valid_proposal_can_be_approved(
    ledger: Ledger, finding: MakeFinding, decision: MakeDecision
) -> None:
    ledger.record_findings([finding()], now=at(20))
    proposal = decision(1)
    ledger.decide(proposal)
    ledger.approve(1, at(20), now=at(30), who="ann")
    ledger.approve(1, at(20), now=at(31), who="ann")
    assert ledger.approvals([1, 2]) == {1: Approval(proposal, at(30), "ann")}
    with pytest.raises(ApprovalError, match="no longer valid"):
        ledger.approve(1, at(20), now=at(1000), who="bob")
    with pytest.raises(ApprovalError, match="newer decision"):
        ledger.approve(1, at(19), now=at(30), who="bob")
    ledger.decide(replace(proposal, at=at(40), ruling=Ruling.HOLD))
    with pytest.raises(ApprovalError, match="`hold`, expected `propose`"):
        ledger.approve(1, at(40), now=at(41), who="bob")


# --- actions --------------------------------------------------------------------------------------


def no_limit(recent: object) -> None:
    del recent


def test_action_is_recorded_with_each_change(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    ledger.record_findings([finding()], now=at(20))
    recorded = ledger.act(action(1), no_limit)
    assert recorded == replace(action(1), id=1)
    assert isinstance(recorded, Action)
    sent = ledger.advance(recorded, ActionState.SENT, now=at(31), detail="scontrol")
    assert sent == replace(recorded, state=ActionState.SENT, version=1, changed_at=at(31))
    assert ledger.open_actions() == [sent]
    assert ledger.action(1) == sent
    assert only(ledger.open_incidents()).actions == (sent,)
    changes = [(row.version, row.state, row.at, row.who) for row in ledger.action_states(1)]
    assert changes == [(0, "intended", 30, "forewarn"), (1, "sent", 31, "forewarn")]


def test_refusal_of_check_blocks_action(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    ledger.record_findings([finding()], now=at(20))
    assert ledger.act(action(1), lambda recent: f"{len(recent)} are out") == "0 are out"
    assert ledger.open_actions() == []


def test_check_sees_open_and_recent_actions(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    ledger.record_findings([finding(f"{n}", f"m{n}") for n in range(4)], now=at(20))
    for number, (machine, end) in enumerate([("m0", 1), ("m1", DAY), ("m2", None)], 1):
        recorded = ledger.act(action(number, machine, at=1), no_limit)
        assert isinstance(recorded, Action)
        if end is not None:
            ledger.advance(recorded, ActionState.RELEASED, now=at(end))
    seen: list[list[str]] = []
    ledger.act(
        action(4, "m3", at=9 * DAY), lambda recent: seen.append([row.machine for row in recent])
    )
    assert seen == [["m1", "m2"]]


def test_machine_is_drained_once_for_any_cause(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    ledger.record_findings([finding("a"), finding("b", gpu_serial="1")], now=at(20))
    first = ledger.act(action(1), no_limit)
    again = [action(1, at=31), action(2, at=31), action(2, at=32, step=Step.RESTART)]
    assert [ledger.act(other, no_limit) for other in again] == [None] * 3
    assert [ledger.act(other, str) is None for other in again] == [True, False, False]
    avoid = action(1, step=Step.AVOID, mode=None)
    assert ledger.act(avoid, no_limit) == replace(avoid, id=2)
    assert ledger.act(avoid, no_limit) is None
    assert isinstance(first, Action)
    ledger.advance(first, ActionState.RELEASED, now=at(40))
    later = ledger.act(action(2, at=41), no_limit)
    assert isinstance(later, Action)
    assert later.id == 3


def test_concurrent_change_of_action_succeeds_once(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    ledger.record_findings([finding()], now=at(20))
    recorded = ledger.act(action(1), no_limit)
    assert isinstance(recorded, Action)
    assert ledger.advance(recorded, ActionState.SENT, now=at(31)) is not None
    assert ledger.advance(recorded, ActionState.EXPIRED, now=at(31)) is None
    ended = ledger.advance(ledger.open_actions()[0], ActionState.FAILED, now=at(32))
    assert ended is not None
    with pytest.raises(ValueError, match=r"action 1 has ended \(`failed`\)"):
        ledger.advance(ended, ActionState.SENT, now=at(33))


def test_recent_actions_are_selected_by_change(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    ledger.record_findings([finding("a", "m1"), finding("b", "m2")], now=at(20))
    ledger.act(action(1, "m1", at=30), no_limit)
    recorded = ledger.act(action(2, "m2", at=31), no_limit)
    assert isinstance(recorded, Action)
    ledger.advance(recorded, ActionState.SENT, now=at(40))
    assert [row.machine for row in ledger.recent_actions(at(40))] == ["m2"]
    assert [row.machine for row in ledger.recent_actions(at(30))] == ["m1", "m2"]


def test_override_counts_once_per_machine_and_cause(
    ledger: Ledger, finding: MakeFinding, decision: MakeDecision, action: MakeAction
) -> None:
    ledger.record_findings([finding(f"{n}", f"m{n}") for n in (1, 2, 3)], now=at(20))
    ledger.decide(decision(1))
    for number in (1, 2):
        recorded = ledger.act(action(number, f"m{number}"), no_limit)
        assert isinstance(recorded, Action)
        end = ActionState.OVERRIDDEN if number == 1 else ActionState.RELEASED
        ledger.advance(recorded, end, now=at(40 + number), who="root")
    for number in (1, 2, 3):
        ledger.end_incident(
            number, IncidentState.OVERRIDDEN, now=at(50 + number), who="ann", why=""
        )
    overrides = ledger.overrides(at(0))
    assert [(row.machine, row.at, row.who) for row in overrides] == [
        ("m1", 41, "root"),
        ("m2", 52, "ann"),
        ("m3", 53, "ann"),
    ]
    assert overrides[0] == Override("m1", "xid 79", at(41), "root", decision(1).severity)
    assert [row.machine for row in ledger.overrides(at(53))] == ["m3"]


# --- audit ----------------------------------------------------------------------------------------


def test_kill_switch_records_who_and_why(ledger: Ledger) -> None:
    assert ledger.switched_off() is None
    ledger.switch(False, now=at(1), who="ann", why="acceptance of rack r7")
    assert ledger.switched_off() == SwitchChange(False, at(1), "ann", "acceptance of rack r7")
    ledger.switch(True, now=at(2), who="bob", why="done")
    assert ledger.switched_off() is None
    assert ledger.last_switch() == SwitchChange(True, at(2), "bob", "done")


def test_notes_heartbeats_and_first_uses(ledger: Ledger) -> None:
    ledger.note(now=at(1), who="ann", act="approve", target="incident 1", detail="")
    ledger.note(now=at(2), who="bob", act="undo", target="action 3", detail="a\0\ud800b")
    assert [row.who for row in ledger.notes()] == ["bob", "ann"]
    assert ledger.notes(1) == [AuditNote(at(2), "bob", "undo", "action 3", "a\ufffd\ufffdb")]
    for moment in (5, 7, 6, 7):
        ledger.record_heartbeat("loop", at(moment))
    assert (ledger.last_heartbeat("loop"), ledger.last_heartbeat("lists")) == (7, None)
    assert [ledger.first_seen("policy", "p1", at(moment)) for moment in (5, 9)] == [5, 5]
    assert ledger.first_seen("policy", "p2", at(9)) == 9


def test_transaction_sees_its_own_rows_and_leaves_none_after_an_error(
    ledger: Ledger, finding: MakeFinding
) -> None:
    def fail_in_the_middle() -> None:
        with ledger.database.transaction():
            ledger.record_findings([finding()], now=at(20))
            assert len(ledger.incidents()) == 1
            raise FindingError(finding(), "machine", "is wrong")

    with pytest.raises(FindingError):
        fail_in_the_middle()
    assert ledger.incidents() == []
    with ledger.database.transaction():
        ledger.record_findings([finding()], now=at(20))
        ledger.note(now=at(20), who="ann", act="drain", target="m1", detail="")
    assert (len(ledger.incidents()), len(ledger.notes())) == (1, 1)


def test_rows_record_policy_and_model_versions(
    ledger: Ledger, finding: MakeFinding, decision: MakeDecision, action: MakeAction
) -> None:
    ledger.record_findings([finding()], now=at(20))
    ledger.decide(decision(1, policy_version="p7", model_version="v3"))
    ledger.approve(1, at(20), now=at(21), who="ann")
    ledger.act(action(1), no_limit)
    ledger.outcome(1, Outcome.UNKNOWN, now=at(40), who="ann", why="")
    ledger.end_incident(1, IncidentState.CLOSED, now=at(41), who="ann", why="")
    with ledger.database.reading() as connection:
        versions = {
            table: connection.exec_driver_sql(
                f"SELECT policy_version, model_version FROM {table}"
            ).all()
            for table in ("decisions", "approvals", "actions", "outcomes", "incident_states")
        }
    assert versions == {table: [("p7", "v3")] for table in versions}


def test_all_kinds_and_modes_are_stored(
    ledger: Ledger, finding: MakeFinding, action: MakeAction
) -> None:
    kinds = list(FindingKind)
    ledger.record_findings(
        [finding(kind, kind=kind, machine=f"m{kind}") for kind in kinds], now=at(20)
    )
    assert [row.findings[0].kind for row in ledger.open_incidents()] == kinds
    for number, mode in enumerate([*DrainMode, None], 1):
        recorded = ledger.act(action(number, f"n{number}", mode=mode), no_limit)
        assert isinstance(recorded, Action)
        assert ledger.action(recorded.id) == recorded

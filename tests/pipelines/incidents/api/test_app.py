"""Tests of the API: findings, incidents, manual actions, kill switch and metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from tests.pipelines.incidents.api.api_client import LATER, NOW, Api, finding

from forewarn.features.time_units import DAY, HOUR, SECOND, Nanoseconds
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.action import ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import MANUAL_CAUSE
from forewarn.response.state.incident import Incident, IncidentState, Outcome
from forewarn.response.state.step import DrainMode, Step

# --- posting findings -----------------------------------------------------------------------------


def test_repeated_findings_are_counted(api: Api) -> None:
    both = api.report(finding(), finding(id="f2", machine="node-2", gpu_serial="S2", job="4711"))
    assert (both.status_code, both.json()) == (200, {"new": 2, "repeated": 0})
    again = api.report(finding(severity="notice"), finding())
    assert again.json() == {"new": 0, "repeated": 2}
    page = api.get("/v1/incidents").json()
    assert [incident["machine"] for incident in page["incidents"]] == ["node-2", "node-1"]
    (line,) = page["incidents"][1]["findings"]
    assert (line["count"], line["severity"]) == (3, "error")


def test_only_new_findings_are_noted(api: Api) -> None:
    for _ in range(3):
        api.report(finding())
    (note,) = api.ledger.notes()
    assert (note.who, note.act, note.target, note.at) == ("report-ann", "report", "nhc", NOW)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"kind": "xid", "evidence": {"xid": 79}}, "xid 79"),
        ({"kind": "xid", "evidence": {"code": 48}}, "xid 48"),
        ({"kind": "xid", "evidence": {"xid": True}}, "xid by nhc"),
        ({"kind": "xid", "evidence": {}}, "xid by nhc"),
        ({"kind": "check", "evidence": {"xid": 79}}, "check by nhc"),
        ({"source": "smi"}, "check by smi"),
    ],
)
def test_cause_is_xid_code_or_source(api: Api, changes: dict[str, object], cause: str) -> None:
    assert api.report(finding(**changes)).is_success
    assert api.ledger.incidents()[0].findings[0].cause == cause


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("machine", "../../etc/passwd", "match"),
        ("machine", "node-1'; DROP TABLE findings; --", "match"),
        ("machine", "<script>alert(1)</script>", "match"),
        ("machine", "a" * 254, "253"),
        ("machine", "", "match"),
        ("machine", 17, "string"),
        ("machine", "node-1\n", "match"),
        ("source", "<b>", "match"),
        ("source", "\u202ereversed", "match"),
        ("source", "records", "reserved"),
        ("source", "At_Risk", "reserved"),
        ("id", " x", "match"),
        ("id", "lone \ud800", ""),
        ("kind", "rumour", "'at_risk'"),
        ("severity", "fatal", "'critical'"),
        ("severity", None, "'critical'"),
        ("at", "yesterday", "ISO 8601"),
        ("at", 1_772_366_400, "ISO 8601"),
        ("at", format_iso(NOW + HOUR), "3600 s in the future"),
        ("at", "1969-12-31", "1970"),
        ("at", "9999-12-31", "ISO 8601"),
        ("valid_until", format_iso(NOW - 2 * HOUR), "or after `at`"),
        ("valid_until", format_iso(NOW + 400 * DAY), "366 days"),
        ("evidence", [1], "dictionary"),
        ("evidence", {"text": "x" * 17_000}, "16384"),
        ("evidence", {"text": "\u00e9" * 6_000}, "16384"),
        ("evidence", {"text": "\udc80"}, "UTF-8"),
        ("colour", "red", "Extra"),
    ],
)
def test_invalid_finding_rejects_the_whole_request(
    empty: Api, field: str, value: object, why: str
) -> None:
    answer = empty.report(finding(), finding(id="f2") | {field: value}, finding(id="f3"))
    assert answer.status_code == 422
    refusal = answer.json()
    assert (refusal["index"], refusal["field"]) == (1, field)
    assert refusal["error"].startswith(f"findings[1].{field}: ")
    assert why in refusal["error"]
    assert refusal["error"].isascii()
    assert len(refusal["error"]) < 400
    assert empty.ledger.incidents() == []


def test_missing_field_is_named(empty: Api) -> None:
    incomplete = finding()
    del incomplete["valid_until"]
    assert empty.report(finding(), incomplete).json()["field"] == "valid_until"


def test_request_is_limited_to_1000_findings(api: Api) -> None:
    many = [finding(id=f"f{number}", machine=f"node-{number}") for number in range(1001)]
    assert api.report(*many).status_code == 422
    assert api.ledger.incidents() == []
    assert api.report(*many[1:]).json() == {"new": 1000, "repeated": 0}


def test_small_clock_skew_is_accepted(api: Api) -> None:
    assert api.report(finding(at=format_iso(NOW + 250 * SECOND))).is_success


def test_times_keep_nanoseconds_and_default_to_utc(api: Api) -> None:
    at = "2026-03-01T11:00:00.123456789"
    number = api.incident(at=at)
    (line,) = api.get(f"/v1/incidents/{number}").json()["findings"]
    assert line["at"] == f"{at}Z"
    assert line["evidence"] == {"message": "GPU 3 < 8"}


# --- reading incidents and actions ----------------------------------------------------------------


def test_incidents_are_paged_newest_first(api: Api) -> None:
    numbers = [api.incident(f"node-{n}") for n in range(5)]
    first = api.get("/v1/incidents", limit=3).json()
    second = api.get("/v1/incidents", limit=3, before=first["next"]).json()
    shown = [incident["id"] for page in (first, second) for incident in page["incidents"]]
    assert shown == numbers[::-1]
    assert second["next"] is None


def test_incidents_are_filtered_by_state_and_machine(api: Api) -> None:
    numbers = [api.incident(f"node-{n}") for n in range(3)]
    api.post(f"/v1/incidents/{numbers[0]}/undo")

    def shown(**query: Any) -> list[int]:
        return [one["id"] for one in api.get("/v1/incidents", **query).json()["incidents"]]

    assert shown(state="open") == numbers[:0:-1]
    assert shown(state="open", before=numbers[2]) == numbers[1:2]
    assert shown(state="open", limit=1) == numbers[2:]
    assert shown(state="overridden") == numbers[:1]
    assert shown(machine="node-1") == numbers[1:2]
    assert shown(machine="node-9") == []


def test_incident_detail_has_decisions_approval_and_changes(api: Api) -> None:
    number = api.incident()
    decision = api.propose(number)
    api.post(f"/v1/incidents/{number}/approve", role="approve")
    api.act(number)
    detail = api.get(f"/v1/incidents/{number}").json()
    assert [one["ruling"] for one in detail["decisions"]] == ["propose"]
    assert detail["approval"] == {
        "decision_at": format_iso(decision.at),
        "at": format_iso(NOW),
        "who": "approve-ann",
    }
    assert [change["state"] for change in detail["actions"][0]["changes"]] == [
        "intended",
        "holding",
    ]
    assert detail["decisions"][0]["valid_until"] == format_iso(LATER)


def test_open_and_recent_actions_are_listed(api: Api) -> None:
    action = api.act(api.incident())
    (shown,) = api.get("/v1/actions").json()["actions"]
    assert (shown["id"], shown["state"], shown["machine"]) == (action.id, "holding", "node-1")
    queries: tuple[dict[str, Any], ...] = (
        {"state": "released"},
        {"machine": "node-2"},
        {"before": action.id},
    )
    for query in queries:
        assert api.get("/v1/actions", **query).json() == {"actions": [], "next": None}
    api.clock.moment = Nanoseconds(NOW + 30 * DAY)
    assert len(api.get("/v1/actions", state="holding").json()["actions"]) == 1
    api.ledger.advance(action, ActionState.RELEASED, now=Nanoseconds(NOW + DAY))
    assert api.get("/v1/actions").json()["actions"] == []


def test_score_is_returned(api: Api) -> None:
    assert api.get("/v1/score").json() == {"precision": None}


# --- manual actions -------------------------------------------------------------------------------


def test_approval_is_idempotent(api: Api) -> None:
    number = api.incident()
    decision = api.propose(number)
    path = f"/v1/incidents/{number}/approve"
    assert api.post(path, {"why": "ticket 1"}).json() == {"incident": number, "changed": True}
    assert api.post(path).json() == {"incident": number, "changed": False}
    assert api.ledger.approvals([number])[number].decision == decision
    assert [note.act for note in api.ledger.notes()] == ["approve", "report"]


def test_replaced_proposal_cannot_be_approved(api: Api) -> None:
    number = api.incident()
    path = f"/v1/incidents/{number}/approve"
    assert "no decision yet" in api.post(path).json()["error"]
    decision = api.propose(number)
    seen = {"decision_at": format_iso(decision.at - 1)}
    assert (answer := api.post(path, seen)).status_code == 409
    assert "newer decision" in answer.json()["error"]
    assert api.post(path, {"decision_at": format_iso(decision.at)}).json()["changed"]


def test_only_valid_proposals_can_be_approved(api: Api) -> None:
    on_hold = api.incident()
    api.propose(on_hold, ruling=Ruling.HOLD)
    answer = api.post(f"/v1/incidents/{on_hold}/approve")
    assert (answer.status_code, "`hold`" in answer.json()["error"]) == (409, True)
    late = api.incident("node-2")
    api.propose(late)
    api.clock.moment = Nanoseconds(LATER + 1)
    assert "no longer valid" in api.post(f"/v1/incidents/{late}/approve").json()["error"]
    assert api.ledger.approvals([on_hold, late]) == {}


def test_undo_releases_actions_and_overrides_incident(api: Api) -> None:
    number = api.incident()
    action = api.act(number)
    path = f"/v1/incidents/{number}/undo"
    assert api.post(path, {"why": "we need it"}, role="act").json()["changed"]
    assert not api.post(path, role="act").json()["changed"]
    *_, last = api.ledger.action_states(action.id)
    assert (last.state, last.who, last.detail) == (
        ActionState.RELEASING,
        "act-ann",
        "we need it",
    )
    incident = api.ledger.incident(number)
    assert incident is not None
    assert incident.state is IncidentState.OVERRIDDEN
    assert [override.cause for override in api.ledger.overrides(NOW)] == ["check by nhc"]


def test_loop_waits_for_an_undo_and_leaves_its_action(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = api.incident()
    action, read = api.act(number, ActionState.SENT), api.ledger.incident
    changes: list[object] = []
    loop = Thread(
        target=lambda: changes.append(api.ledger.advance(action, ActionState.HOLDING, now=NOW))
    )

    def read_while_the_loop_writes(number: int) -> Incident | None:
        loop.start()
        return read(number)

    monkeypatch.setattr(api.ledger, "incident", read_while_the_loop_writes)
    assert api.post(f"/v1/incidents/{number}/undo").json()["changed"]
    loop.join()
    assert changes == [None]
    current = api.ledger.action(action.id)
    assert current is not None
    assert current.state is ActionState.RELEASING


def test_closed_incident_cannot_be_undone(api: Api) -> None:
    number = api.incident()
    api.ledger.end_incident(number, IncidentState.CLOSED, now=NOW, who="forewarn", why="over")
    assert api.post(f"/v1/incidents/{number}/undo").status_code == 409


def test_acknowledgement_is_idempotent(api: Api) -> None:
    path = f"/v1/incidents/{api.incident()}/ack"
    assert [api.post(path).json()["changed"] for _ in range(2)] == [True, False]
    assert api.get("/v1/incidents").json()["incidents"][0]["acknowledged"]


def test_outcome_is_recorded_with_failure_time(api: Api) -> None:
    number = api.incident()
    path = f"/v1/incidents/{number}/outcome"
    body = {"outcome": "confirmed", "failed_at": format_iso(NOW - HOUR), "why": "ticket 7"}
    assert api.post(path, body).json()["changed"]
    assert not api.post(path, {"outcome": "confirmed"}).json()["changed"]
    incident = api.ledger.incident(number)
    assert incident is not None
    assert incident.outcome is Outcome.CONFIRMED
    for wrong in (
        {"outcome": "confirmed", "failed_at": format_iso(NOW + HOUR)},
        {"outcome": "unknown", "failed_at": format_iso(NOW - HOUR)},
    ):
        assert "failed_at: " in (answer := api.post(path, wrong)).json()["error"]
        assert answer.status_code == 409


def test_manual_drain_records_finding_and_decision(api: Api) -> None:
    path = "/v1/machines/node-7/drain"
    answer = api.post(path, {"why": "ticket 9"}, role="act").json()
    incident = api.ledger.incident(answer["incident"])
    assert answer["changed"]
    assert incident is not None
    (request,) = incident.findings
    assert (request.source, request.cause, request.machine) == (
        "act-ann",
        MANUAL_CAUSE,
        "node-7",
    )
    decision = incident.decision
    assert decision is not None
    assert (decision.ruling, decision.step, decision.mode) == (
        Ruling.ACT,
        Step.DRAIN,
        DrainMode.FINISH,
    )
    assert (decision.who, decision.reason) == ("act-ann", "by hand: ticket 9")
    assert [note.act for note in api.ledger.notes()] == ["drain"]


def test_manual_drain_is_idempotent(api: Api) -> None:
    path = "/v1/machines/node-7/drain"
    first, again = api.post(path).json(), api.post(path).json()
    assert again == first | {"changed": False}
    api.clock.moment = Nanoseconds(NOW + 1)
    harder = api.post(path, {"mode": "now"}).json()
    assert harder == first
    api.clock.moment = Nanoseconds(NOW + 2 * DAY)
    assert api.post(path).json()["changed"]


@pytest.mark.parametrize("act", ["approve", "undo", "ack", "outcome"])
def test_missing_incident_is_404(api: Api, act: str) -> None:
    body = {"outcome": "unknown"} if act == "outcome" else {}
    for number in (17, 2**63 - 1):
        answer = api.post(f"/v1/incidents/{number}/{act}", body)
        assert (answer.status_code, answer.json()) == (
            404,
            {"error": f"incident {number}: does not exist"},
        )
    assert api.get("/v1/incidents/17").status_code == 404
    assert api.ledger.notes() == []


# --- the kill switch ------------------------------------------------------------------------------


def test_switch_stops_and_resumes_acting(api: Api) -> None:
    stopped = api.post("/v1/switch", {"acting": False, "why": "storm"}, role="approve").json()
    assert (stopped["acting"], stopped["who"], stopped["why"]) == (False, "approve-ann", "storm")
    assert api.context.switch.file.read_text() == "approve-ann: storm\n"
    assert api.get("/v1/switch").json()["acting"] is False
    refused = api.post("/v1/switch", {"acting": True}, role="act")
    assert (refused.status_code, api.context.switch.off() is None) == (403, False)
    lifted = api.post("/v1/switch", {"acting": True, "why": "over"}, role="admin").json()
    assert lifted == {"acting": True, "at": None, "who": None, "why": None}
    assert not api.context.switch.file.exists()
    last = api.ledger.last_switch()
    assert last is not None
    assert (last.acting, last.who) == (True, "admin-ann")


def test_stop_file_alone_stops_acting(api: Api) -> None:
    api.context.switch.file.touch()
    shown = api.get("/v1/switch").json()
    assert (shown["acting"], shown["who"]) == (False, "file")


def test_switch_stops_acting_without_database(api: Api) -> None:
    api.break_ledger()
    assert api.get("/v1/incidents").status_code == 503
    assert api.get("/v1/switch").status_code == 503
    answer = api.post("/v1/switch", {"acting": False, "why": "storm"})
    assert (answer.status_code, answer.json()["acting"]) == (200, False)
    assert api.context.switch.file.exists()
    assert api.post("/v1/switch", {"acting": True}).status_code == 503
    assert api.context.switch.file.exists()


# --- metrics --------------------------------------------------------------------------------------


def gauges(api: Api) -> dict[str, float]:
    text = api.request("GET", "/metrics").text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("forewarn_respond_"): float(value) for name, _, value in lines}


def test_metrics_describe_the_ledger(api: Api) -> None:
    api.report(finding(), finding())
    api.propose(api.incident())
    api.incident("node-2")
    api.act(1)
    api.get("/v1/incidents", role="")
    api.ledger.record_heartbeat("loop", Nanoseconds(NOW - 90 * SECOND))
    values = gauges(api)
    assert values['findings_total{known="no"}'] == 3
    assert values['findings_total{known="yes"}'] == 1
    assert values['open_incidents{ruling="propose"}'] == 1
    assert values['open_incidents{ruling="none"}'] == 1
    assert values['open_actions{state="holding",step="drain"}'] == 1
    assert values['refused_requests_total{status="401"}'] == 1
    assert values['beat_age_seconds{beat="loop"}'] == 90
    assert values['beat_age_seconds{beat="list"}'] == math.inf
    assert values["ledger_up"] == 1
    assert "node-" not in api.request("GET", "/metrics").text  # no label per machine


def test_metrics_pass_promtool_in_both_formats(
    api: Api, check_metrics: Callable[[str], None]
) -> None:
    check_metrics(api.request("GET", "/metrics").text)
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = api.request("GET", "/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_metrics_and_health_report_broken_ledger(api: Api) -> None:
    assert api.request("GET", "/health").text == "ok\n"
    api.break_ledger()
    assert gauges(api)["ledger_up"] == 0
    assert api.request("GET", "/health").status_code == 503


# --- OpenAPI description --------------------------------------------------------------------------


def test_openapi_description_is_complete_and_self_contained(
    api: Api,
) -> None:
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert api.request("GET", path).status_code == 404
    schema = api.request("GET", "/openapi.json").json()
    routes = [
        (path, method, route)
        for path, methods in schema["paths"].items()
        for method, route in methods.items()
    ]
    assert len(routes) == 17
    for path, method, route in routes:
        assert route["summary"], path
        assert re.search(r"Role: `(report|see|approve|act)`\.$", route["description"]), path
        assert route["security"] == [{"token": []}], path
        assert {"401", "403", "422", "503"} <= route["responses"].keys(), (path, method)
    posted = schema["components"]["schemas"]["PostedFinding"]["properties"]
    assert posted["machine"]["examples"] == ["node-17"]
    assert posted["at"]["format"] == "date-time"

"""Notifications of Alertmanager as findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.api.api_client import NOW, Api, finding, make_api

from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import TokenHolder
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.state.finding import Provenance, Severity
from forewarn.response.state.step import Step

PRINT = "2f0d9a6c1b3e4f50"


def alert(name: str = "GpuLost", status: str = "firing", **labels: str) -> dict[str, Any]:
    named = {"alertname": name, "instance": "node-1:9400", "severity": "critical"} | labels
    return {
        "status": status,
        "labels": {key: value for key, value in named.items() if value},
        "annotations": {"summary": "GPU 3 is lost"},
        "startsAt": "2026-03-01T11:59:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": PRINT,
    }


def notify(api: Api, *alerts: dict[str, Any], **more: Any) -> dict[str, int]:
    body = {"version": "4", "groupKey": "{}", "receiver": "forewarn", "alerts": alerts} | more
    answer = api.post("/v1/alertmanager", body, role="report")
    assert answer.status_code == 200, answer.text
    counts: dict[str, int] = answer.json()
    return counts


def test_alert_joins_the_incident_of_its_machine_until_it_is_resolved(api: Api) -> None:
    number = api.incident("node-1")
    assert notify(api, alert()) == {"new": 1, "repeated": 0, "ignored": 0}
    api.clock.moment = Nanoseconds(NOW + HOUR)
    assert notify(api, alert()) == {"new": 0, "repeated": 1, "ignored": 0}
    incident = api.ledger.incident(number)
    assert incident is not None
    known = incident.findings[-1]
    assert (known.source, known.id, known.cause) == ("alertmanager", PRINT, "alert GpuLost")
    assert known.count == 2
    assert known.valid(api.context.now())
    api.clock.moment = Nanoseconds(NOW + 2 * HOUR)
    notify(api, alert(status="resolved"))
    incident = api.ledger.incident(number)
    assert incident is not None
    assert not incident.findings[-1].valid(api.context.now())
    api.clock.moment = Nanoseconds(NOW + 3 * HOUR)
    assert notify(api, alert())["new"] == 1


def test_ignored_alerts_do_not_prevent_others(api: Api) -> None:
    own, nowhere = alert("ForewarnIncident"), alert(instance="")
    bad = alert(instance="<script>:9100")
    assert notify(api, own, nowhere, bad, alert("Hot", node="node-7")) == {
        "new": 1,
        "repeated": 0,
        "ignored": 3,
    }
    (incident,) = api.ledger.open_incidents()
    assert incident.machine == "node-7"


@pytest.mark.parametrize(
    ("steps", "step", "severity"),
    [({}, Step.TELL, Severity.WARNING), ({"GpuLost": Step.DRAIN}, Step.DRAIN, Severity.CRITICAL)],
)
def test_alert_leads_at_most_to_tell_unless_its_name_is_mapped(
    steps: dict[str, Step], step: Step, severity: Severity, tmp_path: Path
) -> None:
    api = make_api(tmp_path)
    api.context.alerts = steps
    notify(api, alert())
    (incident,) = api.ledger.open_incidents()
    (known,) = incident.findings
    policy = load_policy([])
    bound = replace(known, vouched=Provenance.HOST)
    rule = policy.rule(bound)
    assert (rule.step, rule.severity) == (step, severity)
    assert policy.rule(known).step in (Step.TELL, Step.AVOID)  # the token has no hosts
    api.context.close()
    api.ledger.close()


def test_token_with_hosts_reports_only_these(api: Api) -> None:
    holders = dict(api.context.access.holders)
    digest = next(key for key, holder in holders.items() if holder.role == "report")
    bound = TokenHolder("am", holders[digest].role, frozenset({"node-1"}))
    object.__setattr__(api.context.access, "holders", holders | {digest: bound})
    try:
        assert notify(api, alert(), alert(node="node-2"))["ignored"] == 1
    finally:
        object.__setattr__(api.context.access, "holders", holders)
    (incident,) = api.ledger.open_incidents()
    assert incident.findings[0].vouched is Provenance.HOST


@pytest.mark.parametrize(
    "body",
    [
        {"version": "3", "alerts": []},
        {"version": "4", "alerts": [alert() | {"fingerprint": "../x"}]},
        {"version": "4", "alerts": [alert() | {"status": "pending"}]},
        {"version": "4"},
    ],
)
def test_invalid_notification_is_refused(api: Api, body: dict[str, Any]) -> None:
    assert api.post("/v1/alertmanager", body, role="report").status_code == 422


def test_source_of_alerts_is_reserved(api: Api) -> None:
    assert api.report(finding(source="alertmanager")).status_code == 422

"""Tests of which machines a token may report, and of the provenance of findings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipelines.incidents.api.api_client import ACCESS, NOW, Api, finding, make_api

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import (
    AccessControl,
    Role,
    TokenHolder,
    parse_access,
)
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.serving.tokens import TokenError, token_digest
from forewarn.response.state.finding import Provenance, Severity

BOUND = TokenHolder("nhc-1", Role.REPORT, frozenset({"node-1", "node-2"}))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Api]:
    """Return an API with shared tokens and one that is bound to two hosts."""
    api = make_api(tmp_path)
    api.context.access = AccessControl({**ACCESS.holders, token_digest("bound-token"): BOUND})
    yield api
    api.context.close()
    api.ledger.close()


def test_bound_token_cannot_report_other_hosts(site: Api) -> None:
    answer = site.post("/v1/findings", [finding(), finding(machine="node-9")], role="bound")
    assert answer.status_code == 403
    assert answer.json() == {
        "error": "findings[1].machine: the token of nhc-1 may not report findings of node-9",
        "index": 1,
        "field": "machine",
    }
    assert site.ledger.incidents() == []
    assert site.post("/v1/findings", [finding(), finding(machine="node-2")], role="bound").json()[
        "new"
    ]


def test_findings_show_their_provenance(site: Api) -> None:
    site.post("/v1/findings", [finding()], role="bound")
    site.report(finding(kind="xid", evidence={"xid": 79}))  # forged, under the same name
    answer = site.get("/v1/incidents").json()
    shown = {row["vouched"]: row["kind"] for row in answer["incidents"][0]["findings"]}
    assert shown == {"host": "check", "shared": "xid"}
    (incident,) = site.ledger.open_incidents()
    assert {f.vouched for f in incident.findings} == set(Provenance)


@pytest.mark.parametrize("change", [{"kind": "blind"}, {"gpu_serial": "165"}])
def test_conflicting_finding_rejects_the_whole_request(api: Api, change: dict[str, str]) -> None:
    assert api.report(finding(gpu_serial="164")).status_code == 200
    (field,) = change
    answer = api.report(finding(id="new"), finding(**change))
    assert answer.status_code == 409
    assert (answer.json()["index"], answer.json()["field"]) == (1, field)
    assert "or another `id`" in answer.json()["error"]
    (incident,) = api.ledger.open_incidents()
    assert [f.count for f in incident.findings] == [1]
    twice = api.report(finding(id="twice", gpu_serial="164"), finding(id="twice", **change))
    assert (twice.status_code, twice.json()["index"]) == (409, 1)


def test_same_id_on_two_hosts_stays_separate(api: Api) -> None:
    for machine in ("node-1", "node-2"):
        answer = api.report(finding(id="nvlink-down", machine=machine))
        assert answer.json() == {"new": 1, "repeated": 0}
    assert {incident.machine for incident in api.ledger.open_incidents()} == {"node-1", "node-2"}


def test_returning_fault_is_a_new_finding(api: Api) -> None:
    api.report(finding(id="nvlink-down"))
    api.clock.moment = Nanoseconds(NOW + 30 * DAY)
    again = finding(
        at=format_iso(NOW + 30 * DAY), valid_until=format_iso(NOW + 31 * DAY), id="nvlink-down"
    )
    assert api.report(again).json() == {"new": 1, "repeated": 0}
    (incident,) = api.ledger.open_incidents()
    assert incident.findings[-1].valid(api.clock.moment)


def test_severity_change_is_noted_with_token(api: Api) -> None:
    api.report(finding(severity="warning"))
    api.report(finding(severity="critical", at=format_iso(NOW - HOUR // 2)))
    (incident,) = api.ledger.open_incidents()
    assert incident.findings[0].severity is Severity.CRITICAL
    change = next(note for note in api.ledger.notes() if note.act == "severity")
    assert (change.who, change.at, change.detail) == ("report-ann", NOW, "warning to critical")


def test_extreme_numbers_are_accepted_or_named(api: Api) -> None:
    for code in (2**63, -(2**63), 10**400):
        answer = api.report(finding(kind="xid", id=f"x{len(str(code))}", evidence={"xid": code}))
        assert answer.status_code == 200 or answer.json()["field"] == "cause"
    answer = api.report(finding(kind="xid", evidence={"xid": 10**600}))
    assert (answer.status_code, answer.json()["field"]) == (422, "cause")


def test_token_hosts_are_slurm_host_lists() -> None:
    digests = ["0" * 64, "1" * 64, "2" * 64]
    access = parse_access(
        f"rack1:report:node-[01-03,7],login={digests[0]},ann:act={digests[1]},"
        f"old:report={digests[2]}"
    )
    rack, ann, old = access.holders.values()
    assert set(rack.hosts or ()) == {"node-01", "node-02", "node-03", "node-7", "login"}
    assert [holder.provenance for holder in (rack, ann, old)] == ["host", "shared", "shared"]
    assert [rack.may_report(name) for name in ("node-01", "node-04")] == [True, False]


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("a:report:", "not a valid host name"),
        ("a:report:node-[1-", "entry 1"),
        ("a:report:node-[3-1]", "invalid host list"),
        ("a:report:../etc", "host 1 of its list is not a valid host name"),
        ("a:act:node-1", "with the role `report` only"),
    ],
)
def test_invalid_token_hosts_are_named(head: str, why: str) -> None:
    with pytest.raises(TokenError, match="FOREWARN_RESPOND_TOKENS") as caught:
        parse_access(f"{head}={'0' * 64}")
    assert why in str(caught.value)

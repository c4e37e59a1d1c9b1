from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipelines.incidents.api.api_client import Api, make_api
from tests.pipelines.incidents.api.stored_list import DATE, write_list

from forewarn.pipelines.storage.evidence.daily_lists import DailyLists


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = make_api(tmp_path)
    write_list(tmp_path / "lists", "2026-02-28", machine_id="node-9")
    write_list(tmp_path / "lists")
    api.context.lists = DailyLists(tmp_path / "lists")
    api.context.diagnoses = (tmp_path / "diagnoses",)
    yield api
    api.context.close()
    api.ledger.close()


def test_list_is_paged_by_rank(api: Api) -> None:
    first = api.get("/v1/lists/latest", limit=10).json()
    second = api.get(f"/v1/lists/{DATE}", limit=20, after=first["next"]).json()
    assert [gpu["rank"] for gpu in first["gpus"]] == list(range(1, 11))
    assert [gpu["rank"] for gpu in second["gpus"]] == list(range(11, 25))
    assert (first["next"], second["next"]) == (10, None)
    assert (first["flagged"], first["scored"]) == (2, 24)
    assert first["unscored"] == {"stale": 1, "failed": 1}
    assert first["gpus"][0]["reasons"] == ["corrected memory errors 41 in 7 days", "Xid 63"]


def test_only_flagged_rows_on_request(api: Api) -> None:
    rows = api.get("/v1/lists/latest", flagged="true").json()["gpus"]
    assert [row["gpu_serial"] for row in rows] == ["S000", "S001"]


@pytest.mark.parametrize("path", ["lists/2026-01-01", "gpus/S999", "jobs/none"])
def test_unknown_names_are_missing(api: Api, path: str) -> None:
    assert api.get(f"/v1/{path}").status_code == 404


@pytest.mark.parametrize("date", ["..", "2026-03-1", "2026-03-01%00"])
def test_invalid_dates_are_refused(api: Api, date: str) -> None:
    assert api.get(f"/v1/lists/{date}").status_code in (404, 422)


def test_gpu_has_telemetry_history_and_siblings(api: Api) -> None:
    number = api.incident("node-1", gpu_serial="S001")
    gpu = api.get("/v1/gpus/S001").json()
    assert (gpu["machine"], gpu["slot"], gpu["rack"]) == ("node-1", "1", "rack-0")
    assert len(gpu["telemetry"]["channels"][0]["levels"]) == 54
    assert [(event["name"], event["code"]) for event in gpu["events"]] == [("Xid", 63)]
    assert [(day["date"], day["machine"]) for day in gpu["history"]] == [
        (DATE, "node-1"),
        ("2026-02-28", "node-9"),
    ]
    assert [other["gpu_serial"] for other in gpu["siblings"]] == [
        *("S000", "S002", "S003", "S004", "S005", "S006", "S007")
    ]
    assert [incident["id"] for incident in gpu["incidents"]] == [number]


def test_earlier_gpu_of_a_slot_is_named(api: Api, tmp_path: Path) -> None:
    serials = [f"OLD{i}" if i == 1 else f"S{i:03}" for i in range(24)]
    write_list(tmp_path / "lists", "2026-02-27", gpu_serial=serials)
    uses = api.get("/v1/gpus/S001").json()["slot_history"]
    assert uses == [{"gpu_serial": "OLD1", "first": "2026-02-27", "last": "2026-02-27"}]


def test_unscored_gpu_says_why(api: Api) -> None:
    gpu = api.get("/v1/gpus/S101").json()
    assert gpu["listed"] is None
    assert gpu["unscored"]["cause"] == "xid 79"


def test_job_has_verdicts_and_incidents(api: Api, tmp_path: Path) -> None:
    number = api.incident("node-2", job="4711")
    (tmp_path / "diagnoses").mkdir()
    lines = [{"job": "4711", "kind": "hang", "at": "2026-03-01T11:00:00Z"}, {"job": "12"}, 3]
    (tmp_path / "diagnoses" / "a.json").write_text("\n".join(map(json.dumps, lines)) + "\n{")
    job = api.get("/v1/jobs/4711").json()
    assert [verdict["kind"] for verdict in job["verdicts"]] == ["hang"]
    assert [incident["id"] for incident in job["incidents"]] == [number]


def test_fleet_shows_machines_by_rack(api: Api) -> None:
    api.act(api.incident())
    api.propose(waiting := api.incident("node-2"))
    fleet = api.get("/v1/fleet").json()
    assert [(m["rack"], m["machine"], m["gpus"]) for m in fleet["machines"]] == [
        ("rack-0", "node-1", 8),
        ("rack-0", "node-2", 8),
        ("rack-1", "node-3", 10),
    ]
    first, second, third = fleet["machines"]
    assert (first["action"], first["flagged"], first["probability"]) == ("holding", 2, 0.5)
    assert (second["waits"], second["incidents"]) == (True, [waiting])
    assert (third["failed"], third["without_data"]) == (1, 1)
    assert (fleet["unended"], fleet["unscored"]) == (1, {"stale": 1, "failed": 1})


def test_fleet_is_paged_by_machine(api: Api) -> None:
    first = api.get("/v1/fleet", limit=2).json()
    rest = api.get("/v1/fleet", after=first["next"]).json()
    names = [machine["machine"] for page in (first, rest) for machine in page["machines"]]
    assert names == ["node-1", "node-2", "node-3"]


def test_unchanged_answer_has_no_body(api: Api, tmp_path: Path) -> None:
    tag = api.get("/v1/lists/latest").headers["etag"]
    headers = {"Authorization": "Bearer see-token", "If-None-Match": tag}
    again = api.request("GET", "/v1/lists/latest", headers=headers)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    write_list(tmp_path / "lists", n=25)
    assert api.request("GET", "/v1/lists/latest", headers=headers).status_code == 200


def test_unreadable_list_is_no_server_error(api: Api, tmp_path: Path) -> None:
    (tmp_path / "lists" / f"date={DATE}" / "at_risk.parquet").write_bytes(b"no list")
    assert api.get("/v1/lists/latest").status_code == 409


def test_report_token_may_not_read(api: Api) -> None:
    for path in ("lists/latest", "gpus/S001", "jobs/1", "fleet"):
        assert api.get(f"/v1/{path}", role="report").status_code == 403

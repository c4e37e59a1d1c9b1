"""Tests of the loop with extreme numbers, times and texts from every source."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.pipelines.incidents.api.api_client import Api, finding, make_api
from tests.pipelines.incidents.loop.test_forged_events import CONFIG, START, SetClock

from forewarn.features.telemetry.telemetry_tables import (
    EVENTS,
    READINGS,
    TableError,
    build_table,
    check_table,
)
from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.runtime.timestamps import format_iso

pytestmark = pytest.mark.long

LARGE = 2**63 - 1
EDGES = [0, 1, -1, 2**31, 2**62, LARGE, -LARGE - 1, START, START - HOUR]
WIDE = [*EDGES, 2**63, -(2**64), 10**30, 10**400]
NUMBER = st.sampled_from(EDGES) | st.integers(-LARGE - 1, LARGE)
WORD = st.sampled_from(
    ["", "m1", "9" * 400, "2262-04-11T23:47:16Z", "9999-12-31T23:59:59Z", "1677-09-22", "\ud800"]
)
ANY: st.SearchStrategy[Any] = (
    st.sampled_from(WIDE) | NUMBER | WORD | st.floats() | st.none() | st.just([]) | st.just({})
)
SETTINGS = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
VERDICT = {
    "task": "job-1",
    "machine": "m1",
    "metric": "power_draw",
    "score": 3.5,
    "since": format_iso(START - HOUR),
    "detected_at": format_iso(START - HOUR // 2),
    "also": [],
    "kind": "fault",
}


def call_loop(folder: Path, *, extra: str = "") -> None:
    """Run the loop twice over the files of a folder."""
    config = folder / "my.toml"
    config.write_text(CONFIG.replace("[respond]", f"[respond]\n{extra}").replace("act", "observe"))
    site = ResponseSite.from_config(config)
    with site.ledger() as ledger:
        for later in (0, 30):
            clock = SetClock(Nanoseconds(START + later * MINUTE))
            Responder(site, ledger, site.policy(), None, clock, lambda *_: None).once()


@SETTINGS
@given(rows=st.lists(st.fixed_dictionaries({"count": NUMBER, "code": NUMBER}), max_size=4))
def test_extreme_event_files(
    rows: list[dict[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("events")
    path = folder / "records" / "_events" / f"date={format_iso(START)[:10]}" / "12.parquet"
    path.parent.mkdir(parents=True)
    names = EVENTS.names
    filled = [
        dict.fromkeys(names)
        | {"timestamp": START - 60, "machine_id": "m1", "kind": "xid", "id": f"{number}"}
        | row
        | {"code": max(-(2**31), min(row["code"], 2**31 - 1))}
        for number, row in enumerate(rows)
    ]
    pq.write_table(pa.Table.from_pylist(filled, schema=EVENTS), path)
    (path.parent / "13.parquet").write_bytes(b"no table")  # must not hide the other file
    call_loop(folder)


@SETTINGS
@given(changes=st.dictionaries(st.sampled_from(sorted(VERDICT)), ANY, max_size=3))
def test_extreme_verdict_files(
    changes: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("verdicts")
    lines = [json.dumps(VERDICT | changes), json.dumps(VERDICT | {"machine": "m2"})]
    (folder / "verdicts.jsonl").write_text("".join(f"{line}\n" for line in lines))
    call_loop(folder, extra='verdicts = "verdicts.jsonl"')


@SETTINGS
@given(column=st.sampled_from([*EVENTS.names, *READINGS.names]), value=ANY)
def test_extreme_agent_batches(column: str, value: Any) -> None:
    for schema in (EVENTS, READINGS):
        row = {"timestamp": START, "machine_id": "m1", "kind": "xid", "id": "1"} | {column: value}
        with contextlib.suppress(TableError):  # the collector answers 422
            table = build_table([row], schema)
            assert check_table(table, schema).equals(table)
            counts = table["count"].to_pylist() if schema is EVENTS else []
            assert all(count is None or 0 <= count <= 10**9 for count in counts)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    api = make_api(tmp_path_factory.mktemp("api"))
    yield api
    api.context.close()
    api.ledger.close()


@SETTINGS
@given(field=st.sampled_from([*finding(), "gpu_serial", "job"]), value=ANY)
def test_extreme_api_findings(field: str, value: object, api: Api) -> None:
    body = json.dumps([finding(**{field: value})], default=str).encode()
    assert api.send("/v1/findings", body, "report").status_code in (200, 400, 409, 422)
    evidence = json.dumps([finding(kind="xid", id="x", evidence={"xid": value})]).encode()
    assert api.send("/v1/findings", evidence, "report").status_code in (200, 400, 409, 422)
    assert api.get("/v1/incidents").status_code == 200

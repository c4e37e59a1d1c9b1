"""Requests that the collector accepts and refuses, over real HTTP."""

from __future__ import annotations

import gzip
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import uvicorn

from forewarn.features.telemetry.telemetry_tables import READINGS, build_table
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.pipelines.collector.batch_intake import BatchIntake
from forewarn.pipelines.collector.http_app import CollectorApp
from forewarn.pipelines.collector.inbox import Inbox
from forewarn.pipelines.config.agent_policy import CollectionPolicy
from forewarn.pipelines.runtime.clock import SystemClock
from forewarn.pipelines.serving.request_bodies import BodyReader
from forewarn.pipelines.serving.tokens import TokenError, Tokens, parse_tokens

LIMIT = 100_000
TOKEN = {"Authorization": "Bearer right"}
NOW = 1_740_787_200 * SECOND  # 2025-03-01, on the collector's clock
READING = {"timestamp": NOW, "machine_id": "node-1", "gpu_serial": "S1"}
EVENT = {"timestamp": NOW, "machine_id": "node-1", "id": "a", "kind": "xid", "code": 79}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


@dataclass
class Service:
    client: httpx.Client
    inbox: Inbox
    outdated: Inbox

    def post(self, content: bytes, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post("/v1/batches", content=content, headers=TOKEN | JSON | named)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.inbox.folder.glob("*"))


JSON = {"Content-Type": "application/json"}


class StoppedClock(SystemClock):
    """A clock that always shows 2025-03-01."""

    def now(self) -> int:
        return NOW


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[CollectorApp, str]]:
    collector = CollectorApp(
        Tokens.from_config({"right": "a", "other": "b"}, {"a": ("node-*",), "b": ("b-*", "gpu-b")}),
        CollectionPolicy().as_json(),
        BatchIntake(Inbox(Path("unset")), StoppedClock(), Inbox(Path("unset"))),
        BodyReader(LIMIT),
    )
    collector.intake.start()
    config = uvicorn.Config(collector.app(), port=0, log_config=None)
    bound = config.bind_socket()
    service = uvicorn.Server(config)
    thread = threading.Thread(target=service.run, kwargs={"sockets": [bound]})
    thread.start()
    while not service.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield collector, f"http://127.0.0.1:{bound.getsockname()[1]}"
    service.should_exit = True
    thread.join()
    collector.intake.stop()


@pytest.fixture
def service(server: tuple[CollectorApp, str], tmp_path: Path) -> Iterator[Service]:
    collector, url = server
    collector.intake.inbox = Inbox(tmp_path / "inbox")
    collector.intake.outdated = Inbox(tmp_path / "too_old")
    with httpx.Client(base_url=url, timeout=60) as client:
        yield Service(client, collector.intake.inbox, collector.intake.outdated)


def body(**parts: Any) -> bytes:
    return json.dumps(parts).encode()


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=written) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


# --- accepted -------------------------------------------------------------------------------------


def test_json_is_stored_before_answer(service: Service) -> None:
    answer = service.post(body(readings=[READING, READING | {"gpu_serial": "S2"}], events=[EVENT]))
    assert (answer.status_code, answer.json()) == (200, {"rows": 3, "too_old": 0})
    taken = service.inbox.read_oldest(10)
    assert taken.readings["gpu_serial"].to_pylist() == ["S1", "S2"]
    assert taken.events["code"].to_pylist() == [79]
    assert taken.events["known_at"].null_count == 0
    service.inbox.clear(taken.files)
    assert service.files() == []


def test_gzip_and_arrow_are_accepted(service: Service) -> None:
    packed = gzip.compress(body(readings=[READING]))
    assert service.post(packed, Content_Encoding="gzip").json()["rows"] == 1
    table = build_table([READING] * 3, READINGS)
    assert service.post(stream(table), **ARROW).json()["rows"] == 3
    events = pa.table({name: [value] for name, value in EVENT.items()})
    assert service.post(stream(events), **ARROW).json()["rows"] == 1


def test_served_policy_is_valid(service: Service) -> None:
    answer = service.client.get("/v1/policy", headers=TOKEN)
    assert CollectionPolicy.model_validate(answer.json()) == CollectionPolicy()


@pytest.mark.parametrize("part", ["readings", "events"])
def test_future_batch_is_refused_whole(
    service: Service, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = (READING if part == "readings" else EVENT) | {"timestamp": NOW + 660 * MINUTE}
    with caplog.at_level(logging.WARNING):
        answer = service.post(body(**({"readings": [READING]} | {part: [ahead]})))
    assert answer.status_code == 409
    detail = "node-1: a row is 39600 s ahead of this clock"
    assert answer.json() == {"error": "clock", "detail": detail, "now": "2025-03-01T00:00:00Z"}
    assert service.files() == []
    assert detail in caplog.text


def test_future_arrow_batch_is_refused(service: Service) -> None:
    table = build_table([READING | {"timestamp": NOW + 6 * MINUTE}], READINGS)
    answer = service.post(stream(table), **ARROW)
    assert (answer.status_code, answer.json()["error"]) == (409, "clock")
    assert service.files() == []


def test_small_clock_skew_is_accepted(service: Service) -> None:
    near = READING | {"timestamp": NOW + 4 * MINUTE}
    assert service.post(body(readings=[near])).json() == {"rows": 1, "too_old": 0}


def test_future_batch_does_not_affect_group(service: Service) -> None:
    intake = BatchIntake(service.inbox, StoppedClock(), service.outdated)
    hosts = Tokens.from_config({"x": "a"}, {}).speaker("x")
    assert hosts is not None
    rows = [
        READING | {"gpu_serial": f"S{n}", "timestamp": NOW + (HOUR if n % 2 else 0)}
        for n in range(6)
    ]
    futures = [intake.submit(body(readings=[row]), "application/json", hosts) for row in rows]
    intake.start()
    intake.stop()
    assert [future.exception() is None for future in futures] == [True, False] * 3
    assert service.inbox.read_oldest(10).readings["gpu_serial"].to_pylist() == ["S0", "S2", "S4"]


def test_old_rows_are_moved_aside(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """A batch over 3,000 hours would cause all of them to be rewritten."""
    rows = [READING | {"timestamp": NOW - hours * HOUR} for hours in range(3000)]
    with caplog.at_level(logging.WARNING):
        answer = service.post(gzip.compress(body(readings=rows)), Content_Encoding="gzip")
    assert answer.json()["error"].startswith("more than")  # the limit of this test
    half = [rows[hours] for hours in range(0, 3000, 5)]
    with caplog.at_level(logging.WARNING):
        answer = service.post(body(readings=half, events=[EVENT]))
    assert answer.json() == {"rows": 146, "too_old": 455}
    assert len(service.inbox.read_oldest(10).readings) == 145
    assert len(service.outdated.read_oldest(10).readings) == 455
    assert "a: 455 rows older than 30 days" in caplog.text


@pytest.mark.parametrize(
    ("token", "host", "status"),
    [
        ("right", "node-7", 200),
        ("right", "b-1", 403),
        ("right", None, 403),
        ("other", "b-1", 200),
        ("other", "gpu-b", 200),
        ("other", "node-1", 403),
    ],
)
def test_token_is_valid_only_for_own_hosts(
    service: Service, token: str, host: str | None, status: int
) -> None:
    """Otherwise any site could mark a GPU of another site as failed."""
    lost = EVENT | {"machine_id": host, "kind": "lost"}
    answer = service.post(body(readings=[], events=[lost]), Authorization=f"Bearer {token}")
    assert answer.status_code == status
    assert len(service.files()) == (status == 200)


def test_metrics_count_rows_and_refusals(service: Service) -> None:
    def value(name: str) -> float:
        lines = service.client.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])

    before = value("forewarn_collector_rows_total")
    service.post(body(readings=[READING] * 3))
    service.post(
        body(readings=[READING | {"timestamp": NOW + 90 * MINUTE, "machine_id": "node-3"}])
    )
    assert value("forewarn_collector_rows_total") == before + 3
    assert value('forewarn_collector_refused_requests_total{status="409"}') >= 1
    assert value("forewarn_collector_clock_skew_seconds") >= 5400
    assert value("forewarn_collector_hosts_ahead") >= 1
    assert "node-" not in service.client.get("/metrics").text  # no labels that grow with the fleet


def test_metrics_pass_promtool(service: Service, check_metrics: Callable[[str], None]) -> None:
    check_metrics(service.client.get("/metrics").text)


def test_concurrent_batches_are_answered_individually(service: Service) -> None:
    """An invalid batch does not affect others in the same group."""
    numbers = range(40)
    answers: dict[int, httpx.Response] = {}

    def send(number: int) -> None:
        row = READING | {"gpu_serial": f"S{number}", "slot": "x" if number % 7 == 0 else number}
        with httpx.Client(base_url=service.client.base_url, timeout=60) as client:
            content = body(readings=[row] * (number + 1))
            answers[number] = client.post("/v1/batches", content=content, headers=TOKEN | JSON)

    threads = [threading.Thread(target=send, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = [number for number in numbers if number % 7]
    assert [n for n in numbers if answers[n].status_code == 200] == good
    assert all(answers[n].json()["rows"] == n + 1 for n in good)
    assert all("`slot`" in answers[n].json()["error"] for n in numbers if n % 7 == 0)
    kept = service.inbox.read_oldest(100).readings["gpu_serial"].to_pylist()
    assert sorted(kept) == sorted(f"S{n}" for n in good for _ in range(n + 1))


def test_full_disk_is_server_error(service: Service) -> None:
    service.inbox.folder.parent.joinpath("inbox").write_text("a file where the folder should be")
    assert service.post(body(readings=[READING])).status_code == 500


# --- refused: the status, nothing written, and a line in the log ----------------------------------


def refused(service: Service, log: str, answer: httpx.Response, status: int, why: str) -> None:
    assert answer.status_code == status
    assert why in answer.json()["error"]
    assert service.files() == []
    assert f"{status}, {answer.json()['error'][:30]}" in log


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic right"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer wrong"}, 403),
        ({"Authorization": "Bearer righ"}, 403),
    ],
)
def test_missing_token_is_refused(
    service: Service, given: dict[str, str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = service.client.post(
            "/v1/batches", content=body(readings=[READING]), headers=JSON | given
        )
    refused(service, caplog.text, answer, status, "token")
    assert service.client.get("/v1/policy", headers=given).status_code == status
    assert "wrong" not in caplog.text.replace("an invalid token", "")


def test_oversized_batch(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        answer = service.post(b" " * (LIMIT + 1))
    refused(service, caplog.text, answer, 413, "expected at most")


def test_oversized_chunked_batch(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(200):
            yield b" " * 1000

    with caplog.at_level(logging.WARNING):
        answer = service.client.post("/v1/batches", content=parts(), headers=TOKEN | JSON)
    refused(service, caplog.text, answer, 413, "decompressed")


def test_decompression_bomb(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(80)) + packer.flush()
    assert len(bomb) < LIMIT
    with caplog.at_level(logging.WARNING):
        answer = service.post(bomb, Content_Encoding="gzip")
    refused(service, caplog.text, answer, 413, "decompressed")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_arrow_bomb(
    service: Service, codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = pa.table({"timestamp": pa.array([0] * 1_000_000, pa.int64())})
    data = stream(table, compression=codec)
    assert len(data) < LIMIT
    with caplog.at_level(logging.WARNING):
        answer = service.post(data, **ARROW)
    refused(service, caplog.text, answer, 422, "compressed")


def test_null_column_bomb(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    data = stream(pa.table({"timestamp": pa.nulls(10**9)}))
    assert len(data) < 1000
    with caplog.at_level(logging.WARNING):
        answer = service.post(data, **ARROW)
    refused(service, caplog.text, answer, 422, "rows")


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "a/b", "..", ".hidden", "a\\b", "", "a\0"])
@pytest.mark.parametrize("part", ["readings", "events"])
def test_path_in_host_name(
    service: Service, part: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = (READING if part == "readings" else EVENT) | {"machine_id": name}
    with caplog.at_level(logging.WARNING):
        answer = service.post(body(**{part: [row]}))
    refused(service, caplog.text, answer, 422, "not a host name")


@pytest.mark.parametrize(
    ("content", "headers", "status", "why"),
    [
        (b"{", {}, 400, "not JSON"),
        (b"[" * 90_000, {}, 400, "not JSON"),
        (b'{"readings": [{"timestamp": NaN}]}', {}, 400, "NaN"),
        (b"[]", {}, 422, "expected an object"),
        (b"{}", {}, 422, "expected an object"),
        (b'{"readings": {}}', {}, 422, "lists"),
        (b'{"readings": [1]}', {}, 422, "is not an object"),
        (b'{"readings": [{"timestamp": "x"}]}', {}, 422, "`timestamp`"),
        (b'{"readings": [{"machine_id": "n"}]}', {}, 422, "`timestamp`"),
        (b'{"events": [{"timestamp": 1, "id": "a", "kind": "x"}]}', {}, 422, "`kind`"),
        (b'{"readings": [{"timestamp": 1, "slot": 99999999999}]}', {}, 422, "`slot`"),
        (body(readings=[READING | {"gpu_serial": "x" * 300}]), {}, 422, "a text of 300"),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400, "gzip"),
        (gzip.compress(b"{}", mtime=0)[:-5], {"Content_Encoding": "gzip"}, 400, "truncated"),
        (b"{}", {"Content_Encoding": "br"}, 415, "gzip"),
        (b"{}", {"Content_Type": "text/plain"}, 415, "application/json"),
        (b"no arrow", {"Content_Type": ARROW["Content-Type"]}, 422, "Arrow"),
    ],
)
def test_invalid_batches_are_refused(
    service: Service,
    content: bytes,
    headers: dict[str, str],
    status: int,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = service.post(content, **headers)
    refused(service, caplog.text, answer, status, why)


def test_many_tiny_rows_are_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from forewarn.pipelines.collector import batch_intake as intake

    monkeypatch.setattr(intake, "_MAX_BATCH_ROWS", 100)
    monkeypatch.setattr(intake, "_MAX_JSON_CONTAINERS", 200)
    for content, why in (
        (b'{"readings": [' + b"[]," * 300 + b"[]]}", "objects"),
        (body(readings=[READING] * 101), "101 rows"),
    ):
        with caplog.at_level(logging.WARNING):
            answer = service.post(content)
        refused(service, caplog.text, answer, 413, why)


def test_total_request_memory_is_bounded(
    server: tuple[CollectorApp, str], service: Service
) -> None:
    """Requests over the memory limit are refused, so that the sender keeps them."""
    collector, _ = server
    collector.bodies.held = 8 * LIMIT - 10
    try:
        answer = service.post(body(readings=[READING]))
    finally:
        collector.bodies.held -= 8 * LIMIT - 10
    assert answer.status_code == 503
    assert service.post(body(readings=[READING])).status_code == 200
    assert collector.bodies.held == 0


def test_group_bytes_are_bounded(service: Service) -> None:
    from forewarn.pipelines.serving.tokens import TokenHolder

    intake = BatchIntake(service.inbox, StoppedClock(), service.outdated)
    sizes: list[int] = []
    keep = intake._keep
    big = body(readings=[READING]) + b" " * (3 << 20)
    for _ in range(9):
        intake.submit(big, "application/json", TokenHolder("a"))

    class Counting(BatchIntake):
        def _keep(self, group: Any) -> None:
            sizes.append(len(group))
            keep(group)

    counting = Counting(service.inbox, StoppedClock(), service.outdated, intake._queue)
    counting.start()
    counting.stop()
    assert sum(sizes) == 9
    assert max(sizes) == 2  # of 3 MiB each, with a limit of 8 MiB per group


def test_token_entries_name_sites() -> None:
    assert parse_tokens("a=x, b=y=z") == {"x": "a", "y=z": "b"}
    for text in ("", " ", "token", "a=", "=x", "a=x,b=x"):
        with pytest.raises(TokenError, match="FOREWARN_TOKENS"):
            parse_tokens(text)


def test_token_newline_is_stripped_and_errors_redacted() -> None:
    assert parse_tokens("a=x\n") == {"x": "a"}
    assert parse_tokens("a = x ,\n b=y\n") == {"x": "a", "y": "b"}
    for text in ("a=secr et", "a=secr\x07et", "a=secrét", "a=sec\nret"):
        with pytest.raises(TokenError, match="FOREWARN_TOKENS") as caught:
            parse_tokens(text)
        assert "sec" not in str(caught.value)


@pytest.mark.parametrize("hosts", ["aB+/S3cretT0ken", "n-[S3cret", "n-[2-S3cret]", "ok,S3cret/"])
def test_token_as_host_list_is_not_printed(hosts: str) -> None:
    with pytest.raises(TokenError, match="entry 2") as caught:
        Tokens.from_config(parse_tokens(f"paris=T1,S3cret:{hosts},rome=T2"), {})
    assert "S3cret" not in str(caught.value)
    assert "cretT" not in str(caught.value)


def test_several_sites_require_host_lists() -> None:
    alone = Tokens.from_config({"x": "a", "y": "a"}, {}).speaker("y")
    assert alone is not None
    assert alone.speaks_for("any")
    assert alone.speaks_for(None)
    assert Tokens.from_config({"x": "a"}, {}).speaker("z") is None
    with pytest.raises(TokenError, match="no hosts of site 'b'"):
        Tokens.from_config({"x": "a", "y": "b"}, {"a": ("a-*",)})
    with pytest.raises(TokenError, match="names site 'c'"):
        Tokens.from_config({"x": "a"}, {"c": ("*",)})


def test_host_bound_token_limits_hosts() -> None:
    text = "site=all, rack:n-[1-2,04],login=two"
    tokens = Tokens.from_config(parse_tokens(text), {})
    shared, bound = tokens.speaker("all"), tokens.speaker("two")
    assert shared is not None
    assert bound is not None
    assert (shared.site, shared.vouched, shared.speaks_for("n-9")) == ("site", "shared", True)
    assert (bound.site, bound.vouched) == ("rack", "host")
    spoken_for = [host for host in ("n-1", "n-2", "n-3", "n-04", "login") if bound.speaks_for(host)]
    assert spoken_for == ["n-1", "n-2", "n-04", "login"]
    assert not bound.speaks_for(None)


def test_site_patterns_limit_host_lists() -> None:
    narrow = Tokens.from_config(parse_tokens("berlin:b-[1-9]=x,paris=y"), {"berlin": ("b-1*",)})
    speaker = narrow.speaker("x")
    assert speaker is not None
    assert [speaker.speaks_for(host) for host in ("b-1", "b-2", "p-1")] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:=x", "not a valid host name"),
        ("a:n-[1-=x", "invalid host list"),
        ("a:n-[9-1]=x", "invalid host list"),
        ("a:b/c=x", "not a valid host name"),
        ("a:n-[1-999999999]=x", "invalid host list"),
    ],
)
def test_invalid_host_lists_are_one_line(text: str, why: str) -> None:
    with pytest.raises(TokenError, match="FOREWARN_TOKENS") as caught:
        Tokens.from_config(parse_tokens(text), {})
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_collector_sets_event_voucher(service: Service) -> None:
    event = {"timestamp": NOW, "machine_id": "node-7", "kind": "xid", "code": 79, "id": "1"}
    sent = body(events=[event | {"vouched": "host", "count": 10**30}])
    headers = JSON | {"Authorization": "Bearer right"}
    assert service.client.post("/v1/batches", content=sent, headers=headers).status_code == 200
    (row,) = service.inbox.read_oldest(10).events.to_pylist()
    assert (row["vouched"], row["count"]) == ("shared", 10**9)

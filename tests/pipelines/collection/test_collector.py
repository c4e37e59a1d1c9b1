"""What the collector takes and what it refuses, over real HTTP."""

from __future__ import annotations

import gzip
import json
import logging
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import uvicorn

from forewarn.features.telemetry.tables import READINGS, table_of
from forewarn.pipelines.clock import SystemClock
from forewarn.pipelines.collector import Collector, TokenError, parse_tokens
from forewarn.pipelines.inbox import Inbox
from forewarn.pipelines.intake import Intake
from forewarn.pipelines.policy import Collection

LIMIT = 100_000
TOKEN = {"Authorization": "Bearer right"}
READING = {"timestamp": 1_740_787_200 * 10**9, "machine_id": "node-1", "gpu_serial": "S1"}
EVENT = {"timestamp": 1_740_787_200 * 10**9, "id": "a", "kind": "xid", "code": 79}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


@dataclass
class Service:
    client: httpx.Client
    inbox: Inbox

    def post(self, content: bytes, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post("/v1/batches", content=content, headers=TOKEN | JSON | named)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.inbox.folder.glob("*"))


JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Collector, str]]:
    collector = Collector(
        {"right": "site-a", "other": "site-b"},
        Collection().as_told(),
        Intake(Inbox(Path("unset")), SystemClock()),
        LIMIT,
    )
    collector.intake.start()
    config = uvicorn.Config(collector.app(), port=0, log_level="critical")
    bound = config.bind_socket()
    service = uvicorn.Server(config)
    thread = threading.Thread(target=service.run, kwargs={"sockets": [bound]})
    thread.start()
    while not service.started:
        time.sleep(0.01)
    yield collector, f"http://127.0.0.1:{bound.getsockname()[1]}"
    service.should_exit = True
    thread.join()
    collector.intake.stop()


@pytest.fixture
def service(server: tuple[Collector, str], tmp_path: Path) -> Iterator[Service]:
    collector, url = server
    collector.intake.inbox = Inbox(tmp_path / "inbox")
    with httpx.Client(base_url=url, timeout=20) as client:
        yield Service(client, collector.intake.inbox)


def body(**parts: Any) -> bytes:
    return json.dumps(parts).encode()


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=written) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


# --- taken ---------------------------------------------------------------------------------------


def test_json_is_kept_before_the_answer(service: Service) -> None:
    answer = service.post(body(readings=[READING, READING | {"gpu_serial": "S2"}], events=[EVENT]))
    assert (answer.status_code, answer.json()) == (200, {"rows": 3, "of_the_future": 0})
    taken = service.inbox.take(10)
    assert taken.readings["gpu_serial"].to_pylist() == ["S1", "S2"]
    assert taken.events["code"].to_pylist() == [79]
    assert taken.events["known_at"].null_count == 0
    service.inbox.clear(taken.files)
    assert service.files() == []


def test_gzip_and_arrow_are_taken(service: Service) -> None:
    packed = gzip.compress(body(readings=[READING]))
    assert service.post(packed, Content_Encoding="gzip").json()["rows"] == 1
    table = table_of([READING] * 3, READINGS)
    assert service.post(stream(table), **ARROW).json()["rows"] == 3
    events = pa.table({name: [value] for name, value in EVENT.items()})
    assert service.post(stream(events), **ARROW).json()["rows"] == 1


def test_the_policy_is_what_an_agent_can_read(service: Service) -> None:
    answer = service.client.get("/v1/policy", headers=TOKEN)
    assert Collection.model_validate(answer.json()) == Collection()


def test_rows_of_the_future_are_left_out(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    late = READING | {"timestamp": time.time_ns() + 3 * 86_400 * 10**9}
    with caplog.at_level(logging.WARNING):
        answer = service.post(body(readings=[READING, late]))
    assert answer.json() == {"rows": 1, "of_the_future": 1}
    assert "a clock is wrong" in caplog.text


def test_many_at_once_are_each_answered_for_themselves(service: Service) -> None:
    """One that is wrong costs no other that is kept with it."""
    numbers = range(40)
    answers: dict[int, httpx.Response] = {}

    def send(number: int) -> None:
        row = READING | {"gpu_serial": f"S{number}", "slot": "x" if number % 7 == 0 else number}
        with httpx.Client(base_url=service.client.base_url, timeout=20) as client:
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
    kept = service.inbox.take(100).readings["gpu_serial"].to_pylist()
    assert sorted(kept) == sorted(f"S{n}" for n in good for _ in range(n + 1))


def test_a_full_disk_is_no_answer_of_success(service: Service) -> None:
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
def test_without_the_token_nothing_is_told_or_taken(
    service: Service, given: dict[str, str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = service.client.post(
            "/v1/batches", content=body(readings=[READING]), headers=JSON | given
        )
    refused(service, caplog.text, answer, status, "token")
    assert service.client.get("/v1/policy", headers=given).status_code == status
    assert "wrong" not in caplog.text.replace("a wrong token", "")


def test_an_oversized_batch(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        answer = service.post(b" " * (LIMIT + 1))
    refused(service, caplog.text, answer, 413, "expected at most")


def test_an_oversized_batch_that_does_not_say_so(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(200):
            yield b" " * 1000

    with caplog.at_level(logging.WARNING):
        answer = service.client.post("/v1/batches", content=parts(), headers=TOKEN | JSON)
    refused(service, caplog.text, answer, 413, "unpacked")


def test_a_decompression_bomb(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(80)) + packer.flush()
    assert len(bomb) < LIMIT
    with caplog.at_level(logging.WARNING):
        answer = service.post(bomb, Content_Encoding="gzip")
    refused(service, caplog.text, answer, 413, "unpacked")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_bomb_inside_arrow(
    service: Service, codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = pa.table({"timestamp": pa.array([0] * 1_000_000, pa.int64())})
    data = stream(table, compression=codec)
    assert len(data) < LIMIT
    with caplog.at_level(logging.WARNING):
        answer = service.post(data, **ARROW)
    refused(service, caplog.text, answer, 422, "compressed")


def test_rows_that_cost_nothing_to_send(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    data = stream(pa.table({"timestamp": pa.nulls(10**9)}))
    assert len(data) < 1000
    with caplog.at_level(logging.WARNING):
        answer = service.post(data, **ARROW)
    refused(service, caplog.text, answer, 422, "rows")


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "a/b", "..", ".hidden", "a\\b", "", "a\0"])
@pytest.mark.parametrize("part", ["readings", "events"])
def test_a_path_in_a_host_name(
    service: Service, part: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = (READING if part == "readings" else EVENT) | {"machine_id": name}
    with caplog.at_level(logging.WARNING):
        answer = service.post(body(**{part: [row]}))
    refused(service, caplog.text, answer, 422, "no name of a host")


@pytest.mark.parametrize(
    ("content", "headers", "status", "why"),
    [
        (b"{", {}, 400, "no JSON"),
        (b"[" * 90_000, {}, 400, "no JSON"),
        (b'{"readings": [{"timestamp": NaN}]}', {}, 400, "NaN"),
        (b"[]", {}, 422, "expected an object"),
        (b"{}", {}, 422, "expected an object"),
        (b'{"readings": {}}', {}, 422, "lists"),
        (b'{"readings": [1]}', {}, 422, "no object"),
        (b'{"readings": [{"timestamp": "x"}]}', {}, 422, "`timestamp`"),
        (b'{"readings": [{"machine_id": "n"}]}', {}, 422, "`timestamp`"),
        (b'{"events": [{"timestamp": 1, "id": "a", "kind": "x"}]}', {}, 422, "`kind`"),
        (b'{"readings": [{"timestamp": 1, "slot": 99999999999}]}', {}, 422, "`slot`"),
        (body(readings=[READING | {"gpu_serial": "x" * 300}]), {}, 422, "a text of 300"),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400, "gzip"),
        (gzip.compress(b"{}")[:-5], {"Content_Encoding": "gzip"}, 400, "cut off"),
        (b"{}", {"Content_Encoding": "br"}, 415, "gzip"),
        (b"{}", {"Content_Type": "text/plain"}, 415, "application/json"),
        (b"no arrow", {"Content_Type": ARROW["Content-Type"]}, 422, "Arrow"),
    ],
)
def test_what_is_no_batch(
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


def test_tokens_come_with_their_sites() -> None:
    assert parse_tokens("a=x, b=y=z") == {"x": "a", "y=z": "b"}
    for text in ("", " ", "token", "a=", "=x", "a=x,b=x"):
        with pytest.raises(TokenError, match="FOREWARN_TOKENS"):
            parse_tokens(text)

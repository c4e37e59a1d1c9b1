"""Incomplete answers of a server, protection of credentials, and limits of cost."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import DAY, HOUR, SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.prometheus_client import (
    PrometheusClient,
    PrometheusError,
    QueryTooLargeError,
)
from forewarn.pipelines.ingest.prometheus_ingest import pull
from forewarn.pipelines.runtime.alerts import alert

INTERVAL = 600 * SECOND
START = 1_740_787_200 * SECOND  # 2025-03-01
Say = Callable[[dict[str, list[str]]], tuple[int, bytes]]


def matrix(result: list[Any] | None = None, **more: Any) -> bytes:
    data = {"resultType": "matrix", "result": result or []}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def temperatures(asked: dict[str, list[str]]) -> tuple[int, bytes]:
    """Answer the temperature query with a value per interval, and all others with nothing."""
    if "GPU_TEMP" not in asked["query"][0]:
        return 200, matrix()
    start, end, step = (float(asked[name][0]) for name in ("start", "end", "step"))
    times = [start + step * i for i in range(round((end - start) / step) + 1)]
    values = [[time, "40"] for time in times]
    return 200, matrix([{"metric": {"UUID": "GPU-1", "gpu": "0"}, "values": values}])


class Fake:
    """A server that gives the answers of a test and records the headers of requests."""

    def __init__(self) -> None:
        self.say: Say = temperatures
        self.headers: list[dict[str, str]] = []
        self.hold = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                fake.headers.append(dict(self.headers))
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, content = fake.say(parse_qs(body))
                self.send_response(status)
                self.end_headers()
                with suppress(OSError):  # the client may have disconnected
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.address}"


@pytest.fixture
def fake() -> Iterator[Fake]:
    made = Fake()
    threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.hold.set()
    made.server.shutdown()
    made.server.server_close()


def times(records: Path) -> list[int]:
    """Return the ends of all intervals with a record, as a number since the start."""
    files = sorted(records.glob("date=*/*.parquet"))
    moments = [
        int(time.value)
        for file in files
        for time in pq.read_table(file, partitioning=None)["timestamp"].to_pandas()
    ]
    return sorted((moment - START) // INTERVAL for moment in moments)


NO_ANSWERS = {
    "an error": json.dumps({"status": "error", "errorType": "timeout", "error": "late"}).encode(),
    "null": b"null",
    "no data": b'{"status": "success", "data": null}',
    "another type": b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
    "no result": b'{"status": "success", "data": {"resultType": "matrix", "result": null}}',
    "warnings": matrix(warnings=["a store gave no answer"]),
    "a part": matrix(isPartial=True),
    "a part in data": (
        b'{"status": "success", "data": {"resultType": "matrix", "result": [], "isPartial": true}}'
    ),
    "deep": b"[" * 200_000,
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_incomplete_answer_is_requested_again(fake: Fake, tmp_path: Path, name: str) -> None:
    landing = Landing(tmp_path, INTERVAL)
    with closing(PrometheusClient(fake.url)) as server:
        pull(server, landing, start=START, end=START + HOUR)
        for hour in (2, 3):
            fake.say = lambda _: (200, NO_ANSWERS[name])
            with pytest.raises(PrometheusError, match=fake.url):
                pull(server, landing, start=None, end=START + hour * HOUR)
        fake.say = temperatures
        pull(server, landing, start=None, end=START + 3 * HOUR)
    assert times(tmp_path) == list(range(19))


def test_infos_and_warnings_are_complete_answers(fake: Fake, tmp_path: Path) -> None:
    fake.say = lambda _: (200, matrix(warnings=[], isPartial=False, infos=["no counter"]))
    with closing(PrometheusClient(fake.url)) as server:
        pull(server, Landing(tmp_path, INTERVAL), start=START, end=START + HOUR)


def test_starting_server_is_retried(fake: Fake, tmp_path: Path) -> None:
    said = iter([502, 503, 504])
    fake.say = lambda asked: (status, b"") if (status := next(said, 0)) else temperatures(asked)
    with closing(PrometheusClient(fake.url, pause=0)) as server:
        pull(server, Landing(tmp_path, INTERVAL), start=START, end=START)
        assert times(tmp_path) == [0]
        asked = len(fake.headers)
        fake.say = lambda _: (503, b"starting")
        with pytest.raises(PrometheusError, match=r"answered 503 \(starting\)"):
            server.query_range("up", START, START, INTERVAL)
    assert len(fake.headers) - asked == 4


def test_endless_answer_is_limited(fake: Fake, tmp_path: Path) -> None:
    fake.say = lambda _: (200, b" " * 200_000 + matrix())
    with closing(PrometheusClient(fake.url, most_bytes=100_000)) as server:
        with pytest.raises(PrometheusError, match="query of a single interval as too large"):
            pull(server, Landing(tmp_path, INTERVAL), start=START, end=START)
        with pytest.raises(QueryTooLargeError):
            server.samples("up", START, INTERVAL)
    assert not times(tmp_path)


def test_slow_answer_times_out(fake: Fake) -> None:
    def never(_: object) -> tuple[int, bytes]:
        fake.hold.wait(30)
        return 200, matrix()

    fake.say = never
    server = PrometheusClient(fake.url, most_seconds=0.2)
    with closing(server), pytest.raises(PrometheusError, match="no complete answer in 200 ms"):
        server.query_range("up", START, START, INTERVAL)


def test_password_in_address_is_never_written(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    url = f"http://ada:s%23cret@{fake.address}"
    end = ["--start", "2025-03-01", "--end", "2025-03-01T01:00"]
    arguments = ["ingest", "--prometheus", url, "--out", str(tmp_path / "records")]
    assert main([*arguments, *end]) == 0
    basic = base64.b64encode(b"ada:s#cret").decode()
    assert {headers["Authorization"] for headers in fake.headers} == {f"Basic {basic}"}
    fake.say = lambda _: (500, b"no")
    assert main([*arguments, *end]) == 2
    fake.server.server_close()
    assert main([*arguments, *end]) == 2
    said = capsys.readouterr()
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert f"{fake.url}: queried intervals" in said.err
    for secret in ("cret", "ada"):
        assert secret not in said.err + said.out + caplog.text
        assert not any(secret.encode() in content for content in written)
    assert not any("cret" in path.name for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("url", ["http://ada:se/cret@x", "http://ada:secret@x:y", "ada:secret@"])
def test_invalid_address_is_rejected_without_password(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(tmp_path / "records"), "--start", "2025-03-01", "--end", "2025-03-01"]
    assert main(["ingest", "--prometheus", url, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "cret" not in error


@pytest.mark.parametrize("token", ["secret\nsecret", "s\u00e9cret"])
def test_invalid_token_is_rejected_unseen(
    token: str, fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOREWARN_PROMETHEUS_TOKEN", token)
    assert main(["ingest", "--prometheus", fake.url, "--out", "nowhere"]) == 2
    error = capsys.readouterr().err
    assert "FOREWARN_PROMETHEUS_TOKEN" in error
    assert "cret" not in error
    monkeypatch.setenv("FOREWARN_PROMETHEUS_TOKEN", "secret\n")
    with closing(PrometheusClient.from_environment(fake.url)) as server:
        server.query_range("up", START, START, INTERVAL)
    assert fake.headers[-1]["Authorization"] == "Bearer secret"


def test_address_is_not_logged(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fake.say = lambda _: (200, b"")
    monkeypatch.setenv("FOREWARN_ALERT_URL", f"{fake.url}/hooks/secret")
    alert("drift", "text")
    assert len(fake.headers) == 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize("content", ["{", "[]", '{"done": null}'])
def test_unreadable_progress_starts_again(fake: Fake, tmp_path: Path, content: str) -> None:
    landing = Landing(tmp_path, DAY)
    with closing(PrometheusClient(fake.url)) as server:
        pull(server, landing, start=START, end=START)
        (mark,) = (tmp_path / "_state").glob("prometheus-*.json")
        mark.write_text(content)
        pulled = pull(server, landing, start=None, end=START + DAY)
    assert pulled.start == START - 14 * DAY


def test_progress_with_password_is_replaced(fake: Fake, tmp_path: Path) -> None:
    old = tmp_path / "_state" / "prometheus-0123456789ab.json"
    old.parent.mkdir()
    url = f"http://ada:secret@{fake.address}/"
    old.write_text(json.dumps({"url": url, "done": START}))
    with closing(PrometheusClient(url)) as server:
        pulled = pull(server, Landing(tmp_path, INTERVAL), start=None, end=START + HOUR)
    assert pulled.start == START + INTERVAL
    (mark,) = old.parent.glob("prometheus-*.json")
    assert json.loads(mark.read_text()) == {"url": f"{fake.url}/", "done": START + HOUR}


def test_future_intervals_are_not_queried(fake: Fake, tmp_path: Path) -> None:
    arguments = ["--start", "2035-01-01", "--end", "2035-01-02", "--out", str(tmp_path / "r")]
    assert main(["ingest", "--prometheus", fake.url, *arguments]) == 0
    assert fake.headers == []


def test_invalid_label_is_one_error_line(fake: Fake, tmp_path: Path) -> None:
    def long_label(asked: dict[str, list[str]]) -> tuple[int, bytes]:
        status, body = temperatures(asked)
        return status, body.replace(b'"GPU-1"', b'"' + b"G" * 300 + b'"')

    fake.say = long_label
    with (
        closing(PrometheusClient(fake.url)) as server,
        pytest.raises(PrometheusError, match=r"column `gpu_uuid`"),
    ):
        pull(server, Landing(tmp_path, INTERVAL), start=START, end=START)


@pytest.mark.parametrize(
    ("status", "is_transient"), [(400, False), (401, False), (404, False), (429, True), (503, True)]
)
def test_errors_tell_whether_repeating_helps(fake: Fake, status: int, is_transient: bool) -> None:
    fake.say = lambda _: (status, b"no")
    with closing(PrometheusClient(fake.url, pause=0)) as server:
        with pytest.raises(PrometheusError) as caught:
            server.samples("up", START, HOUR)
        assert caught.value.is_transient is is_transient


@pytest.mark.parametrize(
    ("url", "is_transient"), [("http://127.0.0.1:9", True), ("nonsense", False), ("http://", False)]
)
def test_wrong_address_is_no_transient_error(url: str, is_transient: bool) -> None:
    with closing(PrometheusClient(url, pause=0)) as server:
        with pytest.raises(PrometheusError) as caught:
            server.samples("up", START, HOUR)
        assert caught.value.is_transient is is_transient

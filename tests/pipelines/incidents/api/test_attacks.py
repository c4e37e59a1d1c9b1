"""Tests of the API against attackers without a token, or with a stolen one."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tests.pipelines.incidents.api.api_client import Api, bearer, finding, make_api

from forewarn.pipelines.incidents.api.app import serve_api
from forewarn.pipelines.serving.listener import Listener

MIB = 1 << 20
READING = ("incidents", "incidents/1", "actions", "score", "switch")
ACTING = {
    "findings": "report",
    "incidents/1/approve": "approve",
    "incidents/1/ack": "approve",
    "incidents/1/undo": "act",
    "incidents/1/outcome": "act",
    "machines/node-1/drain": "act",
    "switch": "approve",
}
MAY = {
    "report": {"report"},
    "see": {"see"},
    "approve": {"see", "approve"},
    "act": {"report", "see", "approve", "act"},
    "admin": {"report", "see", "approve", "act"},
}
BODIES = {"findings": b"[]", "switch": b'{"acting": false}', "outcome": b'{"outcome": "unknown"}'}


# --- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic YWRtaW46"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer wrong"}, 403),
        ({"Authorization": "Bearer admin-toke"}, 403),
        ({"Authorization": b"Bearer \xff\xfe"}, 403),
        ({"Authorization": "Bearer " + "0" * 64}, 403),
    ],
)
def test_requests_without_valid_token_are_refused(
    empty: Api, header: dict[str, str], status: int
) -> None:
    for path in READING:
        assert empty.request("GET", f"/v1/{path}", headers=header).status_code == status
    for path in ACTING:
        answer = empty.request("POST", f"/v1/{path}", headers=header, content=b"{")
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert empty.ledger.incidents() == []
    assert empty.context.switch.off() is None


@pytest.mark.parametrize("role", MAY)
def test_role_permits_its_own_routes_only(api: Api, role: str) -> None:
    for path in READING:
        refused = api.get(f"/v1/{path}", role=role).status_code == 403
        assert refused == ("see" not in MAY[role]), path
    for path, needed in ACTING.items():
        content = next((body for end, body in BODIES.items() if path.endswith(end)), b"")
        refused = api.send(f"/v1/{path}", content, role).status_code == 403
        assert refused == (needed not in MAY[role]), path


def test_role_is_checked_before_body(empty: Api) -> None:
    for content in (b"{", b"[" * 100, b"\xff", b""):
        assert empty.send("/v1/findings", content, role="see").status_code == 403
        assert empty.send("/v1/machines/node-1/drain", content, role="approve").status_code == 403


def test_log_has_no_token_or_forged_line(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        api.request("GET", "/v1/incidents", headers={"Authorization": "Bearer s3cret"})
        api.request("GET", "/x%0aforewarn respond: drained node-1", headers=bearer("see"))
    assert "s3cret" not in caplog.text
    assert not [line for line in caplog.text.splitlines() if line.startswith("forewarn")]
    assert caplog.text.count("refused") == 2


# --- injected names and numbers -------------------------------------------------------------------


def test_answers_are_never_rendered_as_html(empty: Api) -> None:
    script = "<script>alert(1)</script>"
    answers = [
        empty.get("/v1/incidents"),
        empty.get(f"/v1/{script}"),
        empty.get("/v1/incidents", machine=script),
        empty.report(finding(machine=script)),
        empty.post("/v1/machines/node-1/drain", {"why": script}),
        empty.request("DELETE", "/v1/incidents", headers=bearer("admin")),
        empty.request("GET", "/openapi.json"),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 422, 422, 422, 405, 200]
    for answer in answers:
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert empty.ledger.incidents() == []


@pytest.mark.parametrize(
    "why",
    [
        "<img src=x onerror=alert(1)>",
        "<!channel>",
        "two\nlines",
        "\x1b[31m",
        "\u202e",
        "x" * 501,
        1,
    ],
)
def test_reason_is_one_line_of_plain_text(empty: Api, why: object) -> None:
    answer = empty.post("/v1/machines/node-1/drain", {"why": why})
    assert (answer.status_code, answer.json()["field"]) == (422, "why")
    assert answer.json()["error"].isascii()
    assert empty.ledger.incidents() == []


def test_reason_may_have_unicode_letters_and_quotes(api: Api) -> None:
    why = "Lüfter 3 laut; „Ticket 7“ \"x\" 'y'; 温度 > normal".replace(">", "over")
    assert api.post("/v1/machines/node-1/drain", {"why": why}).is_success
    assert api.ledger.incidents()[0].decision is not None
    assert why in api.get("/v1/incidents/1").json()["decisions"][0]["reason"]


@pytest.mark.parametrize(
    "name", ["..", "../etc", "%2e%2e%2fetc%2fpasswd", "..%2f..%2fetc", "a%2fb", "%00", "-x", ".x"]
)
def test_machine_name_with_path_is_refused(empty: Api, name: str) -> None:
    assert empty.post(f"/v1/machines/{name}/drain").status_code in (404, 422)
    assert empty.get("/v1/incidents", machine=name).status_code == 422
    assert empty.ledger.incidents() == []


@pytest.mark.parametrize(
    "number", ["0", "-1", "x", "1e3", str(2**63), "9" * 400, "1 or 1=1", "../1"]
)
def test_invalid_number_is_refused(empty: Api, number: str) -> None:
    assert empty.get(f"/v1/incidents/{number}").status_code in (404, 422)
    assert empty.get("/v1/incidents", before=number).status_code == 422


@pytest.mark.parametrize(
    "query",
    [
        {"machine": "node-1' OR '1'='1"},
        {"machine": 'node-1"; DROP TABLE findings; --'},
        {"state": "open' OR 1=1 --"},
        {"limit": "1; DELETE FROM incidents"},
        {"before": "1 UNION SELECT * FROM notes"},
        {"machine": "%"},
        {"limit": 501},
        {"limit": 0},
        {"stat": "open"},
        {"x" * 60: "1"},
    ],
)
def test_sql_in_query_is_refused(api: Api, query: dict[str, Any]) -> None:
    api.incident()
    answer = api.get("/v1/incidents", **query)
    assert answer.status_code == 422
    assert "node-1" in api.get("/v1/incidents").text


def test_excessive_query_parameters_are_refused(empty: Api) -> None:
    for query in ("&".join(f"p{n}=1" for n in range(5000)), "limit=1&limit=2", "machine=" * 400):
        assert empty.get(f"/v1/incidents?{query}").status_code in (414, 422)


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "headers", "status", "why"),
    [
        (b"[", {}, 400, "not JSON"),
        (b"[" * 90_000, {}, 400, "not JSON"),
        (b"[" * 200_000, {}, 413, "objects"),
        (b'{"a":' * 90_000, {}, 400, "not JSON"),
        (b"[NaN]", {}, 400, "NaN"),
        (b"[-Infinity]", {}, 400, "Infinity"),
        (b"[1" + b"0" * 5000 + b"]", {}, 400, "not JSON"),
        (b"\xff\xfe", {}, 400, "not JSON"),
        (b'"\xed\xa0\x80"', {}, 422, "list"),
        (b"{}", {}, 422, "list"),
        (b"null", {}, 422, "body"),
        (b"", {}, 422, "required"),
        (b"[1]", {}, 422, "findings[0]"),
        (b"[[]]", {}, 422, "findings[0]"),
        (b"[]", {"Content_Type": "text/plain"}, 415, "application/json"),
        (b"[]", {"Content_Type": ""}, 415, "application/json"),
        (b"[]", {"Content_Encoding": "br"}, 415, "gzip"),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400, "gzip"),
        (gzip.compress(b"[]", mtime=0)[:-5], {"Content_Encoding": "gzip"}, 400, "truncated"),
        (b" " * (8 * MIB + 1), {}, 413, "at most"),
        (b"[]", {"Content_Length": "99999999999"}, 413, "at most"),
        (b"[]", {"Content_Length": "-1"}, 413, "at most"),
        (b"[]", {"Content_Length": "9" * 5000}, 413, "at most"),
    ],
)
def test_invalid_bodies_are_refused(
    empty: Api, content: bytes, headers: dict[str, str], status: int, why: str
) -> None:
    answer = empty.send("/v1/findings", content, **headers)
    assert (answer.status_code, why in answer.json()["error"]) == (status, True), answer.text
    assert len(answer.content) < 500


@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_infinite_number_in_evidence_is_refused(empty: Api, number: str) -> None:
    body = json.dumps([finding()]).replace('"GPU 3 < 8"', number)
    answer = empty.send("/v1/findings", body.encode())
    assert (answer.status_code, answer.json()["field"]) == (422, "evidence")


def test_deeply_nested_evidence_is_refused(api: Api) -> None:
    for depth, status in ((15, 200), (17, 422), (800, 422)):
        nested = "[" * depth + "]" * depth
        body = json.dumps([finding()]).replace('"GPU 3 < 8"', nested)
        assert api.send("/v1/findings", body.encode()).status_code == status
    assert api.get("/v1/incidents/1").is_success


def test_gzip_bomb_is_refused(api: Api) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * MIB) for _ in range(80)) + packer.flush()
    answer = api.send("/v1/findings", bomb, Content_Encoding="gzip")
    assert (answer.status_code, "decompressed" in answer.json()["error"]) == (413, True)
    assert api.context.bodies.held == 0
    packed = gzip.compress(json.dumps([finding()]).encode())
    assert api.send("/v1/findings", packed, Content_Encoding="gzip").json()["new"] == 1


def test_memory_of_all_bodies_is_limited(api: Api) -> None:
    api.context.bodies.held = 8 * api.context.bodies.limit
    answer = api.report(finding())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    api.context.bodies.held = 0
    assert api.report(finding()).is_success
    assert api.context.bodies.held == 0


# --- a real server --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[tuple[str, int]]:
    api = make_api(tmp_path_factory.mktemp("served"))
    servers: list[uvicorn.Server] = []

    class RecordingListener(Listener):
        """Listener that records the servers it creates."""

        def server(self, *args: Any, **options: Any) -> uvicorn.Server:
            servers.append(super().server(*args, **options))
            return servers[0]

    port = free_port()
    listener = RecordingListener("respond", "127.0.0.1", port)
    thread = threading.Thread(target=serve_api, args=(api.context, listener))
    thread.start()
    while not (servers and servers[0].started):
        assert thread.is_alive()
        time.sleep(0.01)
    yield "127.0.0.1", port
    servers[0].should_exit = True
    thread.join()
    api.ledger.close()


def exchange(address: tuple[str, int], *parts: bytes) -> bytes:
    """Send raw bytes and return the beginning of the response."""
    with socket.create_connection(address, timeout=60) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
        return connection.recv(1000)


HEAD = b"POST /v1/findings HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer report-token\r\n"
TYPE = b"Content-Type: application/json\r\n"


def test_chunked_body_is_limited(address: tuple[str, int]) -> None:
    chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
    head = HEAD + TYPE + b"Transfer-Encoding: chunked\r\n\r\n"
    assert b" 413 " in exchange(address, head, *[chunk] * 12)


def test_wrong_content_length_is_refused(address: tuple[str, int]) -> None:
    answer = exchange(address, HEAD + TYPE + b"Content-Length: 2\r\n\r\n[]" + b"x" * 20_000)
    assert answer.startswith(b"HTTP/1.1 400 ")
    answer = exchange(address, HEAD + TYPE + b"Content-Length: 900000000\r\n\r\n[]")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_invalid_content_length_is_refused(address: tuple[str, int]) -> None:
    for length in (b"Content-Length: x", b"Content-Length: 2\r\nContent-Length: 3"):
        answer = exchange(address, HEAD + TYPE + length + b"\r\n\r\n[]")
        assert answer.startswith(b"HTTP/1.1 400 ")


def test_endless_request_head_is_refused(address: tuple[str, int]) -> None:
    assert b" 431 " in exchange(address, b"GET /v1/incidents?" + b"a=1&" * 10_000)


def refused_heads(url: str) -> float:
    """Return how many request heads a server reports as refused."""
    text = httpx.get(f"{url}/metrics", trust_env=False, timeout=60).text
    name = 'forewarn_respond_refused_requests_total{status="431"} '
    return sum(float(line.removeprefix(name)) for line in text.splitlines() if name in line)


def test_server_still_answers_after_attacks(address: tuple[str, int]) -> None:
    url = f"http://{address[0]}:{address[1]}"
    before = refused_heads(url)
    exchange(address, b"GET /v1/incidents?" + b"a=1&" * 10_000)
    answer = httpx.get(f"{url}/v1/incidents", headers=bearer("see"), trust_env=False, timeout=60)
    assert answer.json() == {"incidents": [], "next": None}
    assert httpx.get(f"{url}/health", trust_env=False, timeout=60).text == "ok\n"
    assert refused_heads(url) == before + 1


def test_address_in_use_is_reported(empty: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        listener = Listener("respond", "127.0.0.1", used.getsockname()[1])
        with pytest.raises(Exception, match=r"^127\.0\.0\.1:\d+: cannot listen"):
            serve_api(empty.context, listener)


def test_unusable_certificate_is_named(empty: Api, tmp_path: Path) -> None:
    listener = Listener("respond", "127.0.0.1", 0, str(tmp_path / "no.pem"), "no.key")
    with pytest.raises(Exception, match=r"`respond\.certificate` .*no\.pem"):
        serve_api(empty.context, listener)

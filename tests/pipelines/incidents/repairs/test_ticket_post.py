"""`forewarn repairs --ticket FORM --post`: real posts to a receiver on loopback, each once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.messages.receivers_for_tests import HttpReceiver, http_receiver

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.messages.http_receivers import parse_secret, sign
from forewarn.pipelines.incidents.repairs import ticket_post
from forewarn.pipelines.incidents.repairs.ticket_lock import hold_ticket_lock
from forewarn.pipelines.runtime import http_post
from forewarn.pipelines.runtime.job_error import JobError

KEY = "whsec_" + "a2V5" * 8
ANSWERS: dict[str, tuple[Any, str]] = {
    "webhook": ({"id": "T-1"}, "T-1"),
    "servicenow": ({"result": {"number": "INC0010002"}}, "INC0010002"),
    "jira": ({"id": "10000", "key": "OPS-24"}, "OPS-24"),
}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    with http_receiver() as receiver:
        monkeypatch.setenv("FOREWARN_TICKET_URL", receiver.url)
        monkeypatch.setenv("FOREWARN_TICKET_SECRET", KEY)
        monkeypatch.setattr(ticket_post, "_RETRY_SECONDS", 0.01)
        yield receiver


@pytest.fixture
def post(
    site: Path, repair: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Return a function that posts the ticket of a case, and returns exit code and output."""
    words = ["repairs", "--config", str(site), "--case", str(repair(0)), "--post"]

    def call(form: str = "servicenow") -> tuple[int, str]:
        code = main([*words, "--ticket", form])
        output = capsys.readouterr()
        return code, output.out + output.err

    return call


def ticket(site: Path, capsys: pytest.CaptureFixture[str]) -> str | None:
    assert main(["repairs", "--config", str(site), "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    number: str | None = case["ticket"]
    return number


@pytest.mark.parametrize("form", ANSWERS)
def test_ticket_is_posted_once_and_its_number_recorded(
    site: Path,
    receiver: HttpReceiver,
    post: Callable[..., tuple[int, str]],
    capsys: pytest.CaptureFixture[str],
    form: str,
) -> None:
    answer, number = ANSWERS[form]
    receiver.answer, receiver.status = json.dumps(answer).encode(), 201
    assert post(form) == (0, f"case 1: ticket {number}\n")
    assert ticket(site, capsys) == number
    assert post(form) == (0, f"case 1 has the ticket {number}; nothing was posted\n")
    (sent,) = receiver.accepted
    content, key = json.loads(sent.body), sent.headers["idempotency-key"]
    assert key.startswith("forewarn-1-")
    if form == "webhook":
        seconds = int(sent.headers["webhook-timestamp"])
        signature = sign(parse_secret(KEY, ""), key, seconds, sent.body)
        assert (sent.headers["webhook-signature"], sent.headers["webhook-id"]) == (signature, key)
        assert (sent.path, content["id"]) == ("/", key)
    if form == "servicenow":
        assert sent.path == "/api/now/table/incident?sysparm_fields=number"
        assert (content["correlation_id"], sent.headers["authorization"]) == (key, KEY)
    if form == "jira":
        assert (sent.path, content["fields"]["labels"][1]) == ("/rest/api/2/issue", key)


def test_answer_without_a_number_is_recorded_by_the_key(
    site: Path,
    receiver: HttpReceiver,
    post: Callable[..., tuple[int, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    receiver.answer = b'{"result": {"number": "<script>"}}'
    assert post()[0] == 0
    assert ticket(site, capsys) == receiver.accepted[0].headers["idempotency-key"]


@pytest.mark.parametrize(("status", "attempts"), [(503, 2), (429, 2), (400, 1), (422, 1)])
def test_refused_ticket_is_tried_twice_and_not_recorded(
    site: Path,
    receiver: HttpReceiver,
    post: Callable[..., tuple[int, str]],
    capsys: pytest.CaptureFixture[str],
    status: int,
    attempts: int,
) -> None:
    receiver.status = status
    code, text = post()
    assert (code, receiver.attempts) == (2, attempts)
    assert f"was not accepted: HTTP {status} ok; nothing is recorded" in text
    assert receiver.url not in text
    assert ticket(site, capsys) is None


def test_server_that_recovers_gets_the_same_ticket(
    receiver: HttpReceiver, post: Callable[..., tuple[int, str]]
) -> None:
    receiver.status = 503

    def recover() -> None:
        receiver.status = 503 if receiver.attempts < 2 else 201

    receiver.before_answer = recover
    assert post()[0] == 0
    assert receiver.attempts == 2


def test_silent_server_ends_the_attempts(
    receiver: HttpReceiver,
    post: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_post, "_TIMEOUT_SECONDS", 0.1)
    ended = threading.Event()
    receiver.before_answer = lambda: ended.wait(60)
    code, text = post()
    ended.set()
    assert (code, receiver.attempts) == (2, 2)
    assert "was not accepted: ReadTimeout" in text


def test_killed_before_the_record_the_repeat_has_the_same_key(
    site: Path,
    receiver: HttpReceiver,
    post: Callable[..., tuple[int, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SIGKILL when the server has the ticket, before the answer: nothing is in the ledger."""
    code = "import sys; from forewarn.pipelines.cli.main import main; main(sys.argv[1:])"
    words = ["repairs", "--config", str(site), "--case", "1", "--ticket", "servicenow", "--post"]
    process = subprocess.Popen([sys.executable, "-c", code, *words], env=os.environ)
    receiver.before_answer = process.kill
    assert process.wait() == -9
    assert ticket(site, capsys) is None
    receiver.before_answer = str
    assert post()[0] == 0
    first, second = receiver.accepted
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    for name in ("correlation_id", "short_description"):
        assert json.loads(first.body)[name] == json.loads(second.body)[name]


# Both processes are told that the other one is about to take the lock, or to post without one.
POSTING_PROCESS = """
import os, pathlib, sys
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.repairs import ticket_lock
hold = ticket_lock.hold_ticket_lock
def marked(*arguments):
    pathlib.Path(sys.argv[1], f"{os.getpid()}.ready").touch()
    return hold(*arguments)
ticket_lock.hold_ticket_lock = marked
sys.exit(main(sys.argv[2:]))
"""


def test_of_two_processes_at_the_same_time_one_posts(
    site: Path, repair: Callable[..., int], receiver: HttpReceiver, tmp_path: Path
) -> None:
    both = threading.Event()
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set() and len(list(tmp_path.glob("*.ready"))) < 2:
            ended.wait(0.01)
        both.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    receiver.before_answer = both.wait  # the first post is unanswered until the other is there
    words = ["--config", str(site), "--case", str(repair(0)), "--ticket", "jira", "--post"]
    command = [sys.executable, "-c", POSTING_PROCESS, str(tmp_path), "repairs", *words]
    processes = [
        subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = sorted(process.communicate()[0] for process in processes)
    ended.set()
    watcher.join()
    assert [process.returncode for process in processes] == [0, 0]
    (sent,) = receiver.accepted
    number = sent.headers["idempotency-key"]
    assert outputs == [
        f"case 1 has the ticket {number}; nothing was posted\n",
        f"case 1: ticket {number}\n",
    ]


HOLDING_PROCESS = """
import sys
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.repairs.ticket_lock import hold_ticket_lock
with Ledger.open(sys.argv[1]) as ledger, hold_ticket_lock(ledger.database):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_lock_ends_with_its_process(url: str) -> None:
    command = [sys.executable, "-c", HOLDING_PROCESS, url]
    pipe = subprocess.PIPE
    with (
        Ledger.open(url) as ledger,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(JobError, match="another process is posting a ticket"),
            hold_ticket_lock(ledger.database, wait_seconds=0.0),
        ):
            pass
        other.kill()
        other.wait()
        for _ in range(2):
            with hold_ticket_lock(ledger.database):
                pass


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FOREWARN_TICKET_URL", "", "FOREWARN_TICKET_URL is not set"),
        ("FOREWARN_TICKET_URL", "http://example.com/secret", "which is for this machine only"),
        ("FOREWARN_TICKET_SECRET", "", "FOREWARN_TICKET_SECRET is not set"),
    ],
)
def test_missing_or_open_address_is_refused(
    receiver: HttpReceiver,
    post: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv(name, value)
    code, text = post()
    assert (code, receiver.attempts) == (2, 0)
    assert message in text
    assert "secret" not in text


def test_post_needs_a_ticket(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repairs", "--config", str(site), "--post"]) == 2
    assert "`--post` needs --ticket" in capsys.readouterr().err

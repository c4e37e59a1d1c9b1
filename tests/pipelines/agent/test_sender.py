from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from forewarn.features.time_units import HOUR, SECOND
from forewarn.pipelines.agent.sender import Sender, SendError
from forewarn.pipelines.agent.spool import Spool

CLOCK = {"error": "clock", "detail": "a row of 2025-03-03", "now": "2025-03-01T00:00:00+00:00"}


@dataclass
class FakeClock:
    time: int = 1_740_787_200 * SECOND

    def now(self) -> int:
        return self.time

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.time += round(seconds * SECOND)
        return until.is_set()


@dataclass
class Collector:
    """Collector that answers by the `number` of a batch and records all numbers."""

    answers: dict[int, tuple[int, object]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        number = json.loads(gzip.decompress(request.content))["number"]
        self.asked.append(number)
        status, body = self.answers.get(number, (200, {"rows": 1}))
        if isinstance(body, bytes):
            return httpx.Response(status, content=body)
        return httpx.Response(status, json=body)

    def took(self) -> list[int]:
        asked, self.asked = self.asked, []
        return asked


@dataclass
class Site:
    sender: Sender
    collector: Collector
    clock: FakeClock
    said: list[str]

    def waiting(self) -> list[int]:
        return [json.loads(path.read_text())["number"] for path in self.sender.spool.waiting()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Return a sender with batches 0 to 4, and a collector that accepts those not in `answers`."""
    spool, clock, collector = Spool(tmp_path, 1 << 20), FakeClock(), Collector()
    said: list[str] = []
    for number in range(5):
        spool.put({"number": number})
    sender = Sender("http://collector", "secret", spool, clock, say=said.append)
    sender._client.close()
    sender._client = httpx.Client(
        base_url="http://collector", transport=httpx.MockTransport(collector.answer)
    )
    yield Site(sender, collector, clock, said)
    sender.close()


@pytest.mark.parametrize("status", [409, 422, 400])
def test_future_row_is_kept_without_blocking(site: Site, status: int) -> None:
    site.collector.answers = {1: (status, CLOCK), 3: (status, CLOCK)}
    site.sender.send_all()
    assert site.collector.took() == [0, 1, 2, 3, 4]
    assert site.waiting() == [1, 3]
    assert site.sender.refused == 0
    (note,) = site.said
    assert "clock of this host" in note
    assert CLOCK["now"] in note


def test_future_row_is_retried_slowly(site: Site) -> None:
    site.collector.answers = {1: (409, CLOCK), 3: (409, CLOCK)}
    site.sender.send_all()
    site.collector.took()
    for _ in range(60):
        site.clock.time += SECOND
        site.sender.send_all()
    assert len(site.collector.took()) <= 2  # one retry per minute for all waiting batches
    site.collector.answers = {}
    site.clock.time += 61 * SECOND
    site.sender.send_all()
    assert sorted(site.collector.took()) == [1, 3]
    assert site.waiting() == []


def test_clock_skew_is_logged_once(site: Site) -> None:
    site.collector.answers = {1: (409, CLOCK)}
    for _ in range(5):
        site.sender.send_all()
        site.clock.time += 61 * SECOND
    assert len(site.collector.took()) == 9
    assert len(site.said) == 1


def test_clock_set_back_keeps_retrying(site: Site) -> None:
    site.collector.answers = {1: (409, CLOCK)}
    site.sender.send_all()
    site.sender.send_all()
    site.collector.answers = {}
    site.clock.time -= 11 * HOUR
    site.sender.send_all()
    assert site.waiting() == []


def test_future_rows_do_not_delay_new_ones(site: Site) -> None:
    site.collector.answers = dict.fromkeys(range(5), (409, CLOCK))
    site.sender.send_all()
    site.sender.spool.put({"number": 5})
    site.sender.spool.put({"number": 6}, fault=True)
    site.collector.took()
    site.sender.send_all()
    assert [number for number in site.collector.took() if number > 4] == [6, 5]
    assert site.waiting() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("status", [400, 413, 415, 422])
@pytest.mark.parametrize("body", [{"error": "no JSON"}, b"<html>", [1], {"error": ["clock"]}])
def test_invalid_batch_is_moved_aside(site: Site, status: int, body: object) -> None:
    site.collector.answers = {1: (status, body)}
    site.sender.send_all()
    assert (site.waiting(), site.sender.refused) == ([], 1)
    assert len(list((site.sender.spool.folder / "refused").iterdir())) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 409, 500, 503])
def test_collector_error_is_retried(site: Site, status: int) -> None:
    site.collector.answers = {1: (status, {"error": "away"})}
    with pytest.raises(SendError, match=str(status)):
        site.sender.send_all()
    assert site.waiting() == [1, 2, 3, 4]


def _huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 30)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [_huge, _folder])
def test_unreadable_batch_is_moved_aside(site: Site, spoil: Callable[[Path], None]) -> None:
    spoil(site.sender.spool.waiting()[1])
    site.sender.send_all()
    assert site.collector.took() == [0, 2, 3, 4]
    assert "moved aside" in site.said[0]
    assert len(list((site.sender.spool.folder / "refused").iterdir())) == 1


def test_missing_batch_is_forgotten(site: Site) -> None:
    site.sender.spool.waiting()[1].unlink()
    site.sender.send_all()
    assert (site.collector.took(), site.sender.spool.waiting()) == ([0, 2, 3, 4], [])


def test_disk_error_does_not_stop_sender(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.collector.answers = {1: (400, {"error": "no JSON"})}
    refused: list[Any] = []

    def full(_: Spool, path: Path) -> None:
        refused.append(path)
        if len(refused) == 3:
            site.sender.stop.set()
        raise OSError("No space left on device")

    monkeypatch.setattr(Spool, "set_aside", full)
    site.sender.run()
    assert site.said == ["not sent, will retry: No space left on device"] * 3
    assert site.waiting() == [1, 2, 3, 4]

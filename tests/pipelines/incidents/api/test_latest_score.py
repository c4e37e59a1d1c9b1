from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.console.console_client import Browser
from tests.pipelines.incidents.api.api_client import Api, make_api

from forewarn.pipelines.console.console_app import make_console
from forewarn.pipelines.console.console_site import ConsoleSite
from forewarn.pipelines.incidents.api import latest_score
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.app import make_app


class SlowScore:
    """Scores numbered from 1; each waits until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Semaphore(0)
        self.begun = 0

    def __call__(self) -> dict[str, Any]:
        self.begun += 1
        assert self.may_end.acquire(timeout=60)
        counts = {"judged": 0, "left_alone": 0, "missed": 0, "failures": 0, "days_to_answer": None}
        shares = dict.fromkeys(["precision", "apparent_precision", "missed_share"])
        return {"incidents": self.begun, "since": "2026-03-01T00:00:00Z", **counts, **shares}


def number(scores: latest_score.LatestScore) -> int:
    score = asyncio.run(scores.read())
    assert score is not None
    return int(score["incidents"])


@pytest.fixture
def slow() -> Iterator[SlowScore]:
    score = SlowScore()
    yield score
    score.may_end.release(10)


@pytest.fixture
def api(tmp_path: Path, slow: SlowScore) -> Iterator[Api]:
    known = make_api(tmp_path)
    context = known.context
    slow_context = ApiContext(context.ledger, context.access, context.switch, slow, known.clock)
    yield Api(slow_context, make_app(slow_context), known.clock)
    slow.may_end.release(10)
    slow_context.close()
    context.close()
    context.ledger.close()


def test_no_request_waits_for_a_long_score(
    api: Api, slow: SlowScore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_score, "_PATIENCE", 0.01)
    for _ in range(3):
        answer = api.get("/v1/score")
        assert (answer.status_code, answer.headers["retry-after"]) == (202, "2")
        assert answer.json()["error"] == "the score is being computed"
    assert slow.begun == 1
    slow.may_end.release()
    monkeypatch.setattr(latest_score, "_PATIENCE", 60.0)
    assert api.get("/v1/score").json()["incidents"] == 1


def test_known_score_answers_while_the_next_is_computed(
    slow: SlowScore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_score, "_MIN_PAUSE", 0.0)
    monkeypatch.setattr(latest_score, "_PAUSE", 0)
    monkeypatch.setattr(latest_score, "_PATIENCE", 60.0)
    scores = latest_score.LatestScore(slow)
    slow.may_end.release()
    assert number(scores) == 1
    monkeypatch.setattr(latest_score, "_PATIENCE", 0.01)
    assert number(scores) == 1
    slow.may_end.release()
    monkeypatch.setattr(latest_score, "_PATIENCE", 60.0)
    assert number(scores) == 2
    slow.may_end.release(5)
    scores.close()


def test_readers_share_one_computation(slow: SlowScore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_score, "_PATIENCE", 60.0)
    scores = latest_score.LatestScore(slow)
    slow.may_end.release()

    async def read_all() -> list[latest_score.Score | None]:
        return await asyncio.gather(*[scores.read() for _ in range(5)])

    assert [score["incidents"] for score in asyncio.run(read_all()) if score] == 5 * [1]
    assert slow.begun == 1
    scores.close()


def test_failed_computation_is_raised_and_tried_again() -> None:
    results: list[Any] = [ValueError("no ledger"), {"incidents": 1}]

    def compute() -> dict[str, Any]:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return dict(result)

    scores = latest_score.LatestScore(compute)
    with pytest.raises(ValueError, match="no ledger"):
        asyncio.run(scores.read())
    assert number(scores) == 1
    scores.close()


def test_page_and_api_show_the_same_score(
    api: Api, slow: SlowScore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_score, "_MAX_PAUSE", 600.0)
    monkeypatch.setattr(latest_score, "_MIN_PAUSE", 600.0)
    browser = Browser(make_console(ConsoleSite(api.context, clock=api.clock))).sign_in("see")
    monkeypatch.setattr(latest_score, "_PATIENCE", 0.01)
    assert "is being computed" in browser.get("/score").text
    monkeypatch.setattr(latest_score, "_PATIENCE", 60.0)
    slow.may_end.release()
    assert "1 incident since" in browser.get("/score").text
    assert api.get("/v1/score").json()["incidents"] == 1
    assert slow.begun == 1

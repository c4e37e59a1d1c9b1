"""The page of an interrupted job."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.pipelines.recovery.recovery_page import render_recovery_page

CAUSE = "rank 3 ended by signal 11"


def _attempt(machines: list[str], blamed: list[str], cause: str | None = CAUSE) -> dict[str, Any]:
    return {
        "begin": "2026-03-01T09:00:00Z",
        "end": "2026-03-01T09:30:00Z",
        "rung": "restart",
        "machines": machines,
        "ended": "failed",
        "cause": cause,
        "blamed": blamed,
        "first_step": 1,
        "last_step": 1200,
    }


def _line(*attempts: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {
        "job": "pretrain",
        "at": "2026-03-01T10:00:00Z",
        "state": "stop",
        "rung": None,
        "reason": "no retry is left: 3 restarts saved no step beyond 1,200",
        "until": None,
        "next_rung": None,
        "skipped": [],
        "block": "none",
        "machine": None,
        "interrupted_at": "2026-03-01T09:30:00Z",
        "cause": CAUSE,
        "tried": [],
        "retries_left": 0,
        "furthest_saved": 1200,
        "evidence": "/jobs/it's here",
        "budget": {"retries": 3, "left": 0, "restarts": 3, "most": 10, "within": "1 day"},
        "attempts": list(attempts),
        **values,
    }


def test_page_of_a_stopped_job_says_why_and_what_to_do() -> None:
    page = render_recovery_page(_line(_attempt(["n1", "n2"], []), _attempt(["n1", "n2"], [])))
    assert "pretrain has stopped, and does not start again by itself" in page
    assert "Why: no retry is left: 3 restarts saved no step beyond 1,200." in page
    assert "forewarn diagnose run --job &#39;/jobs/it&#39;" in page  # quoted for a shell
    assert "Check that the checkpoint of step 1,200 is complete." in page
    for figure in ("0 of 3", "3 of 10", "1 to 1,200", "n[1-2]", "30 min", "the first start"):
        assert figure in page
    assert page.count('<th scope="row"') == 2


@pytest.mark.parametrize(
    ("blamed", "machine", "words"),
    [
        (["n1", "n2"], None, "ended by the same cause on n[1-2]: look into the program"),
        (["n1", "n1"], None, "ended by the same cause on n1: have it checked"),
        (["n1", "n2"], "n2", "Have n2 checked"),
    ],
)
def test_page_tells_where_to_look(blamed: list[str], machine: str | None, words: str) -> None:
    attempts = [_attempt(["n1", "n2"], [name]) for name in blamed]
    attempts[1]["cause"] = "rank 17 ended by signal 11"  # the same, on another rank
    assert words in render_recovery_page(_line(*attempts, machine=machine))


def test_page_of_a_job_that_goes_on_asks_nothing_of_a_person() -> None:
    line = _line(_attempt(["n1"], []), state="begin", rung="restart", reason="no single machine")
    page = render_recovery_page(line)
    assert "pretrain was interrupted, and goes on" in page
    assert "Restart all processes in place: no single machine." in page
    assert "What to do" not in page


def test_text_from_logs_is_escaped() -> None:
    hostile = "<script>alert(1)</script>\u202e"
    page = render_recovery_page(_line(_attempt([hostile], [hostile], hostile), cause=hostile))
    assert "<script" not in page
    assert "\u202e" not in page

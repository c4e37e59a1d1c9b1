"""A responder that is killed between any two steps, and runs again: nothing is lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RESPONDER = Path(__file__).with_name("responder.py")
# A step is a statement, its end, the begin of a transaction or its end; there are some 320. By hand
# with a stride of 1, all of them.
STRIDE = {"sqlite": "29", "postgresql": "53"}
LIFE = ["intended", "sent", "holding", "drained", "releasing", "released"]


@pytest.fixture
def deaths(url: str) -> list[dict[str, Any]]:
    """What the ledger says after each death and the second run; the last one is of no death."""
    stride = STRIDE[url.split(":")[0]]
    command = [sys.executable, str(RESPONDER), "kill", url, stride]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_killed_between_any_two_steps_nothing_is_lost_or_doubled(
    deaths: list[dict[str, Any]],
) -> None:
    *killed, unhurt = deaths
    assert len(killed) > 5
    assert [death["died"] for death in deaths] == [True] * len(killed) + [False]
    assert unhurt["machines"] == ["m1", "m2"]
    assert unhurt["states"] == {"closed": 2}
    assert unhurt["lives"] == [LIFE, LIFE]
    for death in killed:
        assert {**death, "counts": None, "step": None, "died": None} == {
            **unhurt,
            "counts": None,
            "step": None,
            "died": None,
        }
        # The second run repeats both findings; the first has taken both, or none.
        assert death["counts"] in ([1, 1], [2, 2])
    assert {tuple(death["counts"]) for death in killed} == {(1, 1), (2, 2)}

"""Tests of concurrent responders, as threads and as processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding

RESPONDER = Path(__file__).with_name("small_responder.py")
NOW = Nanoseconds(100)


def no_limit(recent: Sequence[Action]) -> None:
    del recent


def one_is_out(recent: Sequence[Action]) -> str | None:
    return "one is out" if any(row.open for row in recent) else None


def start(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(RESPONDER), "race", url]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def test_concurrent_processes_respect_limit(url: str, finding: Callable[..., Finding]) -> None:
    with Ledger.open(url) as ledger:
        ledger.record_findings([finding(f"{n}", f"m{n}") for n in range(8)], now=NOW)
        processes = [start(url), start(url)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        answers = [process.communicate("go\n")[0] for process in processes]
        results = [json.loads(answer) for answer in answers]
        open_actions = ledger.open_actions()
    assert len(open_actions) == len({row.machine for row in open_actions}) == 3
    assert sorted(results[0]["obtained"] + results[1]["obtained"]) == [
        row.id for row in open_actions
    ]
    assert {reason for result in results for reason in result["blocked"]} == {"3 are out"}


def test_concurrent_acts_respect_limit_of_one(
    url: str, ledger: Ledger, finding: Callable[..., Finding], action: Callable[..., Action]
) -> None:
    ledger.record_findings([finding(f"{n}", f"m{n}") for n in range(2)], now=NOW)
    both_ready = threading.Barrier(2)

    def act(number: int) -> Action | str | None:
        with Ledger.open(url) as other:
            both_ready.wait()
            return other.act(action(number, f"m{number - 1}"), one_is_out)

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(act, [1, 2]))
    assert [row for row in answers if isinstance(row, str)] == ["one is out"]
    assert [row for row in answers if isinstance(row, Action)] == ledger.open_actions()


def test_one_of_four_workers_advances_each_action(
    ledger: Ledger, finding: Callable[..., Finding], action: Callable[..., Action]
) -> None:
    ledger.record_findings([finding(f"{n}", f"m{n}") for n in range(20)], now=NOW)
    for number in range(1, 21):
        ledger.act(action(number, f"m{number - 1}"), no_limit)
    read = ledger.open_actions()
    all_ready = threading.Barrier(4)

    def work(worker: int) -> list[int]:
        all_ready.wait()
        who = f"worker {worker}"
        return [
            row.id
            for row in read
            if ledger.advance(row, ActionState.SENT, now=NOW, who=who) is not None
        ]

    with ThreadPoolExecutor(4) as threads:
        obtained = list(threads.map(work, range(4)))
    assert sorted(number for numbers in obtained for number in numbers) == list(range(1, 21))
    for worker, numbers in enumerate(obtained):
        for number in numbers:
            assert ledger.action_states(number)[-1].who == f"worker {worker}"

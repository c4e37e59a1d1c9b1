from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from forewarn.pipelines.incidents.ledger.shared_reads import SharedReads


class Question:
    """Says when it is looked up: then whoever asks it has come."""

    def __init__(self) -> None:
        self.askers = threading.Semaphore(0)

    def __hash__(self) -> int:
        self.askers.release()
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other


def test_who_comes_while_a_read_runs_shares_the_next_one() -> None:
    reads, question, answers = SharedReads(), Question(), iter([1, 2, 3])
    begun, go_on = threading.Event(), threading.Event()

    def load() -> int:
        begun.set()
        go_on.wait(60)
        return next(answers)

    with ThreadPoolExecutor(6) as threads:
        first = threads.submit(reads.read, question, load)
        assert begun.wait(60)
        while question.askers.acquire(blocking=False):
            continue
        later = [threads.submit(reads.read, question, load) for _ in range(5)]
        # The first of them also puts it into the dictionary, which looks it up again.
        assert all(question.askers.acquire(timeout=60) for _ in range(6))
        go_on.set()
        assert first.result() == 1
        assert [answer.result() for answer in later] == [2] * 5


def test_a_read_sees_what_was_written_before_it_was_asked_for() -> None:
    reads, written = SharedReads(), list[int]()
    for value in range(3):
        written.append(value)
        assert reads.read("last", lambda: written[-1]) == value


def test_a_read_that_fails_tells_all_who_wait_and_the_next_one_is_tried() -> None:
    reads = SharedReads()
    with pytest.raises(OSError, match="away"):
        reads.read("open", fail)
    assert reads.read("open", lambda: 7) == 7


def fail() -> int:
    raise OSError("away")

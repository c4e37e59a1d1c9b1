"""Reads that many ask for at the same time, done once for all who wait."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

__all__ = ["SharedReads"]

Value = TypeVar("Value")


class SharedReads:
    """One read at a time; who comes before a read has begun takes its answer, too.

    So fifty readers of a list wait for two reads at most, the one that runs and the next, and
    none of them sees less than what was there when it asked.
    """

    def __init__(self) -> None:
        self._turn = Lock()
        self._lock = Lock()
        self._ahead: dict[Hashable, Future[Any]] = {}

    def read(self, question: Hashable, load: Callable[[], Value]) -> Value:
        """Return what `load` answers to a question; the same question has the same `load`."""
        with self._lock:
            answer: Future[Value] | None = self._ahead.get(question)
            if first := answer is None:
                answer = self._ahead[question] = Future()
        if first:
            with self._turn:
                self._begin(question, answer, load)
        return answer.result()

    def _begin(self, question: Hashable, answer: Future[Value], load: Callable[[], Value]) -> None:
        with self._lock:
            del self._ahead[question]
        try:
            answer.set_result(load())
        except BaseException as error:
            answer.set_exception(error)

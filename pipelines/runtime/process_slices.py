"""Slices of work in processes of this machine, tried again when a process dies."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.slice_map import SliceMap, check_task, in_order

__all__ = ["process_slices"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_MOST_DEATHS = 3  # in a row without a result: a slice that takes all memory kills every worker


@contextmanager
def process_slices(n_workers: int) -> Iterator[SliceMap]:
    """Hold a pool of processes."""
    slices = _Processes(n_workers)
    try:
        yield slices
    finally:
        slices.pool.shutdown(cancel_futures=True)


class _Processes:
    """A pool that is made anew when one of its processes dies, which ends all of them."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.deaths = 0
        self.pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # Not forked: threads of numpy, pyarrow and TensorFlow may hold locks at that moment.
        return ProcessPoolExecutor(self.n_workers, multiprocessing.get_context("spawn"))

    def map(self, task: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        check_task(task)
        return in_order(lambda item: _Slice(self, task, item), items, 2 * self.n_workers)

    def begin(self, task: Callable[..., _Result], item: Any) -> Future[_Result]:
        """Submit a slice, to a new pool where the last one has broken."""
        try:
            return self.pool.submit(task, item)
        except BrokenProcessPool:
            self.pool = self._new_pool()
            return self.pool.submit(task, item)

    def count_death(self, task: Callable[..., Any]) -> None:
        """Give up where no slice gets done any more."""
        self.deaths += 1
        if self.deaths > _MOST_DEATHS:
            self.deaths = 0
            raise JobError(
                f"`executor`: workers died {_MOST_DEATHS + 1} times in a row in {task.__name__}, "
                "expected it to end; is there too little memory?"
            )


class _Slice(Generic[_Result]):
    """A slice that is begun again when its worker dies."""

    def __init__(self, slices: _Processes, task: Callable[..., _Result], item: Any) -> None:
        self.slices, self.task, self.item = slices, task, item
        self.future = slices.begin(task, item)

    def result(self) -> _Result:
        while True:
            try:
                value = self.future.result()
            except BrokenProcessPool:
                pool = self.slices.pool
                self.future = self.slices.begin(self.task, self.item)
                # The slices beside it find a new pool, and one death is counted once.
                if self.slices.pool is not pool:
                    self.slices.count_death(self.task)
            else:
                self.slices.deaths = 0
                return value

    def cancel(self) -> None:
        self.future.cancel()

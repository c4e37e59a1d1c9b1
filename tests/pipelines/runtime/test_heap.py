from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROUNDS, ARRAYS = 6, 4  # 192 MiB: less than what a shared heap keeps
# 3 MiB, and 48 MiB: glibc would ask the system for each of the latter, whatever its heap holds.
SIZES = [768, 12_288]
FAULTS = f"""
import resource, sys, threading
import numpy as np
from forewarn.pipelines.runtime.heap import share_heap

def work():
    arrays = [np.full(int(sys.argv[2]) * 4096, 1, dtype=np.uint8) for _ in range({ARRAYS})]

if sys.argv[1] == "shared":
    share_heap()
for _ in range({ROUNDS}):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str, pages: int) -> list[int]:
    command = [sys.executable, "-c", FAULTS, how, str(pages)]
    small = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}  # pages, so that each is counted
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=small)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("pages", SIZES)
def test_threads_take_arrays_from_memory_that_was_let_go_of(pages: int) -> None:
    first, *_, last = _faults("shared", pages)
    assert last < first / 4


@pytest.mark.parametrize("pages", SIZES)
def test_otherwise_threads_ask_the_system_for_every_array(pages: int) -> None:
    first, *_, last = _faults("own", pages)
    assert last >= first / 2

from __future__ import annotations

import subprocess
import sys

ROUNDS, ARRAYS, PAGES = 6, 12, 768  # of 3 MiB each: not so large that they come in huge pages
FAULTS = f"""
import resource, sys, threading
import numpy as np
from forewarn.pipelines.runtime.heap import share_heap

def work():
    arrays = [np.full({PAGES} * 4096, 1, dtype=np.uint8) for _ in range({ARRAYS})]

if sys.argv[1] == "shared":
    share_heap()
for _ in range({ROUNDS}):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> list[int]:
    command = [sys.executable, "-c", FAULTS, how]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


def test_threads_take_arrays_from_memory_that_was_let_go_of() -> None:
    first, *_, last = _faults("shared")
    assert first >= ARRAYS * PAGES // 2
    assert last < PAGES


def test_otherwise_threads_ask_the_system_for_every_array() -> None:
    assert _faults("own")[-1] >= ARRAYS * PAGES // 2

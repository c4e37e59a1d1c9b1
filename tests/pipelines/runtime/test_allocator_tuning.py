from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

ROUNDS, ARRAYS = 6, 4  # 192 MiB: less than a shared arena keeps
# 3 MiB, and 48 MiB: glibc would always map the latter directly.
SIZES = [768, 12_288]
FAULTS = f"""
import resource, sys, threading
import numpy as np
from forewarn.pipelines.runtime.allocator_tuning import use_shared_arena

def work():
    arrays = [np.full(int(sys.argv[2]) * 4096, 1, dtype=np.uint8) for _ in range({ARRAYS})]

if sys.argv[1] == "shared":
    use_shared_arena()
for _ in range({ROUNDS}):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


BACKEND = """
import sys
from forewarn.pipelines.runtime.allocator_tuning import tune_process_memory

if "loaded" in sys.argv:
    import pyarrow
tune_process_memory()
import pyarrow

print(pyarrow.default_memory_pool().backend_name)
"""


def _faults(how: str, pages: int) -> list[int]:
    command = [sys.executable, "-c", FAULTS, how, str(pages)]
    small = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}  # small pages, so that each is counted
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=small)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("pages", SIZES)
def test_shared_arena_reuses_freed_memory(pages: int) -> None:
    first, *_, last = _faults("shared", pages)
    assert last < first / 4


@pytest.mark.parametrize("pages", SIZES)
def test_default_arenas_return_memory(pages: int) -> None:
    first, *_, last = _faults("own", pages)
    assert last >= first / 2


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="elsewhere Arrow chooses"
)
@pytest.mark.parametrize("chosen", [None, "system"])
@pytest.mark.parametrize("when", ["loaded", "later"])
def test_arrow_releases_memory_unless_overridden(
    chosen: str | None, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if chosen is not None:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", chosen)
    done = subprocess.run(
        [sys.executable, "-c", BACKEND, when], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [chosen or "jemalloc"]

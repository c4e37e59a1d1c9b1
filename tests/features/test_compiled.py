from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from forewarn.features import compiled as compiled_module
from forewarn.features.compiled import compiled


def _sum(values: npt.NDArray[np.float64]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def test_compiled_loop_matches_python() -> None:
    values = np.array([0.5, 2.0, -1.0])
    assert compiled(_sum)(values) == _sum(values) == 1.5


def test_compiles_again_without_writable_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_folder(_: Any) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled_module, "_CodeCache", no_folder)
    assert compiled(_sum)(np.ones(3)) == 3.0


LOADED = """
import sys, numpy as np
from forewarn.features.records.ordering import stable_order
order = stable_order(np.array([7, 3], np.int32), np.array([5, 9]))
print(order[0], "numba.np.arraymath" in sys.modules)
"""


def test_cached_code_loads_without_compiler() -> None:
    """Loading all numba extensions would cost each command a third of a second."""
    for _ in range(2):  # the first process may have to compile
        done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True)
    assert done.stdout.split() == [b"1", b"False"]


SOURCE = """
from typing import NamedTuple
from forewarn.features.compiled import compiled
class {name}(NamedTuple):
    first: int
@compiled
def doubled(pair):
    return {times} * pair.first
def asked(number):
    return doubled({name}(number))
"""


def test_stale_cache_index_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: an in-place upgrade ended in a traceback of numba."""
    monkeypatch.syspath_prepend(tmp_path)
    source, now = tmp_path / "upgraded_loops.py", time.time()
    for ago, name, times in ((100, "Old", 2), (-100, "New", 3)):
        source.write_text(SOURCE.format(name=name, times=times))
        os.utime(source, (now - ago, now - ago))
        sys.modules.pop("upgraded_loops", None)
        importlib.invalidate_caches()
        assert importlib.import_module("upgraded_loops").asked(7) == 7 * times
    sys.modules.pop("upgraded_loops")

"""Imports modules of `benchmarks/`, which are not part of the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def benchmark_module() -> Callable[[str], ModuleType]:
    """Import a module by its name, with the folder on the path only for that time."""

    def load(name: str) -> ModuleType:
        sys.path.insert(0, str(ROOT))
        try:
            return importlib.import_module(f"benchmarks.{name}")
        finally:
            sys.path.remove(str(ROOT))

    return load

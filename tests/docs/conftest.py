"""The modules that write pages; they are no part of the package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> type[Generators]:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return Generators


class Generators:
    """Imports modules of docs/generate, which are no part of the package."""

    @staticmethod
    def load(name: str) -> ModuleType:
        return importlib.import_module(f"docs.generate.{name}")

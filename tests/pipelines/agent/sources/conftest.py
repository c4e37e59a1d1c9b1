"""Programs of the vendors, as shell scripts on a host without others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.pipelines.agent.sources import gpu_source_selection


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Return `install(name, script)`; the programs are the only ones of their host."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(gpu_source_selection, "_PCI_DEVICES", tmp_path / "pci")

    def write(name: str, script: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write

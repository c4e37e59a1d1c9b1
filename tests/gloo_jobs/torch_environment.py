"""Where the programs of torch are: an environment of its own, outside the lock."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["torch_programs"]

ROOT = Path(__file__).parents[2]


def torch_programs() -> Path | None:
    """Return the folder of torchrun and py-spy; None where `.ci/setup_torch` has not made it."""
    programs = Path(os.environ.get("FOREWARN_TORCH", ROOT / ".venv-torch")) / "bin"
    return programs if (programs / "torchrun").exists() else None

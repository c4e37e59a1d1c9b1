"""Location of torch's programs, in an environment outside the lock file."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["torch_programs"]

ROOT = Path(__file__).parents[2]


def torch_programs() -> Path | None:
    """Return the folder of torchrun and py-spy, or None if `.ci/setup_torch` has not created it."""
    programs = Path(os.environ.get("FOREWARN_TORCH", ROOT / ".venv-torch")) / "bin"
    return programs if (programs / "torchrun").exists() else None

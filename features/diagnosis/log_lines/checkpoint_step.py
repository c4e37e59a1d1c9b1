"""Step of a checkpoint, as the lines of trainers or the names of their checkpoints state it."""

from __future__ import annotations

import re

__all__ = ["checkpoint_step"]

_NUMBER = r"0*(\d{1,3}(?:,\d{3})+|\d{1,12})(?!\d|[.,-]\d)"
_STEP = re.compile(
    rf"(?i)(?:\b|_)(?:iter(?:ation)?s?|(?:global[ _-]?)?steps?)[ \t_:=#-]*{_NUMBER}"
    rf"|\b(?:checkpoint|ckpt)[-_]{_NUMBER}"
)


def checkpoint_step(line: str) -> int | None:
    """Return the last step that a line about a checkpoint states, or None.

    Parameters
    ----------
    line : str
        Line that says that a checkpoint is being saved, or was saved.

    Examples
    --------
    >>> checkpoint_step("successfully saved checkpoint from iteration   41200 to /ckpt")
    41200
    >>> checkpoint_step("[Torch] Saved /ckpt/global_step500/mp_rank_03_model_states.pt.")
    500
    >>> checkpoint_step("checkpoint saved in 12 s") is None
    True
    """
    steps = [int((match[1] or match[2]).replace(",", "")) for match in _STEP.finditer(line)]
    return steps[-1] if steps else None

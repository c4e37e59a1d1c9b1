"""What a node of Slurm says of us: the reasons that we write, and what they may hold."""

from __future__ import annotations

import re

from forewarn.response.state.action import Action
from forewarn.response.state.machine import OURS

__all__ = ["checks_of", "cleaned", "reason_of"]

_LONGEST = 160  # characters of a reason or message
_UNSAFE = re.compile(r"""[^ -~]|["'`$\\=]""")


def reason_of(action: Action, why: str) -> str:
    """Return what a node's reason says while we hold it: our mark, the action and why.

    Only printable ASCII is left of `why`, and no `=` or quote: the rules for sudo rely on it.
    """
    return f"{OURS}{action.id} {cleaned(why)}".rstrip()


def checks_of(action: Action) -> str:
    """Return the reason of a node that is reserved for the checks of an action."""
    return f"{OURS}{action.id} checks"


def cleaned(text: str) -> str:
    """Return what Slurm and the rules for sudo may be given of a text."""
    words = " ".join(_UNSAFE.sub(" ", text).split())
    return words.lstrip("- ")[:_LONGEST].rstrip()  # a message is an argument of its own

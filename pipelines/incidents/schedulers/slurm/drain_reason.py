"""What a node of Slurm says of us: the reasons that we write, and what they may hold."""

from __future__ import annotations

import re

from forewarn.response.state.action import Action
from forewarn.response.state.machine import MARK_PREFIX

__all__ = ["checks_reason", "drain_reason", "sanitize"]

_MAX_TEXT_LENGTH = 160  # characters of a reason or message
_UNSAFE = re.compile(r"""[^ -~]|["'`$\\=]""")


def drain_reason(action: Action, why: str) -> str:
    """Return what a node's reason says while we hold it: our mark, the action and why.

    Only printable ASCII is left of `why`, and no `=` or quote: the rules for sudo rely on it.
    """
    return f"{MARK_PREFIX}{action.id} {sanitize(why)}".rstrip()


def checks_reason(action: Action) -> str:
    """Return the reason of a node that is reserved for the checks of an action."""
    return f"{MARK_PREFIX}{action.id} checks"


def sanitize(text: str) -> str:
    """Return what Slurm and the rules for sudo may be given of a text."""
    words = " ".join(_UNSAFE.sub(" ", text).split())
    return words.lstrip("- ")[:_MAX_TEXT_LENGTH].rstrip()  # a message is an argument of its own

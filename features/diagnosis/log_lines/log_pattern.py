"""Log patterns of the knowledge base: expressions and the meaning of lines that match them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import re2

from forewarn.features.errors import InputError

__all__ = [
    "MAX_MATCHER_BYTES",
    "Level",
    "LogPattern",
    "PatternError",
    "PhaseMark",
    "Role",
    "Scope",
    "compile_pattern",
    "expression_bytes",
    "re2_options",
]

Role = Literal["root", "cascade", "confirmation", "advice", "ended", "completed"]
Scope = Literal["gpu", "node", "fabric", "storage", "application", "platform"]
Level = Literal["notice", "warning", "error", "critical"]
PhaseMark = Literal["checkpoint begins", "checkpoint ends", "evaluation begins", "evaluation ends"]

MAX_MATCHER_BYTES: Final = (
    256 << 20
)  # for all patterns together; beyond it RE2 discards cached states
_MAX_PATTERN_BYTES = 4 << 20
_MAX_PROGRAM_SIZE = 4_000  # instructions per expression


class PatternError(InputError):
    """A pattern that RE2 does not accept."""


@dataclass(frozen=True, slots=True)
class LogPattern:
    r"""Expression and the meaning of lines that match it.

    Attributes
    ----------
    id : str
    expression : str
        RE2 syntax: without look-around and back-references, so that search time is linear in the
        length of the text.
    role : str
        `root` can be the root cause of a crash, `cascade` is a consequence seen by other ranks,
        `confirmation` supports a cause that another line names, `advice` is not a fault, `ended`
        says that a person or a scheduler ended the job, `completed` that the training ended as
        planned.
    scope : str
        Component at fault.
    level : str
        Severity, as in the policy.
    says, next : str
        Meaning of the line, and the recommended action.
    attempt : bool
        The line starts a new attempt; earlier lines belong to previous attempts.
    by_kernel : bool
        Only lines written by the kernel count; a program that quotes the line does not.
    sees_all : bool
        The writer of the line hears from all ranks, so that it alone identifies the peers that the
        line names. Other witnesses know only their own connections.
    cancels : tuple of str
        Ids of patterns whose earlier lines about the same device or server are over with this line.
    needs_repair : bool
        The machine of the writer is at fault, so that the job should continue on another one.
    phase : str or None
        The line begins or ends a quiet phase, in which a job may make no progress.
    """

    id: str
    expression: str
    role: Role
    scope: Scope
    level: Level
    says: str
    next: str
    attempt: bool = False
    by_kernel: bool = False
    sees_all: bool = False
    cancels: tuple[str, ...] = ()
    needs_repair: bool = False
    phase: PhaseMark | None = None


def re2_options(most_memory: int) -> re2.Options:
    """Return RE2 options for line-by-line matching in which every byte is a character."""
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.never_nl = True
    chosen.encoding = re2.Options.Encoding.LATIN1
    chosen.max_mem = most_memory
    return chosen


def expression_bytes(expression: str) -> bytes:
    """Return an expression as bytes in multi-line mode, in which `^` and `$` match at line ends."""
    return b"(?m)" + expression.encode("ascii")


def compile_pattern(expression: str) -> re2._Regexp:
    """Compile a single expression.

    Raises
    ------
    PatternError
        If the expression is not ASCII, matches an empty text, is too large, or uses syntax that RE2
        does not support.

    Examples
    --------
    >>> bool(compile_pattern("Xid .*: 79").search(b"NVRM: Xid (PCI:0000:3b:00): 79"))
    True
    """
    try:
        regular = re2.compile(expression_bytes(expression), re2_options(_MAX_PATTERN_BYTES))
    except UnicodeEncodeError:
        raise PatternError("contains non-ASCII characters") from None
    except re2.error as error:
        detail = error.args[0]
        text = detail.decode("latin-1") if isinstance(detail, bytes) else str(detail)
        raise PatternError(f"is not valid in RE2 ({text[:200]})") from None
    if regular.programsize > _MAX_PROGRAM_SIZE:
        raise PatternError(
            f"is too large ({regular.programsize} instructions, at most {_MAX_PROGRAM_SIZE})"
        )
    if regular.search(b"") is not None:
        raise PatternError("matches an empty line")
    return regular

"""A pattern of the knowledge base: which lines of a log mean what."""

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

Role = Literal["root", "cascade", "confirmation", "advice"]
Scope = Literal["gpu", "node", "fabric", "storage", "application", "platform"]
Level = Literal["notice", "warning", "error", "critical"]
PhaseMark = Literal["checkpoint begins", "checkpoint ends", "evaluation begins", "evaluation ends"]

MAX_MATCHER_BYTES: Final = (
    256 << 20
)  # bytes, of all patterns together; RE2 forgets states beyond it
_MAX_PATTERN_BYTES = 4 << 20
_MAX_PROGRAM_SIZE = 4_000  # instructions of one expression


class PatternError(InputError):
    """A pattern that the engine does not know."""


@dataclass(frozen=True, slots=True)
class LogPattern:
    r"""What a line that fits an expression means.

    Attributes
    ----------
    id : str
    expression : str
        In the syntax of RE2: no look-around and no back-references, so that every text is searched
        in time linear in its length.
    role : str
        `root` can be where a crash began, `cascade` is what others see of it, `confirmation`
        agrees with a cause that something else names, `advice` is no fault.
    scope : str
        What is at fault.
    level : str
        Severity, as in the policy.
    says, next : str
        What it means and what to do, in words.
    attempt : bool
        What stands before such a line belongs to an earlier attempt of the job.
    by_kernel : bool
        Only the kernel itself says so: a line of a program that quotes it means nothing.
    phase : str or None
        The line begins or ends a phase in which a job may stand still.
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
    phase: PhaseMark | None = None


def re2_options(most_memory: int) -> re2.Options:
    """Return how patterns are read: line by line, and any byte is a character."""
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.never_nl = True
    chosen.encoding = re2.Options.Encoding.LATIN1
    chosen.max_mem = most_memory
    return chosen


def expression_bytes(expression: str) -> bytes:
    """Return an expression as the engine takes it: `^` and `$` are the ends of a line."""
    return b"(?m)" + expression.encode("ascii")


def compile_pattern(expression: str) -> re2._Regexp:
    """Compile an expression by itself.

    Raises
    ------
    PatternError
        If it is not ASCII, fits an empty text, is too large, or has what RE2 does not know.

    Examples
    --------
    >>> bool(compiled("Xid .*: 79").search(b"NVRM: Xid (PCI:0000:3b:00): 79"))
    True
    """
    try:
        regular = re2.compile(expression_bytes(expression), re2_options(_MAX_PATTERN_BYTES))
    except UnicodeEncodeError:
        raise PatternError("has characters beyond ASCII") from None
    except re2.error as error:
        detail = error.args[0]
        text = detail.decode("latin-1") if isinstance(detail, bytes) else str(detail)
        raise PatternError(f"cannot be searched for in linear time ({text[:200]})") from None
    if regular.programsize > _MAX_PROGRAM_SIZE:
        raise PatternError(
            f"is too large ({regular.programsize} steps, at most {_MAX_PROGRAM_SIZE})"
        )
    if regular.search(b"") is not None:
        raise PatternError("fits a line that is empty")
    return regular

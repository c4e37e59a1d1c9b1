"""Safe terminal output: text from data cannot move the cursor or change the text direction."""

from __future__ import annotations

import sys

__all__ = ["escape_text", "print_error", "write_line"]


def escape_text(text: object) -> str:
    r"""Return text in one line with all invisible characters escaped.

    Escape sequences, newlines, direction marks and unpaired surrogates are written as Python
    escapes. Every name from data that is printed passes through here, except in JSON.

    Examples
    --------
    >>> escape_text("node\x1b[2J"), escape_text("a\u202eb\nc")
    ('node\\x1b[2J', 'a\\u202eb\\nc')
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )


def print_error(line: object) -> None:
    """Print one line on stderr."""
    print(escape_text(line), file=sys.stderr)


def write_line(line: object) -> None:
    """Print one line on stdout and flush it."""
    print(escape_text(line), flush=True)

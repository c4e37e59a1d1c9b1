"""Text for a terminal: what comes from outside cannot move the cursor or turn the writing."""

from __future__ import annotations

import sys

__all__ = ["escape_text", "print_error", "write_line"]


def escape_text(text: object) -> str:
    r"""Return text in one line, with every character that cannot be seen written out.

    Escape sequences, newlines, marks that turn the direction of writing and halves of surrogate
    pairs become what Python would write for them. Every name from data that is printed goes
    through here; JSON does not, since it is data.

    Examples
    --------
    >>> plain("node\x1b[2J"), plain("a\u202eb\nc")
    ('node\\x1b[2J', 'a\\u202eb\\nc')
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )


def print_error(line: object) -> None:
    """Print one line on stderr."""
    print(escape_text(line), file=sys.stderr)


def write_line(line: object) -> None:
    """Print one line on stdout at once."""
    print(escape_text(line), flush=True)

"""Pieces of Markdown that generated pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["escaped", "table"]


def escaped(text: str) -> str:
    r"""Return plain text as Markdown shows it unchanged, in one line.

    >>> escaped("a <b> | c_d, `code <x>`")
    'a &lt;b&gt; \\| c_d, `code <x>`'
    """
    parts = " ".join(text.split()).split("`")
    for number in range(0, len(parts), 2):  # outside of code
        part = parts[number].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts[number] = part.replace("*", "\\*").replace("[", "\\[")
    return "`".join(parts).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown already.

    >>> print(table(("key", "meaning"), [("`a`", "first")]), end="")
    | key | meaning |
    |---|---|
    | `a` | first |
    """
    lines = [head, ["---"] * len(head), *rows]
    first, rule, *others = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, rule.replace(" ", ""), *others]) + "\n"

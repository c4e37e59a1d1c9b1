"""Lines that lack their end or beginning: a killed process, a terminal or a rotation cut them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from forewarn.features.diagnosis.log_lines.log_template import log_template

__all__ = ["whole_of_cut_line"]

_MIN_BEGIN, _MIN_END = 4, 12  # characters of a template
_NAME = re.compile(r"[\w.]+:")  # of an exception whose message is below
_LAST_WORD = re.compile(r"(?:<\w+>|[\w.:@+=%/-])+$")  # half of it may have another mask
_FIRST_WORD = re.compile(r"^(?:<\w+>|[\w.:@+=%/-])+")


def whole_of_cut_line(line: str, wholes: Iterable[str]) -> str | None:
    """Return the one of several whole lines that a line is the beginning or the end of, or None.

    Numbers, times, paths and addresses may differ. The name of an exception alone is no part.

    Examples
    --------
    >>> whole = "[E424 01:11:21.1 x.cpp:6] [Rank 0] collective timed out"
    >>> whole_of_cut_line("[E424 01:11:22.7 x.c", [whole]) == whole
    True
    >>> whole_of_cut_line("[E424 01:11:22.7 x.cpp:6] [Rank 3] no memory", [whole])
    >>> whole_of_cut_line("[E424 01:11:22.7 x.cpp:6] [Rank 3] collective timed out", [whole])
    """
    part = log_template(line)
    if _NAME.fullmatch(line.strip()):
        return None
    begins = tuple(b for b in (part, _LAST_WORD.sub("", part)) if len(b) >= _MIN_BEGIN)
    ends = tuple(e for e in (part, _FIRST_WORD.sub("", part)) if len(e) >= _MIN_END)
    for whole in wholes:
        template = log_template(whole)
        if template != part and (template.startswith(begins) or template.endswith(ends)):
            return whole
    return None

"""Log templates: lines with their variable parts replaced by placeholders."""

from __future__ import annotations

import re

__all__ = ["log_template"]

_MAX_TEMPLATE_CHARS = 300
_MASKS = (
    (
        re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"),
        "<time>",
    ),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,64}\b"), "<hex>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"), "<address>"),
    (re.compile(r"(?<![\w<])(?:[a-z][a-z0-9]{1,9}:/)?(?:/[\w.@+=%-]+)+/?"), "<path>"),
    (re.compile(r"[-+]?\b\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?"), "<n>"),
    (re.compile(r"(?<=[A-Za-z_-])\d+"), "<n>"),
)


def log_template(line: str) -> str:
    """Replace numbers, times, paths and addresses by placeholders; truncate to 300 characters.

    Examples
    --------
    >>> log_template("2025-03-01 04:00:00,123 shard 17 of /data/a.bin is short at 0x7f: 3.5 MB")
    '<time> shard <n> of <path> is short at <hex>: <n> MB'
    >>> log_template("node-3 lost 10.0.0.4:29500") == log_template("node-12 lost 10.1.0.9:1")
    True
    """
    text = " ".join(line[:_MAX_TEMPLATE_CHARS].split())
    for expression, mask in _MASKS:
        text = expression.sub(mask, text)
    return text

"""JSON that somebody sent, within bounds."""

from __future__ import annotations

import json
from typing import Any

from forewarn.pipelines.serving.refusal import RefusedError

__all__ = ["parse_json"]


def parse_json(body: bytes, most_nested: int) -> Any:
    """Return what a body holds.

    Parameters
    ----------
    body : bytes
    most_nested : int
        Objects and lists: a few bytes of JSON for each take a hundred times as much memory.

    Raises
    ------
    RefusedError
        413 if it holds more of them, 400 if it is no JSON; NaN and Infinity are none.
    """
    nested = body.count(b"{") + body.count(b"[")
    if nested > most_nested:
        raise RefusedError(413, f"a body of {nested} objects, expected at most {most_nested}")
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"no JSON ({str(error)[:80]})") from None


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON")

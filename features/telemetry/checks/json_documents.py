"""JSON documents in the output of a tool: several in one file, with other lines between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.script_time import ScriptTime, split_time

__all__ = ["json_documents"]


def json_documents(text: str, unread: Unread) -> Iterator[tuple[dict[str, Any], ScriptTime | None]]:
    """Yield each object of a text, with the last time on a line before it.

    Parameters
    ----------
    text : str
    unread : Unread
        Counts a document that is cut off or invalid; nothing after it is read.
    """
    decoder, position, time = json.JSONDecoder(), 0, None
    while (start := text.find("{", position)) >= 0:
        for line in text[position:start].splitlines():
            time = split_time(line)[0] or time
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            unread.add(f"a JSON document that is cut off or invalid ({error})", text[start:])
            return
        yield value, time

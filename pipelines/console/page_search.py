"""Search: the page of a serial, a machine, a job or an incident."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.pipelines.console.page_views import Page
from forewarn.pipelines.console.page_words import path_of
from forewarn.pipelines.incidents.api.api_context import ApiContext

__all__ = ["Match", "search"]

Match = tuple[str, str]
"""Kind of page, and the name of what it shows."""

_MAX_MATCHES: Final = 50
_MAX_DIGITS: Final = 18
_KINDS: Final = ("gpu", "machine", "job", "incident")
_COLUMNS: Final = {"machine": "machine_id", "gpu": "gpu_serial"}


def search(context: ApiContext, text: str) -> str | Page:
    """Return the address of the only exact match, or a page of all matches.

    Machines and GPUs are those of the newest list, and machines with an incident.
    """
    text = text.strip()
    if not text:
        return "/"
    exact = _exact(context, text)
    kind, _, name = text.partition(" ")
    if not exact and kind.lower() in _KINDS:
        exact = [match for match in _exact(context, name.strip()) if match[0] == kind.lower()]
    if len(exact) == 1:
        return path_of(*exact[0])
    matches = exact or _partial(context, text)
    rows = [(kind, name, path_of(kind, name)) for kind, name in matches]
    return Page("search", f"Search: {text}", "/v1/fleet", {"text": text, "matches": rows})


def _exact(context: ApiContext, text: str) -> list[Match]:
    ledger, number = context.ledger, text.removeprefix("#")
    matches = [match for match in _listed(context, text) if match[1] == text]
    if ledger.incidents(machine=text, limit=1):
        matches.append(("machine", text))
    if ledger.incidents_of_job(text, 1):
        matches.append(("job", text))
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    if is_number and ledger.incident(int(number)):
        matches.append(("incident", number))
    return list(dict.fromkeys(matches))


def _partial(context: ApiContext, text: str) -> list[Match]:
    return _listed(context, text)[:_MAX_MATCHES]


def _listed(context: ApiContext, text: str) -> list[Match]:
    """Return machines and GPUs of the newest list whose name contains a text."""
    daily = None if context.lists is None else context.lists.newest()
    if daily is None:
        return []
    matches = []
    for kind, column in _COLUMNS.items():
        if column in daily.table.column_names:
            names = pc.unique(daily.table[column].cast(pa.string()))
            similar = pc.match_substring(names, text, ignore_case=True)
            matches += [(kind, str(name)) for name in names.filter(similar).to_pylist()]
    return matches

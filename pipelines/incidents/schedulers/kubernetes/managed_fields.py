"""Managed fields: who last changed a part of a node, and when."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import Json
from forewarn.pipelines.runtime.timestamps import parse_moment

__all__ = ["FieldChange", "last_change"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Last change of a field.

    Attributes
    ----------
    who : str
        The manager of the field, such as `kubectl-cordon`.
    at : int or None
        Nanoseconds since 1970 UTC, if the server reports it.
    """

    who: str
    at: Nanoseconds | None


def last_change(node: Json, field: str) -> FieldChange | None:
    """Return the last change of a field of `spec`; None if no manager owns it.

    A manager that sets a field to the value that it has already does not become its owner.
    """
    owners = [
        entry
        for entry in node["metadata"].get("managedFields") or []
        if f"f:{field}" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    if not owners:
        return None
    entry = max(owners, key=lambda entry: str(entry.get("time", "")))
    return FieldChange(str(entry.get("manager", "")), _moment(str(entry.get("time", ""))))


def _moment(text: str) -> Nanoseconds | None:
    try:
        return Nanoseconds(parse_moment(text))
    except (ValueError, OverflowError):
        return None

"""Registered predictors: their metadata in the registry, without loading them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from forewarn.pipelines.runtime.timestamps import parse_moment

__all__ = ["ROLLED_BACK", "Version", "length_tag", "version_from_mlflow"]

ROLLED_BACK = "rolled back"


@dataclass(frozen=True, slots=True)
class Version:
    """One registered predictor.

    Attributes
    ----------
    number : str
    name : str
        `Predictor.version`.
    trained_at : int or None
        Nanoseconds since 1970 UTC; None if forewarn did not register it.
    length : int or None
        Training length in nanoseconds.
    aliases : tuple of str
    was_champion : bool
        It is or was the champion.
    tags : mapping
    """

    number: str
    name: str
    trained_at: int | None
    length: int | None
    aliases: tuple[str, ...]
    was_champion: bool
    tags: Mapping[str, str]

    @property
    def rolled_back(self) -> bool:
        """Whether it was rolled back after a failure in service."""
        return self.tags.get("forewarn.champion") == ROLLED_BACK

    @property
    def gate(self) -> str:
        """What the promotion gate said: "passed" or "refused: ...", "" before that."""
        return self.tags.get("forewarn.gate", "")


def version_from_mlflow(entry: Any, aliases: Sequence[str]) -> Version:
    """Convert MLflow's description of a version, whether or not forewarn registered it."""
    tags = dict(entry.tags)
    return Version(
        number=str(entry.version),
        name=tags.get("forewarn.version", ""),
        trained_at=_moment(tags.get("forewarn.at", "")),
        length=_length(tags.get("forewarn.length", "")),
        aliases=tuple(sorted(aliases)),
        was_champion=tags.get("forewarn.champion") == "yes",
        tags=tags,
    )


def length_tag(span: int) -> str:
    """Return a training length in ISO 8601, exactly.

    Examples
    --------
    >>> length_tag(36 * 3600 * 10**9)
    'P1DT12H0M0S'
    """
    return str(pd.Timedelta(span, "ns").isoformat())


def _moment(text: str) -> int | None:
    """Read a tag that other programs may have set."""
    try:
        return parse_moment(text)
    except ValueError:  # of pandas too, for a time out of range
        return None


def _length(text: str) -> int | None:
    if not re.fullmatch(r"P[0-9]{1,5}DT[0-9.HMS]{6,24}", text, re.ASCII):
        return None
    try:
        return int(pd.Timedelta(text).as_unit("ns").value)
    except ValueError:
        return None

"""Reads JSON in which every number has to be finite."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

__all__ = ["finite_json"]


def finite_json(text: str) -> Any:
    """Parse JSON and refuse NaN and infinity.

    Raises
    ------
    ValueError
        If it is not JSON, or holds a number that is not finite.

    Examples
    --------
    >>> finite_json("[1, 2.5]")
    [1, 2.5]
    """
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _refused(text: str) -> NoReturn:
    raise ValueError(f"holds {text}, expected finite numbers")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text)

"""Hyperparameters of a model class: the keyword arguments of its constructor."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

__all__ = ["Hyperparameter", "Range", "check_hyperparameters", "hyperparameters_of"]

Hyperparameter = bool | int | float | str

_CONTEXT = ("self", "seed", "purge", "positive_weight")  # set by the training, not by a person
_TYPES = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Range:
    """Values of a number that a constructor accepts, as `Annotated[int, Range(2, 1024)]`.

    Attributes
    ----------
    low, high : float
        Both inclusive.
    search : tuple of (float, float) or None
        Range that `forewarn tune` searches; None: the default is kept.
    log : bool
        Search on a logarithmic scale.
    """

    low: float
    high: float = math.inf
    search: tuple[float, float] | None = None
    log: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """A hyperparameter as the constructor declares it.

    Attributes
    ----------
    kind : type
        One of bool, int, float and str.
    default : bool, int, float or str
    limits : Range or None
    """

    kind: type
    default: Hyperparameter
    limits: Range | None

    def problem(self, value: object) -> str:
        """Return what is expected of a wrong value; empty if it is valid."""
        accepted = (int, float) if self.kind is float else (self.kind,)
        right_type = isinstance(value, accepted) and (
            self.kind is bool or not isinstance(value, bool)
        )
        if not right_type or (isinstance(value, float) and not math.isfinite(value)):
            return f"a value of type {self.kind.__name__}"
        if self.limits is None or not isinstance(value, int | float):
            return ""
        low, high = self.limits.low, self.limits.high
        if low <= value <= high:
            return ""
        return f"{low:g} or more" if math.isinf(high) else f"{low:g} to {high:g}"


def hyperparameters_of(model_class: Any) -> dict[str, Declared]:
    """Return the hyperparameters that the constructor of a model class declares.

    They are its keyword arguments other than `seed`, `purge` and `positive_weight`, each with a
    default and one of the types bool, int, float and str.

    Raises
    ------
    ValueError
        If the class declares one of another kind.

    Examples
    --------
    >>> class Forest:
    ...     def __init__(self, *, seed: int, purge: int, n_trees: int = 100): ...
    >>> hyperparameters_of(Forest)
    {'n_trees': Declared(kind=<class 'int'>, default=100, limits=None)}
    """
    hints = get_type_hints(model_class.__init__, include_extras=True)
    declared = {}
    for name, parameter in inspect.signature(model_class.__init__).parameters.items():
        if name in _CONTEXT:
            continue
        kind, *marks = get_args(hints.get(name)) or (hints.get(name),)
        if kind not in _TYPES or parameter.default is parameter.empty:
            raise ValueError(
                f"`{name}` of {model_class.__name__}: expected a default, and one of the types "
                "bool, int, float and str"
            )
        limits = next((mark for mark in marks if isinstance(mark, Range)), None)
        declared[name] = Declared(kind, parameter.default, limits)
    return declared


def check_hyperparameters(model_class: Any, values: Mapping[str, object]) -> None:
    """Refuse a value that the constructor of a model class does not declare.

    Raises
    ------
    ValueError
        Names the hyperparameter, what was found and what is expected.

    Examples
    --------
    >>> class Forest:
    ...     def __init__(self, *, seed: int, purge: int, n_trees: int = 100): ...
    >>> check_hyperparameters(Forest, {"n_trees": 2.5})
    Traceback (most recent call last):
    ValueError: `n_trees` is 2.5, expected a value of type int
    """
    declared = hyperparameters_of(model_class)
    for name, value in values.items():
        if name not in declared:
            known = ", ".join(declared) or "none, the model has no hyperparameters"
            raise ValueError(f"unknown key `{name}`, expected one of {known}")
        if expected := declared[name].problem(value):
            raise ValueError(f"`{name}` is {value!r}, expected {expected}")

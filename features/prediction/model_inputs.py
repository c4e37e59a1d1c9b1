"""Inputs of models: feature values of instances, and their buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.errors import InputError

__all__ = ["InputColumns", "InstanceValues", "ModelInputs"]


@dataclass(frozen=True, slots=True)
class InputColumns:
    """Ordered column names of instances, stored with everything fitted to them.

    Attributes
    ----------
    sequence, context : tuple of str
        Channels of the window, and columns that are constant over it.
    """

    sequence: tuple[str, ...]
    context: tuple[str, ...]

    def refuse_others(self, columns: InputColumns) -> None:
        """Raise InputError unless the columns and their order are the same.

        Raises
        ------
        InputError
            Names the first difference.
        """
        for part in ("sequence", "context"):
            pairs = zip_longest(getattr(columns, part), getattr(self, part), fillvalue="nothing")
            for number, (name, expected) in enumerate(pairs):
                if name != expected:
                    raise InputError(
                        f"column {number} of the {part} is `{name}`, expected `{expected}` as in "
                        "training."
                    )

    def to_dict(self) -> dict[str, list[str]]:
        """Return a JSON-serializable dict."""
        return {"sequence": list(self.sequence), "context": list(self.context)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Sequence[str]]) -> Self:
        """Read a dict from `to_dict`."""
        return cls(tuple(saved["sequence"]), tuple(saved["context"]))


@dataclass(frozen=True, slots=True)
class InstanceValues:
    """Feature values of n instances in the units of the records; NaN is "missing".

    Attributes
    ----------
    sequence : ndarray of shape (n, length, n_channels), float32
        One row per record of the window, oldest first.
    context : ndarray of shape (n, n_context), float32
        Values that are constant over the window: categories, dates, history, peers, residuals.
    sequence_names, context_names : tuple of str
        Names of the channels and of the context columns.
    """

    sequence: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    sequence_names: tuple[str, ...]
    context_names: tuple[str, ...]

    @property
    def columns(self) -> InputColumns:
        """Names of all columns."""
        return InputColumns(self.sequence_names, self.context_names)

    def __len__(self) -> int:
        return len(self.context)

    def select(self, rows: npt.NDArray[np.integer]) -> InstanceValues:
        """Return the instances in `rows`, in that order; the memory layout stays the same."""
        channels = np.moveaxis(self.sequence, -1, 0)[:, rows]
        return replace(
            self, sequence=np.moveaxis(channels, 0, -1), context=self.context.T[:, rows].T
        )


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Encoded instances: every value is a small integer, 0 is "missing".

    Attributes
    ----------
    sequence : ndarray of shape (n, length, n_channels), uint8
    context : ndarray of shape (n, n_context), uint8
    sequence_names, context_names : tuple of str
    sequence_levels, context_levels : tuple of int
        Number of bucket numbers of each column; values are in [0, levels).
    """

    sequence: npt.NDArray[np.uint8]
    context: npt.NDArray[np.uint8]
    sequence_names: tuple[str, ...]
    context_names: tuple[str, ...]
    sequence_levels: tuple[int, ...]
    context_levels: tuple[int, ...]

    @property
    def columns(self) -> InputColumns:
        """Names of all columns."""
        return InputColumns(self.sequence_names, self.context_names)

    def __len__(self) -> int:
        return len(self.context)

    def select(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_] | slice) -> ModelInputs:
        """Return the instances in `rows`, in that order."""
        return replace(self, sequence=self.sequence[rows], context=self.context[rows])

"""Whether the intersection of several top lists is better than a shorter list of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.paired_differences import PairedDifference
from forewarn.evaluation.prediction.metrics.paper_protocol import row_precision_draws
from forewarn.evaluation.prediction.metrics.ranking_metrics import flag_precision
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.evaluation.prediction.metrics.window_average_precision import mean_or_none
from forewarn.features.array_types import Int64Array

__all__ = ["IntersectionWorth", "intersection_worth"]


@dataclass(frozen=True, slots=True)
class IntersectionWorth:
    """The parallel model on the 1:8 sets, against lists of the same length.

    An intersection is shorter than the lists that it is made of, and shorter lists are more
    precise. Only a comparison at the same length shows whether intersecting helps.

    Attributes
    ----------
    flagged : int
    gpus : int
        GPUs among them: one GPU has many instances in a window.
    allowed : int
        K, added over the test windows: what each member flags.
    precision : float
        Mean over the test windows in which something is flagged.
    same_length : mapping of str to PairedDifference
        Precision of the intersection minus that of a model (or the blend) that flags as many
        instances of each window.
    """

    flagged: int
    gpus: int
    allowed: int
    precision: float
    same_length: Mapping[str, PairedDifference]


def intersection_worth(table: ScoreTable) -> IntersectionWorth | None:
    """Compare the parallel model with its members and the blend; None if it flags nothing.

    With one member there is no intersection, and the result is None, too.
    """
    members = table.protocol.committee.parallel
    sets = [rows[table.sampled[rows]] for _, rows in table.windows]
    flagged = [rows[table.flags("parallel", rows)] for rows in sets]
    precision = _precision(table, flagged)
    if len(members) < 2 or precision is None:
        return None
    draws, same_length = row_precision_draws(table, flagged), {}
    for name in (*members, "blend"):
        if name not in table.scores:
            continue
        pairs = zip(sets, flagged, strict=True)
        top = [rows[table.ranks(name, rows) <= len(common)] for rows, common in pairs]
        value = _precision(table, top) or 0.0
        bounds = percentile_interval(draws - row_precision_draws(table, top))
        same_length[name] = PairedDifference(precision - value, bounds)
    allowed = sum(int(table.flags(members[0], rows).sum()) for rows in sets)
    rows = np.concatenate(flagged)
    gpus = len(np.unique(table.gpu[rows]))
    return IntersectionWorth(len(rows), gpus, allowed, precision, same_length)


def _precision(table: ScoreTable, flagged: list[Int64Array]) -> float | None:
    """Return the mean precision of the windows in which something is flagged."""
    return mean_or_none(
        [flag_precision(table.labels[rows], np.ones(len(rows), np.bool_)) for rows in flagged]
    )

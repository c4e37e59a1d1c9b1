"""Pauses of a whole task: a checkpoint, a restart, an evaluation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.models.detection.rules import SHARE, Rules

__all__ = ["paused_windows"]

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

_DROPPED = 0.5  # of its usual activity: then the whole task pauses


def paused_windows(series: Floats | None, n_ticks: int, rules: Rules) -> Flags:
    """Tell in which windows the whole task did next to nothing.

    Half of its machines have fallen below half of their usual activity, for longer than a
    continuity forgives anyway, which the steps of a rhythm do not. A pause that lasts as long as a
    continuity is none any more: what hangs has to be found.

    Parameters
    ----------
    series : ndarray of shape (n_machines, n_ticks) or None
        The metric of activity; None for none, and then nothing is a pause.
    n_ticks : int
    rules : Rules

    Returns
    -------
    ndarray of shape (n_windows,), bool
    """
    n_windows = max(n_ticks - rules.window + 1, 0)
    none = np.zeros(n_windows, dtype=bool)
    if series is None or not n_windows:
        return none
    sent = np.isfinite(series)
    seen = sent.any(axis=0)
    activity = np.full(n_ticks, np.inf)
    activity[seen] = np.nanmedian(np.where(sent, series, np.nan)[:, seen], axis=0)
    usual = float(np.median(activity[seen])) if seen.any() else 0.0
    if not usual > 0:
        return none
    low = activity < _DROPPED * usual
    forgiven = round((1.0 - SHARE) * rules.continuity)
    pause = _runs(low, forgiven) & ~_runs(low, rules.continuity)
    touched = np.lib.stride_tricks.sliding_window_view(pause, rules.window)
    return np.asarray(touched.any(axis=1), dtype=bool)


def _runs(flags: Flags, longest: int) -> Flags:
    """Tell which places lie in a run of at least so many."""
    out = np.zeros(len(flags), dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        out[begin:end] = end - begin >= longest
    return out

"""The calibration's slope of chances that were fitted to earlier windows, with draws of machines.

The fits stay as they were: what is drawn is whom they are judged on. So an interval says whether
the slope of these chances can be told from 1, and not how much another fit would have differed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from benchmarks.measured_fleet import Floats, Ints, Labels, Study

from forewarn.evaluation.prediction.finished_windows import likeness
from forewarn.features.prediction.instances import UNKNOWN
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.calibration import fit_calibration, prior_correction
from forewarn.models.prediction.log_odds import logit, sigmoid
from forewarn.models.prediction.logistic_maximum import Evidence, maximum

__all__ = ["slope_draws", "slopes_of"]

_BINS = 400
_NO_PRIOR_SD = 1e3  # as in `calibration_slope`


def _known_labels(study: Study, number: int) -> Labels:
    """Return the label of each instance as the retraining of a window knew it, or `UNKNOWN`."""
    labels = np.full(len(study.instances), UNKNOWN, dtype=np.int8)
    labels[study.windows[number].known] = study.windows[number].labels
    return labels


def slope_draws(study: Study, scores: Sequence[Floats], draws: Floats) -> Floats:
    """Return the slope of every draw of machines, shape (n_draws,).

    Parameters
    ----------
    study : Study
    scores : sequence of ndarray
        Log odds of the test rows of each window.
    draws : ndarray of shape (n_draws, n_machines)
        How often each machine was drawn.
    """
    windows = study.windows[1:]
    chances = [_chances(study, scores, number) for number in range(1, len(study.windows))]
    rows = np.concatenate([window.tested for window in windows])
    labels, machine = study.instances.label[rows], study.machine[rows]
    return slopes_of(logit(np.concatenate(chances)), labels, machine, draws)


def _chances(study: Study, scores: Sequence[Floats], number: int) -> Floats:
    """Return the chances of a window, fitted to what was known of those before it."""
    known = _known_labels(study, number)
    labels = known[np.concatenate([window.tested for window in study.windows[:number]])]
    past = sigmoid(np.concatenate(scores[:number]))[labels >= 0]
    prior = prior_correction(0.5, float((study.windows[number].labels == 1).mean()))
    weights = _evidence(study, number)[labels >= 0]
    calibration = fit_calibration(past, labels[labels >= 0], start=prior, weights=weights)
    return calibration.apply(sigmoid(scores[number]))


def _evidence(study: Study, number: int) -> Floats:
    """Return what the test rows before a retraining count for its calibration, as in the product.

    One failure of many positives is one evidence, and a model that knew less of the past less.
    """
    first, window = int(study.instances.end.min()), study.windows[number]
    each = min(1.0, study.keep * study.recipe.step / study.recipe.horizon)
    span = Nanoseconds(window.moment - study.recipe.horizon - first)
    weights = []
    for earlier in study.windows[:number]:
        other = Nanoseconds(earlier.moment - study.recipe.horizon - first)
        weights.append(np.full(len(earlier.tested), each * likeness(span, other)))
    return np.concatenate(weights)


def slopes_of(log_odds: Floats, labels: Labels, machine: Ints, draws: Floats) -> Floats:
    """Return the slope of a logistic regression of labels on log odds, of every draw of machines.

    A regression for each draw would take all instances as often as there are draws; those of
    like log odds, some hundred groups, count together.

    Parameters
    ----------
    log_odds, labels, machine : ndarray of shape (n,)
    draws : ndarray of shape (n_draws, n_machines)

    Returns
    -------
    ndarray of shape (n_draws,)
        NaN for a draw of one label only, or where all log odds are equal.
    """
    low, high = float(log_odds.min()), float(log_odds.max())
    group = ((log_odds - low) * ((_BINS - 1) / max(high - low, 1e-9))).astype(np.int64)
    cell, shape = machine * _BINS + group, (draws.shape[1], _BINS)
    total, summed, failing = (
        draws @ np.bincount(cell, weights, minlength=shape[0] * shape[1]).reshape(shape)
        for weights in (np.ones(len(cell)), log_odds, (labels == 1).astype(np.float64))
    )
    slopes = np.full(len(draws), np.nan)
    for number in np.flatnonzero((failing.sum(axis=1) > 0) & (failing < total).any(axis=1)):
        filled = total[number] > 0
        weights = total[number, filled]
        if len(weights) > 1:
            mean = summed[number, filled] / weights
            design = np.stack([mean, np.ones_like(mean)], axis=1)
            evidence = Evidence(design, failing[number, filled] / weights, weights)
            spread = np.full(2, _NO_PRIOR_SD)
            slopes[number] = maximum([evidence], np.array([1.0, 0.0]), spread)[0]
    return slopes

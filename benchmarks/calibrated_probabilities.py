"""Probabilities calibrated on what was known of earlier windows, as in the product.

Bootstrap draws of machines do not refit the calibration; only the evaluation is resampled. An
interval therefore tells whether the slope of these probabilities differs from 1, not how much
another fit would have differed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from benchmarks.measured_fleet import Study

from forewarn.evaluation.prediction.walk_forward.finished_windows import span_similarity
from forewarn.features.array_types import Float64Array, Int8Array
from forewarn.features.prediction.instances import UNKNOWN
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.calibration import fit_calibration, prior_correction
from forewarn.models.prediction.linear.log_odds import sigmoid
from forewarn.models.prediction.reliability import LabelledProbabilities

__all__ = ["calibrate_scores"]


def _known_labels(study: Study, number: int) -> Int8Array:
    """Return each instance's label as known at the retraining of a window, or `UNKNOWN`."""
    labels = np.full(len(study.instances), UNKNOWN, dtype=np.int8)
    labels[study.windows[number].known] = study.windows[number].labels
    return labels


def calibrate_scores(study: Study, scores: Sequence[Float64Array]) -> list[LabelledProbabilities]:
    """Return the probabilities of all windows but the first, with their outcomes.

    Parameters
    ----------
    study : Study
    scores : sequence of ndarray
        Log odds of the test rows of each window.
    """
    judged = []
    for number, window in enumerate(study.windows[1:], start=1):
        labels, machine = study.instances.label[window.tested], study.machine[window.tested]
        judged.append(
            LabelledProbabilities(_window_probabilities(study, scores, number), labels, machine)
        )
    return judged


def _window_probabilities(
    study: Study, scores: Sequence[Float64Array], number: int
) -> Float64Array:
    """Return the probabilities of a window, calibrated on what was known of earlier windows."""
    known = _known_labels(study, number)
    labels = known[np.concatenate([window.tested for window in study.windows[:number]])]
    past = sigmoid(np.concatenate(scores[:number]))[labels >= 0]
    prior = prior_correction(0.5, float((study.windows[number].labels == 1).mean()))
    weights = _evidence(study, number)[labels >= 0]
    calibration = fit_calibration(past, labels[labels >= 0], start=prior, weights=weights)
    return calibration.apply(sigmoid(scores[number]))


def _evidence(study: Study, number: int) -> Float64Array:
    """Return the weight of the test rows before a retraining for its calibration.

    As in the product, the many positive instances of one failure count once, and a model trained
    on less data counts less.
    """
    first, window = int(study.instances.end.min()), study.windows[number]
    each = min(1.0, study.keep * study.recipe.step / study.recipe.horizon)
    span = Nanoseconds(window.moment - study.recipe.horizon - first)
    weights = []
    for earlier in study.windows[:number]:
        other = Nanoseconds(earlier.moment - study.recipe.horizon - first)
        weights.append(np.full(len(earlier.tested), each * span_similarity(span, other)))
    return np.concatenate(weights)

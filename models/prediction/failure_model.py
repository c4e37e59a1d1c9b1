"""The interface of every failure model, and the contract behind it.

The types below are half of the contract. The other half is what a model does, clause by clause,
with the reason. `forewarn.pipelines.training.model_contract` tests the clauses, for built-in models
and plug-ins; the name of its test is in brackets.

**Construction**

- The constructor takes the keyword arguments `seed`, `purge` (nanoseconds, one horizon) and
  `positive_weight`. Any other one is a hyperparameter with a default and one of the types bool,
  int, float and str, optionally `Annotated` with a `Range`. The configuration sets it, and the
  training refuses a value of another type [`hyperparameters_are_declared`].
- `positive_weight` multiplies the weights of the positives, since the first model of a cascade must
  not miss a failure [`positive_weight_raises_scores`].

**Fit**

- `fit` returns the model and changes no input: all models of a training get the same arrays
  [`fit_changes_no_input`].
- The same seed gives the same scores, after any other fit in the process. A retraining can only be
  compared with its predecessor, and a backtest resumed, if chance is not the difference
  [`same_seed_gives_same_scores`].
- Weights count: they undo the undersampling of healthy instances and the age of the data
  [`weights_count`].
- Labels of one class are refused with a ValueError that names `labels`; a model of one class has no
  ranking [`one_class_is_refused`].
- One channel, one record and no context are enough: sites differ in what they measure
  [`smallest_inputs_are_accepted`].
- A clear signal is learned, and shuffled labels teach nothing [`signal_is_learned`,
  `shuffled_labels_teach_nothing`].

**Scores**

- float64 of shape (n,), finite, in [0, 1], the higher the riskier: the blend takes log odds
  [`scores_are_probabilities`].
- A score depends on its instance alone, not on the others of the batch. Lists are scored in slices
  of the fleet, backtests in windows [`scores_do_not_depend_on_batch`].
- No instances, no scores: a shape of (0,) and no error, since a slice of a fleet may hold no
  complete window [`no_instances_no_scores`].
- Missing values (bucket 0) are scored, also if everything is missing; after a training on nothing
  but missing values all scores are equal [`missing_values_are_scored`].
- Other columns than those of the training, or another order, are refused by
  `InputColumns.refuse_others`: the scores would be plausible and wrong
  [`other_columns_are_refused`].

**Files**

- Files are JSON, text, `.npz`, `.keras` or `.skops`. Loading a pickle would execute code, and so
  would a list of trusted types inside the file: a class that reads skops lists them in its code
  [`files_are_native`].
- Two fits with the same seed save the same bytes, without a time or an address in memory. The
  version of a predictor is a digest of its files [`same_seed_saves_same_bytes`].
- A loaded model gives the same scores to the last bit, and saves the same bytes
  [`loaded_model_is_equal`].
- Loading and scoring import no library that only training needs: a host that makes lists has a
  fifth of the packages. A model that cannot do without lists the modules in `needs`
  [`loading_needs_no_training_library`].
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import ModelInputs

__all__ = ["FailureModel"]


class FailureModel(Protocol):
    """A model that scores how likely an instance is followed by a failure within the horizon.

    A model receives training instances only; the caller has to make sure that they lie before the
    training cutoff. Two class attributes are optional:

    - `needs`, a tuple of str: modules of training libraries that loading and scoring may import.
      Without it, none.
    - `large_training_set`, a bool: whether the model fits on `tree_negatives` healthy instances for
      each failing one instead of ten. Without it, False.
    """

    def fit(
        self,
        inputs: ModelInputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Fit on n instances.

        Parameters
        ----------
        inputs : Inputs of n instances
        labels : ndarray of shape (n,)
            1 if the GPU fails within the horizon, else 0.
        weights : ndarray of shape (n,)
            Weight of each instance in the loss.
        ends : ndarray of shape (n,)
            End of each window, nanoseconds since 1970 UTC; for splits in time.
        """

    def score(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""

    def save(self, folder: Path) -> None:
        """Write the fitted model into an existing `folder`, in native formats."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the files that `save` wrote; the scores are the same as before."""

"""Training of Keras networks on small, correlated training sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.linear.bucket_scaling import InputScaling
from forewarn.models.prediction.networks.keras_archive import read_network
from forewarn.models.prediction.networks.numpy_network import NumpyNetwork
from forewarn.models.tensorflow_runtime import keras, tensorflow

__all__ = ["Examples", "split_by_time", "train"]

_GRADIENT_NORM = 1.0
# Label smoothing: few failures must not lead to ever more extreme scores.
_LABEL_SMOOTHING = 0.05
# Moving average of the weights over epochs: with correlated positives, single epochs are noisy.
_AVERAGE_DECAY = 0.7
_VALIDATION_SHARE = 0.2
_MAX_EPOCHS = 30
_MIN_EPOCHS = 10
_FIXED_EPOCHS = 15  # used if the span cannot be split
_PATIENCE = 6

Batch = tuple[npt.NDArray[np.float32], ...]


@dataclass(frozen=True, slots=True)
class Examples:
    """Training instances, converted to floats batch by batch.

    Attributes
    ----------
    inputs : ModelInputs of n instances
    scaling : InputScaling
    labels, weights : ndarrays of shape (n,), float32
    """

    inputs: ModelInputs
    scaling: InputScaling
    labels: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        """Return sequence, context, labels and weights of `rows`."""
        sequence, context = self.scaling.apply(self.inputs.select(rows))
        return sequence, context, self.labels[rows], self.weights[rows]


class _Trainer:
    """A network, its optimizer, their initial state, and the moving average of the weights."""

    def __init__(self, network: Any, learning_rate: float) -> None:
        self._network = network
        self._optimizer = keras().optimizers.Adam(learning_rate)
        self._optimizer.build(network.trainable_variables)
        self._state = [*network.variables, *self._optimizer.variables]
        self._beginning = _values(self._state)
        self._average: list[npt.NDArray[np.float32]] = []
        self._step = self._make_step()

    def _make_step(self) -> Any:
        """Return the compiled function for one optimizer step."""
        tf, network, optimizer = tensorflow(), self._network, self._optimizer

        def step(sequence: Any, context: Any, labels: Any, weights: Any) -> None:
            with tf.GradientTape() as tape:
                log_odds = network([sequence, context], training=True)[:, 0]
                believed = labels * (1.0 - 2.0 * _LABEL_SMOOTHING) + _LABEL_SMOOTHING
                losses = tf.nn.sigmoid_cross_entropy_with_logits(believed, log_odds)
                loss = tf.reduce_mean(weights * losses) + sum(network.losses)
            variables = network.trainable_variables
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), _GRADIENT_NORM)
            # `optimizer.apply` is equivalent but leaves a graph of some megabytes in memory.
            for gradient, variable in zip(gradients, variables, strict=True):
                optimizer.update_step(gradient, variable, optimizer.learning_rate)
            optimizer.iterations.assign_add(1)

        parts = [tf.TensorSpec((None, *part.shape[1:])) for part in network.inputs]
        signature = [*parts, tf.TensorSpec((None,)), tf.TensorSpec((None,))]
        traced = tf.function(step, input_signature=signature, autograph=False, jit_compile=False)
        return traced.get_concrete_function()

    def restart(self) -> None:
        """Restore the initial weights, optimizer moments and dropout generators."""
        _assign(self._state, self._beginning)
        self._average = []

    def epoch(self, examples: Examples, rows: npt.NDArray[np.int64], seed: list[int]) -> None:
        """Take one step per batch over `rows` in an order drawn from `seed`."""
        shuffled = np.random.default_rng(seed).permutation(rows)
        n_batches = -(-len(rows) // _batch_size(len(rows)))
        for batch_rows in np.array_split(shuffled, n_batches):
            self._step(*map(tensorflow().constant, examples.batch(batch_rows)))
        weights = _values(self._network.trainable_variables)
        self._average = [
            _AVERAGE_DECAY * average + (1.0 - _AVERAGE_DECAY) * weight
            for average, weight in zip(self._average or weights, weights, strict=True)
        ]

    def averaged(self) -> NumpyNetwork:
        """Return a copy of the network with averaged weights."""
        weights = _values(self._network.trainable_variables)
        self.finish()
        network = NumpyNetwork.from_parts(read_network(self._network))
        _assign(self._network.trainable_variables, weights)
        return network

    def finish(self) -> None:
        """Assign the averaged weights to the network."""
        _assign(self._network.trainable_variables, self._average)


def _values(variables: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
    return [variable.value.numpy() for variable in variables]


def _assign(variables: Sequence[Any], values: Sequence[npt.NDArray[np.float32]]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _batch_size(n: int) -> int:
    """Return the batch size: small sets need many steps, large sets need speed."""
    return int(np.clip(2 ** round(np.log2(max(n, 1) / 32)), 32, 256))


def train(
    network: Any,
    examples: Examples,
    ends: npt.NDArray[np.int64],
    *,
    seed: int,
    purge: int,
    learning_rate: float,
) -> int:
    """Fit `network` in place and return the number of epochs.

    The number of epochs maximizes the average precision on the last fifth of the time span, at
    least `purge` after the part used for training. The network is then fitted again on all data.
    Minimizing the loss would stop too early: networks become overconfident long before their
    ranking stops improving, and calibration corrects the confidence. If either part lacks a class,
    the number of epochs is fixed.

    Parameters
    ----------
    network : keras.Model
        Untrained; from (sequence, context) to log odds.
    examples : Examples
    ends : ndarray of shape (n,)
        End of each window, nanoseconds.
    seed : int
        Seed of the batch order.
    purge : int
        Nanoseconds, one horizon.
    learning_rate : float
        Of Adam.
    """
    trainer = _Trainer(network, learning_rate)
    early, late = (np.flatnonzero(part) for part in split_by_time(ends, _VALIDATION_SHARE, purge))
    n_epochs = _FIXED_EPOCHS
    if _has_both_classes(examples.labels[early]) and _has_both_classes(examples.labels[late]):
        n_epochs = _best_epoch(trainer, examples, early, late, seed)
        trainer.restart()
    everything = np.arange(len(examples))
    for epoch in range(n_epochs):
        trainer.epoch(examples, everything, [seed, epoch])
    trainer.finish()
    return n_epochs


def _has_both_classes(labels: npt.NDArray[np.float32]) -> bool:
    return bool(len(labels) and labels.min() < labels.max())


def _best_epoch(
    trainer: _Trainer,
    examples: Examples,
    early: npt.NDArray[np.int64],
    late: npt.NDArray[np.int64],
    seed: int,
) -> int:
    """Train on `early` until the precision on `late` stops improving; return the best epoch."""
    from sklearn.metrics import average_precision_score

    validation = examples.inputs.select(late)
    labels, weights = examples.labels[late], examples.weights[late]
    precisions: list[float] = []
    for epoch in range(_MAX_EPOCHS):
        trainer.epoch(examples, early, [seed, epoch])
        scores = trainer.averaged().log_odds(validation, examples.scaling)
        precision = average_precision_score(labels, scores, sample_weight=weights)
        precisions.append(float(precision))
        if epoch >= max(int(np.argmax(precisions)) + _PATIENCE, _MIN_EPOCHS - 1):
            break
    return max(int(np.argmax(precisions)) + 1, _MIN_EPOCHS)


def split_by_time(
    ends: npt.NDArray[np.int64], share: float, purge: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Split instances into an early part and a late part, the last `share` of the time span.

    A label depends on one horizon after its instance. Early instances that end less than `purge`
    before the late part would contain information about its failures, so they are in neither part.
    Either part can be empty.

    Parameters
    ----------
    ends : ndarray of shape (n,)
        End of each window, nanoseconds.
    share : float
        Share of the time span, not of the instances; between 0 and 1, exclusive.
    purge : int
        Gap between the parts in nanoseconds, at least 0; one horizon.

    Returns
    -------
    early, late : bool ndarrays of shape (n,)
        An instance is early if it ends at least `purge` before the late part starts.

    Examples
    --------
    >>> early, late = split_by_time(np.array([0, 50, 70, 90, 100]), share=0.2, purge=20)
    >>> early.tolist(), late.tolist()
    ([True, True, False, False, False], [False, False, False, True, True])
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"`share` must lie between 0 and 1, got {share}.")
    if purge < 0:
        raise ValueError(f"`purge` must be at least 0 nanoseconds, got {purge}.")
    if len(ends) == 0:
        return np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_)
    first, last = int(ends.min()), int(ends.max())
    begin = last - int((last - first) * share)
    # Without a purge, an instance that ends where the late part starts belongs to the late part
    # only.
    return ends <= begin - max(purge, 1), ends >= begin

"""Networks that score as plain arithmetic: TensorFlow takes seconds to start, and 0.6 GiB."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.features.threads import parallel_for
from forewarn.models.prediction.linear.bucket_scaling import InputScaling
from forewarn.models.prediction.networks.keras_archive import NetworkParts
from forewarn.models.prediction.networks.numpy_layers import BATCH_MULTIPLE, layer_output

__all__ = ["NumpyNetwork"]


_BATCH_ROWS = 4 * BATCH_MULTIPLE  # what a layer makes of them stays in the nearest caches


class _Layer(NamedTuple):
    """A layer, the names of the layers before it, and its weights in Keras's order."""

    name: str
    kind: str
    config: Mapping[str, Any]
    before: tuple[str, ...]
    weights: Sequence[Float32Array]


@dataclass(frozen=True, slots=True)
class NumpyNetwork:
    """A Keras network from (sequence, context) to log odds, as plain arithmetic.

    What it gives differs from what Keras gives by rounding, and does not depend on how many
    instances are scored, nor on how many threads do it.

    Attributes
    ----------
    layers : tuple of _Layer
        Each after those that it needs, without the inputs.
    shapes : tuple of tuple of int
        Of an instance's sequence and context.
    """

    layers: tuple[_Layer, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def from_parts(cls, parts: NetworkParts) -> Self:
        """Take a network apart.

        Raises
        ------
        ValueError
            If a weight is not finite, or a layer is none of those that our networks have.
        """
        config = json.loads(parts.config)["config"]
        layers, shapes = [], {}
        for saved in config["layers"]:
            name, kind = saved["config"]["name"], saved["class_name"]
            if kind == "InputLayer":
                shapes[name] = tuple(saved["config"]["batch_shape"][1:])
                continue
            weights = tuple(parts.weights.get(name, ()))
            _check_finite(name, weights)
            layers.append(_Layer(name, kind, saved["config"], _input_names(saved), weights))
        network = cls(tuple(layers), (shapes["sequence"], shapes["context"]))
        # What cannot be computed is refused now, and not when a list is waited for.
        network._forward(*(np.zeros((1, *shape), np.float32) for shape in network.shapes))
        return network

    def log_odds(self, inputs: ModelInputs, scaling: InputScaling) -> Float64Array:
        """Return log odds of shape (n,)."""
        log_odds = np.empty(len(inputs), dtype=np.float64)

        def fill(first: int, last: int) -> None:
            for begin in range(first, last, _BATCH_ROWS):
                rows = slice(begin, min(begin + _BATCH_ROWS, last))
                log_odds[rows] = self._forward(*scaling.apply(inputs.take(rows)))

        parallel_for(fill, len(inputs))
        return log_odds

    def _forward(self, sequence: Float32Array, context: Float32Array) -> Float32Array:
        """Return log odds of a few instances, shape (n,)."""
        outputs = {"sequence": _stack_last_axis(sequence), "context": _stack_last_axis(context)}
        for layer in self.layers:
            before = [outputs[name] for name in layer.before]
            outputs[layer.name] = layer_output(layer.kind, layer.config, layer.weights, before)
        return np.asarray(outputs["log_odds"][0, : len(sequence)])


def _input_names(saved: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the layers that a saved one takes."""
    argument = saved["inbound_nodes"][0]["args"][0]
    tensors = argument if isinstance(argument, list) else [argument]
    return tuple(tensor["config"]["keras_history"][0] for tensor in tensors)


def _check_finite(name: str, weights: Sequence[Float32Array]) -> None:
    for number, weight in enumerate(weights):
        if not np.isfinite(weight).all():
            raise ValueError(f"weight {number} of layer {name} is not finite")


def _stack_last_axis(part: Float32Array) -> Float32Array:
    """Return instances as the last axis, filled up with zeros to a multiple of `BATCH_MULTIPLE`."""
    n = len(part)
    values = np.zeros((*part.shape[1:], -(-n // BATCH_MULTIPLE) * BATCH_MULTIPLE), dtype=np.float32)
    values[..., :n] = np.moveaxis(part, 0, -1)
    return values

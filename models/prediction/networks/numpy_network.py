"""Scoring of networks with NumPy. TensorFlow would take seconds to start and 0.6 GiB of memory."""

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


_BATCH_ROWS = 4 * BATCH_MULTIPLE  # the output of a layer fits into the CPU caches


class _Layer(NamedTuple):
    """A layer, the names of its input layers, and its weights in Keras's order."""

    name: str
    kind: str
    config: Mapping[str, Any]
    before: tuple[str, ...]
    weights: Sequence[Float32Array]


@dataclass(frozen=True, slots=True)
class NumpyNetwork:
    """A network from (sequence, context) to log odds, computed with NumPy.

    Results differ from those of Keras by rounding. They do not depend on the number of instances or
    threads.

    Attributes
    ----------
    layers : tuple of _Layer
        In topological order, without the inputs.
    shapes : tuple of tuple of int
        Shapes of an instance's sequence and context.
    """

    layers: tuple[_Layer, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def from_parts(cls, parts: NetworkParts) -> Self:
        """Build a network from its configuration and weights.

        Raises
        ------
        ValueError
            If a weight is not finite, or a layer is not supported.
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
        # A trial run detects unsupported layers at load time rather than at scoring time.
        network._forward(*(np.zeros((1, *shape), np.float32) for shape in network.shapes))
        return network

    def log_odds(self, inputs: ModelInputs, scaling: InputScaling) -> Float64Array:
        """Return log odds of shape (n,)."""
        log_odds = np.empty(len(inputs), dtype=np.float64)

        def fill(first: int, last: int) -> None:
            for begin in range(first, last, _BATCH_ROWS):
                rows = slice(begin, min(begin + _BATCH_ROWS, last))
                log_odds[rows] = self._forward(*scaling.apply(inputs.select(rows)))

        parallel_for(fill, len(inputs))
        return log_odds

    def _forward(self, sequence: Float32Array, context: Float32Array) -> Float32Array:
        """Return the log odds of a batch, shape (n,)."""
        outputs = {"sequence": _stack_last_axis(sequence), "context": _stack_last_axis(context)}
        for layer in self.layers:
            before = [outputs[name] for name in layer.before]
            outputs[layer.name] = layer_output(layer.kind, layer.config, layer.weights, before)
        return np.asarray(outputs["log_odds"][0, : len(sequence)])


def _input_names(saved: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the input layers."""
    argument = saved["inbound_nodes"][0]["args"][0]
    tensors = argument if isinstance(argument, list) else [argument]
    return tuple(tensor["config"]["keras_history"][0] for tensor in tensors)


def _check_finite(name: str, weights: Sequence[Float32Array]) -> None:
    for number, weight in enumerate(weights):
        if not np.isfinite(weight).all():
            raise ValueError(f"weight {number} of layer {name} is not finite")


def _stack_last_axis(part: Float32Array) -> Float32Array:
    """Move instances to the last axis and pad it with zeros to a multiple of `BATCH_MULTIPLE`."""
    n = len(part)
    values = np.zeros((*part.shape[1:], -(-n // BATCH_MULTIPLE) * BATCH_MULTIPLE), dtype=np.float32)
    values[..., :n] = np.moveaxis(part, 0, -1)
    return values

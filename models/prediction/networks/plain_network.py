"""Networks that score as plain arithmetic: TensorFlow takes seconds to start, and 0.6 GiB."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.inputs import Inputs
from forewarn.features.threads import in_parallel
from forewarn.models.prediction.linear.bucket_scaling import InputScaling
from forewarn.models.prediction.networks.archive import NetworkParts
from forewarn.models.prediction.networks.plain_layers import TOGETHER, output_of

__all__ = ["PlainNetwork"]

Floats = npt.NDArray[np.float32]

_ROWS_AT_ONCE = 4 * TOGETHER  # what a layer makes of them stays in the nearest caches


class _Layer(NamedTuple):
    """A layer, the names of the layers before it, and its weights in Keras's order."""

    name: str
    kind: str
    config: Mapping[str, Any]
    before: tuple[str, ...]
    weights: Sequence[Floats]


@dataclass(frozen=True, slots=True)
class PlainNetwork:
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
    def of_parts(cls, parts: NetworkParts) -> Self:
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
            layers.append(_Layer(name, kind, saved["config"], _before(saved), weights))
        network = cls(tuple(layers), (shapes["sequence"], shapes["context"]))
        # What cannot be computed is refused now, and not when a list is waited for.
        network._forward(*(np.zeros((1, *shape), np.float32) for shape in network.shapes))
        return network

    def log_odds(self, inputs: Inputs, scaling: InputScaling) -> npt.NDArray[np.float64]:
        """Return log odds of shape (n,)."""
        log_odds = np.empty(len(inputs), dtype=np.float64)

        def fill(first: int, last: int) -> None:
            for begin in range(first, last, _ROWS_AT_ONCE):
                rows = slice(begin, min(begin + _ROWS_AT_ONCE, last))
                log_odds[rows] = self._forward(*scaling.apply(inputs.take(rows)))

        in_parallel(fill, len(inputs))
        return log_odds

    def _forward(self, sequence: Floats, context: Floats) -> Floats:
        """Return log odds of a few instances, shape (n,)."""
        outputs = {"sequence": _side_by_side(sequence), "context": _side_by_side(context)}
        for layer in self.layers:
            before = [outputs[name] for name in layer.before]
            outputs[layer.name] = output_of(layer.kind, layer.config, layer.weights, before)
        return np.asarray(outputs["log_odds"][0, : len(sequence)])


def _before(saved: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the layers that a saved one takes."""
    argument = saved["inbound_nodes"][0]["args"][0]
    tensors = argument if isinstance(argument, list) else [argument]
    return tuple(tensor["config"]["keras_history"][0] for tensor in tensors)


def _check_finite(name: str, weights: Sequence[Floats]) -> None:
    for number, weight in enumerate(weights):
        if not np.isfinite(weight).all():
            raise ValueError(f"weight {number} of layer {name} is not finite")


def _side_by_side(part: Floats) -> Floats:
    """Return instances as the last axis, filled up with zeros to a multiple of `TOGETHER`."""
    n = len(part)
    values = np.zeros((*part.shape[1:], -(-n // TOGETHER) * TOGETHER), dtype=np.float32)
    values[..., :n] = np.moveaxis(part, 0, -1)
    return values

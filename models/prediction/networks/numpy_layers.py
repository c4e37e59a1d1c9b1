"""NumPy implementations of the Keras layers, vectorised over instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.features.compiled import vectorised

__all__ = ["BATCH_MULTIPLE", "layer_output"]

Config = Mapping[str, Any]

BATCH_MULTIPLE = 64
"""Instances per inner loop: the last axis of every array is a multiple of it."""

_ZERO = np.float32(0.0)
# Layers that are active during training only.
_IDENTITIES = ("Dropout", "SpatialDropout1D")


@vectorised
def _add_products(
    rows: Float32Array, kernel: Float32Array, bias: Float32Array, padding: int, out: Float32Array
) -> None:
    """Fill `out` (steps, outputs, n) with `bias` plus the convolution of `rows` (steps, inputs, n).

    `kernel` has the shape (width, inputs, outputs) and starts `padding` steps before the output
    step. The order of summation for an instance does not depend on n.
    """
    n_inputs, n_steps = rows.shape[1], rows.shape[0]
    for start in range(0, out.shape[2], BATCH_MULTIPLE):
        for step in range(out.shape[0]):
            for output in range(out.shape[1]):
                for j in range(start, start + BATCH_MULTIPLE):
                    out[step, output, j] = bias[output]
                for k in range(kernel.shape[0]):
                    at = step + k - padding
                    if at < 0 or at >= n_steps:
                        continue
                    for i in range(0, n_inputs - 3, 4):
                        w0, w1 = kernel[k, i, output], kernel[k, i + 1, output]
                        w2, w3 = kernel[k, i + 2, output], kernel[k, i + 3, output]
                        for j in range(start, start + BATCH_MULTIPLE):
                            first = w0 * rows[at, i, j] + w1 * rows[at, i + 1, j]
                            second = w2 * rows[at, i + 2, j] + w3 * rows[at, i + 3, j]
                            out[step, output, j] += first + second
                    for i in range(n_inputs - n_inputs % 4, n_inputs):
                        weight = kernel[k, i, output]
                        for j in range(start, start + BATCH_MULTIPLE):
                            out[step, output, j] += weight * rows[at, i, j]


def _sums(
    rows: Float32Array, kernel: Float32Array, bias: Float32Array, padding: int = 0
) -> Float32Array:
    """Check shapes, then return the result of `_add_products`, which does no bounds checks."""
    if kernel.shape[1:] != (rows.shape[1], len(bias)):
        raise ValueError(
            f"weights are {kernel.shape}, expected {rows.shape[1]} inputs and {len(bias)} outputs"
        )
    out = np.empty((len(rows), len(bias), rows.shape[2]), dtype=np.float32)
    _add_products(rows, kernel, bias, padding, out)
    return out


def _activated(values: Float32Array, name: str) -> Float32Array:
    if name == "relu":
        np.maximum(values, _ZERO, out=values)
    elif name != "linear":
        raise ValueError(f"activation {name} is not supported, expected relu or linear")
    return values


def _dense(config: Config, weights: Sequence[Float32Array], values: Float32Array) -> Float32Array:
    kernel, bias = weights
    sums = _sums(np.ascontiguousarray(values)[None], kernel[None], bias)[0]
    return _activated(sums, config["activation"])


def _convolution(
    config: Config, weights: Sequence[Float32Array], values: Float32Array
) -> Float32Array:
    plain = {"padding": "same", "strides": [1], "dilation_rate": [1], "groups": 1}
    _require(config, plain)
    kernel, bias = weights
    sums = _sums(np.ascontiguousarray(values), kernel, bias, (len(kernel) - 1) // 2)
    return _activated(sums, config["activation"])


def _max_pooling(
    config: Config, weights: Sequence[Float32Array], values: Float32Array
) -> Float32Array:
    del weights
    _require(config, {"padding": "same", "pool_size": [2], "strides": [2]})
    highest = values[::2].copy()  # with an odd number of steps, the last one is copied
    np.maximum(highest[: len(values) // 2], values[1::2], out=highest[: len(values) // 2])
    return highest


def _lstm(config: Config, weights: Sequence[Float32Array], values: Float32Array) -> Float32Array:
    plain = {"activation": "tanh", "recurrent_activation": "sigmoid", "return_sequences": False}
    _require(config, plain | {"go_backwards": False})
    kernel, recurrent, bias = weights
    gates = _sums(np.ascontiguousarray(values), kernel[None], bias)
    none = np.zeros_like(bias)
    state = memory = np.zeros((len(recurrent), values.shape[2]), dtype=np.float32)
    for inputs in gates:
        sums = inputs + _sums(state[None], recurrent[None], none)[0]
        enter, forget, new, leave = np.split(sums, 4)
        memory = _sigmoid(forget) * memory + _sigmoid(enter) * np.tanh(new)
        state = _sigmoid(leave) * np.tanh(memory)
    return state


def _sigmoid(values: Float32Array) -> Float32Array:
    half = np.float32(0.5)
    return np.asarray(half * np.tanh(half * values) + half)


def _require(config: Config, expected: Config) -> None:
    """Raise ValueError if the layer has a configuration that is not implemented here."""
    for name, value in expected.items():
        if config[name] != value:
            raise ValueError(f"layer {config['name']}: {name} is {config[name]}, expected {value}")


def layer_output(
    kind: str, config: Config, weights: Sequence[Float32Array], inputs: Sequence[Float32Array]
) -> Float32Array:
    """Return the output of a layer; the last axis of every array is the n instances.

    Parameters
    ----------
    kind : str
        Keras class name.
    config : mapping
        As saved by Keras.
    weights : sequence of ndarray, float32
        In Keras's order.
    inputs : sequence of ndarray, float32
        Outputs of the preceding layers; n is a multiple of `BATCH_MULTIPLE`.

    Raises
    ------
    ValueError
        If the layer is not implemented.
    """
    values = inputs[0]
    if kind in _IDENTITIES:
        return values
    if kind == "Flatten":
        return values.reshape(-1, values.shape[-1])
    if kind == "Concatenate":
        _require(config, {"axis": -1})
        return np.concatenate(inputs)
    if kind == "GlobalAveragePooling1D":
        return np.asarray(values.mean(axis=0, dtype=np.float32))
    if kind == "GlobalMaxPooling1D":
        return np.asarray(values.max(axis=0))
    weighted = {
        "Dense": _dense,
        "Conv1D": _convolution,
        "MaxPooling1D": _max_pooling,
        "LSTM": _lstm,
    }
    if kind not in weighted:
        raise ValueError(
            f"layer {config['name']} is a {kind}, expected a layer of the built-in networks"
        )
    return weighted[kind](config, weights, values)

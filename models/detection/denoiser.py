"""LSTM-VAE denoisers of machine metrics, scored without TensorFlow (Minder, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.features.compiled import vectorised
from forewarn.features.errors import InputError
from forewarn.features.threads import parallel_for

__all__ = ["HIDDEN", "LATENT", "LstmVae"]

HIDDEN, LATENT = 4, 8

_Weights = tuple[
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
]

# tanh as a ratio of polynomials on [-7.5, 7.5], fitted to minimise the maximum error (7e-8). It is
# vectorised to sixteen values, where the library function handles one.
_EDGE = np.float32(7.5)
_P = tuple(np.float32(v) for v in (0.99999963, 0.129582595, 0.00298689288, 1.18372983e-05))
_Q = tuple(np.float32(v) for v in (0.462914521, 0.0239599783, 0.000243859900, 2.59444695e-07))
_P0, _P1, _P2, _P3 = _P
_Q1, _Q2, _Q3, _Q4 = _Q
_UNIT, _HALF = np.float32(1.0), np.float32(0.5)

# Windows per batch, and the offsets of their parts in one scratch array: rows of
# `_BATCH_WINDOWS` for the 16 gates, the states h and c, the next h, and the latent variables.
_BATCH_WINDOWS = 64
_H, _C, _NEXT, _Z = (part * _BATCH_WINDOWS for part in (16, 20, 24, 28))
_SCRATCH = 36 * _BATCH_WINDOWS


@vectorised
def _tanh(x: np.float32) -> np.float32:
    x = min(max(x, -_EDGE), _EDGE)
    u = x * x
    above = x * (_P0 + u * (_P1 + u * (_P2 + u * _P3)))
    return above / (_UNIT + u * (_Q1 + u * (_Q2 + u * (_Q3 + u * _Q4))))


@vectorised
def _sigmoid_of_double(x: np.float32) -> np.float32:
    """Return the sigmoid of 2 x; the weights of these gates are halved in advance."""
    return _HALF + _HALF * _tanh(x)


@vectorised
def _unit(unit: int, s: Float32Array, w: Float32Array) -> None:
    """Advance one of the four hidden units of all windows by a step; gates in Keras's order."""
    i0, i1, i2, i3 = w[0, unit], w[1, unit], w[2, unit], w[3, unit]
    f0, f1, f2, f3 = w[0, 4 + unit], w[1, 4 + unit], w[2, 4 + unit], w[3, 4 + unit]
    g0, g1, g2, g3 = w[0, 8 + unit], w[1, 8 + unit], w[2, 8 + unit], w[3, 8 + unit]
    o0, o1, o2, o3 = w[0, 12 + unit], w[1, 12 + unit], w[2, 12 + unit], w[3, 12 + unit]
    at = unit * _BATCH_WINDOWS
    for j in range(_BATCH_WINDOWS):
        h0, h1 = s[_H + j], s[_H + _BATCH_WINDOWS + j]
        h2, h3 = s[_H + 2 * _BATCH_WINDOWS + j], s[_H + 3 * _BATCH_WINDOWS + j]
        i = _sigmoid_of_double(s[at + j] + i0 * h0 + i1 * h1 + i2 * h2 + i3 * h3)
        f = _sigmoid_of_double(
            s[4 * _BATCH_WINDOWS + at + j] + f0 * h0 + f1 * h1 + f2 * h2 + f3 * h3
        )
        g = _tanh(s[8 * _BATCH_WINDOWS + at + j] + g0 * h0 + g1 * h1 + g2 * h2 + g3 * h3)
        o = _sigmoid_of_double(
            s[12 * _BATCH_WINDOWS + at + j] + o0 * h0 + o1 * h1 + o2 * h2 + o3 * h3
        )
        c = f * s[_C + at + j] + i * g
        s[_C + at + j] = c
        s[_NEXT + at + j] = o * _tanh(c)


@vectorised
def _step(s: Float32Array, w: Float32Array) -> None:
    _unit(0, s, w)
    _unit(1, s, w)
    _unit(2, s, w)
    _unit(3, s, w)
    for j in range(4 * _BATCH_WINDOWS):
        s[_H + j] = s[_NEXT + j]


@vectorised
def _gates_of_inputs(
    s: Float32Array, rows: Float32Array, at: int, kernel: Float32Array, bias: Float32Array
) -> None:
    for gate in range(16):
        offset, first, weight = gate * _BATCH_WINDOWS, bias[gate], kernel[0, gate]
        for j in range(_BATCH_WINDOWS):
            s[offset + j] = first + weight * rows[0, at + j]
        for part in range(1, rows.shape[0]):
            weight = kernel[part, gate]
            for j in range(_BATCH_WINDOWS):
                s[offset + j] += weight * rows[part, at + j]


@vectorised
def _latent(s: Float32Array, kernel: Float32Array, bias: Float32Array) -> None:
    for part in range(8):
        a, k0, k1 = bias[part], kernel[0, part], kernel[1, part]
        k2, k3 = kernel[2, part], kernel[3, part]
        at = _Z + part * _BATCH_WINDOWS
        for j in range(_BATCH_WINDOWS):
            low = k0 * s[_H + j] + k1 * s[_H + _BATCH_WINDOWS + j]
            s[at + j] = (
                a + low + k2 * s[_H + 2 * _BATCH_WINDOWS + j] + k3 * s[_H + 3 * _BATCH_WINDOWS + j]
            )


@vectorised
def _gates_of_latent(s: Float32Array, kernel: Float32Array, bias: Float32Array) -> None:
    for gate in range(16):
        offset, first = gate * _BATCH_WINDOWS, bias[gate]
        for j in range(_BATCH_WINDOWS):
            s[offset + j] = first
        for part in range(8):
            weight, at = kernel[part, gate], _Z + part * _BATCH_WINDOWS
            for j in range(_BATCH_WINDOWS):
                s[offset + j] += weight * s[at + j]


@vectorised
def _reconstruct(
    series: Float32Array,
    first: int,
    last: int,
    weights: _Weights,
    out: Float32Array,
) -> None:
    """Write the denoised windows of a range of machines to `out` (window, place, machine)."""
    enc_x, enc_h, enc_b, mean_k, mean_b, dec_z, dec_h, dec_b, out_k, out_b = weights
    n_parts, _, n_ticks = series.shape
    n_windows, n_places, _ = out.shape
    length = n_places // n_parts
    s = np.empty(_SCRATCH, np.float32)
    rows = np.zeros((n_parts, n_ticks + _BATCH_WINDOWS), np.float32)
    for machine in range(first, last):
        for part in range(n_parts):
            for tick in range(n_ticks):
                value = series[part, machine, tick]
                rows[part, tick] = np.float32(0.0) if np.isnan(value) else value
        for start in range(0, n_windows, _BATCH_WINDOWS):
            n_here = min(_BATCH_WINDOWS, n_windows - start)
            s[_H:_NEXT] = 0
            for k in range(length):
                _gates_of_inputs(s, rows, start + k, enc_x, enc_b)
                _step(s, enc_h)
            _latent(s, mean_k, mean_b)
            _gates_of_latent(s, dec_z, dec_b)
            s[_H:_NEXT] = 0
            for k in range(length):
                _step(s, dec_h)
                for part in range(n_parts):
                    a, k0, k1 = out_b[part], out_k[0, part], out_k[1, part]
                    k2, k3 = out_k[2, part], out_k[3, part]
                    for j in range(n_here):
                        low = a + k0 * s[_H + j] + k1 * s[_H + _BATCH_WINDOWS + j]
                        out[start + j, k * n_parts + part, machine] = (
                            low
                            + k2 * s[_H + 2 * _BATCH_WINDOWS + j]
                            + k3 * s[_H + 3 * _BATCH_WINDOWS + j]
                        )


def _shapes(n_parts: int) -> dict[str, tuple[int, ...]]:
    """Return the expected shapes of the weights; the compiled loops rely on them."""
    gates = 4 * HIDDEN
    return {
        "encoder_kernel": (n_parts, gates),
        "encoder_recurrent": (HIDDEN, gates),
        "encoder_bias": (gates,),
        "mean_kernel": (HIDDEN, LATENT),
        "mean_bias": (LATENT,),
        "decoder_kernel": (LATENT, gates),
        "decoder_recurrent": (HIDDEN, gates),
        "decoder_bias": (gates,),
        "output_kernel": (HIDDEN, n_parts),
        "output_bias": (n_parts,),
    }


@dataclass(frozen=True, slots=True)
class LstmVae:
    """A denoiser: takes windows and returns what a healthy machine would have shown.

    Attributes
    ----------
    length : int
        Samples per window.
    weights : mapping of str to ndarray
        In Keras's layout: `encoder_kernel` (parts, 16), `encoder_recurrent` (4, 16),
        `encoder_bias` (16,), `mean_kernel` (4, 8), `mean_bias` (8,), `decoder_kernel` (8, 16),
        `decoder_recurrent` (4, 16), `decoder_bias` (16,), `output_kernel` (4, parts) and
        `output_bias` (parts,).
    """

    length: int
    weights: Mapping[str, Float32Array]

    def __post_init__(self) -> None:
        """Refuse non-finite weights, and shapes that compiled loops would read past.

        Raises
        ------
        InputError
            Names the first bad weight. NaN weights would hide every deviation.
        """
        for name, shape in _shapes(self.weights["output_bias"].size).items():
            weights = self.weights[name]
            if weights.shape != shape:
                raise InputError(f"`{name}` of a denoiser is {weights.shape}, expected {shape}")
            if not np.isfinite(weights).all():
                raise InputError(f"`{name}` of a denoiser is not finite, expected finite weights")

    @property
    def n_parts(self) -> int:
        """Metrics that are denoised together; more than 1 only in studies."""
        return int(self.weights["encoder_kernel"].shape[0])

    def reconstruct(self, series: Float32Array) -> Float32Array:
        """Denoise all windows of stride 1, using the mean of the latent variables.

        Parameters
        ----------
        series : ndarray of shape (parts, machines, ticks), float32
            Scaled. NaN counts as 0, and the result of such a window is meaningless.

        Returns
        -------
        ndarray of shape (ticks - length + 1, length * parts, machines), float32
        """
        n_parts, n_machines, n_ticks = series.shape
        n_windows = max(n_ticks - self.length + 1, 0)
        out = np.empty((n_windows, self.length * n_parts, n_machines), dtype=np.float32)
        weights, series = self._arguments(), np.ascontiguousarray(series, dtype=np.float32)
        parallel_for(lambda a, b: _reconstruct(series, a, b, weights, out), n_machines)
        return out

    def _arguments(self) -> _Weights:
        """Return the weights in the order the loop expects, those of sigmoid gates halved."""
        half = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], dtype=np.float32), HIDDEN)
        w = self.weights
        return (
            w["encoder_kernel"] * half,
            w["encoder_recurrent"] * half,
            w["encoder_bias"] * half,
            w["mean_kernel"],
            w["mean_bias"],
            w["decoder_kernel"] * half,
            w["decoder_recurrent"] * half,
            w["decoder_bias"] * half,
            w["output_kernel"],
            w["output_bias"],
        )

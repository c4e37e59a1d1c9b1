"""Why a GPU is on the list: what its model looked at, where the records are out of the ordinary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.records.table import MACHINE
from forewarn.pipelines.at_risk.channel_evidence import ChannelEvidence, Signs
from forewarn.pipelines.at_risk.channel_names import NOUNS, title
from forewarn.pipelines.at_risk.reason_phrases import Mention, channel_of, in_words

__all__ = ["REASON_SEPARATOR", "Reasons", "reasons_of"]

Floats = npt.NDArray[np.float64]

REASON_SEPARATOR = " | "
_MOST = 3
_LEAST_SHARE = 0.02  # of all that speaks for a failure


@dataclass(frozen=True, slots=True)
class Reasons:
    """The reasons of one GPU, the strongest first.

    Attributes
    ----------
    texts : tuple of str
    channels : tuple of str
        What each is about, and then what else speaks for a failure.
    """

    texts: tuple[str, ...]
    channels: tuple[str, ...]

    def __str__(self) -> str:
        return REASON_SEPARATOR.join(text.replace(REASON_SEPARATOR, " ") for text in self.texts)


def reasons_of(evidence: ChannelEvidence, contributions: Mapping[str, Floats]) -> list[Reasons]:
    """Say for each of n GPUs which channels speak most for a failure.

    The model says which channels count, the records what they show; both together make the order.
    A channel whose records are ordinary, among the GPUs of the same machine and of the fleet, is no
    reason.

    Parameters
    ----------
    evidence : ChannelEvidence
    contributions : mapping of ndarray of shape (n,)
        How much each feature speaks for a failure, in log odds, by its name.

    Returns
    -------
    list of Reasons
        At most three each, the strongest first.
    """
    n, names = len(evidence.values), tuple(contributions)
    if not names or not n:
        return [Reasons((), ())] * n
    columns = {*evidence.plan.kinds.names}
    channels = np.array([channel_of(name, columns) for name in names])
    distinct = sorted(set(channels.tolist()))
    table = np.stack([contributions[name] for name in names], axis=1)
    summed = np.stack([table[:, channels == channel].sum(axis=1) for channel in distinct], axis=1)
    total = np.maximum(np.where(summed > 0, summed, 0.0).sum(axis=1), 1e-9)
    chooser = _Chooser(evidence, _own_name(columns))
    reasons = []
    for row in range(n):
        order = np.argsort(-summed[row], kind="stable")
        telling = [i for i in order if summed[row, i] > _LEAST_SHARE * total[row]]
        weights = {distinct[i]: float(summed[row, i]) for i in telling}
        reasons.append(chooser.reasons(row, weights))
    return reasons


def _own_name(columns: set[str]) -> str:
    """Return what the things of the list are called."""
    return "GPUs" if columns & set(NOUNS) else "devices"


def _strongest(evidence: ChannelEvidence, channel: str) -> list[Signs | None]:
    """Return what says most of a channel for each of n GPUs, None where all is ordinary."""
    signs = evidence.signs(channel)
    if not signs:
        return [None] * len(evidence.values)
    strength = np.stack([sign.strength for sign in signs])
    best, ordinary = strength.argmax(axis=0).tolist(), (strength.max(axis=0) <= 0).tolist()
    return [None if plain else signs[i] for i, plain in zip(best, ordinary, strict=True)]


class _Chooser:
    """Chooses what to say of a channel, and remembers what was measured."""

    def __init__(self, evidence: ChannelEvidence, noun: str) -> None:
        self._evidence, self._noun = evidence, noun
        self._strongest: dict[str, list[Signs | None]] = {}

    def reasons(self, row: int, weights: Mapping[str, float]) -> Reasons:
        """Return the reasons of one GPU, of channels with what speaks for them, strongest first."""
        signs = {channel: self._sign(row, channel) for channel in weights}
        shown = {channel: sign for channel, sign in signs.items() if sign is not None}
        order = sorted(
            shown, key=lambda name: -weights[name] * np.log1p(float(shown[name].strength[row]))
        )
        texts = tuple(self._mention(row, shown[channel]) for channel in order[:_MOST])
        return Reasons(texts, tuple(dict.fromkeys([*order[:_MOST], *weights])))

    def _sign(self, row: int, channel: str) -> Signs | None:
        if channel not in self._strongest:
            self._strongest[channel] = _strongest(self._evidence, channel)
        return self._strongest[channel][row]

    def _mention(self, row: int, signs: Signs) -> str:
        near = self._evidence.peers.near
        others = signs.values[near.others(row)]
        others = others[np.isfinite(others)]
        return in_words(
            Mention(
                signs.kind,
                signs.column,
                float(signs.values[row]),
                signs.span,
                others.tolist(),
                self._whose(row) if len(others) else "",
                float("nan") if signs.now is None else float(signs.now[row]),
                signs.detail,
                len(signs.values),
            )
        )

    def _whose(self, row: int) -> str:
        near = self._evidence.peers.near
        if not near.column:
            return f"the other {self._noun}"
        kind = "" if near.column == MACHINE else f"{title(near.column)} "
        return f"the other {self._noun} of {kind}{near.name(row)}"

"""Reasons why a GPU is on the list: model contributions with unusual observations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.records.record_table import MACHINE
from forewarn.pipelines.at_risk.channel_evidence import ChannelEvidence, Observations
from forewarn.pipelines.at_risk.channel_names import NOUNS, title
from forewarn.pipelines.at_risk.reason_phrases import Mention, channel_of, phrase_reason

__all__ = ["REASON_SEPARATOR", "Contributions", "Reasons", "explain_gpus"]


REASON_SEPARATOR = " | "
_MAX_REASONS = 3
_MIN_CONTRIBUTION_SHARE = 0.02  # of all positive contributions


@dataclass(frozen=True, slots=True)
class Reasons:
    """Reasons of one GPU, the strongest first.

    Attributes
    ----------
    texts : tuple of str
    channels : tuple of str
        Channel of each reason, followed by the other channels with positive contributions.
    """

    texts: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def __str__(self) -> str:
        return REASON_SEPARATOR.join(text.replace(REASON_SEPARATOR, " ") for text in self.texts)


class Contributions(NamedTuple):
    """Contributions of the features to the log odds of a failure.

    Attributes
    ----------
    names : tuple of str
    compute : callable
        Returns the contributions for some of n GPUs, shape (n_rows, n_names). It is called for few
        rows, because Shapley values of trees are the slowest part of a list.
    """

    names: tuple[str, ...]
    compute: Callable[[Int64Array], Float64Array]

    @classmethod
    def from_columns(cls, columns: Mapping[str, Float64Array]) -> Contributions:
        """Return contributions that are known for all GPUs, by name, each of shape (n,)."""

        def compute(rows: Int64Array) -> Float64Array:
            chosen_columns = [column[rows] for column in columns.values()]
            return np.array(chosen_columns).reshape(len(columns), len(rows)).T

        return cls(tuple(columns), compute)


def explain_gpus(
    evidence: ChannelEvidence,
    contributions: Contributions,
    drawn: Collection[int] = (),
    suspected: Collection[int] = (),
) -> dict[int, Reasons]:
    """Return the reasons of each GPU that has any.

    The model determines which channels matter, the records what they show. The order depends on
    both. A channel whose values are ordinary in its machine and in the fleet is not a reason.

    Parameters
    ----------
    evidence : ChannelEvidence
        Evidence of n GPUs.
    contributions : Contributions
    drawn : collection of int
        GPUs whose channels are needed for charts even without reasons.
    suspected : collection of int
        GPUs that a rule speaks against. What the rule counts is their reason even if it is
        ordinary.

    Returns
    -------
    dict of Reasons
        By number of the GPU; at most three each, the strongest first.
    """
    if not contributions.names or not len(evidence.values):
        return {}
    columns = {*evidence.plan.kinds.names}
    channels = np.array([channel_of(name, columns) for name in contributions.names])
    distinct = sorted(set(channels.tolist()))
    chooser = _ReasonSelector(evidence, _device_noun(columns | {*evidence.plan.peers}), distinct)
    also = np.array(sorted({*drawn, *suspected}), dtype=np.int64)
    rows, ordinary = np.union1d(chooser.remarkable(), also), set(suspected)
    if not len(rows):
        return {}
    table = contributions.compute(rows).T
    # Sequential summation: the result for a GPU must not depend on the number of GPUs.
    summed = np.stack([sum(table[channels == channel]) for channel in distinct], axis=1)
    total = np.maximum(np.where(summed > 0, summed, 0.0).sum(axis=1), 1e-9)
    reasons = {}
    for row, own, positive_sum in zip(rows.tolist(), summed, total.tolist(), strict=True):
        order = np.argsort(-own, kind="stable")
        relevant = [i for i in order if own[i] > _MIN_CONTRIBUTION_SHARE * positive_sum]
        weights = {distinct[i]: float(own[i]) for i in relevant}
        reasons[row] = chooser.reasons(row, weights, ordinary=row in ordinary)
    return reasons


def _device_noun(columns: set[str]) -> str:
    """Return the noun for the listed devices."""
    return "GPUs" if columns & set(NOUNS) else "devices"


class _StrongestObservation(NamedTuple):
    """The strongest observation of a channel for each of n GPUs.

    Attributes
    ----------
    signs : list of Observations
    best : ndarray of shape (n,)
        Position in `signs`; -1 if everything is ordinary.
    """

    signs: list[Observations]
    best: Int64Array

    @classmethod
    def from_evidence(cls, evidence: ChannelEvidence, channel: str) -> _StrongestObservation:
        signs = evidence.observations(channel)
        if not signs:
            return cls(signs, np.full(len(evidence.values), -1))
        strength = np.stack([sign.strength for sign in signs])
        return cls(signs, np.where(strength.max(axis=0) <= 0, -1, strength.argmax(axis=0)))


class _ReasonSelector:
    """Selects and formats the reasons of GPUs."""

    def __init__(self, evidence: ChannelEvidence, noun: str, channels: Collection[str]) -> None:
        self._evidence, self._noun = evidence, noun
        self._strongest = {
            name: _StrongestObservation.from_evidence(evidence, name) for name in channels
        }

    def remarkable(self) -> Int64Array:
        """Return the GPUs with an unusual observation."""
        extraordinary = np.zeros(len(self._evidence.values), dtype=bool)
        for strongest in self._strongest.values():
            extraordinary |= strongest.best >= 0
        return np.flatnonzero(extraordinary)

    def reasons(self, row: int, weights: Mapping[str, float], *, ordinary: bool = False) -> Reasons:
        """Return the reasons of one GPU, given contributions by channel, largest first."""
        shown = {
            channel: strongest.signs[strongest.best[row]]
            for channel, strongest in self._strongest.items()
            if channel in weights and strongest.best[row] >= 0
        }
        if ordinary and not shown:
            shown = self._counted(row, weights)
        order = sorted(
            (channel for channel in weights if channel in shown),
            key=lambda name: -weights[name] * np.log1p(float(shown[name].strength[row])),
        )
        texts = tuple(self._mention(row, shown[channel]) for channel in order[:_MAX_REASONS])
        return Reasons(texts, tuple(dict.fromkeys([*order[:_MAX_REASONS], *weights])))

    def _counted(self, row: int, channels: Collection[str]) -> dict[str, Observations]:
        """Return what was counted of each channel over its longest span, if anything was."""
        counted = {}
        for channel in channels:
            signs = [sign for sign in self._strongest[channel].signs if sign.values[row] > 0]
            if signs:
                counted[channel] = max(signs, key=lambda sign: sign.span)
        return counted

    def _mention(self, row: int, signs: Observations) -> str:
        near = self._evidence.peers.near
        others = signs.values[near.others(row)]
        others = others[np.isfinite(others)]
        return phrase_reason(
            Mention(
                signs.kind,
                signs.column,
                float(signs.values[row]),
                signs.span,
                others.tolist(),
                self._peer_noun(row) if len(others) else "",
                float("nan") if signs.now is None else float(signs.now[row]),
                signs.detail,
                len(signs.values),
            )
        )

    def _peer_noun(self, row: int) -> str:
        near = self._evidence.peers.near
        if not near.column:
            return f"the other {self._noun}"
        kind = "" if near.column == MACHINE else f"{title(near.column)} "
        return f"the other {self._noun} of {kind}{near.name(row)}"

"""Retraining strategies that a backtest compares."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Strategy"]


class Strategy(StrEnum):
    """A rule that defines when a predictor is retrained, and on which training span.

    `fixed` is trained once. The other strategies retrain before every test window: `sliding` on the
    longest span, `variable` on the span that was best on the last finished window, `steady` on a
    span that changes only with evidence from several windows, and `expanding` on all of the past
    with a lower weight for older instances.
    """

    FIXED = "fixed"
    SLIDING = "sliding"
    VARIABLE = "variable"
    STEADY = "steady"
    EXPANDING = "expanding"

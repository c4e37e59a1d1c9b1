"""The strategies of retraining that a backtest compares."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Strategy"]


class Strategy(StrEnum):
    """A rule for when a predictor is trained anew, and on which training span.

    `fixed` is trained once; the others before every test window: `sliding` on the longest span,
    `variable` on the span that was best on the last finished window, `steady` on one that changes
    only on evidence from several, `expanding` on all of the past, older instances weighing less.
    """

    FIXED = "fixed"
    SLIDING = "sliding"
    VARIABLE = "variable"
    STEADY = "steady"
    EXPANDING = "expanding"

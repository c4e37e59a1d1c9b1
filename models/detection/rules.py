"""The rules by which a machine comes to be named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forewarn.models.detection.own_past import PastTerms
from forewarn.models.detection.pairwise_distances import Distance

__all__ = ["SHARE", "SURE", "Rules"]

Mode = Literal["forewarn", "minder", "peers"]

SHARE = 0.9  # of the windows of a continuity
SURE = 2.0  # times its threshold: a weaker finding waits for what the other metrics show


@dataclass(frozen=True, slots=True)
class Rules:
    """How a machine comes to be named.

    Attributes
    ----------
    window : int
        Samples.
    continuity : int
        Windows for which a machine has to stand out.
    block : int
        Windows whose median is kept of a machine's past.
    mode : {"forewarn", "minder", "peers"}
        The second follows the paper to the letter; the third is the least one can do, for studies.
    distance : {"euclidean", "manhattan", "chebyshev"}
        Of mode `minder`.
    own_past : bool
        Forgive what has always been so (mode `forewarn`).
    """

    window: int = 8
    continuity: int = 240
    block: int = 60
    mode: Mode = "forewarn"
    distance: Distance = "euclidean"
    own_past: bool = True

    @property
    def sure(self) -> tuple[bool, float]:
        """Strength from which on no other metric is looked at; the paper takes the first."""
        return (False, 0.0) if self.mode == "minder" else (True, SURE)

    @property
    def share(self) -> float:
        """Of the windows of a continuity, those that have to stand out."""
        return 1.0 if self.mode == "minder" else SHARE

    @property
    def past(self) -> PastTerms:
        """What is judged is compared with what was before a continuity and a guard gap."""
        return PastTerms(self.block, -(-self.continuity // self.block) + 1)

    @property
    def still(self) -> int:
        """Ticks of one value from which on a sensor hangs, unless healthy ones do so, too."""
        return max(self.continuity // 2, 2 * self.window)

    @property
    def slowest(self) -> int:
        """Ticks between two samples of a metric that still tells enough in a continuity.

        Four at least have to agree, and what stands for one of them that was lost.
        """
        return max(self.continuity // 4, 1)

    @property
    def quiet(self) -> int:
        """Windows below the threshold that end a stretch above it."""
        return max(round((1.0 - self.share) * self.continuity / 2), 1)

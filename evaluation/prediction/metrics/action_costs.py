"""What actions and failures cost, and which action a chance of failure justifies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import BoolArray, Float64Array

__all__ = ["ACTIONS", "ActionCosts"]


ACTIONS = ("avoid", "check", "move", "drain")
"""What can be done, the mildest first.

`avoid`: no new long job. `check`: an inspection when the machine is idle. `move`: the job moves
at its next stop. `drain`: at once.
"""


@dataclass(frozen=True, slots=True)
class ActionCosts:
    """Prices of a site, in GPU-hours.

    Attributes
    ----------
    failure : float
        Of a failure in a job.
    prevented_share : float
        Of that cost, how much an action before the failure saves.
    actions : tuple of (str, float)
        Of `ACTIONS`, those that have a price, the cheapest first.
    """

    failure: float
    prevented_share: float
    actions: tuple[tuple[str, float], ...]

    @property
    def saved(self) -> float:
        """GPU-hours that an action before a failure saves."""
        return self.failure * self.prevented_share

    @property
    def dearest(self) -> float:
        """Cost of the dearest action."""
        return self.actions[-1][1]

    @property
    def break_even(self) -> float:
        """Chance from which the cheapest action pays."""
        return self.actions[0][1] / self.saved

    def pays(self, probability: Float64Array) -> BoolArray:
        """Tell for which chances the cheapest action pays; without a chance none does."""
        return np.asarray(probability * self.saved > self.actions[0][1])

    def action_for(self, probability: Float64Array) -> npt.NDArray[np.object_]:
        """Return the dearest action that each chance justifies, empty where none is.

        Examples
        --------
        >>> costs = ActionCosts(100.0, 0.5, (("avoid", 1.0), ("drain", 20.0)))
        >>> costs.action_for(np.array([0.01, 0.05, 0.5])).tolist()
        ['', 'avoid', 'drain']
        """
        chosen = np.full(len(probability), "", dtype=object)
        for name, cost in self.actions:
            chosen[probability * self.saved > cost] = name
        return chosen

    def cost_for(self, probability: Float64Array) -> Float64Array:
        """Return the cost of the dearest action that each chance justifies; 0 where none is."""
        cost = np.zeros(len(probability))
        for _, price in self.actions:
            cost[probability * self.saved > price] = price
        return cost

    def to_dict(self) -> dict[str, object]:
        """Return what JSON can hold."""
        return {
            "failure": self.failure,
            "prevented_share": self.prevented_share,
            "actions": [[name, cost] for name, cost in self.actions],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, object]) -> ActionCosts:
        """Read what `to_dict` gave."""
        actions = saved["actions"]
        assert isinstance(actions, list)
        return cls(
            float(str(saved["failure"])),
            float(str(saved["prevented_share"])),
            tuple((str(name), float(cost)) for name, cost in actions),
        )

"""Costs of actions and failures, and the action that a failure probability justifies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import BoolArray, Float64Array

__all__ = ["ACTIONS", "ActionCosts"]


ACTIONS = ("avoid", "check", "move", "drain")
"""Possible actions, the mildest first.

`avoid`: no new long job. `check`: an inspection when the machine is idle. `move`: the job moves at
its next stop. `drain`: an immediate drain.
"""


@dataclass(frozen=True, slots=True)
class ActionCosts:
    """Costs at a site, in GPU-hours.

    Attributes
    ----------
    failure : float
        Cost of a failure in a job.
    prevented_share : float
        Share of that cost that an action before the failure saves.
    actions : tuple of (str, float)
        The `ACTIONS` with a cost, cheapest first.
    """

    failure: float
    prevented_share: float
    actions: tuple[tuple[str, float], ...]

    @property
    def savings(self) -> float:
        """GPU-hours saved by an action before a failure."""
        return self.failure * self.prevented_share

    @property
    def most_expensive(self) -> float:
        """Cost of the most expensive action."""
        return self.actions[-1][1]

    @property
    def break_even(self) -> float:
        """Probability above which the cheapest action pays off."""
        return self.actions[0][1] / self.savings

    def pays_off(self, probability: Float64Array) -> BoolArray:
        """Return for which probabilities the cheapest action pays off; False for NaN."""
        return np.asarray(probability * self.savings > self.actions[0][1])

    def action_for(self, probability: Float64Array) -> npt.NDArray[np.object_]:
        """Return the most expensive action that each probability justifies; empty if none.

        Examples
        --------
        >>> costs = ActionCosts(100.0, 0.5, (("avoid", 1.0), ("drain", 20.0)))
        >>> costs.action_for(np.array([0.01, 0.05, 0.5])).tolist()
        ['', 'avoid', 'drain']
        """
        chosen = np.full(len(probability), "", dtype=object)
        for name, cost in self.actions:
            chosen[probability * self.savings > cost] = name
        return chosen

    def cost_for(self, probability: Float64Array) -> Float64Array:
        """Return the cost of the most expensive justified action by probability; 0 if none."""
        cost = np.zeros(len(probability))
        for _, price in self.actions:
            cost[probability * self.savings > price] = price
        return cost

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-serializable dict."""
        return {
            "failure": self.failure,
            "prevented_share": self.prevented_share,
            "actions": [[name, cost] for name, cost in self.actions],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, object]) -> ActionCosts:
        """Read a dict from `to_dict`."""
        actions = saved["actions"]
        assert isinstance(actions, list)
        return cls(
            float(str(saved["failure"])),
            float(str(saved["prevented_share"])),
            tuple((str(name), float(cost)) for name, cost in actions),
        )

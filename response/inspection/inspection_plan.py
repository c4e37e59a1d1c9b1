"""Plan of inspections: the node-minutes of a budget where they prevent the most.

The worth of a check on a machine is P(defect) x share of past defects of that kind it found x cost
of meeting the defect in a job. Checks are chosen by worth a minute, until the budget is spent.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from forewarn.features.inspection.check_table import CATEGORIES, CheckCategory

__all__ = [
    "MEMORY_DAYS",
    "NEIGHBOURS",
    "RANDOM_SHARE",
    "FoundDefects",
    "MachineRisk",
    "PlannedCheck",
    "PlannedInspection",
    "Risk",
    "plan_inspections",
]

RANDOM_SHARE: Final = 0.1
"""Share of the budget for machines drawn at random: only that measures what the risks miss."""

NEIGHBOURS: Final[Mapping[CheckCategory, tuple[CheckCategory, ...]]] = {
    "identity": ("software",),
    "gpu": ("memory", "fabric", "identity"),
    "memory": ("cpu", "identity"),
    "cpu": ("memory", "identity"),
    "fabric": ("gpu", "network"),
    "network": ("fabric", "identity"),
    "storage": ("identity",),
    "software": ("identity",),
    "training": ("gpu", "memory", "network"),
}
"""Categories that a repair of another may have disturbed."""

MEMORY_DAYS: Final = 14.0
"""A healthy result counts for 1/e of its worth after so many days: defects appear meanwhile."""

_MIN_WORTH_SHARE: Final = 1e-3  # of a machine's first check; below it a further check adds nothing


@dataclass(frozen=True, slots=True)
class Risk:
    """One reason to inspect a machine.

    Attributes
    ----------
    reason : str
        In words, such as `repaired on 3 March`.
    probability : float
        That the machine has a defect for this reason.
    categories : tuple of str
        Where it may be; empty: in all that checks measure. Past defects weigh them.
    days : float or None
        Since the event that is the reason; only later healthy results count against it, and these
        do not age. None: the reason is no event, and a new defect may come at any time.
    """

    reason: str
    probability: float
    categories: tuple[CheckCategory, ...] = ()
    days: float | None = None


@dataclass(frozen=True, slots=True)
class MachineRisk:
    """A machine, its risks, and what a defect costs.

    Attributes
    ----------
    machine : str
    risks : tuple of Risk
    healthy : mapping of str to float
        Days since the last healthy result, by check.
    cost : float
        Of meeting a defect in a job, in node-hours.
    """

    machine: str
    risks: tuple[Risk, ...]
    healthy: Mapping[str, float] = field(default_factory=dict)
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """A check that can be planned.

    Attributes
    ----------
    name : str
    category : str
    minutes : float
        That it takes on a machine, above 0.
    """

    name: str
    category: CheckCategory
    minutes: float


@dataclass(frozen=True, slots=True)
class FoundDefects:
    """How many past defects of each category a check was run for, and found.

    Attributes
    ----------
    by_check : mapping of (check, category) to (int, int)
        Defects found, and defects in all.
    by_category : mapping of str to int
        Past defects.
    """

    by_check: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    by_category: Mapping[str, int] = field(default_factory=dict)

    def share(self, check: str, category: str) -> float:
        """Return the expected share of defects that a check finds, from Beta(1, 1).

        Examples
        --------
        >>> FoundDefects({("gemm", "gpu"): (8, 8)}).share("gemm", "gpu")
        0.9
        """
        hits, total = self.by_check.get((check, category), (0, 0))
        return (hits + 1) / (total + 2)

    def share_of_all(self, checks: Sequence[PlannedCheck], category: str) -> float:
        """Return the share of defects of a category that all checks of it find together."""
        shares = [self.share(c.name, category) for c in checks if c.category == category]
        return 1.0 - math.prod(1.0 - share for share in shares)

    def weights(self, categories: Sequence[CheckCategory]) -> dict[CheckCategory, float]:
        """Return how likely a defect is in each category, with one added to each."""
        counts = {name: self.by_category.get(name, 0) + 1 for name in categories}
        total = sum(counts.values())
        return {name: number / total for name, number in counts.items()}


@dataclass(frozen=True, slots=True)
class PlannedInspection:
    """One line of the plan.

    Attributes
    ----------
    machine : str
    checks : tuple of str
        In the order of their worth a minute.
    minutes : float
    worth : float
        Expected cost that the checks prevent, in node-hours.
    probability : float
        That the machine has a defect, after its healthy results.
    reason : str
    is_random : bool
        Drawn without regard to its risks; the worth of its checks is not counted.
    """

    machine: str
    checks: tuple[str, ...]
    minutes: float
    worth: float
    probability: float
    reason: str
    is_random: bool = False


def plan_inspections(
    machines: Sequence[MachineRisk],
    checks: Sequence[PlannedCheck],
    past: FoundDefects,
    *,
    budget_minutes: float,
    max_machines: int,
    seed: str,
    random_share: float = RANDOM_SHARE,
) -> list[PlannedInspection]:
    """Choose checks of machines by worth a minute, then machines at random.

    A further check of a category counts for what the ones before leave. A check that exceeds what
    is left of the budget is passed over.

    Parameters
    ----------
    machines : sequence of MachineRisk
        All machines that may be inspected, with or without risks; names are distinct.
    checks : sequence of PlannedCheck
    past : FoundDefects
    budget_minutes : float
        Node-minutes.
    max_machines : int
        Machines in the plan, at most.
    seed : str
        Decides the draw.
    random_share : float, optional
        Share of the budget for the draw, which runs all checks on each machine.

    Returns
    -------
    list of PlannedInspection
        The most worth a minute first, those at random last.
    """
    generator = random.Random(seed)
    minutes = sum(check.minutes for check in checks)
    n_drawn = _draw_size(machines, minutes, random_share, budget_minutes, max_machines, generator)
    left = budget_minutes - n_drawn * minutes
    chosen = _choose(machines, checks, past, left, max_machines - n_drawn)
    lines = [
        _line(risk, picks, checks, past) for risk in machines if (picks := chosen.get(risk.machine))
    ]
    lines.sort(key=lambda line: (-line.worth / line.minutes, line.machine))
    rest = [risk for risk in machines if risk.machine not in chosen]
    return lines + _draw(rest, checks, past, n_drawn, generator)


@dataclass(slots=True)
class _Choice:
    """Candidate check of a machine, ordered by worth a minute."""

    risk: MachineRisk
    check: PlannedCheck
    worth: float


def _choose(
    machines: Sequence[MachineRisk],
    checks: Sequence[PlannedCheck],
    past: FoundDefects,
    budget: float,
    max_machines: int,
) -> dict[str, list[_Choice]]:
    """Return the checks by machine, greedily by worth a minute."""
    left: dict[str, dict[str, float]] = {}
    heap: list[tuple[float, str, str, _Choice]] = []
    for risk in machines:
        left[risk.machine] = _defects(risk, checks, past)
        for check in checks:
            _push(heap, risk, check, left[risk.machine], past)
    chosen: dict[str, list[_Choice]] = defaultdict(list)
    while heap and budget > 0:
        density, _, _, choice = heapq.heappop(heap)
        name, check = choice.risk.machine, choice.check
        worth = _worth(choice.risk, check, left[name], past)
        if worth / check.minutes < -density * (1.0 - 1e-9):  # a check before has lowered it
            _push(heap, choice.risk, check, left[name], past)
            continue
        picks = chosen.get(name, [])
        if check.minutes > budget or (not picks and len(chosen) >= max_machines):
            continue
        if picks and worth < _MIN_WORTH_SHARE * picks[0].worth:
            continue
        budget -= check.minutes
        chosen[name].append(_Choice(choice.risk, check, worth))
        left[name][check.category] *= 1.0 - past.share(check.name, check.category)
    return chosen


def _defects(
    risk: MachineRisk, checks: Sequence[PlannedCheck], past: FoundDefects
) -> dict[str, float]:
    """Return the probability of a defect by category, after the healthy results since."""
    healthy: dict[str, float] = {check.category: 1.0 for check in checks}
    for reason in risk.risks:
        for name, chance in _chances(risk, reason, checks, past).items():
            healthy[name] *= 1.0 - chance
    return {name: 1.0 - share for name, share in healthy.items()}


def _chances(
    risk: MachineRisk, reason: Risk, checks: Sequence[PlannedCheck], past: FoundDefects
) -> dict[CheckCategory, float]:
    """Return the probability of a defect for one reason, by category, after healthy results."""
    present = {check.category for check in checks}
    measured = [name for name in CATEGORIES if name in present]
    suspected = [name for name in measured if name in reason.categories] or measured
    missed = _missed(risk, reason, checks, past)
    return {
        name: reason.probability * weight * missed.get(name, 1.0)
        for name, weight in past.weights(suspected).items()
    }


def _missed(
    risk: MachineRisk, reason: Risk, checks: Sequence[PlannedCheck], past: FoundDefects
) -> dict[str, float]:
    """Return the share of defects by category that healthy results do not exclude."""
    missed: dict[str, float] = {}
    for check in checks:
        days = risk.healthy.get(check.name)
        if days is None or (reason.days is not None and days >= reason.days):
            continue
        remembered = 1.0 if reason.days is not None else math.exp(-max(days, 0.0) / MEMORY_DAYS)
        share = past.share(check.name, check.category)
        missed[check.category] = missed.get(check.category, 1.0) * (1.0 - share * remembered)
    return missed


def _worth(
    risk: MachineRisk, check: PlannedCheck, defects: Mapping[str, float], past: FoundDefects
) -> float:
    return defects[check.category] * past.share(check.name, check.category) * risk.cost


def _push(
    heap: list[tuple[float, str, str, _Choice]],
    risk: MachineRisk,
    check: PlannedCheck,
    defects: Mapping[str, float],
    past: FoundDefects,
) -> None:
    worth = _worth(risk, check, defects, past)
    if worth > 0:
        entry = (-worth / check.minutes, risk.machine, check.name, _Choice(risk, check, worth))
        heapq.heappush(heap, entry)


def _line(
    risk: MachineRisk,
    picks: Sequence[_Choice],
    checks: Sequence[PlannedCheck],
    past: FoundDefects,
) -> PlannedInspection:
    reasons = sorted(risk.risks, key=lambda reason: -reason.probability)
    return PlannedInspection(
        risk.machine,
        tuple(choice.check.name for choice in picks),
        sum(choice.check.minutes for choice in picks),
        sum(choice.worth for choice in picks),
        _probability(risk, checks, past),
        "; ".join(dict.fromkeys(reason.reason for reason in reasons)),
    )


def _probability(risk: MachineRisk, checks: Sequence[PlannedCheck], past: FoundDefects) -> float:
    """Return the probability of a defect; one reason explains one defect."""
    chances = (sum(_chances(risk, reason, checks, past).values()) for reason in risk.risks)
    return 1.0 - math.prod(1.0 - min(chance, 1.0) for chance in chances)


def _draw_size(
    machines: Sequence[MachineRisk],
    minutes: float,
    share: float,
    budget: float,
    max_machines: int,
    generator: random.Random,
) -> int:
    """Return how many machines to draw.

    A fraction of a machine is drawn with that probability, so that the share is right over many
    plans of a small fleet.
    """
    if not minutes:
        return 0
    exact = share * min(budget / minutes, max_machines)
    number = int(exact) + (generator.random() < exact % 1.0)
    return min(number, len(machines), max_machines, int(budget // minutes))


def _draw(
    rest: Sequence[MachineRisk],
    checks: Sequence[PlannedCheck],
    past: FoundDefects,
    number: int,
    generator: random.Random,
) -> list[PlannedInspection]:
    """Draw machines without regard to their risks, for all checks."""
    ordered = sorted(rest, key=lambda risk: risk.machine)
    return [
        PlannedInspection(
            risk.machine,
            tuple(check.name for check in checks),
            sum(check.minutes for check in checks),
            0.0,
            _probability(risk, checks, past),
            "drawn at random, to measure what the risks miss",
            is_random=True,
        )
        for risk in generator.sample(ordered, min(number, len(ordered)))
    ]

"""`forewarn study inspection`: which machines to inspect with few node-hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forewarn.evaluation.simulation.inspections.inspected_fleet import (
    CATEGORY_SHARES,
    FleetRates,
    InspectedFleet,
)
from forewarn.features.inspection.check_table import CheckCategory
from forewarn.response.inspection.defect_rates import learned_rates
from forewarn.response.inspection.inspection_plan import (
    NEIGHBOURS,
    FoundDefects,
    MachineRisk,
    PlannedCheck,
    Risk,
    plan_inspections,
)

__all__ = ["STRATEGIES", "StudyRow", "report_lines", "run_study"]

STRATEGIES: Final = (
    "none",
    "monthly",
    "random",
    "oldest first",
    "list",
    "list, a tenth at random",
    "oracle",
)

_CHECKS: Final = tuple(PlannedCheck(name, name, 20.0) for name in CATEGORY_SHARES)
_FIND: Final = 0.8  # share of latent defects that the check of their category finds
_FALSE_ALARM: Final = 1e-4  # an inspection, the wanted rate of weekly runs
_SWEEP_DAYS: Final = 30
_COST: Final = 100.0  # node-hours of an incident: a job of 64 nodes loses more than an hour
_NAMES: Final = tuple(CATEGORY_SHARES)
_UNLISTED: Final[tuple[CheckCategory, ...]] = ("network", "storage", "cpu")


@dataclass(frozen=True, slots=True)
class StudyRow:
    """Result of a strategy in one simulated fleet.

    Attributes
    ----------
    strategy : str
    seed : int
    incidents : int
        Defects met by jobs.
    days_between : float
        Machine-days in service an incident.
    node_hours : float
        Spent on inspections.
    prevented : int
        Defects found before a job met them.
    false_drains : int
    drawn, drawn_found : int
        Inspections drawn at random, and defects that they found.
    expected : float
        Defects that the list had expected among those drawn.
    """

    strategy: str
    seed: int
    incidents: int
    days_between: float
    node_hours: float
    prevented: int
    false_drains: int
    drawn: int = 0
    drawn_found: int = 0
    expected: float = 0.0


@dataclass(slots=True)
class _Season:
    """One strategy in one fleet."""

    fleet: InspectedFleet
    strategy: str
    minutes_a_day: float
    generator: np.random.Generator
    last: np.ndarray = field(init=False)
    minutes: float = 0.0
    saved: float = 0.0
    drawn: int = 0
    drawn_found: int = 0
    expected: float = 0.0
    drawn_by_category: dict[CheckCategory, tuple[int, int]] = field(default_factory=dict)
    past: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    by_category: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Each check by machine, as if the sweep had gone on before.
        first = -(np.arange(self.fleet.rates.machines) % _SWEEP_DAYS)
        self.last = np.repeat(first[:, None], len(_CHECKS), axis=1)

    def day(self) -> None:
        """Let a day pass, and inspect what the strategy chooses."""
        met = self.fleet.incidents
        self.fleet.next_day()
        if self.strategy == "none":
            return
        if self.fleet.incidents > met:
            self._learn_from_incidents()
        self.saved = min(self.saved + self.minutes_a_day, 2 * self.minutes_a_day)
        if self.strategy.startswith("list"):
            self._by_list()
            return
        for machine in self._order():
            if self.saved < _full_minutes():
                break
            self._inspect(machine, _NAMES)

    def _order(self) -> Iterator[int]:
        """Yield machines in service in the order of the strategy."""
        usable = np.flatnonzero(self.fleet.in_service)
        match self.strategy:
            case "monthly":
                due = usable[self.last[usable].min(axis=1) <= self.fleet.day - _SWEEP_DAYS]
                yield from due.tolist()
            case "random":
                yield from self.generator.permutation(usable).tolist()
            case "oldest first":
                yield from usable[np.argsort(self.last[usable, 0], kind="stable")].tolist()
            case _:  # the oracle
                soon = self.fleet.will_meet()[usable]
                latent = usable[soon < 1 << 59]
                yield from latent[np.argsort(self.fleet.will_meet()[latent])].tolist()

    def _inspect(self, machine: int, checks: Sequence[str]) -> int | None:
        minutes = _full_minutes() * len(checks) / len(_CHECKS)
        self.saved -= minutes
        self.minutes += minutes
        self.last[machine, [_NAMES.index(name) for name in checks]] = self.fleet.day
        chances = dict.fromkeys(checks, _FIND)
        category = self.fleet.inspect(machine, chances, _FALSE_ALARM)
        if category is not None:
            self._learn(_NAMES[category], hit=True)
        return category

    def _learn_from_incidents(self) -> None:
        """Count incidents on machines that were inspected within a day as defects not found.

        With a longer span defects that came after the inspection would count against the check.
        """
        for machine in np.flatnonzero(self.fleet.incident_at == self.fleet.day):
            category = int(self.fleet.category_at_repair[machine])
            name = _NAMES[category]
            if self.last[machine, category] >= self.fleet.day - 1:
                self._learn(name, hit=False)
            else:
                self.by_category[name] = self.by_category.get(name, 0) + 1

    def _learn(self, name: str, *, hit: bool) -> None:
        hits, total = self.past.get((name, name), (0, 0))
        self.past[name, name] = (hits + hit, total + 1)
        self.by_category[name] = self.by_category.get(name, 0) + 1

    def _by_list(self) -> None:
        fleet = self.fleet
        listed = fleet.listed_probabilities()
        usable = np.flatnonzero(fleet.in_service)
        past = FoundDefects(self.past, self.by_category)
        routine = self._routine(past)
        machines = [
            MachineRisk(
                str(number),
                (*routine, *self._risks(number, float(listed[number]))),
                dict(zip(_NAMES, (fleet.day - self.last[number]).tolist(), strict=True)),
                _COST,
            )
            for number in usable.tolist()
        ]
        # A check of another category never finds a defect; the plan knows what belongs together.
        lines = plan_inspections(
            machines,
            _CHECKS,
            past,
            budget_minutes=self.saved,
            max_machines=len(machines),
            seed=f"{fleet.seed} {fleet.day}",
            random_share=0.1 if "random" in self.strategy else 0.0,
        )
        for line in lines:
            category = self._inspect(int(line.machine), line.checks)
            if line.is_random:
                self._count_drawn(category)
                self.expected += _FIND * line.probability

    def _count_drawn(self, category: int | None) -> None:
        self.drawn += 1
        self.drawn_found += category is not None
        for number, name in enumerate(_NAMES):
            hits, total = self.drawn_by_category.get(name, (0, 0))
            self.drawn_by_category[name] = (hits + (number == category), total + 1)

    def _routine(self, past: FoundDefects) -> tuple[Risk, ...]:
        """Return the risks of parts that the list cannot see, learned from the random tenth."""
        rates = self.fleet.rates
        latent = (1 - rates.sudden) * rates.latent_days / rates.days_between_defects
        assumed = {name: 0.35 * latent * w for name, w in past.weights(_UNLISTED).items()}
        shares = {name: past.share_of_all(_CHECKS, name) for name in assumed}
        learned = learned_rates(assumed, self.drawn_by_category, shares)
        return tuple(Risk("routine", rate, (name,)) for name, rate in learned.items())

    def _risks(self, machine: int, listed: float) -> tuple[Risk, ...]:
        """Return the risks that a site would know of."""
        fleet, rates = self.fleet, self.fleet.rates
        risks = [Risk("at risk", listed, ("gpu", "memory", "fabric"))]
        repaired = int(fleet.repaired_at[machine])
        cause = int(fleet.category_at_repair[machine])
        if cause >= 0 and repaired >= 0 and fleet.day - repaired < 30:
            name = _NAMES[cause]
            near = (name, *NEIGHBOURS[name])
            risks.append(Risk("repaired", rates.failed_repairs, near, fleet.day - repaired))
        return tuple(risks)


def _full_minutes() -> float:
    return sum(check.minutes for check in _CHECKS)


def run_study(
    seeds: Sequence[int],
    *,
    rates: FleetRates,
    days: int,
    done: Callable[[], None] = lambda: None,
) -> list[StudyRow]:
    """Run all strategies in a fleet of each seed, at the node-hours of a monthly sweep.

    Parameters
    ----------
    seeds : sequence of int
    rates : FleetRates
    days : int
    done : callable, optional
        Called after each run.
    """
    minutes = rates.machines * _full_minutes() / _SWEEP_DAYS
    rows = []
    for seed in seeds:
        for strategy in STRATEGIES:
            fleet = InspectedFleet(rates, seed)
            season = _Season(fleet, strategy, minutes, np.random.default_rng([seed, 1 << 41]))
            for _ in range(days):
                season.day()
            rows.append(_row(season, seed))
            done()
    return rows


def _row(season: _Season, seed: int) -> StudyRow:
    fleet = season.fleet
    return StudyRow(
        season.strategy,
        seed,
        fleet.incidents,
        fleet.machine_days / max(1, fleet.incidents),
        season.minutes / 60.0,
        fleet.prevented,
        fleet.false_drains,
        season.drawn,
        season.drawn_found,
        season.expected,
    )


def report_lines(rows: Sequence[StudyRow]) -> Iterator[str]:
    """Yield the table: means over the seeds, and incidents less than with other strategies."""
    by_name = {name: [row for row in rows if row.strategy == name] for name in STRATEGIES}
    yield (
        f"{'strategy':24} {'incidents':>9} {'days between':>12} {'node-hours':>10} "
        f"{'found':>6} {'false drains':>12}  incidents by seed, less those of oldest first"
    )
    for name, runs in by_name.items():
        means = [
            float(np.mean([getattr(run, column) for run in runs]))
            for column in ("incidents", "days_between", "node_hours", "prevented", "false_drains")
        ]
        numbers = "{:9.1f} {:12.1f} {:10.0f} {:6.1f} {:12.2f}".format(*means)
        yield f"{name:24} {numbers}  {_paired(runs, by_name['oldest first'])}"
    for run in (run for run in rows if run.drawn):
        yield (
            f"seed {run.seed}: of {run.drawn} inspections drawn at random {run.drawn_found} found "
            f"a defect; expected from list and age: {run.expected:.1f}"
        )


def _paired(runs: Sequence[StudyRow], others: Sequence[StudyRow]) -> str:
    """Return the mean difference of incidents over seeds with a 95 % t interval."""
    from scipy import stats

    gains = np.array([a.incidents - b.incidents for a, b in zip(runs, others, strict=True)])
    mean = float(gains.mean())
    if len(gains) < 2 or not gains.std():
        return f"{mean:+.1f}"
    reach = float(stats.t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains)))
    return f"{mean:+.1f} ({mean - reach:+.1f} to {mean + reach:+.1f})"

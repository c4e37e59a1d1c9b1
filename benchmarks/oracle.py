"""What could be known of a simulated fleet: rankings by the defects that the simulator hides.

    python -m benchmarks.oracle --seeds 301,302

The simulated failures are lived through once more (`FaultProcess` alone, without records), and the
defects noted: mechanism, GPU, the records from the first to the last at which it has any level,
and whether a failure ended it. `sudden` failures have none. Three rankings take them, each of an
instance by what is there at its last record, so that a sign counts as soon as it begins, however
small it is beside the noise:

- *the day of each failure with a sign*: 1 if a defect is there that will end in a failure within
  the horizon, else 0. It knows the future, and is wrong about nothing but failures whose sign has
  not begun: no ranking that sees signs alone can have a greater average precision, except for what
  the rest owes to bad slots and machines, which it does not know.
- *which signs will kill, not when*: a defect that will end in a failure has the chance that one of
  its mechanism, age and level, free of noise, ends within the horizon; several together
  1 - product of (1 - chance).
- *all signs, not which kill*: the same of all defects, half of which go away by themselves.

Chances of the two are counted in another, larger fleet, in groups of age and level: what the course
of a level tells beyond that they do not know, so they are no bounds, but what seeing everything
would be worth. Nothing is trained. Figures are as in all other tables, without a slope.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from benchmarks.measured_fleet import Study
from benchmarks.ranking_figures import RankingFigures, mean_tables, print_table
from benchmarks.studied_fleets import StudiedFleets

from forewarn.evaluation.simulation.fleet.defects import VISIBLE, Symptoms
from forewarn.evaluation.simulation.fleet.fault_process import FaultProcess
from forewarn.evaluation.simulation.fleet.fleet_hardware import Devices, make_layout
from forewarn.evaluation.simulation.fleet.fleet_simulator import FIRST_DAY
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.evaluation.simulation.fleet.simulated_records import INTERVAL
from forewarn.features.array_types import Float32Array, Float64Array, Int64Array

__all__ = ["Defect", "DefectChances", "oracle_figures", "shown_defects"]

_ROWS = (
    "oracle: the day of each failure with a sign",
    "oracle: which signs will kill, not when",
    "oracle: all signs, not which kill",
)
_AGES = np.array([18, 72, 144, 288, 576, 1152])  # edges, in records
_LEVELS = np.array([0.05, 0.15, 0.3, 0.5, 0.8])
N_GROUPS = len(VISIBLE) * (len(_AGES) + 1) * (len(_LEVELS) + 1)
_REFERENCE_GPUS, _REFERENCE_DAYS, _REFERENCE_SEED = 100_000, 60, 0
_DAYS_AFTER = 31  # a defect takes no longer to kill
_REFERENCE_FROM = 24 * RECORDS_PER_DAY  # ages of defects from before the first record are unknown


class Defect(NamedTuple):
    """A sign that a GPU shows.

    Attributes
    ----------
    serial : str
    mechanism : int
        Number in `VISIBLE`.
    first, end : int
        Records since the first one of the fleet, [first, end).
    kills : bool
        The GPU fails at `end`.
    levels : ndarray of shape (end - first,)
        Severity times strength; about 0 to 2.
    """

    serial: str
    mechanism: int
    first: int
    end: int
    kills: bool
    levels: Float32Array


def shown_defects(*, n_gpus: int, n_days: int, seed: int) -> list[Defect]:
    """Live through the failures of a simulated fleet, and return what showed at any time.

    Life goes on for a while after the last day: of a defect that is there then, too, it is told
    whether it kills.

    >>> [defect.mechanism for defect in shown_defects(n_gpus=8, n_days=2, seed=3)]
    []
    """
    layout = make_layout(n_gpus, seed)
    devices = Devices(layout, seed, FIRST_DAY)
    faults = FaultProcess(layout, devices, seed)
    spans: dict[tuple[int, int], list[_Span]] = {}
    failures = set()
    for day in range(n_days + _DAYS_AFTER):
        boards = devices.current.copy()  # a board put in today shows nothing today
        today = faults.advance(day)
        failures |= {(f.mechanism, f.position, f.at) for f in today.failures}
        for mechanism, name in enumerate(VISIBLE):
            for position, first, levels in _shown(today.symptoms[name], day):
                known = spans.setdefault((mechanism, position), [])
                if not known or known[-1].end != first:
                    known.append(_Span(int(boards[position]), first, first))
                known[-1].end += len(levels)
                known[-1].levels.append(levels)
    return [
        Defect(
            devices.serials[span.board],
            mechanism,
            span.first,
            span.end,
            (mechanism, position, span.end) in failures,
            np.concatenate(span.levels),
        )
        for (mechanism, position), of_position in spans.items()
        for span in of_position
        if span.first < n_days * RECORDS_PER_DAY
    ]


@dataclass(slots=True)
class _Span:
    board: int
    first: int
    end: int
    levels: list[Float32Array] = field(default_factory=list)


def _shown(symptoms: Symptoms, day: int) -> Iterator[tuple[int, int, Float32Array]]:
    """Yield position, first record and levels of each defect that has any level on a day."""
    for position, level in zip(symptoms.positions.tolist(), symptoms.level, strict=True):
        records = np.flatnonzero(level > 0)
        if len(records):
            first, last = int(records[0]), int(records[-1])
            yield position, day * RECORDS_PER_DAY + first, level[first : last + 1]


@dataclass(frozen=True)
class DefectChances:
    """How often a defect of a mechanism, age and level kills within the horizon.

    Attributes
    ----------
    of_all, of_fatal : ndarray of shape (n_groups,)
        Of all defects, and of those that will kill at some time.
    horizon : int
        Records.
    """

    of_all: Float64Array
    of_fatal: Float64Array
    horizon: int

    @classmethod
    def counted(cls, horizon: int, n_gpus: int = _REFERENCE_GPUS) -> Self:
        """Count them in a fleet that nothing is measured on."""
        defects = shown_defects(n_gpus=n_gpus, n_days=_REFERENCE_DAYS, seed=_REFERENCE_SEED)
        last = _REFERENCE_DAYS * RECORDS_PER_DAY - horizon
        seen, fatal, due = np.zeros((3, N_GROUPS))
        for defect in defects:
            record = np.arange(max(defect.first, _REFERENCE_FROM), min(defect.end, last))
            group = _group(defect, record)
            counts = np.bincount(group, minlength=N_GROUPS)
            seen += counts
            fatal += counts * defect.kills
            soon = group[defect.end - record <= horizon]
            due += np.bincount(soon, minlength=N_GROUPS) * defect.kills
        return cls(due / np.maximum(seen, 1), due / np.maximum(fatal, 1), horizon)

    def of(self, defect: Defect, record: Int64Array) -> dict[str, Float64Array]:
        """Return what each ranking takes for the chance of death, at some records of a defect."""
        group = _group(defect, record)
        due = defect.kills & (defect.end - record <= self.horizon)
        chances = (
            due.astype(np.float64),
            defect.kills * self.of_fatal[group],
            self.of_all[group],
        )
        return dict(zip(_ROWS, chances, strict=True))


def _group(defect: Defect, record: Int64Array) -> npt.NDArray[np.intp]:
    """Return the number of the group of mechanism, age and level at some records."""
    age = record - defect.first
    level = np.searchsorted(_LEVELS, defect.levels[age], side="right")
    of_mechanism = defect.mechanism * (len(_AGES) + 1) + np.searchsorted(_AGES, age, side="right")
    return of_mechanism * (len(_LEVELS) + 1) + level


def oracle_figures(
    study: Study, defects: Sequence[Defect], chances: DefectChances
) -> dict[str, RankingFigures]:
    """Judge the three rankings on a simulated fleet, from its first day on."""
    instances = study.instances
    record = (instances.end - FIRST_DAY.astype(np.int64)) // int(INTERVAL / np.timedelta64(1, "ns"))
    number = {serial: gpu for gpu, serial in enumerate(study.serials)}
    healthy = {name: np.ones(len(instances)) for name in _ROWS}
    for defect in defects:
        of_gpu = np.flatnonzero(instances.gpu == number.get(defect.serial, -1))
        rows = of_gpu[(record[of_gpu] >= defect.first) & (record[of_gpu] < defect.end)]
        for name, chance in chances.of(defect, record[rows]).items():
            healthy[name][rows] *= 1.0 - chance
    return {
        name: RankingFigures.from_scores(
            study, [1.0 - alive[w.tested] for w in study.windows], chances=False
        )
        for name, alive in healthy.items()
    }


def main() -> None:
    """Print a table for each fleet, and one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    StudiedFleets.add_options(parser)
    asked, tables = parser.parse_args(), []
    fleets = StudiedFleets(asked)
    if asked.records:
        parser.error("only a simulated fleet has a truth: --seeds")
    chances = None
    for seed in fleets.seeds:
        study = fleets.simulated(seed)
        horizon = study.recipe.horizon // study.recipe.plan.interval
        chances = chances or DefectChances.counted(horizon)
        defects = shown_defects(n_gpus=asked.gpus, n_days=asked.days, seed=seed)
        tables.append(oracle_figures(study, defects, chances))
        print_table(f"seed {seed}", tables[-1])
    if len(tables) > 1:
        print_table("all", mean_tables(tables))


if __name__ == "__main__":
    main()

"""Upper bounds for rankings of a simulated fleet, from the hidden state of the simulator.

    python -m benchmarks.oracle --seeds 301,302

The failures are simulated again (`FaultProcess` alone, without records), and the defects recorded:
mechanism, GPU, the records during which it has any level, and whether a failure ended it. `sudden`
failures have no defect. Three rankings score an instance by the defects at its last record. A
precursor counts from its onset, even if it is small compared with the noise:

- *the day of each failure with a sign*: 1 if a defect will end in a failure within the horizon,
  else 0. This ranking knows the future and misses only failures whose precursor has not begun. No
  ranking by precursors can have a higher average precision, apart from the effect of bad slots and
  machines, which it does not know.
- *which signs will kill, not when*: a fatal defect gets the probability that a defect of its
  mechanism, age and noise-free level ends within the horizon; several defects together
  1 - product of (1 - probability).
- *all signs, not which kill*: the same for all defects, half of which heal.

The probabilities of the last two are estimated on another, larger fleet, by groups of age and
level. They ignore the history of the level, so these rankings are no bounds; they show the value of
observing everything. Nothing is trained. Metrics are those of all other tables, without a slope.
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

__all__ = ["Defect", "DefectProbabilities", "oracle_figures", "visible_defects"]

_ROWS = (
    "oracle: the day of each failure with a sign",
    "oracle: which signs will kill, not when",
    "oracle: all signs, not which kill",
)
_AGES = np.array([18, 72, 144, 288, 576, 1152])  # bin edges, in records
_LEVELS = np.array([0.05, 0.15, 0.3, 0.5, 0.8])
N_GROUPS = len(VISIBLE) * (len(_AGES) + 1) * (len(_LEVELS) + 1)
_REFERENCE_GPUS, _REFERENCE_DAYS, _REFERENCE_SEED = 100_000, 60, 0
_DAYS_AFTER = 31  # no defect takes longer to become fatal
_REFERENCE_FROM = 24 * RECORDS_PER_DAY  # ages of defects before the first record are unknown


class Defect(NamedTuple):
    """A defect of a GPU while it has symptoms.

    Attributes
    ----------
    serial : str
    mechanism : int
        Index into `VISIBLE`.
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


def visible_defects(*, n_gpus: int, n_days: int, seed: int) -> list[Defect]:
    """Simulate the failures of a fleet and return all defects with symptoms.

    The simulation continues for a while after the last day, to learn whether the defects present
    then are fatal.

    >>> [defect.mechanism for defect in visible_defects(n_gpus=8, n_days=2, seed=3)]
    []
    """
    layout = make_layout(n_gpus, seed)
    devices = Devices(layout, seed, FIRST_DAY)
    faults = FaultProcess(layout, devices, seed)
    spans: dict[tuple[int, int], list[_Span]] = {}
    failures = set()
    for day in range(n_days + _DAYS_AFTER):
        boards = devices.current.copy()  # a board installed today has no symptoms today
        today = faults.advance(day)
        failures |= {(f.mechanism, f.position, f.at) for f in today.failures}
        for mechanism, name in enumerate(VISIBLE):
            for position, first, levels in _visible_spans(today.symptoms[name], day):
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


def _visible_spans(symptoms: Symptoms, day: int) -> Iterator[tuple[int, int, Float32Array]]:
    """Yield position, first record and levels of each defect with symptoms on a day."""
    for position, level in zip(symptoms.positions.tolist(), symptoms.level, strict=True):
        records = np.flatnonzero(level > 0)
        if len(records):
            first, last = int(records[0]), int(records[-1])
            yield position, day * RECORDS_PER_DAY + first, level[first : last + 1]


@dataclass(frozen=True)
class DefectProbabilities:
    """Share of defects, by mechanism, age and level, that fail the GPU within the horizon.

    Attributes
    ----------
    of_all, of_fatal : ndarray of shape (n_groups,)
        Of all defects, and of fatal defects.
    horizon : int
        Records.
    """

    of_all: Float64Array
    of_fatal: Float64Array
    horizon: int

    @classmethod
    def estimate(cls, horizon: int, n_gpus: int = _REFERENCE_GPUS) -> Self:
        """Estimate the shares on a fleet that is not used for evaluation."""
        defects = visible_defects(n_gpus=n_gpus, n_days=_REFERENCE_DAYS, seed=_REFERENCE_SEED)
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

    def at(self, defect: Defect, record: Int64Array) -> dict[str, Float64Array]:
        """Return the failure probability in each ranking, at some records of a defect."""
        group = _group(defect, record)
        due = defect.kills & (defect.end - record <= self.horizon)
        probabilities = (
            due.astype(np.float64),
            defect.kills * self.of_fatal[group],
            self.of_all[group],
        )
        return dict(zip(_ROWS, probabilities, strict=True))


def _group(defect: Defect, record: Int64Array) -> npt.NDArray[np.intp]:
    """Return the group numbers of mechanism, age and level at some records."""
    age = record - defect.first
    level = np.searchsorted(_LEVELS, defect.levels[age], side="right")
    of_mechanism = defect.mechanism * (len(_AGES) + 1) + np.searchsorted(_AGES, age, side="right")
    return of_mechanism * (len(_LEVELS) + 1) + level


def oracle_figures(
    study: Study, defects: Sequence[Defect], probabilities: DefectProbabilities
) -> dict[str, RankingFigures]:
    """Evaluate the three rankings on a simulated fleet, from its first day on."""
    instances = study.instances
    record = (instances.end - FIRST_DAY.astype(np.int64)) // int(INTERVAL / np.timedelta64(1, "ns"))
    number = {serial: gpu for gpu, serial in enumerate(study.serials)}
    healthy = {name: np.ones(len(instances)) for name in _ROWS}
    for defect in defects:
        of_gpu = np.flatnonzero(instances.gpu == number.get(defect.serial, -1))
        rows = of_gpu[(record[of_gpu] >= defect.first) & (record[of_gpu] < defect.end)]
        for name, probability in probabilities.at(defect, record[rows]).items():
            healthy[name][rows] *= 1.0 - probability
    return {
        name: RankingFigures.from_scores(
            study, [1.0 - alive[w.tested] for w in study.windows], are_log_odds=False
        )
        for name, alive in healthy.items()
    }


def main() -> None:
    """Print a table for each fleet, and one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    StudiedFleets.add_options(parser)
    args, tables = parser.parse_args(), []
    fleets = StudiedFleets(args)
    if args.records:
        parser.error("only a simulated fleet has ground truth: use --seeds")
    probabilities = None
    for seed in fleets.seeds:
        study = fleets.simulated(seed)
        horizon = study.recipe.horizon // study.recipe.plan.interval
        probabilities = probabilities or DefectProbabilities.estimate(horizon)
        defects = visible_defects(n_gpus=args.gpus, n_days=args.days, seed=seed)
        tables.append(oracle_figures(study, defects, probabilities))
        print_table(f"seed {seed}", tables[-1])
    if len(tables) > 1:
        print_table("all", mean_tables(tables))


if __name__ == "__main__":
    main()

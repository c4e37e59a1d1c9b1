"""Whether types of GPU should share a model: pooled, apart, or partly pooled.

    python -m benchmarks.pooled_types --seeds 1,2,3

What is used is one model of all types, which knows the type (the first categorical column). Against
it, for trees alone and with a quarter of the vote for the linear model:

- *without the type*: the same without the columns of the type's name. Distances to peers of the
  type and residuals fitted by type stay, as they are measured before.
- *a model for each type*, trained on its instances alone, where it has five failing GPUs or more by
  then; other types take the pooled model.
- *partly pooled*: of such a type with n failing GPUs the mean log odds of both, n / (n + 20) for
  its own (20: with fewer than some twenty failures no figure means much).

A model sees as many failing as healthy, by weight; what a type's own says is moved by how much
more often its instances fail than all, as known then and weighed by age. All of the past counts, at
the default half-life, with 50 healthy instances for each failing one of the model's.

Protocol, written before looking: five and twenty stay as they are; looked at on seeds 1, 2, 3 and
on two models of drives as one fleet. What is better than what is used, its paired interval above 0
on the seeds pooled, is run on seeds 321 to 326. Figures of each type stand beside: average
precision within the type, and its failing GPUs in the test windows.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from benchmarks.measured_fleet import Floats, Ints, Study, Window
from benchmarks.ranking_figures import (
    Figures,
    average_draws,
    bracketed,
    draws_of,
    mean_tables,
    print_table,
)
from benchmarks.studied_fleets import StudiedFleets
from benchmarks.training_rows import TrainingRows, fading

from forewarn.features.prediction.instances import UNKNOWN
from forewarn.models.prediction.log_odds import logit

__all__ = ["Types", "own_share"]

_LEAST, _K = 5, 20  # failing GPUs
_NEGATIVES, _LINEAR = 50, 0.25
_POOLED, _WITHOUT, _OWN, _PARTLY = "pooled (used)", "without the type", "one each", "partly pooled"
_ROWS = (_POOLED, _WITHOUT, _OWN, _PARTLY)


def own_share(n_failing: int) -> float:
    """Return the share that a type's own model has in the mean of log odds.

    >>> own_share(4), own_share(5), own_share(20)
    (0.0, 0.2, 0.5)
    """
    return n_failing / (n_failing + _K) if n_failing >= _LEAST else 0.0


@dataclass(frozen=True)
class Types:
    """The types of the instances of a study.

    Attributes
    ----------
    names : tuple of str
        Those that have a column of their own.
    number : ndarray of shape (n_instances,)
        -1: of no such type.
    columns : ndarray of bool
        The columns of the context that name the type.
    """

    names: tuple[str, ...]
    number: Ints
    columns: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, study: Study) -> Types:
        """Read them from the context."""
        prefix = f"category:{study.recipe.plan.kinds.categorical[0]}="
        columns = np.array([name.startswith(prefix) for name in study.values.context_names])
        shown = study.values.context[:, columns] == 1
        number = np.where(shown.any(axis=1), shown.argmax(axis=1), -1)
        named = np.array(study.values.context_names)[columns]
        return cls(tuple(str(name)[len(prefix) :] for name in named), number, columns)

    def hidden(self, study: Study) -> Study:
        """Return the study without the names of types."""
        context = np.where(self.columns, np.float32(0), study.values.context)
        return replace(study, values=replace(study.values, context=context))


@dataclass(frozen=True)
class Pooling:
    """What a retraining says with each way of pooling, of one model of the catalogue."""

    study: Study
    hidden: Study  # without the names of types
    types: Types
    window: Window
    name: str

    def log_odds(self) -> dict[str, Floats]:
        """Return the log odds of the test rows by way of pooling."""
        window, number = self.window, self.types.number[self.window.tested]
        everybody = np.ones(len(window.known), dtype=bool)
        pooled = self._trained(self.study, everybody, window.tested)
        without = self._trained(self.hidden, everybody, window.tested)
        own, partly = pooled.copy(), pooled.copy()
        for type_number in range(len(self.types.names)):
            of_type = self.types.number[window.known] == type_number
            failing = window.known[of_type & (window.labels == 1)]
            share = own_share(len(np.unique(self.study.instances.gpu[failing])))
            rows = np.flatnonzero(number == type_number)
            if share and len(rows):
                theirs = self._trained(self.study, of_type, window.tested[rows])
                own[rows] = theirs + self._excess(of_type)
                partly[rows] = share * own[rows] + (1.0 - share) * pooled[rows]
        return dict(zip(_ROWS, (pooled, without, own, partly), strict=True))

    def _trained(self, study: Study, used: npt.NDArray[np.bool_], tested: Ints) -> Floats:
        """Train on some of the rows that are known."""
        rows, labels = self.window.known[used], self.window.labels[used]
        half_life = study.half_life
        chosen = TrainingRows.of(study, rows, labels, half_life=half_life, negatives=_NEGATIVES)
        return logit(chosen.scores(study, self.name, tested))

    def _excess(self, of_type: npt.NDArray[np.bool_]) -> float:
        """Return by how much, in log odds, a type fails more often than all do."""
        weights = fading(self.study, self.window.known, self.study.half_life)
        failing = (self.window.labels == 1).astype(np.float64)
        theirs = np.average(failing[of_type], weights=weights[of_type])
        return float(logit(theirs) - logit(np.average(failing, weights=weights)))


def _scores(study: Study, types: Types) -> dict[str, list[Floats]]:
    """Return the log odds of each row of the tables, window by window."""
    scores: dict[str, list[Floats]] = {}
    hidden = types.hidden(study)
    for window in study.windows:
        trees, linear = (
            Pooling(study, hidden, types, window, name).log_odds() for name in ("gbdt", "linear")
        )
        for way in _ROWS:
            both = (1 - _LINEAR) * trees[way] + _LINEAR * linear[way]
            for title, values in (("trees", trees[way]), ("a quarter linear", both)):
                scores.setdefault(f"{title}: {way}", []).append(values)
    return scores


def _by_type(
    study: Study, types: Types, scores: Mapping[str, Sequence[Floats]]
) -> dict[str, tuple[int, dict[str, Floats]]]:
    """Return the failing GPUs of each type, and the average precision of each row within it."""
    draws, label, tables = draws_of(study), study.instances.label, {}
    tested = np.concatenate([window.tested for window in study.windows])
    for number, name in enumerate(types.names):
        of_type = types.number == number
        labels = np.where(of_type, label, UNKNOWN).astype(np.int8)
        failing = tested[of_type[tested] & (label[tested] == 1)]
        averages = {row: average_draws(study, s, draws, labels) for row, s in scores.items()}
        tables[name] = len(np.unique(study.instances.gpu[failing])), averages
    return tables


def main() -> None:
    """Print a table for each fleet, one of its types, and one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    StudiedFleets.add_options(parser)
    tables, by_type = [], []
    for title, study in StudiedFleets(parser.parse_args()):
        types = Types.of(study)
        scores = _scores(study, types)
        tables.append({row: Figures.of(study, s, chances=True) for row, s in scores.items()})
        by_type.append(_by_type(study, types, scores))
        _print(title, tables[-1], by_type[-1:])
    if len(tables) > 1:
        _print("all", mean_tables(tables), by_type)


def _print(
    title: str,
    table: Mapping[str, Figures],
    by_type: Sequence[Mapping[str, tuple[int, Mapping[str, Floats]]]],
) -> None:
    """Print trees and committees, each beside the pooled one; then types, all fleets together."""
    for member in ("trees", "a quarter linear"):
        print_table(title, {row: f for row, f in table.items() if row.startswith(member)})
    for name in by_type[0]:
        of_fleets = [tables[name] for tables in by_type if name in tables and tables[name][0]]
        weights = [failing for failing, _ in of_fleets]
        print(f"\n{title}, {name}: {sum(weights)} failing GPUs")
        for row in table if weights else ():
            rows = row, f"{row.partition(':')[0]}: {_POOLED}"
            reached, before = (
                np.average([averages[r] for _, averages in of_fleets], axis=0, weights=weights)
                for r in rows
            )
            print(f"| {row} | {bracketed(reached)} | {bracketed(reached - before)} |", flush=True)


if __name__ == "__main__":
    main()

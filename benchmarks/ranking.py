"""Compares rankings by training data and model: the studies in `docs/quality.md`.

    python -m benchmarks.ranking --seeds 211,212 [--gpus 1000] [--days 60] [--others 11,12]
    python -m benchmarks.ranking --records RECORDS --config tests/real_data/drives.toml \
        --every 120 --first 300 --keep 1

A quick study with the functions of the product: one instance in `--keep` (drawn by hash, which
preserves the prevalence); of each window the first record, the mean and the last; no networks. Each
retraining uses only labels known at that time: a label counts when its horizon has passed.

For metrics and brackets, see `ranking_figures`. Slopes are those of probabilities calibrated on
earlier windows (`calibrated_probabilities`).

With `--others`, trees trained on all data of some other fleets show what could be learned. Each row
closes part of the gap to them, starting from trees of 15 days and ten healthy instances. Rankings
by the hidden state of the simulation (`oracle`) show the upper bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from benchmarks.measured_fleet import ARRAYS, Study, Window
from benchmarks.oracle import DefectProbabilities, oracle_figures, visible_defects
from benchmarks.ranking_figures import RankingFigures, bracketed, mean_tables, print_table
from benchmarks.studied_fleets import StudiedFleets, parse_seeds
from benchmarks.training_rows import TrainingRows

from forewarn.features.array_types import Float64Array
from forewarn.features.prediction.buckets import Buckets
from forewarn.features.prediction.encoder import Encoder
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.linear.log_odds import logit
from forewarn.models.prediction.model_catalogue import make_model


@dataclass(frozen=True)
class Variant:
    """A row of the table: a model or the rules, further ensemble members, and the training data."""

    name: str = "gbdt"
    linear: float = 0.0
    points: float = 0.0
    negatives: int = 50
    sliding: bool = False  # the longest training length, with equal weights


VARIANTS = {
    "trees": Variant(),
    "trees: 15 days, 10 healthy": Variant(negatives=10, sliding=True),
    "trees and rules": Variant(points=0.25),
    "trees and a quarter linear": Variant(linear=0.25),
    "trees and linear": Variant(linear=0.5),
    "trees, linear and rules": Variant(linear=0.5, points=0.25),
    "linear": Variant("linear"),
    "logistic regression": Variant("logistic"),
    "rules": Variant("rules"),
}


_BEFORE, _OTHERS = "trees: 15 days, 10 healthy", "trees of other fleets"


@dataclass(frozen=True)
class OtherFleets:
    """Trees trained on all data of some fleets."""

    encoder: Encoder
    model: FailureModel

    @classmethod
    def fit(cls, studies: Sequence[Study]) -> OtherFleets:
        """Train on all failing instances, and on 50 healthy ones for each."""
        values, labels = [], []
        for study in studies:
            label = study.instances.label
            healthy = np.flatnonzero(label == 0)
            rarest = np.argsort(study.hashes[healthy])[: 50 * int((label == 1).sum())]
            rows = np.sort(np.append(np.flatnonzero(label == 1), healthy[rarest]))
            values.append(study.values.select(rows))
            labels.append(label[rows])
        sequence, context = (np.concatenate([getattr(v, n) for v in values]) for n in ARRAYS)
        whole, label = (
            replace(values[0], sequence=sequence, context=context),
            np.concatenate(labels),
        )
        buckets = Buckets.fit(whole.sequence), Buckets.fit(whole.context)
        encoder = Encoder(studies[0].measures, *buckets, whole.columns)
        weights = np.where(label == 1, (label == 0).sum() / (label == 1).sum(), 1.0)
        recipe = studies[0].recipe
        model = make_model("gbdt", seed=recipe.seed, purge=recipe.horizon)
        ends = np.zeros(len(label), dtype=np.int64)  # trees ignore the end times
        model.fit(encoder.encode(whole), label, weights.astype(np.float32), ends)
        return cls(encoder, model)

    def figures(self, study: Study) -> RankingFigures:
        """Evaluate the trees on a fleet with the same features."""
        scores = [
            logit(self.model.score(self.encoder.encode(study.values.select(window.tested))))
            for window in study.windows
        ]
        return RankingFigures.from_scores(study, scores, are_log_odds=False)


@dataclass
class Retraining:
    """The models of one retraining, each trained once for all variants that use it."""

    study: Study
    window: Window
    _scores: dict[tuple[str, int, bool], Float64Array] = field(default_factory=dict)

    def log_odds(self, variant: Variant) -> Float64Array:
        """Return the log odds of the test rows (for the rules, their scores)."""
        rules = self.study.rules[self.window.tested]
        if variant.name == "rules":
            return rules  # their log odds are truncated: the highest would be tied
        scores = {"rules": rules, variant.name: self._scored(variant.name, variant)}
        if variant.linear:
            scores["linear"] = self._scored("linear", variant)
        points = variant.points if "xid" in self.study.recipe.plan.kinds.code else 0.0
        committee = Committee((variant.name,), (), points, linear=variant.linear)
        return logit(committee.blend(scores))

    def _scored(self, name: str, variant: Variant) -> Float64Array:
        key = name, variant.negatives, variant.sliding
        if key not in self._scores:
            self._scores[key] = self._trained(name, variant)
        return self._scores[key]

    def _trained(self, name: str, variant: Variant) -> Float64Array:
        study, rows, labels = self.study, self.window.known, self.window.labels
        half_life: float | None = study.half_life
        if variant.sliding:
            oldest = self.window.moment - study.longest - study.recipe.horizon
            recent = study.instances.end[rows] >= oldest
            rows, labels, half_life = rows[recent], labels[recent], None
        chosen = TrainingRows.select(
            study, rows, labels, half_life=half_life, negatives=variant.negatives
        )
        return chosen.scores(study, name, self.window.tested)


def _print_gap(table: Mapping[str, RankingFigures]) -> None:
    """Print the share of the gap to trees of other fleets that each row closes."""
    before, others = table[_BEFORE].average, table[_OTHERS].average
    for name, row in table.items():
        closed = bracketed((row.average - before) / (others - before), 100, 1)
        print(f"{name}: {closed} % of the gap")


def _figures(study: Study) -> dict[str, RankingFigures]:
    retrainings = [Retraining(study, window) for window in study.windows]
    return {
        name: RankingFigures.from_scores(
            study,
            [retraining.log_odds(variant) for retraining in retrainings],
            are_log_odds=variant.name != "rules",
        )
        for name, variant in VARIANTS.items()
    }


@dataclass(frozen=True)
class UpperBounds:
    """The upper bounds below the table of a simulated fleet."""

    fleets: StudiedFleets
    others: OtherFleets
    probabilities: DefectProbabilities

    @classmethod
    def measure(cls, fleets: StudiedFleets, seeds: Sequence[int]) -> Self:
        """Train on some other fleets."""
        studies = [fleets.simulated(seeds[0])]
        studies += [fleets.simulated(seed, studies[0].measures) for seed in seeds[1:]]
        recipe = studies[0].recipe
        probabilities = DefectProbabilities.estimate(recipe.horizon // recipe.plan.interval)
        return cls(fleets, OtherFleets.fit(studies), probabilities)

    def figures(self, study: Study, seed: int) -> dict[str, RankingFigures]:
        """Evaluate the bounds on the fleet of a seed, measured before."""
        theirs = self.fleets.simulated(seed, self.others.encoder.measures)
        args = self.fleets.args
        defects = visible_defects(n_gpus=args.gpus, n_days=args.days, seed=seed)
        oracle = oracle_figures(study, defects, self.probabilities)
        return {_OTHERS: self.others.figures(theirs)} | oracle


def main() -> None:
    """Print a table for each fleet, and one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    StudiedFleets.add_options(parser)
    parser.add_argument("--others", default="", help="seeds of other fleets to train on")
    args = parser.parse_args()
    if args.others and args.records:
        parser.error("--others requires --seeds: only simulated fleets are comparable")
    fleets, tables = StudiedFleets(args), []
    bounds = UpperBounds.measure(fleets, parse_seeds(args.others)) if args.others else None
    for name, study in fleets:
        tables.append(_figures(study))
        if bounds:
            tables[-1] |= bounds.figures(study, int(name))
        print_table(name, tables[-1])
    if len(tables) > 1:
        print_table("all", mean_tables(tables))
        if bounds:
            _print_gap(mean_tables(tables))


if __name__ == "__main__":
    main()

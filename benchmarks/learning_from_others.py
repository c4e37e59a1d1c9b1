"""What a site gains by learning from other sites: held-out fleets, paired with learning alone.

    nice python -m benchmarks.learning_from_others simulated [--seeds 1,2,3,4,5] [--gpus N]
    nice python -m benchmarks.learning_from_others drives
    nice python -m benchmarks.learning_from_others azure

`simulated`: each fleet has its own parameters and another form of noise (`changed_fleets`). Each is
held out in turn; the others in the list are its other sites, and a fleet of the simulator as it is
stands for a simulated site. `drives`: drive models of another make, `azure`: machines of other
models (`../shared/data`); their other sites are trained on what was known at each retraining.

A row says what a site learns from: one other site, four others, or a simulated one. All sites have
the same features; each has its own buckets. `alone` is trees and a quarter linear, no networks.

- `theirs`: the mean log odds of the other sites' models, without learning from own failures
- `vote`: what `train --start-from` does: theirs have half of the vote
- `weighed`: the vote that was best on the finished windows, shrunk halfway to a half
- `prior`: the coefficients of the linear model have a normal prior around the mean of the others'
- `offset`: the trees start from the others' log odds, scaled by a slope fitted to own failures
- `prior and offset`: both
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import lightgbm
import numpy as np
from benchmarks.measured_fleet import Study, Window
from benchmarks.other_sites import SITES, HeldOut
from benchmarks.ranking_figures import RankingFigures, mean_tables, print_table
from benchmarks.training_rows import TrainingRows

from forewarn.evaluation.prediction.metrics.ranking_metrics import average_precision
from forewarn.features.array_types import Float64Array, Int8Array, Int64Array
from forewarn.features.prediction.encoder import Encoder
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.linear.linear_model import LinearModel
from forewarn.models.prediction.linear.linear_table import LinearTable
from forewarn.models.prediction.linear.log_odds import logit
from forewarn.models.prediction.linear.logistic_fit import RegressionData, posterior_mode
from forewarn.models.prediction.model_catalogue import make_model
from forewarn.models.prediction.trained_recipe import MIN_POSITIVES
from forewarn.models.prediction.trees.gbdt import GbdtModel

_LINEAR = 0.25  # the default vote of the linear model
_VARIANCE = 0.003  # `column_variance` of the linear model
_WIDE = 100.0
_VOTES = (0.0, 0.25, 0.5, 0.75, 1.0)
_NEGATIVES, _N_TREES = 50, 200
_TREES = {"objective": "binary", "deterministic": True, "force_row_wise": True, "num_threads": 1}
_TREES |= {"verbosity": -1}


def _loss(training: TrainingRows) -> tuple[Float64Array, float]:
    """Return the weights of the loss, and the weight of one instance as for the linear model."""
    weights = training.weights / training.weights.mean()
    return weights, 2.0 * (training.labels == 1).sum() / 10.0 / len(training.labels)


def _spread(columns: Float64Array, healthy: Float64Array) -> Float64Array:
    mean = np.average(columns, axis=0, weights=healthy)
    deviation = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=healthy))
    return np.maximum(deviation, 0.05)


@dataclass(frozen=True)
class Prior:
    """Mean and variance of the coefficients, each per standard deviation of its column."""

    encoder: Encoder
    table: LinearTable
    centre: Float64Array
    variance: Float64Array

    def fit(self, study: Study, training: TrainingRows) -> tuple[Float64Array, Float64Array]:
        """Return the coefficients per standard deviation, and those of the columns.

        As in the linear model, a common factor of all columns is fitted afterwards.
        """
        columns = self._columns(study, training.rows)
        weights, worth = _loss(training)
        healthy = np.where(training.labels == 0, weights, 0.0)
        spread = _spread(columns, healthy)
        labels = training.labels.astype(np.float64)
        direction = _posterior(
            columns / spread, labels, weights * worth, self.centre, np.sqrt(self.variance)
        )[1:]
        step = direction / spread
        along = columns @ step
        size = float(_spread(along[:, None], healthy)[0])
        if along.std() > 0:
            size = max(float(np.sqrt(np.cov(along, aweights=healthy))), 0.05 * along.std())
        factor = _posterior(
            along[:, None] / size, labels, weights * worth, np.zeros(1), np.ones(1)
        )[1]
        return direction, step * factor / size

    def log_odds(self, study: Study, training: TrainingRows, rows: Int64Array) -> Float64Array:
        """Fit to training rows, and return the log odds of others without the intercept."""
        return self._columns(study, rows) @ self.fit(study, training)[1]

    def _columns(self, study: Study, rows: Int64Array) -> Float64Array:
        """Return the columns of the linear model, in the encoding of the first other site."""
        return self.table.apply(self.encoder.encode(study.values.select(rows)))


def _posterior(
    columns: Float64Array,
    labels: Float64Array,
    weights: Float64Array,
    centre: Float64Array,
    spread: Float64Array,
) -> Float64Array:
    """Return the intercept, which has a wide prior, and the coefficients."""
    design = np.column_stack([np.ones(len(columns)), columns])
    data = [RegressionData(design, labels, weights)]
    return posterior_mode(data, np.append(0.0, centre), np.append(_WIDE, spread))


def _select(
    study: Study, rows: Int64Array, labels: Int8Array, half_life: float | None
) -> TrainingRows:
    return TrainingRows.select(study, rows, labels, half_life=half_life, negatives=_NEGATIVES)


@dataclass(frozen=True)
class Site:
    """The models of a site, trained on some rows."""

    encoder: Encoder
    trees: FailureModel
    linear: LinearModel

    @classmethod
    def fit(cls, study: Study, training: TrainingRows) -> Self:
        """Train on some rows."""
        encoder = study.encoder(training.rows)
        inputs = encoder.encode(study.values.select(training.rows))
        ends = study.instances.end[training.rows]
        data = inputs, training.labels, training.weights.astype(np.float32), ends
        recipe = study.recipe
        trees = make_model("gbdt", seed=recipe.seed, purge=recipe.horizon).fit(*data)
        return cls(encoder, trees, LinearModel(seed=recipe.seed).fit(*data))

    def log_odds(self, study: Study, rows: Int64Array) -> Float64Array:
        """Return the log odds of the default for rows of any study with the same features."""
        inputs = self.encoder.encode(study.values.select(rows))
        return _mixed(logit(self.trees.score(inputs)), logit(self.linear.score(inputs)))


def _mixed(trees: Float64Array, linear: Float64Array) -> Float64Array:
    return (1.0 - _LINEAR) * trees + _LINEAR * linear


_FITTED: dict[tuple[int, int | None], Site] = {}  # a site is among the others of several sites


@dataclass(frozen=True)
class OtherSites:
    """What some other sites know; at `moment`, if it is not None."""

    sites: Sequence[Site]
    prior: Prior

    @classmethod
    def fit(cls, studies: Sequence[Study], moment: int | None) -> Self | None:
        """Train each site that has enough known failures; None if no site has."""
        trained = []
        for study in studies:
            known = study.instances.label >= 0
            if moment is not None:
                known &= study.instances.end < moment - study.recipe.horizon
            rows = np.flatnonzero(known)
            if (study.instances.label[rows] == 1).sum() < MIN_POSITIVES:
                continue
            trained.append((study, _select(study, rows, study.instances.label[rows], None)))
        if not trained:
            return None
        for pair in trained:
            if (id(pair[0]), moment) not in _FITTED:
                _FITTED[id(pair[0]), moment] = Site.fit(*pair)
        sites = [_FITTED[id(study), moment] for study, _ in trained]
        table = sites[0].linear.table_
        nothing = np.zeros(table.n_columns), np.full(table.n_columns, _VARIANCE)
        alone = Prior(sites[0].encoder, table, *nothing)
        theirs = np.array([alone.fit(*pair)[0] for pair in trained])
        variance = alone.variance + (theirs.var(axis=0, ddof=1) if len(theirs) > 1 else 0.0)
        return cls(sites, replace(alone, centre=theirs.mean(axis=0), variance=variance))

    def log_odds(self, study: Study, rows: Int64Array) -> Float64Array:
        """Return the mean log odds of the sites."""
        mean: Float64Array = np.mean([s.log_odds(study, rows) for s in self.sites], axis=0)
        return mean


def _vote(
    own: Sequence[Float64Array], theirs: Sequence[Float64Array], labels: Sequence[Int8Array]
) -> float:
    """Return the vote of the others that was best on finished windows, shrunk halfway to a half."""
    if not own:
        return 0.5
    mine, others = np.concatenate(own), np.concatenate(theirs)
    failed = np.concatenate(labels)
    merits = [
        average_precision(failed, (1.0 - vote) * mine + vote * others) or 0.0 for vote in _VOTES
    ]
    return 0.5 * (_VOTES[int(np.argmax(merits))] + 0.5)


def _slope(theirs: Float64Array, training: TrainingRows) -> float:
    """Return the factor of the others' log odds that fits own failures, with a prior around 1."""
    weights, worth = _loss(training)
    labels = training.labels.astype(np.float64)
    column = theirs[:, None]
    return float(_posterior(column, labels, weights * worth, np.ones(1), np.full(1, 0.5))[1])


@dataclass(frozen=True)
class Retraining:
    """A retraining of the held-out site."""

    study: Study
    window: Window
    training: TrainingRows
    site: Site

    @classmethod
    def fit(cls, study: Study, window: Window) -> Self:
        """Train the site's own models."""
        training = _select(study, window.known, window.labels, study.half_life)
        return cls(study, window, training, Site.fit(study, training))

    def rows(
        self, known: Mapping[str, OtherSites], past: Sequence[Mapping[str, Float64Array]]
    ) -> dict[str, Float64Array]:
        """Return the log odds of the test rows, by row of the table.

        `past` holds the log odds of the finished windows.
        """
        study, tested = self.study, self.window.tested
        inputs = self.site.encoder.encode(study.values.select(tested))
        trees, linear = logit(self.site.trees.score(inputs)), logit(self.site.linear.score(inputs))
        own = _mixed(trees, linear)
        rows = {"alone": own, "alone, rules": study.rules[tested]}
        labels = [study.instances.label[w.tested] for w in study.windows[: len(past)]]
        for name, others in known.items():
            theirs = others.log_odds(study, tested)
            before = [[scores[key] for scores in past] for key in ("alone", f"{name}: theirs")]
            vote = _vote(before[0], before[1], labels)
            updated = others.prior.log_odds(study, self.training, tested)
            onward = self._onward(others, theirs)
            rows |= {
                f"{name}: theirs": theirs,
                f"{name}: vote": 0.5 * (own + theirs),
                f"{name}: weighed": (1.0 - vote) * own + vote * theirs,
                f"{name}: prior": _mixed(trees, updated),
                f"{name}: offset": _mixed(onward, linear),
                f"{name}: prior and offset": _mixed(onward, updated),
            }
        return rows

    def _onward(self, others: OtherSites, theirs: Float64Array) -> Float64Array:
        """Return the log odds of trees that start from the others' log odds."""
        study, training = self.study, self.training
        model, encode = GbdtModel(seed=study.recipe.seed), self.site.encoder.encode
        before = others.log_odds(study, training.rows)
        slope = _slope(before, training)
        data = lightgbm.Dataset(
            model.table(encode(study.values.select(training.rows))),
            label=training.labels,
            weight=_loss(training)[0],
            init_score=slope * before,
        )
        booster = lightgbm.train(
            {**model.parameters, **_TREES, "seed": study.recipe.seed}, data, _N_TREES
        )
        tested = model.table(encode(study.values.select(self.window.tested)))
        added = np.asarray(booster.predict(tested, raw_score=True), dtype=np.float64)
        return added + slope * theirs


def _with_others(held_out: HeldOut) -> Iterator[tuple[Window, dict[str, OtherSites]]]:
    """Yield the retrainings by which each row of the table has another site to learn from."""
    for window in held_out.study.windows:
        moment = window.moment if held_out.as_of else None
        fitted = {name: OtherSites.fit(s, moment) for name, s in held_out.others.items()}
        sites = {name: others for name, others in fitted.items() if others is not None}
        if len(sites) == len(fitted):
            yield window, sites


def _figures(held_out: HeldOut) -> tuple[int, dict[str, RankingFigures]]:
    """Return the failing instances of a held-out site, and the metrics of each row of its table."""
    used, scores = list(_with_others(held_out)), list[dict[str, Float64Array]]()
    study = replace(held_out.study, windows=[window for window, _ in used])
    moments = [window.moment for window in study.windows]
    every = min(np.diff(moments))
    for window, sites in used:
        finished = [m for m in moments if m + every <= window.moment - study.recipe.horizon]
        rows = Retraining.fit(study, window).rows(sites, scores[: len(finished)])
        scores.append(rows)
    failing = sum(int((study.instances.label[w.tested] == 1).sum()) for w in study.windows)
    return failing, {
        name: RankingFigures.from_scores(study, [s[name] for s in scores], are_log_odds=True)
        for name in scores[0]
    }


def main() -> None:
    """Print a table for each held-out site, and one for all with the same rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=SITES)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--gpus", type=int, default=400)
    parser.add_argument("--days", type=int, default=42)
    args = parser.parse_args()
    tables = []
    for held_out in SITES[args.data](args):
        failing, table = _figures(held_out)
        tables.append(table)
        print_table(f"site {len(tables)}: {failing} failing instances", table)
    if len(tables) > 1 and len({tuple(table) for table in tables}) == 1:
        print_table("all", mean_tables(tables))


if __name__ == "__main__":
    main()

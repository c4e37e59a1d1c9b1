"""How well a list is ranked by what it is trained with: what `docs/quality.md` compares.

    python -m benchmarks.ranking --seeds 211,212 [--gpus 1000] [--days 60] [--others 11,12]
    python -m benchmarks.ranking --records RECORDS --config tests/real_data/drives.toml \
        --every 120 --first 300 --keep 1

A quick study with the functions of the product: an instance in `--keep` (drawn by hash, so that
prevalence stays), of a window the first record, the mean and the last, no networks. Each retraining
knows what was known then: a label counts only when its horizon has passed.

Average precision is that of each test window, weighed by its failing instances, at true prevalence;
a list is the configured share of the newest instances of a day (of a step, if that is longer).
Slopes of calibration are those of all windows but the first, for probabilities fitted to what was
known of earlier ones. Brackets resample machines; differences are paired, to the first row.

With `--others` trees that have learned from all of some other fleets stand beside: what could be
known. Of the gap to them each row closes a part, from trees of 15 days and ten healthy instances.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from benchmarks.measured_fleet import ARRAYS, Floats, Ints, Labels, Study, Window

from forewarn.evaluation.bootstrap import interval, machine_draws
from forewarn.evaluation.prediction.finished_windows import likeness
from forewarn.evaluation.prediction.ranking import average_precision_draws
from forewarn.features.prediction.buckets import Buckets
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.instances import UNKNOWN
from forewarn.features.prediction.measurement import Measures
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.calibration import fit_calibration, prior_correction
from forewarn.models.prediction.catalogue import make_model
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.log_odds import logit, sigmoid
from forewarn.models.prediction.protocol import FailureModel
from forewarn.models.prediction.reliability import JudgedRows, calibration_slope
from forewarn.pipelines.config.settings import Settings, load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

_JUDGED = ("average", "precision")


@dataclass(frozen=True)
class Variant:
    """A row of the table: a model or the rules, what votes beside it, and what it learns from."""

    name: str = "gbdt"
    linear: float = 0.0
    points: float = 0.0
    negatives: int = 50
    sliding: bool = False  # the longest training span, all of it weighing the same


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
    """Trees that have learned from all of some fleets."""

    encoder: Encoder
    model: FailureModel

    @classmethod
    def of(cls, studies: Sequence[Study]) -> OtherFleets:
        """Train on all failing instances, and on 50 healthy ones for each."""
        values, labels = [], []
        for study in studies:
            label = study.instances.label
            healthy = np.flatnonzero(label == 0)
            rarest = np.argsort(study.hashes[healthy])[: 50 * int((label == 1).sum())]
            rows = np.sort(np.append(np.flatnonzero(label == 1), healthy[rarest]))
            values.append(study.values.take(rows))
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
        ends = np.zeros(len(label), dtype=np.int64)  # trees do not look at them
        model.fit(encoder.encode(whole), label, weights.astype(np.float32), ends)
        return cls(encoder, model)

    def figures(self, study: Study) -> Figures:
        """Judge them on a fleet that was measured as theirs were."""
        scores = [
            logit(self.model.score(self.encoder.encode(study.values.take(window.tested))))
            for window in study.windows
        ]
        return Figures.of(study, scores, chances=False)


@dataclass
class Retraining:
    """What a retraining trains, each model once for all variants that it is part of."""

    study: Study
    window: Window
    _scores: dict[tuple[str, int, bool], Floats] = field(default_factory=dict)

    def log_odds(self, variant: Variant) -> Floats:
        """Return the log odds of the test rows (of rules their scores)."""
        rules = self.study.rules[self.window.tested]
        if variant.name == "rules":
            return rules  # not their log odds, which are cut off: the highest would be ties
        scores = {"rules": rules, variant.name: self._scored(variant.name, variant)}
        if variant.linear:
            scores["linear"] = self._scored("linear", variant)
        points = variant.points if "xid" in self.study.recipe.plan.kinds.code else 0.0
        committee = Committee((variant.name,), (), points, linear=variant.linear)
        return logit(committee.blend(scores))

    def _scored(self, name: str, variant: Variant) -> Floats:
        key = name, variant.negatives, variant.sliding
        if key not in self._scores:
            self._scores[key] = self._trained(name, variant)
        return self._scores[key]

    def _trained(self, name: str, variant: Variant) -> Floats:
        study, tested = self.study, self.window.tested
        rows, labels, weights = _training(study, self.window, variant)
        encoder = study.encoder(rows)
        model = make_model(name, seed=study.recipe.seed, purge=study.recipe.horizon)
        ends = study.instances.end[rows]
        inputs = encoder.encode(study.values.take(rows))
        model.fit(inputs, labels, weights.astype(np.float32), ends)
        return model.score(encoder.encode(study.values.take(tested)))


def _training(study: Study, window: Window, variant: Variant) -> tuple[Ints, Labels, Floats]:
    """Return the rows that a variant trains on, their labels and weights."""
    rows, labels = window.known, window.labels
    ends, weights = study.instances.end[rows], np.ones(len(rows))
    if variant.sliding:
        recent = ends >= window.moment - study.longest - study.recipe.horizon
        rows, labels, weights = rows[recent], labels[recent], weights[recent]
    elif study.half_life is not None:
        weights = 0.5 ** ((ends.max() - ends) / study.half_life)
    positive, negative = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    rarest = np.argsort(study.hashes[rows[negative]])[: variant.negatives * len(positive)]
    chosen = np.sort(np.append(positive, negative[rarest]))
    rows, labels, weights = rows[chosen], labels[chosen], weights[chosen]
    weights[labels == 1] *= weights[labels == 0].sum() / weights[labels == 1].sum()
    return rows, labels, weights


def _listed(study: Study, window: Window, scores: Floats) -> Ints:
    """Return the rows that are on the lists of a window, the newest of each GPU ranked."""
    gpu, end = study.instances.gpu[window.tested], study.instances.end[window.tested]
    day = (end - window.moment) // max(DAY, study.recipe.step)
    listed = []
    for number in np.unique(day):
        rows = np.flatnonzero(day == number)
        rows = rows[np.lexsort((end[rows], gpu[rows]))]
        rows = rows[np.append(np.diff(gpu[rows]) != 0, True)]
        best = np.argsort(-scores[rows], kind="stable")
        listed.append(rows[best[: max(1, round(study.share * len(rows)))]])
    rows_listed: Ints = window.tested[np.concatenate(listed)]
    return rows_listed


def _slope(study: Study, scores: Sequence[Floats]) -> float:
    """Return the calibration slope of probabilities fitted to earlier windows."""
    judged = []
    for number, window in enumerate(study.windows[1:], start=1):
        known_rows, known_labels = window.known, window.labels
        truth = np.full(len(study.instances), UNKNOWN, dtype=np.int8)
        truth[known_rows] = known_labels
        rows = np.concatenate([w.tested for w in study.windows[:number]])
        known = truth[rows] >= 0
        past = sigmoid(np.concatenate(scores[:number]))[known]
        prior = prior_correction(0.5, float((known_labels == 1).mean()))
        weights = _evidence(study, number)[known]
        calibration = fit_calibration(past, truth[rows][known], start=prior, weights=weights)
        probabilities, tested = calibration.apply(sigmoid(scores[number])), window.tested
        judged.append(
            JudgedRows(probabilities, study.instances.label[tested], study.machine[tested])
        )
    return calibration_slope(judged)[0]


def _evidence(study: Study, number: int) -> Floats:
    """Return what the test rows before a retraining count for its calibration, as in the product.

    One failure of many positives is one evidence, and a model that knew less of the past less.
    """
    first, window = int(study.instances.end.min()), study.windows[number]
    each = min(1.0, study.keep * study.recipe.step / study.recipe.horizon)
    span = Nanoseconds(window.moment - study.recipe.horizon - first)
    weights = []
    for earlier in study.windows[:number]:
        other = Nanoseconds(earlier.moment - study.recipe.horizon - first)
        weights.append(np.full(len(earlier.tested), each * likeness(span, other)))
    return np.concatenate(weights)


@dataclass(frozen=True)
class Figures:
    """Average precision and list precision of every draw of machines, the first being the whole."""

    average: Floats
    precision: Floats
    slope: float

    @classmethod
    def of(cls, study: Study, scores: Sequence[Floats], *, chances: bool) -> Figures:
        """Judge the scores of every window; with `chances` they are log odds."""
        n_machines = int(study.machine.max()) + 1
        draws = np.vstack([np.ones(n_machines), machine_draws(n_machines, seed=5)])
        labels, machine = study.instances.label, study.machine
        averages, failing, listed = [], [], []
        for window, of_window in zip(study.windows, scores, strict=True):
            rows = window.tested
            averages.append(average_precision_draws(labels[rows], of_window, machine[rows], draws))
            failing.append(draws[:, machine[rows[labels[rows] == 1]]].sum(axis=1))
            listed.append(_listed(study, window, of_window))
        weights, rows = np.array(failing), np.concatenate(listed)
        with np.errstate(invalid="ignore"):  # a draw without a failing machine
            average = np.nansum(np.array(averages) * weights, axis=0) / weights.sum(axis=0)
        drawn = draws[:, machine[rows]]
        precision = drawn @ (labels[rows] == 1) / np.maximum(drawn.sum(axis=1), 1.0)
        slope = _slope(study, scores) if chances else float("nan")
        return cls(average, precision, slope)


def _mean(figures: Sequence[Figures]) -> Figures:
    average, precision = (np.mean([getattr(f, n) for f in figures], axis=0) for n in _JUDGED)
    return Figures(average, precision, float(np.mean([f.slope for f in figures])))


def _text(draws: Floats, factor: float = 1.0) -> str:
    low, high = interval(draws[1:] * factor) or (np.nan, np.nan)
    digits = 1 if factor > 1 else 3
    return f"{draws[0] * factor:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _print(title: str, table: Mapping[str, Figures]) -> None:
    print(f"\n{title}\n| | average precision | list precision, % | against the first | | slope |")
    print("|---|---|---|---|---|---|")
    before = next(iter(table.values()))
    for name, row in table.items():
        gain = row.average - before.average, row.precision - before.precision
        values = row.average, row.precision, *gain
        texts = [_text(v, f) for v, f in zip(values, (1, 100, 1, 100), strict=True)]
        print(f"| {name} | {' | '.join(texts)} | {row.slope:.2f} |", flush=True)


def _print_gap(table: Mapping[str, Figures]) -> None:
    """Print the part of the gap to trees of other fleets that each row closes."""
    before, others = table[_BEFORE].average, table[_OTHERS].average
    for name, row in table.items():
        print(f"{name}: {_text((row.average - before) / (others - before), 100)} % of the gap")


def _compare(title: str, study: Study, others: Figures | None = None) -> dict[str, Figures]:
    table, retrainings = {}, [Retraining(study, window) for window in study.windows]
    for name, variant in VARIANTS.items():
        scores = [retraining.log_odds(variant) for retraining in retrainings]
        table[name] = Figures.of(study, scores, chances=variant.name != "rules")
    table |= {} if others is None else {_OTHERS: others}
    _print(title, table)
    return table


def main() -> None:
    """Print a table for each fleet, and one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="", help="of the fleets to simulate")
    parser.add_argument("--others", default="", help="seeds of fleets that others learned from")
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--records", type=Path, help="of a fleet that is there already")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--keep", type=int, default=3, help="one instance in so many")
    parser.add_argument("--first", type=int, default=24, help="days before the first retraining")
    parser.add_argument("--every", type=int, default=9, help="days between retrainings")
    asked = parser.parse_args()
    settings, schedule = load_settings(asked.config), (asked.keep, asked.first, asked.every)
    fleet = asked.gpus, asked.days, settings
    tables, others = [], None
    if asked.records:
        job = open_job(asked.records, settings, ["gbdt"])
        _compare(str(asked.records), Study.of(job, *schedule))
    if asked.others:
        first, *rest = map(int, asked.others.split(","))
        studies = [_simulated(fleet, first, schedule)]
        studies += [_simulated(fleet, seed, schedule, studies[0].measures) for seed in rest]
        others = OtherFleets.of(studies)
    for seed in map(int, filter(None, asked.seeds.split(","))):
        theirs = None
        if others:
            theirs = others.figures(_simulated(fleet, seed, schedule, others.encoder.measures))
        tables.append(_compare(f"seed {seed}", _simulated(fleet, seed, schedule), theirs))
    if len(tables) > 1:
        pooled = {name: _mean([table[name] for table in tables]) for name in tables[0]}
        _print("all", pooled)
        if others:
            _print_gap(pooled)


def _simulated(
    fleet: tuple[int, int, Settings],
    seed: int,
    schedule: tuple[int, int, int],
    measures: Measures | None = None,
) -> Study:
    """Simulate a fleet (GPUs, days) and measure it."""
    n_gpus, n_days, settings = fleet
    with tempfile.TemporaryDirectory() as folder:
        simulate_fleet_to(Path(folder), n_gpus=n_gpus, n_days=n_days, seed=seed)
        job = open_job(Path(folder) / "records", settings, ["gbdt"])
        return Study.of(job, *schedule, measures)


if __name__ == "__main__":
    main()

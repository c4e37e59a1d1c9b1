from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.features.table_source import TableSource

from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances, find_instances
from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Fleet, Timeline, build_timeline
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import DAY, HOUR, Nanoseconds, RecordCount
from forewarn.models.prediction.ensembles import CASCADE_FIRST
from forewarn.models.prediction.linear.loss_weights import loss_weights
from forewarn.models.prediction.model_fitting import fit_model, fit_models
from forewarn.models.prediction.training_candidates import instances_known_at
from forewarn.models.prediction.training_set import (
    Recipe,
    TrainingSet,
    UndersampledInstances,
    build_training_sets,
)
from forewarn.models.prediction.trees.gbdt import GbdtModel

START = 20_500 * 24 * HOUR
N_GPUS, N_HOURS = 6, 120
KINDS = FeatureKinds(float=("temperature",))
PLAN = FeaturePlan(kinds=KINDS, window_records=RecordCount(2), interval=HOUR)
RECIPE = Recipe(
    plan=PLAN,
    step=Nanoseconds(2 * HOUR),
    horizon=Nanoseconds(6 * HOUR),
    cascade_model="gbdt",
    negatives_per_positive=1.0,
    positive_weight=1.0,
    cascade_positive_weight=10.0,
    seed=0,
)


def timeline_of(failed: dict[int, int]) -> Timeline:
    """Return hourly records of six GPUs, some of which fail permanently at an hour."""
    serials = [f"G{gpu}" for gpu in range(N_GPUS) for _ in range(N_HOURS)]
    hours = np.tile(np.arange(N_HOURS), N_GPUS)
    table = pa.table(
        {
            "gpu_serial": serials,
            "timestamp": pa.array(START + hours * HOUR).cast(pa.timestamp("ns", "UTC")),
            "temperature": np.arange(len(hours)) * 7919 % 101 + 0.5,
        }
    )
    query = RecordsQuery("hand", KINDS, HOUR)
    records = assemble([TableSource("hand", table)], query)
    at = START + np.array(list(failed.values()), dtype=np.int64) * HOUR
    gpu = np.array(list(failed), dtype=np.int32)
    never = np.full(len(at), np.iinfo(np.int64).max)
    return build_timeline(records, Failures.from_spans(gpu, at, never, at))


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return timeline_of({1: 50, 4: 81})


@pytest.fixture(scope="module")
def instances(timeline: Timeline) -> Instances:
    found = find_instances(
        timeline,
        window_records=RecordCount(2),
        step_records=RecordCount(2),
        horizon=Nanoseconds(6 * HOUR),
    )
    return found.select(found.label >= 0)


def ends_in_hours(instances: Instances) -> list[int]:
    return sorted({int(end - START) // HOUR for end in instances.end})


def test_known_instances_have_finished_horizon(timeline: Timeline) -> None:
    found = find_instances(
        timeline,
        window_records=RecordCount(2),
        step_records=RecordCount(2),
        horizon=Nanoseconds(6 * HOUR),
    )
    moment = START + 61 * HOUR
    chosen = instances_known_at(found, moment, Nanoseconds(10 * HOUR), RECIPE.horizon)
    # Ends are at odd hours; the last before 61 - 6, the first no earlier than 55 - 10.
    assert ends_in_hours(chosen) == [45, 47, 49, 51, 53]
    assert (chosen.end + 6 * HOUR < moment).all()
    assert set(chosen.label) == {0, 1}


@pytest.mark.parametrize("later", [62, 119])
def test_long_horizon_delays_known_labels(later: int) -> None:
    horizon = DAY
    labelled = find_instances(
        timeline_of({1: 50, 4: later}),
        window_records=RecordCount(2),
        step_records=RecordCount(2),
        horizon=horizon,
    )
    chosen = instances_known_at(labelled, START + 61 * HOUR, Nanoseconds(30 * HOUR), horizon)
    # For the failure at 50, positives within a day of it count if they end a day before 61.
    # Negatives are delayed alike: adding positives as soon as they are known would make age
    # informative.
    assert ends_in_hours(chosen) == list(range(7, 37, 2))
    failing = chosen.select(chosen.label == 1)
    assert set(failing.gpu.tolist()) == {1}
    assert ends_in_hours(failing) == list(range(27, 37, 2))


def test_unknown_labels_are_excluded() -> None:
    ends = np.arange(4, dtype=np.int64) * HOUR
    numbers = np.zeros(4, dtype=np.int64)
    labels = np.array([1, 0, -1, -1], dtype=np.int8)
    found = Instances(numbers, numbers.astype(np.int32), ends, labels)
    chosen = instances_known_at(found, 100 * HOUR, Nanoseconds(1000 * HOUR), HOUR)
    assert chosen.label.tolist() == [1, 0]


def one_training_set(
    recipe: Recipe, fleet: Fleet, instances: Instances
) -> tuple[Encoder, TrainingSet]:
    return next(
        build_training_sets(
            recipe, fleet, [UndersampledInstances.from_instances(recipe, fleet, instances)]
        )
    )


def built(timeline: Timeline, instances: Instances, **other: Any) -> TrainingSet:
    return one_training_set(replace(RECIPE, **other), timeline, instances)[1]


def keys(training: TrainingSet) -> list[tuple[int, int]]:
    return list(zip(training.labels.tolist(), training.ends.tolist(), strict=True))


@pytest.mark.parametrize(
    ("ratio", "negatives"), [(0.0, 287), (1.0, 60), (0.1, 60), (10.0, 60), (20.0, 120), (1e9, 287)]
)
def test_negatives_are_undersampled(
    timeline: Timeline, instances: Instances, ratio: float, negatives: int
) -> None:
    positives = int((instances.label == 1).sum())
    assert positives == 6
    # Ends at odd hours: 57 of each healthy GPU, 22 and 37 of those that fail at 50 and at 81.
    assert (instances.label == 0).sum() == 4 * 57 + 22 + 37
    training = built(timeline, instances, negatives_per_positive=ratio)
    assert (training.labels == 1).sum() == positives
    assert (training.labels == 0).sum() == negatives
    assert len(training.inputs) == len(training.labels) == len(training.weights)


def test_negatives_with_smallest_hashes_are_kept(timeline: Timeline, instances: Instances) -> None:
    hashes = sampling_hash(0, timeline.records.serials, instances.gpu, instances.end)
    training = built(timeline, instances)
    negatives = np.flatnonzero(instances.label == 0)
    kept = np.sort(negatives[np.argsort(hashes[negatives])][:60])
    assert training.ends[training.labels == 0].tolist() == instances.end[kept].tolist()


def test_seed_changes_negatives(timeline: Timeline, instances: Instances) -> None:
    one, again = built(timeline, instances, seed=1), built(timeline, instances, seed=1)
    two = built(timeline, instances, seed=2)
    assert keys(one) == keys(again)
    assert keys(one) != keys(two)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0, 20.0])
def test_weights_follow_ratio(timeline: Timeline, instances: Instances, ratio: float) -> None:
    training = built(timeline, instances, negatives_per_positive=ratio)
    positive = training.labels == 1
    weights = training.weights.astype(float)
    assert weights[~positive].sum() == pytest.approx(ratio * weights[positive].sum(), rel=1e-5)
    assert weights.mean() == pytest.approx(1.0, rel=1e-5)
    assert training.balance == pytest.approx(1 / (1 + ratio), rel=1e-5)
    assert len(set(weights[positive])) == len(set(weights[~positive])) == 1


def test_trees_get_more_negatives_with_same_weight(
    timeline: Timeline, instances: Instances
) -> None:
    training = built(timeline, instances, tree_negatives=20.0)
    assert training.few is not None
    assert (training.labels == 0).sum() == 120
    assert training.balance == pytest.approx(training.few.balance) == pytest.approx(0.5)
    few = built(timeline, instances)
    assert few.few is None
    assert keys(training.few) == keys(few)
    assert training.few.weights.tolist() == few.weights.tolist()
    assert set(keys(few)) < set(keys(training))


def test_slow_models_get_fewer_negatives(timeline: Timeline, instances: Instances) -> None:
    training = built(timeline, instances, tree_negatives=20.0)
    assert training.few is not None
    inputs = training.inputs
    alone = replace(training, few=None)
    trees = [fit_model(RECIPE, "gbdt", one).score(inputs) for one in (training, training.few)]
    lines = [
        fit_model(RECIPE, "logistic", one).score(inputs) for one in (training, training.few, alone)
    ]
    assert not np.array_equal(trees[0], trees[1])
    assert np.array_equal(lines[0], lines[1])
    assert not np.array_equal(lines[0], lines[2])


def test_weight_halves_after_half_life(timeline: Timeline, instances: Instances) -> None:
    half_life = DAY
    training = built(timeline, instances, half_life=half_life)
    for label in (0, 1):
        rows = training.labels == label
        ages = (training.ends.max() - training.ends[rows]) / half_life
        left = training.weights[rows] * 2.0**ages
        assert left == pytest.approx(np.full(rows.sum(), left[0]), rel=1e-5)
    assert training.balance == pytest.approx(0.5)
    assert training.weights.mean() == pytest.approx(1.0, rel=1e-5)


def test_no_undersampling_gives_unit_weights(timeline: Timeline, instances: Instances) -> None:
    training = built(timeline, instances, negatives_per_positive=0.0)
    assert (training.weights == 1).all()
    assert training.balance == pytest.approx(6 / 293)


def test_prevalence_is_before_undersampling(timeline: Timeline, instances: Instances) -> None:
    assert built(timeline, instances).prevalence == pytest.approx(6 / 293)


def test_rows_are_ordered_by_serial_and_time(timeline: Timeline, instances: Instances) -> None:
    encoder, training = one_training_set(RECIPE, timeline, instances)
    hashes = sampling_hash(0, timeline.records.serials, instances.gpu, instances.end)
    negatives = np.flatnonzero(instances.label == 0)
    rows = np.sort(
        np.append(
            np.flatnonzero(instances.label == 1), negatives[np.argsort(hashes[negatives])][:60]
        )
    )
    chosen = instances.select(rows)
    assert training.labels.tolist() == chosen.label.tolist()
    values = encoder.measures.values(timeline, chosen)
    assert np.array_equal(training.inputs.sequence, encoder.encode(values).sequence)


def test_encoder_uses_selected_instances_only(timeline: Timeline, instances: Instances) -> None:
    encoder, training = one_training_set(RECIPE, timeline, instances)
    chosen = instances.select(np.isin(instances.end, training.ends))
    hashes = sampling_hash(0, timeline.records.serials, chosen.gpu, chosen.end)
    negatives = np.flatnonzero(chosen.label == 0)
    kept = np.append(
        np.flatnonzero(chosen.label == 1), negatives[np.argsort(hashes[negatives])][:60]
    )
    other, _ = Encoder.fit(PLAN, timeline, chosen.select(np.sort(kept)))
    assert other.to_dict() == encoder.to_dict()


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(70, 200)), min_size=1, max_size=4))
def test_shared_reading_gives_same_sets(
    timeline: Timeline, instances: Instances, hours: list[tuple[int, int]]
) -> None:
    several = [instances.between(START + a * HOUR, START + b * HOUR) for a, b in hours]
    several = [some for some in several if (some.label == 1).any()] or [instances]
    sets = build_training_sets(
        RECIPE,
        timeline,
        [UndersampledInstances.from_instances(RECIPE, timeline, some) for some in several],
    )
    for some, (encoder, training) in zip(several, sets, strict=True):
        alone, expected = one_training_set(RECIPE, timeline, some)
        assert encoder.to_dict() == alone.to_dict()
        for name in ("sequence", "context"):
            mine, other = getattr(training.inputs, name), getattr(expected.inputs, name)
            assert np.array_equal(mine, other)
        for name in ("labels", "weights", "ends", "prevalence"):
            assert np.array_equal(getattr(training, name), getattr(expected, name))


def test_budget_keeps_positive_of_every_failure(timeline: Timeline, instances: Instances) -> None:
    training = built(timeline, instances, max_instances=14, tree_negatives=20.0)
    # Two failures with three positives each; 14 instances include one for at least ten healthy
    # ones.
    assert len(training.labels) == 14
    positive = training.ends[training.labels == 1]
    assert ends_in_hours(instances.select(np.isin(instances.end, positive))) == sorted(
        int(end - START) // HOUR for end in positive.tolist()
    )
    assert len(positive) == 2
    assert positive.min() < START + 50 * HOUR < positive.max()
    assert training.balance == pytest.approx(0.5)
    assert training.prevalence == pytest.approx(6 / 293)
    assert keys(built(timeline, instances, max_instances=293, tree_negatives=20.0)) == keys(
        built(timeline, instances, tree_negatives=20.0)
    )


def test_budget_applies_without_ratio(timeline: Timeline, instances: Instances) -> None:
    training = built(timeline, instances, max_instances=150, negatives_per_positive=0.0)
    assert (training.labels == 1).sum() == 3
    assert len(training.labels) == 3 + 144  # 287 for 6


# --- fitting -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def training(timeline: Timeline, instances: Instances) -> TrainingSet:
    return built(timeline, instances)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.models.prediction.trees.tree_model._N_TREES", 8)


def scored(training: TrainingSet, name: str, **other: Any) -> npt.NDArray[np.float64]:
    return fit_model(replace(RECIPE, **other), name, training).score(training.inputs)


def test_cascade_first_model_kind(
    training: TrainingSet,
) -> None:
    for name in ("gbdt", CASCADE_FIRST):
        assert isinstance(fit_model(RECIPE, name, training), GbdtModel)


def test_cascade_first_weighs_positives_more(training: TrainingSet) -> None:
    first = scored(training, CASCADE_FIRST)
    assert np.array_equal(first, scored(training, "gbdt", positive_weight=10.0))
    assert first.mean() > scored(training, "gbdt").mean()
    assert np.array_equal(
        scored(training, CASCADE_FIRST, cascade_positive_weight=1.0), scored(training, "gbdt")
    )


def test_scores_depend_on_seed(training: TrainingSet) -> None:
    assert np.array_equal(scored(training, "gbdt", seed=5), scored(training, "gbdt", seed=5))
    assert not np.array_equal(scored(training, "random", seed=5), scored(training, "random"))


def test_unknown_model_is_refused(training: TrainingSet) -> None:
    with pytest.raises(ValueError, match=r"`name` must be one of cnn, .*, got 'tarot'"):
        fit_model(RECIPE, "tarot", training)


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from([0, 0, 0, 1]), min_size=2, max_size=40),
    st.floats(0.1, 50),
    st.floats(0.1, 50),
)
def test_balance_and_loss_weights_agree(labels: list[int], weight: float, factor: float) -> None:
    outcomes = np.array([0, 1, *labels], dtype=np.int8)
    weights = np.where(outcomes == 1, weight, 1.0).astype(np.float32)
    in_loss = loss_weights(outcomes, weights, factor).astype(float)
    n_positive = int((outcomes == 1).sum())
    expected = factor * weight * n_positive
    share = in_loss[outcomes == 1].sum() / in_loss.sum()
    assert share == pytest.approx(expected / (expected + len(outcomes) - n_positive), rel=1e-4)


def test_models_are_fitted_in_parallel_with_networks(
    timeline: Timeline, instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree waits for the network, so fits in sequence would time out."""
    _, training = one_training_set(RECIPE, timeline, instances)
    met, order = threading.Barrier(2), list[str]()

    def fit(_: Recipe, name: str, training: TrainingSet, *_catalogue: object) -> str:
        if name in ("mlp", "gbdt"):
            met.wait(timeout=30)
        order.append(name)
        return f"{name} of {len(training.labels)}"

    monkeypatch.setattr("forewarn.models.prediction.model_fitting.fit_model", fit)
    monkeypatch.setattr("forewarn.models.prediction.model_fitting.n_threads", lambda: 2)
    recipe, names = replace(RECIPE, cascade_model="cnn"), ("mlp", "gbdt", CASCADE_FIRST, "linear")
    models: dict[str, Any] = {**fit_models(recipe, training, names)}
    assert list(models.items()) == [(name, f"{name} of {len(training.labels)}") for name in names]
    assert order.index("mlp") < order.index(CASCADE_FIRST)
    assert order.index("gbdt") < order.index("linear")


def test_trees_are_fitted_in_parallel(
    training: TrainingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    met, linear, most = threading.Barrier(2), list[str](), list[int]()

    def fit(_: Recipe, name: str, training: TrainingSet, *_catalogue: object) -> str:
        assert len(training.labels)
        if name in ("gbdt", CASCADE_FIRST):
            met.wait(timeout=30)
        else:
            linear.append(name)
            time.sleep(0.02)  # time for another fit to start
            most.append(len(linear))
            linear.remove(name)
        return name

    monkeypatch.setattr("forewarn.models.prediction.model_fitting.fit_model", fit)
    monkeypatch.setattr("forewarn.models.prediction.model_fitting.n_threads", lambda: 4)
    names = ("linear", "gbdt", "logistic", CASCADE_FIRST, "last_value", "random")
    assert list(fit_models(RECIPE, training, names)) == list(names)
    assert most == [1] * 4


@pytest.mark.parametrize(
    "names",
    [
        ("gbdt", "mlp", "linear", CASCADE_FIRST),
        ("linear", "logistic", "window_gbdt", "gbdt", CASCADE_FIRST),
    ],
)
def test_parallel_fits_equal_sequential_fits(
    timeline: Timeline, instances: Instances, names: tuple[str, ...]
) -> None:
    _, training = one_training_set(RECIPE, timeline, instances)
    for name, model in fit_models(RECIPE, training, names).items():
        alone = fit_model(RECIPE, name, training).score(training.inputs)
        np.testing.assert_array_equal(model.score(training.inputs), alone)


@pytest.mark.parametrize("wrong", ["mlp", "gbdt"])
def test_failed_fit_stops_all_fits(
    timeline: Timeline, instances: Instances, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Fits that have not started are cancelled."""
    _, training = one_training_set(RECIPE, timeline, instances)
    others = ["gbdt", *(f"other {n}" for n in range(2_000))]
    fitted = list[str]()

    def fit(_: Recipe, name: str, training: TrainingSet, *_catalogue: object) -> str:
        assert len(training.labels)
        if name == wrong:
            raise MemoryError(name)
        time.sleep(0.005)  # time to cancel the next fit
        fitted.append(name)
        return name

    monkeypatch.setattr("forewarn.models.prediction.model_fitting.fit_model", fit)
    with pytest.raises(MemoryError, match=wrong):
        fit_models(RECIPE, training, ("mlp", *others))
    assert len(fitted) < len(others) / 2

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.features.table_source import TableSource

from forewarn.evaluation.prediction.walk_forward.comparison_rows import ComparisonRows
from forewarn.evaluation.prediction.walk_forward.finished_windows import span_similarity
from forewarn.evaluation.prediction.walk_forward.fleet_survey import Span, survey_fleet
from forewarn.evaluation.prediction.walk_forward.instance_survey import survey_instances
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward import (
    WalkForward,
    find_scorable_instances,
)
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.fleet_reading import FleetReading
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.records.record_table import FeatureKinds, Records
from forewarn.features.time_units import DAY, HOUR, Nanoseconds, RecordCount
from forewarn.models.prediction.calibration import Calibration, fit_calibration
from forewarn.models.prediction.ensembles import CASCADE_FIRST, Committee
from forewarn.models.prediction.trained_recipe import MIN_POSITIVES, RecipeTrainer
from forewarn.models.prediction.training_candidates import instances_known_at
from forewarn.models.prediction.training_set import Recipe

START = 20_500 * 24 * HOUR
N_GPUS, N_HOURS = 20, 18 * 24
KINDS = FeatureKinds(float=("temperature",), counter=("errors",))
RECIPE = Recipe(
    plan=FeaturePlan(
        kinds=KINDS,
        window_records=RecordCount(4),
        interval=HOUR,
        history=(3,),
        peers=("machine_id",),
    ),
    step=Nanoseconds(2 * HOUR),
    horizon=Nanoseconds(12 * HOUR),
    cascade_model="gbdt",
    negatives_per_positive=1.0,
    positive_weight=1.0,
    cascade_positive_weight=10.0,
    seed=0,
)
SHORT, LONG = Nanoseconds(3 * DAY), Nanoseconds(5 * DAY)
TERMS = WalkForwardSettings(
    recipe=RECIPE,
    committee=Committee.from_models(("gbdt",), ("gbdt",), (("gbdt", 0.2),)),
    models=("gbdt",),
    training_spans=(SHORT, LONG),
    every=Nanoseconds(48 * HOUR),
    k=0.1,
    negatives_per_positive=8.0,
    select_by="parallel",
    baselines=(),
)
STRATEGIES = ("fixed", "sliding", "variable", "expanding")
# Retraining times in hours; the windows of all but the last are complete at NOW.
TIMES = (144, 192, 240, 288)
NOW = 336
# GPU and the hours of failure, repair and report; None: never repaired, reported at once.
Ticket = tuple[int, float, float | None, float | None]
TICKETS: tuple[Ticket, ...] = tuple(
    (gpu, 30 + 17 * gpu, 54 + 17 * gpu, None) for gpu in range(1, N_GPUS, 2)
)


@pytest.fixture(autouse=True, scope="module")
def few_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("forewarn.models.prediction.trees.tree_model._N_TREES", 12)
        yield


def at(hour: float) -> int:
    return START + round(hour * HOUR)


def fleet() -> pd.DataFrame:
    """Return hourly records; every second GPU shows errors and heat for a day, then fails."""
    rng = np.random.default_rng(5)
    hours = np.arange(N_HOURS)
    frames = []
    for gpu in range(N_GPUS):
        failed = 30 + 17 * gpu if gpu % 2 else 10**6
        near = (hours < failed) & (hours >= failed - 24)
        frames.append(
            pd.DataFrame(
                {
                    "gpu_serial": f"G{gpu:02d}",
                    "hour": hours,
                    "machine_id": f"m{gpu // 4}",
                    "temperature": 60 + rng.normal(0, 2, N_HOURS) + 3 * near,
                    "errors": np.cumsum(rng.poisson(0.3 + 1.0 * near)).astype(float),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


FLEET = fleet()


def records_of(frame: pd.DataFrame) -> Records:
    columns = {name: pa.array(frame[name]) for name in ("machine_id", *KINDS.names)}
    times = pa.array(START + frame["hour"].to_numpy() * HOUR)
    table = pa.table(
        {
            "gpu_serial": pa.array(frame["gpu_serial"]),
            "timestamp": times.cast(pa.timestamp("ns", "UTC")),
            **columns,
        }
    )
    query = RecordsQuery("hand", KINDS, HOUR, ("machine_id",))
    records = assemble([TableSource("hand", table)], query)
    return records


def failures_of(tickets: tuple[Ticket, ...]) -> Failures:
    gpu = np.array([one[0] for one in tickets], dtype=np.int32)
    failed = np.array([at(one[1]) for one in tickets], dtype=np.int64)
    repaired = [NEVER if one[2] is None else at(one[2]) for one in tickets]
    known = [at(one[1] if one[3] is None else one[3]) for one in tickets]
    return Failures.from_spans(gpu, failed, np.array(repaired, np.int64), np.array(known, np.int64))


def walk_of(
    tickets: tuple[Ticket, ...] = TICKETS, frame: pd.DataFrame = FLEET, **terms: Any
) -> WalkForward:
    records, failures = records_of(frame), failures_of(tickets)
    chosen = replace(TERMS, **terms)
    trainer = RecipeTrainer(chosen.recipe)
    return WalkForward(
        chosen, trainer, records, failures, find_scorable_instances(records, failures, chosen)
    )


def walked(
    tickets: tuple[Ticket, ...] = TICKETS, frame: pd.DataFrame = FLEET, **terms: Any
) -> WalkForward:
    walk = walk_of(tickets, frame, **terms)
    for hour in TIMES:
        assert walk.retrain(at(hour), STRATEGIES) is not None
    return walk


@pytest.fixture(scope="module")
def base() -> WalkForward:
    return walked()


def seen(walk: WalkForward, hour: float = NOW) -> Timeline:
    return as_of(walk.records, walk.failures, at(hour), walk.settings.reach)


def choices_of(walk: WalkForward, hour: float = NOW) -> dict[str, Nanoseconds]:
    return walk.finished_at(at(hour), seen(walk, hour)).choices(walk.span_in_use)


def calibration(
    walk: WalkForward, strategy: str = "variable", hour: float = NOW, span: Nanoseconds = LONG
) -> Calibration:
    return walk.finished_at(at(hour), seen(walk, hour)).calibrate(strategy, PRIOR, span)


PRIOR = Calibration(1.0, -2.0)


# --- as of -------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.floats(1, N_HOURS + 24), st.floats(1, 400))
def test_as_of_excludes_later_records_and_knowledge(hour: float, reach: float) -> None:
    walk = walk_of(((2, 100, 150, 120), (3, 50, None, 300), *TICKETS))
    timeline = as_of(walk.records, walk.failures, at(hour), Nanoseconds(round(reach * HOUR)))
    time = timeline.records.time
    assert ((time < at(hour)) & (time >= at(hour) - round(reach * HOUR))).all()
    expected = np.sum((walk.records.time < at(hour)) & (walk.records.time >= at(hour - reach) - 1))
    assert abs(len(time) - expected) <= N_GPUS
    assert (timeline.failures.known_at < at(hour)).all()
    repaired = timeline.failures.repaired_at
    assert ((repaired < at(hour)) | (repaired == NEVER)).all()
    known = {int(gpu) for gpu, *_ in TICKETS if at(30 + 17 * gpu) < at(hour)}
    known |= ({2} if hour > 120 else set()) | ({3} if hour > 300 else set())
    assert set(timeline.failures.gpu.tolist()) == known


def test_as_of_excludes_the_moment_itself() -> None:
    walk = walk_of(((2, 100, None, None),))
    assert int(as_of(walk.records, walk.failures, at(100), LONG).records.time.max()) == at(99)
    assert len(as_of(walk.records, walk.failures, at(100), LONG).failures) == 0
    assert len(as_of(walk.records, walk.failures, at(100) + 1, LONG).failures) == 1


# --- retraining --------------------------------------------------------------------------------


def test_window_scores_instances_with_known_labels(base: WalkForward) -> None:
    for window, hour in zip(base.windows, TIMES, strict=True):
        assert window.start == at(hour)
        mine = window.instances
        assert ((mine.end >= at(hour)) & (mine.end < at(hour + 48))).all()
        expected = base.instances.between(at(hour), at(hour + 48))
        assert set(expected.row[expected.label >= 0]) <= set(mine.row)
        assert {len(scores) for scores in window.by_span[LONG].values()} == {len(mine)}


def test_strategies_have_length_and_scores(base: WalkForward) -> None:
    for window in base.windows:
        assert set(window.by_strategy) == {*STRATEGIES, "steady"}
        assert window.by_strategy["sliding"][0] == LONG
        assert window.by_strategy["fixed"][0] == LONG
        for _, scores in window.by_strategy.values():
            wanted = {"gbdt", CASCADE_FIRST, "rules", "blend", "probability"}
            assert set(scores) == wanted
            assert all(((one >= 0) & (one <= 1)).all() for one in scores.values())
    assert base.windows[0].by_strategy["variable"][0] == LONG


def test_expanding_trains_on_all_known_instances(base: WalkForward) -> None:
    # From the first record to one horizon before the retraining.
    spans = [window.by_strategy["expanding"][0] / HOUR for window in base.windows]
    assert spans == [hour - 12 for hour in TIMES]
    for window in base.windows[1:]:
        assert not same_scores(window, "expanding", "sliding")


def test_expanding_is_independent_of_other_strategies(base: WalkForward) -> None:
    walk = walk_of()
    for hour in TIMES[:2]:
        window = walk.retrain(at(hour), ("expanding",))
        assert window is not None
        assert set(window.by_strategy) == {"expanding"}
    for alone, together in zip(walk.windows, base.windows, strict=False):
        scores = [window.by_strategy["expanding"][1] for window in (alone, together)]
        assert np.array_equal(scores[0]["gbdt"], scores[1]["gbdt"])
        assert np.array_equal(scores[0]["probability"], scores[1]["probability"])


def test_expanding_reads_three_half_lives() -> None:
    hours = {4: LONG / HOUR, 50: 150.0, 80: 240.0, 100: 276.0}
    for half_life, span in hours.items():
        terms = replace(TERMS, half_life=Nanoseconds(half_life * HOUR), strategy=Strategy.EXPANDING)
        assert terms.expanding_span(at(288), START) / HOUR == span
        read = terms.reads_from(at(288))
        assert read is not None
        assert read <= at(288 - 12 - span) - RECIPE.plan.reach
    assert TERMS.expanding_span(at(288), START) / HOUR == 276.0
    assert replace(TERMS, strategy=Strategy.EXPANDING).reads_from(at(288)) is None


def test_unused_spans_score_comparison_rows_only(
    base: WalkForward,
) -> None:
    walk = walk_of()
    everything, none = [Span(at(0), at(N_HOURS))], Nanoseconds(0)
    fleet = survey_fleet(lambda _: walk.records, everything, none, lambda *_: walk.failures)
    moments = [at(hour) for hour in (*TIMES, NOW)]
    survey = survey_instances(lambda _: walk.records, everything, none, fleet, RECIPE, moments)
    walk.compared = ComparisonRows(walk.settings, fleet, survey.seen_before)
    for hour, whole in zip(TIMES, base.windows, strict=True):
        window = walk.retrain(at(hour), ("variable", "expanding"))
        assert window is not None
        assert window.by_strategy.keys() == {"variable", "expanding"}
        for name, (span, scores) in window.by_strategy.items():
            assert span == whole.by_strategy[name][0]
            for score, values in scores.items():
                assert np.array_equal(values, whole.by_strategy[name][1][score])
        assert window.compared is not None
        assert len(window.compared) < len(window.instances)
        assert (len(window.compared) > 0) == (hour < TIMES[-1])  # the last one is incomplete
        for span, scores in window.by_span.items():
            assert np.array_equal(scores["gbdt"], whole.by_span[span]["gbdt"][window.compared])
            taken = span in (LONG, window.by_strategy["variable"][0])
            assert (CASCADE_FIRST in scores) == taken
    assert choices_of(walk) == choices_of(base)


def test_fixed_keeps_first_model(base: WalkForward) -> None:
    first, *later = base.windows
    assert same_scores(first, "fixed", "sliding")
    for window in later:
        assert not same_scores(window, "fixed", "sliding")


def same_scores(window: WindowScores, one: str, two: str) -> bool:
    scores = window.by_strategy
    return bool(np.array_equal(scores[one][1]["gbdt"], scores[two][1]["gbdt"]))


def test_scores_announced_failures_higher(base: WalkForward) -> None:
    for window in base.windows:
        scores, labels = window.by_strategy["sliding"][1]["gbdt"], window.instances.label
        assert scores[labels == 1].mean() > 2 * scores[labels == 0].mean()


def test_backtest_is_deterministic(base: WalkForward) -> None:
    again = walked()
    for one, two in zip(base.windows, again.windows, strict=True):
        for strategy in STRATEGIES:
            for name, scores in one.by_strategy[strategy][1].items():
                assert np.array_equal(scores, two.by_strategy[strategy][1][name])


def test_only_longest_is_trained_without_variable() -> None:
    walk = walk_of()
    window = walk.retrain(at(TIMES[0]), ("fixed", "sliding"))
    assert window is not None
    assert set(window.by_span) == {LONG}


@pytest.mark.parametrize(("horizon", "trained"), [(8, False), (10, True)])
def test_retraining_needs_five_known_positives(horizon: int, trained: bool) -> None:
    # One failure every two hours of the horizon: four or five positives.
    recipe = replace(RECIPE, horizon=Nanoseconds(horizon * HOUR))
    walk = walk_of(((2, 101, None, None),), recipe=recipe)
    timeline = seen(walk, TIMES[0])
    found = walk.trainer.train(timeline, at(TIMES[0]), LONG, ("gbdt",))
    assert (found is not None) == trained
    assert (walk.retrain(at(TIMES[0]), STRATEGIES) is not None) == trained
    assert len(walk.windows) == int(trained)
    assert MIN_POSITIVES == 5


def test_unknown_failures_are_not_trained_on() -> None:
    walk = walk_of(((2, 101, None, TIMES[0]),))
    assert walk.retrain(at(TIMES[0]), STRATEGIES) is None
    assert walk.fixed is None
    told = walk_of(((2, 101, None, TIMES[0] - 0.1),))
    assert told.retrain(at(TIMES[0]), STRATEGIES) is not None


def test_length_with_few_positives_is_skipped() -> None:
    # The failure is older than the shorter length.
    walk = walk_of(((2, 45, None, None),))
    window = walk.retrain(at(TIMES[0]), STRATEGIES)
    assert window is not None
    assert set(window.by_span) == {LONG}
    assert window.by_strategy["variable"][0] == LONG


def test_no_window_without_known_labels() -> None:
    walk = walk_of()
    assert walk.retrain(at(N_HOURS - 5), STRATEGIES) is None
    assert walk.windows == []


def test_stages_are_named() -> None:
    named: list[str] = []

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        named.append(name)
        yield

    walk = replace(walk_of(), trainer=RecipeTrainer(RECIPE, stage=stage))
    walk.retrain(at(TIMES[0]), ("sliding",))
    assert {"training sets", "fits", "measure test windows", "score"} <= set(named)


def test_candidates_are_freed_before_fleet_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fleet size determines the memory, so candidates must not stay in memory."""
    ends: list[weakref.ref[Any]] = []
    read = FleetReading.from_fleet

    def known_to(*arguments: Any) -> Instances:
        instances = instances_known_at(*arguments)
        ends.append(weakref.ref(instances.end))
        return instances

    def reading(*arguments: Any, **options: Any) -> FleetReading:
        assert [end() is None for end in ends] == [True, True]
        return read(*arguments, **options)

    monkeypatch.setattr(
        "forewarn.models.prediction.training_candidates.instances_known_at", known_to
    )
    monkeypatch.setattr("forewarn.models.prediction.training_set.FleetReading.from_fleet", reading)
    walk = walk_of()
    spans = {SHORT: ("gbdt",), LONG: ("gbdt",)}
    assert len(list(walk.trainer.train_spans(seen(walk, TIMES[2]), at(TIMES[2]), spans))) == 2


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_prior_corrects_loss_balance(weight: float) -> None:
    walk = walk_of(recipe=replace(RECIPE, positive_weight=weight))
    trained = walk.trainer.train(seen(walk, TIMES[0]), at(TIMES[0]), LONG, ("gbdt",))
    assert trained is not None
    # With odds of `weight` in training, a model without information scores weight / (weight + 1).
    ignorant = weight / (weight + 1)
    assert trained.prior.apply([ignorant]) == pytest.approx(trained.prevalence, rel=1e-4)


# --- leaks -------------------------------------------------------------------------------------


def altered(frame: pd.DataFrame, how: str) -> pd.DataFrame:
    """Return the fleet with a different future after NOW."""
    future = frame["hour"] >= NOW
    if how == "removed":
        return frame[~future]
    if how == "silent":
        return frame[~(future & (frame["gpu_serial"] == "G04"))]
    changed = frame.copy()
    changed.loc[future, "temperature"] = 99.0
    changed.loc[future, "errors"] += np.arange(future.sum())
    changed.loc[future, "machine_id"] = "m0"
    return changed


FUTURES: dict[str, tuple[tuple[Ticket, ...], str | None]] = {
    "failed at the moment": ((*TICKETS, (0, NOW, None, None)), None),
    "failed later": ((*TICKETS, (0, NOW + 3, None, None), (2, NOW + 30, NOW + 50, None)), None),
    "failed before a window, known at the moment": ((*TICKETS, (0, 143, None, NOW)), None),
    "failed in a finished window, known at the moment": ((*TICKETS, (0, 260, None, NOW)), None),
    "failed in a finished window, known later": ((*TICKETS, (0, 200, 300, NOW + 40)), None),
    "failed just before the moment, known later": ((*TICKETS, (0, NOW - 1, None, NOW + 1)), None),
    "repaired later": (tuple((*one[:2], None, one[3]) for one in TICKETS if one[1] > 300), None),
    "records removed": (TICKETS, "removed"),
    "records of one GPU removed": (TICKETS, "silent"),
    "records altered": (TICKETS, "altered"),
}


def other_walk(future: str) -> WalkForward:
    tickets, how = FUTURES[future]
    if future == "repaired later":
        tickets = (*(one for one in TICKETS if one[1] <= 300), *tickets)
    return walked(tickets, FLEET if how is None else altered(FLEET, how))


@pytest.mark.parametrize("future", FUTURES)
def test_later_data_changes_no_choice_or_calibration(base: WalkForward, future: str) -> None:
    other = other_walk(future)
    assert choices_of(other)["variable"] == choices_of(base)["variable"]
    for strategy in STRATEGIES:
        assert calibration(other, strategy) == calibration(base, strategy)
    for one, two in zip(base.windows, other.windows, strict=True):
        assert one.by_strategy["variable"][0] == two.by_strategy["variable"][0]
        assert_same_where_shared(one, two)


def assert_same_where_shared(one: WindowScores, two: WindowScores) -> None:
    """Assert that common instances of two windows have the same scores in all strategies."""
    keys = [
        {key: i for i, key in enumerate(zip(w.instances.gpu, w.instances.end, strict=True))}
        for w in (one, two)
    ]
    shared = keys[0].keys() & keys[1].keys()
    assert len(shared) > 100
    rows = [[mine[key] for key in shared] for mine in keys]
    for strategy in STRATEGIES:
        for name, scores in one.by_strategy[strategy][1].items():
            found = two.by_strategy[strategy][1][name]
            assert np.array_equal(scores[rows[0]], found[rows[1]]), (strategy, name)


def test_returning_gpu_changes_nothing() -> None:
    # No records from hour 280 on, so the labels of its last instances are unknown at NOW.
    gone = (FLEET["gpu_serial"] == "G04") & (FLEET["hour"] >= 280)
    back = gone & (FLEET["hour"] >= NOW)
    walks = [walked(frame=FLEET[~gone | back]), walked(frame=FLEET[~gone])]
    assert walks[0].windows[2].tested.sum() > walks[1].windows[2].tested.sum()
    assert calibration(walks[0]) == calibration(walks[1])
    assert choices_of(walks[0])["variable"] == choices_of(walks[1])["variable"]


def test_gpu_absent_from_reread_has_unknown_label() -> None:
    # Its last record is at 170; its failure at 172 became known later. The records read at 288
    # start after that, and windows that started before it are used for calibration.
    frame = FLEET[(FLEET["gpu_serial"] != "G02") | (FLEET["hour"] <= 170)]
    plan = replace(RECIPE.plan, history=(), peers=())
    found = []
    for tickets in (TICKETS, (*TICKETS, (2, 172, None, 10**4))):
        walk = walk_of(
            tickets,
            frame,
            recipe=replace(RECIPE, plan=plan),
            training_spans=(DAY,),
            every=DAY,
        )
        for hour in range(144, 264, 24):
            walk.retrain(at(hour), ("sliding",))
        assert walk.windows[0].start + walk.settings.reach < at(288)
        found.append(calibration(walk, "sliding", 288))
    assert 2 in walk.windows[0].instances.gpu
    assert found[0] == found[1]


def test_earlier_knowledge_changes_calibration(base: WalkForward) -> None:
    told = walked((*TICKETS, (0, 260, None, NOW - 0.1)))
    assert calibration(told) != calibration(base)


# --- where records end ---------------------------------------------------------------------------


def labels_tested(walk: WalkForward, hour: int) -> dict[tuple[int, int], int]:
    """Return the label of every tested instance in the window of `hour`."""
    window = walk._window(at(hour))
    if window is None:
        return {}
    mine = window.instances.select(window.tested)
    keys = zip(mine.gpu.tolist(), mine.end.tolist(), strict=True)
    return dict(zip(keys, mine.label.tolist(), strict=True))


@settings(max_examples=40)
@given(
    st.integers(200, N_HOURS),
    st.lists(
        st.tuples(st.integers(0, N_GPUS - 1), st.integers(150, N_HOURS), st.integers(0, 40)),
        max_size=6,
        unique_by=lambda one: one[0],
    ),
    st.lists(
        st.tuples(st.integers(0, N_GPUS - 1), st.integers(150, N_HOURS), st.integers(2, 60)),
        max_size=4,
    ),
)
def test_cut_tests_instances_with_finished_horizon(
    cut: int, failed: list[tuple[int, int, int]], gaps: list[tuple[int, int, int]]
) -> None:
    gone = np.zeros(len(FLEET), dtype=bool)
    for gpu, start, hours in gaps:
        mine = FLEET["gpu_serial"] == f"G{gpu:02d}"
        gone |= mine & FLEET["hour"].between(start, start + hours - 1)
    frame = FLEET[~gone]
    tickets = tuple((gpu, float(hour), None, float(hour + late)) for gpu, hour, late in failed)
    known = tuple(one for one in tickets if one[3] is not None and one[3] < cut)
    whole, short = walk_of(tickets, frame), walk_of(known, frame[frame["hour"] < cut])
    assert short.records.serials == whole.records.serials
    last = frame.loc[frame["hour"] < cut].groupby("gpu_serial")["hour"].max()
    horizon, newest = RECIPE.horizon, at(int(last.max()))
    for hour in range(0, N_HOURS, 48):
        found = labels_tested(short, hour)
        for (gpu, end), label in labels_tested(whole, hour).items():
            failure = next((one for one in known if one[0] == gpu), None)
            seen_failed = failure is not None and end < at(failure[1]) <= end + horizon
            seen_healthy = end + horizon <= at(int(last[f"G{gpu:02d}"]))
            if end + horizon > newest or not (seen_failed or seen_healthy):
                assert (gpu, end) not in found
            else:
                later = any(one[0] == gpu for one in tickets) and failure is None
                assert found.pop((gpu, end)) == (0 if later else label)
        # The remaining rows were instances as of that time; the failure became known later.
        assert {gpu for gpu, _ in found} <= {one[0] for one in tickets if one not in known}


def test_failure_after_last_record_is_not_tested() -> None:
    # Records end at 239. G02 fails at 236, so after 227 only its instances would have labels.
    frame = FLEET[FLEET["hour"] < 240]
    found = labels_tested(walk_of(((2, 236, None, None),), frame), 192)
    assert max(end for _, end in found) <= at(227)
    assert sum(found.values()) == sum(1 for gpu, _ in found if gpu == 2 and found[gpu, _])
    assert {gpu for (gpu, _), label in found.items() if label} == {2}
    assert labels_tested(walk_of(((2, 236, None, None),), frame), 240) == {}


def test_late_records_limit_known_labels(
    base: WalkForward,
) -> None:
    # At NOW the window from 240 on has ended, but no record is newer than 280.
    window, walk = base.windows[2], walk_of(frame=FLEET[FLEET["hour"] < 280])
    labels = window.known_labels(seen(walk), RECIPE)
    late = window.instances.end + RECIPE.horizon > at(279)
    assert late.any()
    assert (labels[late] == -1).all()
    assert (labels[~late] >= 0).any()


# --- the choice of the length, on scores written by hand ------------------------------------------


# One instance per window is flagged.
ONE_FLAG: dict[str, Any] = {"k": 0.001, "negatives_per_positive": 1000.0}


def scored(walk: WalkForward, hour: int, best: dict[Nanoseconds, int]) -> WindowScores:
    """Return a window in which each length flags the last instance of one GPU."""
    mine = walk.instances.between(at(hour), at(hour + 48))
    mine = mine.select(mine.label >= 0)
    hashes = sampling_hash(0, walk.records.serials, mine.gpu, mine.end)
    machine = walk.records.codes("machine_id", mine.row).astype(np.int64)
    window = WindowScores(at(hour), mine, hashes, mine.label >= 0, machine=machine)
    for length, gpu in best.items():
        window.by_span[length] = puts_first(window, gpu)
    return window


def puts_first(window: WindowScores, *gpus: int) -> dict[str, npt.NDArray[np.float64]]:
    """Return scores that rank the last instance of the first available GPU highest."""
    mine = window.instances
    scores = (mine.end - window.start) / (1000 * HOUR)
    for lead, gpu in enumerate(reversed(gpus), start=1):
        scores = np.where(mine.gpu == gpu, scores + 0.1 * lead, scores)
    return {"gbdt": scores, CASCADE_FIRST: scores, "rules": scores}


def chosen(
    tickets: tuple[Ticket, ...],
    *windows: tuple[int, dict[Nanoseconds, int]],
    hour: float = NOW,
    frame: pd.DataFrame = FLEET,
) -> int:
    walk = walk_of(tickets, frame, **ONE_FLAG)
    walk.windows += [scored(walk, start, best) for start, best in windows]
    return choices_of(walk, hour)["variable"]


# In the window of hour 192 the long length predicts GPU 6, the short one GPU 8.
FINDS = (192, {LONG: 6, SHORT: 8})
FOUND: tuple[Ticket, ...] = ((6, 239, None, None),)
OTHER: tuple[Ticket, ...] = ((8, 239, None, None),)


def test_length_with_hit_is_chosen() -> None:
    assert chosen(FOUND, FINDS) == LONG
    assert chosen(OTHER, FINDS) == SHORT


def test_tie_goes_to_shorter_length() -> None:
    assert chosen(FOUND + OTHER, FINDS) == SHORT
    assert chosen(((10, 239, None, None),), FINDS) == SHORT


def test_longest_length_before_any_window() -> None:
    assert chosen(OTHER) == LONG


def test_window_counts_after_its_horizon() -> None:
    over = 192 + 48 + 12
    assert chosen(OTHER, FINDS, hour=over) == SHORT
    assert chosen(OTHER, FINDS, hour=over - 1e-6) == LONG


def test_last_finished_window_decides() -> None:
    turned = (240, {LONG: 8, SHORT: 6})
    later: tuple[Ticket, ...] = ((6, 240, 241, None), (8, 287, None, None))
    assert chosen(later, FINDS, turned) == LONG
    assert chosen(later, FINDS, turned, hour=300 - 1e-6) == LONG
    first_only: tuple[Ticket, ...] = ((8, 239, 239.5, None), (6, 287, None, None))
    assert chosen(first_only, FINDS, turned) == SHORT
    # The second window is incomplete; in the first the short length predicted GPU 8.
    assert chosen(first_only, FINDS, (240, {LONG: 6, SHORT: 8}), hour=299) == SHORT
    assert chosen(first_only, FINDS, (240, {LONG: 6, SHORT: 8}), hour=300) == LONG


def test_single_flag_keeps_length_in_use() -> None:
    """`variable` follows the last window at once; `steady` requires evidence."""
    walk = walk_of(OTHER, **ONE_FLAG, select_over=4)
    walk.windows.append(scored(walk, *FINDS))
    assert choices_of(walk) == {
        "variable": SHORT,
        "steady": LONG,
    }


def test_windows_without_positives_are_skipped() -> None:
    nothing = (240, {LONG: 0, SHORT: 2})
    assert chosen(OTHER, FINDS, nothing) == SHORT
    assert chosen(FOUND, FINDS, nothing) == LONG


def test_failures_known_at_moment_are_ignored() -> None:
    late: tuple[Ticket, ...] = ((8, 239, None, NOW),)
    assert chosen(FOUND + late, FINDS) == LONG
    assert chosen((*FOUND, (8, 239, None, NOW - 0.1)), FINDS) == SHORT
    # A window whose failures are not yet known is skipped too.
    turned = (240, {LONG: 8, SHORT: 6})
    assert chosen((*FOUND, (6, 287, None, NOW)), FINDS, turned) == LONG


def test_later_known_failures_still_count_for_choice() -> None:
    # GPU 8 failed at 191, which became known only at NOW: until then the short length had flagged a
    # healthy GPU. Excluding its instances would make the short length look better.
    learned = tuple(one for one in TICKETS if one[1] < 170)
    found: tuple[Ticket, ...] = (*learned, (6, 239, None, None))
    for tickets in (found, (*found, (8, 191, None, NOW))):
        walk = walk_of(tickets, **ONE_FLAG)
        window = walk.retrain(at(192), STRATEGIES)
        assert window is not None
        window.by_span = {LONG: puts_first(window, 6), SHORT: puts_first(window, 8, 6)}
        assert choices_of(walk)["variable"] == LONG


# --- calibration -------------------------------------------------------------------------------


def labels_at(window: WindowScores, tickets: tuple[Ticket, ...]) -> npt.NDArray[np.int8]:
    """Return labels by checking every instance: -1 if its horizon ends after the last record.

    The last record known at NOW is one hour old.
    """
    labels = np.zeros(len(window.instances), dtype=np.int8)
    for gpu, failed, _, known_at in tickets:
        ahead = at(failed) - window.instances.end
        mine = (window.instances.gpu == gpu) & (ahead > 0) & (ahead <= 12 * HOUR)
        labels[mine & ((known_at or failed) < NOW)] = 1
    labels[window.instances.end > at(NOW - 1 - 12)] = -1
    return labels


def test_calibration_uses_all_known_labels(base: WalkForward) -> None:
    labels = [labels_at(window, TICKETS) for window in base.windows]
    known = [of_window >= 0 for of_window in labels]
    assert known[-1].any()
    assert not known[-1].all()
    blends = np.concatenate(
        [
            window.by_strategy["sliding"][1]["blend"][rows]
            for window, rows in zip(base.windows, known, strict=True)
        ]
    )
    outcomes = np.concatenate([part[rows] for part, rows in zip(labels, known, strict=True)])
    assert 0 < outcomes.sum() < len(outcomes)
    # Six instances, 2 hours apart in a horizon of 12, precede a failure; together they count once.
    weights = np.full(len(blends), 1 / 6)
    expected = fit_calibration(blends, outcomes, start=PRIOR, weights=weights)
    assert calibration(base, "sliding") == expected
    assert calibration(base, "fixed") != expected


def test_scores_of_shorter_spans_weigh_less(base: WalkForward) -> None:
    window = base.windows[-1]
    records = replace(base, windows=[window])
    _, scores = window.by_strategy["sliding"]
    labels = labels_at(window, TICKETS)
    known = labels >= 0
    # The training period is half as long as the calibration period: a sixteenth of the evidence.
    weights = np.full(int(known.sum()), 1 / 6 / 16)
    expected = fit_calibration(scores["blend"][known], labels[known], start=PRIOR, weights=weights)
    assert calibration(records, "sliding", span=Nanoseconds(2 * LONG)) == expected


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_span_similarity_decreases_with_difference(short: int, middle: int, long: int) -> None:
    first, second, third = (Nanoseconds(days) for days in sorted((short, middle, long)))
    assert 0.0 < span_similarity(first, third) <= span_similarity(first, second) <= 1.0
    assert span_similarity(first, third) <= span_similarity(second, third)
    assert span_similarity(first, second) == span_similarity(second, first)


def test_label_counts_after_its_horizon(base: WalkForward) -> None:
    # The first failure after the window's start, of a GPU scored in it.
    first = base.windows[0]
    assert calibration(base, hour=144 + 12) == PRIOR
    positive = first.instances.end[first.instances.label == 1].min()
    over = (int(positive) - START) / HOUR + 12
    assert calibration(base, hour=over) == PRIOR
    assert calibration(base, hour=over + 1.5) != PRIOR
    assert over + 1.5 < 144 + 48 + 12  # long before the end of the window


def test_probabilities_are_fitted_with_known_labels(base: WalkForward) -> None:
    assert not base.has_known_labels(at(144 + 12))
    assert base.has_known_labels(at(144 + 14))
    assert not replace(base, windows=[]).has_known_labels(at(NOW))


def test_prior_is_kept_without_failures(base: WalkForward) -> None:
    unknown = replace(base, failures=failures_of(tuple((*t[:3], 10**4) for t in TICKETS)))
    assert calibration(unknown) == PRIOR


def test_calibration_uses_five_windows_and_newer(base: WalkForward) -> None:
    last = base.windows  # the newest is incomplete
    many = replace(base, windows=[base.windows[0]] * 4 + last)
    five = replace(base, windows=[base.windows[0]] * 2 + last)
    assert calibration(many) == calibration(five) != calibration(base)


def test_probability_is_calibrated_blend(base: WalkForward) -> None:
    window = base.windows[-1]
    for strategy in ("sliding", "variable"):
        scores = window.by_strategy[strategy][1]
        order = np.argsort(scores["blend"], kind="stable")
        assert (np.diff(scores["probability"][order]) >= 0).all()
    # Closer to the prevalence than the scores of a model trained on balanced classes.
    assert scores["probability"].mean() < scores["blend"].mean()

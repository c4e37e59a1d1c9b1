from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detection_verdict import Verdict
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.monitored_task import Task
from forewarn.models.detection.threshold import Threshold
from forewarn.models.detection.windows import Windows

Floats = np.ndarray
TICKS = 300
RULES = DetectionRules(window=4, continuity=40, block=10)
ONE = MetricLimits("one", 0.0, 1.0)
TWO = MetricLimits("two", 0.0, 1.0)
FIXED = Threshold(base=np.log(3.0), slope=0.0, margin=0.0, tail=0.2)
USUAL = HealthySpread(0.02, 0.3, 0.05)


def detector(
    rules: DetectionRules = RULES, activity: str | None = None, level: float = 3.0
) -> Detector:
    threshold = replace(FIXED, base=float(np.log(level)))
    models = [MetricModel((limits,), None, USUAL, threshold) for limits in (ONE, TWO)]
    return Detector(rules, models, activity)


def healthy(n: int, seed: int = 0, ticks: int = TICKS) -> dict[str, Floats]:
    generator = np.random.default_rng(seed)
    return {
        name: generator.normal(0.5, 0.02, (n, ticks)).astype(np.float32) for name in ("one", "two")
    }


def task(
    series: Mapping[str, Floats],
    groups: list[int] | None = None,
    weights: list[float] | None = None,
    first: int = 0,
) -> Task:
    n, ticks = next(iter(series.values())).shape
    return Task(
        machines=tuple(f"m{i}" for i in range(n)),
        first_tick=first,
        n_ticks=ticks,
        series=series.get,
        groups=np.zeros(n, int) if groups is None else np.array(groups),
        weights=np.ones(n) if weights is None else np.array(weights),
    )


def found(series: Mapping[str, Floats], **options: object) -> Verdict:
    verdict, _ = detector().find(task(series, **options))  # type: ignore[arg-type]
    return verdict


def named(verdict: Verdict) -> list[int]:
    return [one.machine for one in verdict.findings]


@pytest.mark.parametrize("n", [3, 4, 5, 40, 300])
def test_faulty_machine_is_identified(n: int) -> None:
    series = healthy(n)
    assert named(found(series)) == []
    series["two"][1, 150:] -= 0.3
    verdict = found(series)
    assert named(verdict) == [1]
    (one,) = verdict.findings
    assert one.metric == "two"
    assert 145 <= one.since <= 152
    assert 0.85 * RULES.continuity <= one.at - 150 <= RULES.continuity + 10


def test_short_deviation_is_jitter() -> None:
    series = healthy(8)
    series["one"][3, 150:180] -= 0.3
    series["two"][5, 100:103] -= 0.3  # single outliers do not count
    verdict = found(series)
    assert named(verdict) == []
    (jitter,) = verdict.jitters
    assert (jitter.machine, jitter.metric) == (3, "one")
    assert abs(jitter.since - 148) <= 2
    assert abs(jitter.until - 181) <= 2
    assert jitter.score > 1.0


def test_jitter_is_reported_after_recovery() -> None:
    series = healthy(8)
    series["one"][3, TICKS - 20 :] -= 0.3
    series["two"][1, 100:120] -= 0.3
    series["two"][1, 150:] -= 0.3
    verdict = found(series)
    assert named(verdict) == [1]
    assert verdict.jitters == ()


def test_tenth_of_windows_may_be_quiet() -> None:
    series = healthy(8)
    series["one"][3, 150:] -= 0.3
    series["one"][3, 170] = 0.5
    assert named(found(series)) == [3]


def test_first_metric_with_finding_wins() -> None:
    series = healthy(8)
    series["two"][2, 100:] -= 0.3
    series["one"][3, 200:] -= 0.3
    assert found(series).findings[0].metric == "one"
    assert found(series).examined == ("one",)


def test_weak_finding_yields_to_other_metrics() -> None:
    series = healthy(8)
    series["one"][3, 150:] -= 0.13
    series["two"][2, 150:] -= 0.4
    weak, _ = detector().find(task({"one": series["one"]}))
    assert named(weak) == [3]
    assert weak.findings[0].score < 2
    assert named(found(series)) == [2]


def test_simultaneous_faults_are_all_reported() -> None:
    series = healthy(12)
    series["one"][[2, 7], 150:] -= 0.3
    assert sorted(named(found(series))) == [2, 7]


def test_changed_half_of_four_is_faulty() -> None:
    series = healthy(4)
    series["one"][[0, 2], 150:] -= 0.3
    assert sorted(named(found(series))) == [0, 2]


def test_opposite_halves_are_undecided() -> None:
    series = healthy(4)
    series["one"][[0, 2], 150:] -= 0.2
    series["one"][[1, 3], 150:] += 0.2
    assert named(found(series)) == []


def test_other_stage_is_no_outlier() -> None:
    series = healthy(12)
    series["one"][8:, 150:] -= 0.3  # the whole stage changes its work
    groups = [0] * 8 + [1] * 4
    assert named(found(series, groups=groups)) == []


def test_permanent_offset_is_tolerated_or_straggler() -> None:
    series = healthy(8)
    series["one"][2] += 0.2
    assert named(found(series)) == []
    series["one"][3] -= 0.48
    verdict = found(series)
    assert named(verdict) == [3]
    assert verdict.findings[0].lasting


def test_lost_sample_keeps_straggler() -> None:
    series = healthy(8)
    series["one"][3] -= 0.48
    series["one"][3, 30] = np.nan
    (finding,) = found(series).findings
    assert finding.lasting
    assert finding.since < 5


def test_fault_precedes_straggler() -> None:
    series = healthy(8)
    series["one"][3] -= 0.48
    series["two"][5, 150:] -= 0.3
    verdict = found(series)
    assert named(verdict) == [5]
    assert not verdict.findings[0].lasting


def test_checkpoint_is_a_pause() -> None:
    series = healthy(8) | {"busy": np.full((8, TICKS), 0.9, np.float32)}
    series["busy"][:, 100:138] = 0.0
    series["one"][1:, 100:138] = 0.1
    series["one"][0, 100:138] = 0.9
    model = detector(replace(RULES, continuity=30), "busy")
    assert named(model.find(task(series))[0]) == [0]  # longer than a continuity: not a pause
    model = detector(RULES, "busy")
    assert named(model.find(task(series))[0]) == []


def test_machine_inactive_after_pause_is_reported() -> None:
    series = healthy(8) | {"busy": np.full((8, TICKS), 0.9, np.float32)}
    series["busy"][:, 150:180] = 0.0
    series["one"][:, 150:180] = 0.05
    series["one"][4, 180:] = 0.05 + 0.01 * np.random.default_rng(0).random(TICKS - 180)
    verdict, _ = detector(RULES, "busy").find(task(series))
    assert named(verdict) == [4]
    assert verdict.findings[0].since >= 176


def test_frozen_sensor_gives_no_data() -> None:
    series = healthy(8)
    series["one"][3, 100:] = 0.2
    verdict = found(series)
    assert named(verdict) == []
    assert verdict.blind == (3,)


@pytest.mark.parametrize("gone", [np.s_[100:], np.s_[:]])
def test_absent_machine_gives_no_data(gone: slice) -> None:
    series = healthy(8)
    for one in series.values():
        one[3, gone] = np.nan
    series["two"][5, 150:] -= 0.3
    verdict = found(series)
    assert named(verdict) == [5]
    assert verdict.blind == (3,)


def test_late_machine_is_compared_while_present() -> None:
    series = healthy(8)
    for one in series.values():
        one[3, :120] = np.nan
    assert named(found(series)) == []
    series["one"][3, 230:] -= 0.3
    assert named(found(series)) == [3]


@pytest.mark.parametrize("n", [1, 2])
def test_tasks_below_three_machines_have_no_finding(n: int) -> None:
    series = healthy(n)
    series["one"][0, 150:] -= 0.4
    assert named(found(series)) == []


def test_unsent_metric_is_absent() -> None:
    series = healthy(8)
    del series["one"]
    series["two"][1, 150:] -= 0.3
    verdict = found(series)
    assert verdict.absent == ("one",)
    assert named(verdict) == [1]
    assert found({"other": series["two"]}).absent == ("one", "two")


def test_pull_shorter_than_window_has_no_finding() -> None:
    assert named(found(healthy(8, ticks=3))) == []
    assert named(found(healthy(8, ticks=30))) == []


def test_infinities_are_missing() -> None:
    series = healthy(8)
    series["one"][3, 100:] = np.inf
    verdict = found(series)
    assert named(verdict) == []
    assert verdict.blind == (3,)


def test_earlier_call_provides_baseline() -> None:
    before, now = healthy(8, 1), healthy(8, 2)
    now["one"][3] -= 0.3  # since its first sample in this pull
    model = detector()
    assert named(model.find(task(now))[0]) == []
    _, baselines = model.find(task(before))
    verdict, after = model.find(task(now, first=TICKS), baselines)
    assert named(verdict) == [3]
    assert not verdict.findings[0].lasting
    # Deviating blocks do not enter the baseline.
    assert named(model.find(task(now, first=2 * TICKS), after)[0]) == [3]


def test_listed_machine_needs_less_evidence() -> None:
    series = healthy(8)
    series["one"][3, 150:] -= 0.1
    level = highest(series, 3) * 1.05
    assert named(detector(level=level).find(task(series))[0]) == []
    weights = [0.5] * 8
    weights[3] = 4.5
    assert named(detector(level=level).find(task(series, weights=weights))[0]) == [3]


def none(series: Mapping[str, Floats]) -> Floats:
    return np.zeros(next(iter(series.values())).shape[1] - RULES.window + 1, dtype=bool)


def test_minder_reports_constantly_farthest_machine() -> None:
    rules = replace(RULES, mode="minder")
    series = healthy(20)
    model = detector(rules, level=3.0)
    assert named(model.find(task(series))[0]) == []
    series["one"][3, 150:] -= 0.3
    assert named(model.find(task(series))[0]) == [3]
    # Two machines that alternate as the farthest never complete a continuity.
    series["one"][7, 150:] -= 0.3
    assert named(model.find(task(series))[0]) == []


def test_minder_score_bound_for_four_machines() -> None:
    rules = replace(RULES, mode="minder")
    series = healthy(4)
    series["one"][1, 150:] -= 0.5
    assert named(detector(rules, level=1.8).find(task(series))[0]) == []
    assert named(detector(rules, level=1.6).find(task(series))[0]) == [1]


def stages(levels: Sequence[float], each: int, slow: int | None = None, seed: int = 0) -> Task:
    """Return a task whose pipeline stages differ in level, optionally with a slow machine."""
    n = each * len(levels)
    noise = np.random.default_rng(seed).normal(0.0, 0.01, (n, TICKS))
    series = {"one": (np.repeat(levels, each)[:, None] + noise).astype(np.float32)}
    if slow is not None:
        series["one"][slow, 150:] += 0.3
    groups = np.repeat(np.arange(len(levels)), each)
    made = task(series, groups.tolist())
    return replace(made, group_names=tuple(f"stage-{number}" for number in groups))


def test_two_groups_of_two_are_not_compared() -> None:
    verdict, _ = detector().find(stages([0.3, 0.6], each=2))
    assert named(verdict) == []
    assert verdict.too_small == tuple(range(4))


def test_small_groups_use_known_offsets() -> None:
    known = replace(USUAL, groups={f"stage-{i}": d for i, d in enumerate([0.0, 0.01, 0.0, 0.3])})
    one = detector()
    one.metrics = [replace(model, healthy=known) for model in one.metrics]
    levels = [0.3, 0.31, 0.3, 0.6]
    assert named(one.find(stages(levels, each=2))[0]) == []
    verdict, _ = one.find(stages(levels, each=2, slow=3))
    assert named(verdict) == [3]
    assert verdict.too_small == ()


def test_outlier_of_three_is_reported() -> None:
    verdict, _ = detector().find(stages([0.3, 0.8], each=3, slow=4))
    assert named(verdict) == [4]


def test_baseline_carries_over_to_next_call() -> None:
    _, baselines = detector().find(task(healthy(8)))
    assert set(baselines) == {"one", "two"}
    assert all(isinstance(past, MachineBaseline) for past in baselines.values())
    assert baselines["one"].machines == tuple(f"m{i}" for i in range(8))


def in_parts(
    series: Mapping[str, Floats], step: int, *, incremental: bool
) -> tuple[list[tuple[int, Verdict]], dict[str, MachineBaseline]]:
    """Call a detector every `step` ticks on the last 200 ticks, like a watch."""
    baselines: dict[str, MachineBaseline] = {}
    said = []
    n_ticks = next(iter(series.values())).shape[1]
    for end in range(200, n_ticks + 1, step):
        last = {name: values[:, end - 200 : end] for name, values in series.items()}
        verdict, baselines = detector().find(
            task(last, first=end - 200), baselines, incremental=incremental
        )
        said.append((end, verdict))
    return said, baselines


def first_named(said: list[tuple[int, Verdict]]) -> tuple[int, int, int] | None:
    """Return the first finding: time, machine, and since which tick."""
    return next(
        (
            (end, verdict.findings[0].machine, end - 200 + verdict.findings[0].since)
            for end, verdict in said
            if verdict.findings
        ),
        None,
    )


@pytest.mark.parametrize(("step", "ticks"), [(1, 350), (7, 500), (30, 500), (150, 500)])
def test_stream_matches_whole_calls(step: int, ticks: int) -> None:
    series = healthy(9, ticks=ticks)
    series["two"][4, 300:] -= 0.3
    assert first_named(in_parts(healthy(9, ticks=ticks), step, incremental=True)[0]) is None
    streamed = first_named(in_parts(series, step, incremental=True)[0])
    whole = first_named(in_parts(series, step, incremental=False)[0])
    assert streamed is not None
    assert whole is not None
    assert streamed[:2] == whole[:2]
    assert abs(streamed[2] - whole[2]) <= 2


def test_stream_scores_only_new_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    plain = Windows.from_series

    def counted(series: Floats, length: int, positions: npt.NDArray[np.int64]) -> Windows:
        looked_at.append(series.shape[2] - int(positions[0]) - length + 1)
        return plain(series, length, positions)

    monkeypatch.setattr(Windows, "from_series", counted)
    in_parts(healthy(6, ticks=400), 5, incremental=True)
    first, rest = looked_at[:2], looked_at[2:]
    assert first == [197, 197]
    # New windows, the incomplete block, and the block before: samples may come late.
    assert max(rest) <= 5 + 2 * RULES.block


def test_stream_handles_joins_and_false_pauses() -> None:
    series = healthy(9, ticks=500)
    series["two"][4, 300:] -= 0.3
    baselines: dict[str, MachineBaseline] = {}
    for end in (200, 250):  # the last machine joins later
        last = {name: values[:8, end - 200 : end] for name, values in series.items()}
        _, baselines = detector().find(task(last, first=end - 200), baselines, incremental=True)
    last = {name: values[:, 300:500] for name, values in series.items()}
    verdict, _ = detector().find(task(last, first=300), baselines, incremental=True)
    assert named(verdict) == [4]
    hung = detector(activity="two")
    idle = healthy(6, ticks=400)
    idle["two"][:, 340:] *= 0.1
    idle["one"][2, 340:] -= 0.3
    baselines = {}
    for end in (350, 360, 370, 400):
        last = {name: values[:, end - 200 : end] for name, values in idle.items()}
        verdict, baselines = hung.find(task(last, first=end - 200), baselines, incremental=True)
        # A pause, until it has lasted for a continuity: then it is a hang.
        assert named(verdict) == ([2] if end == 400 else [])


def test_machine_inactive_after_early_pause_is_reported() -> None:
    series = healthy(8)
    series["two"][:, 10:45] *= 0.1
    verdict, _ = detector(activity="two").find(task(series))
    assert named(verdict) == []
    series["one"][3, 30:] -= 0.3
    verdict, _ = detector(activity="two").find(task(series))
    assert named(verdict) == [3]


@pytest.mark.parametrize("late", [5, 40, 75])
def test_stream_rescores_late_samples(late: int) -> None:
    """One machine of nine sends its samples in bursts."""
    series = healthy(9, ticks=600)
    series["two"][4, 300:] -= 0.3
    baselines: dict[str, MachineBaseline] = {}
    when = []
    for end in range(200, 601, 5):
        last = {name: values[:, end - 200 : end].copy() for name, values in series.items()}
        for values in last.values():
            values[4, 200 - end % late :] = np.nan
        verdict, baselines = detector().find(
            task(last, first=end - 200), baselines, incremental=True
        )
        when += [end] if named(verdict) == [4] else []
    assert when
    assert when[0] <= 300 + RULES.continuity + 10 + late


def test_stream_drops_frozen_sensor_samples() -> None:
    series = healthy(9, ticks=500)
    series["two"][4, 300:] = 0.1
    said, _ = in_parts(series, 5, incremental=True)
    assert all(not verdict.jitters and not verdict.findings for _, verdict in said[-20:])


def test_call_without_new_windows_repeats_verdict() -> None:
    series = healthy(9, ticks=500)
    series["two"][4, 300:450] -= 0.3
    first, baselines = detector().find(task(series), incremental=True)
    shorter = {name: values[:, :400] for name, values in series.items()}
    again, _ = detector().find(task(shorter), baselines, incremental=True)
    assert named(first) == named(again) == [4]


def test_silent_or_partial_recovery_is_no_jitter() -> None:
    series = healthy(8)
    series["one"][3, 150:180] -= 0.3
    series["one"][3, 180:] = np.nan
    assert found(series).jitters == ()


def highest(series: Mapping[str, Floats], machine: int) -> float:
    """Return the highest threshold at which a machine would be reported on the first metric."""
    model = detector()
    done = model.examine(task(series), model.metrics[0], None, none(series))
    assert done is not None
    return float(done.highest()[machine])


def test_offset_hidden_by_limit_is_ignored() -> None:
    """All machines are at the limit; the task slows down, and one machine stays there."""
    series = healthy(8)
    series["one"] = np.minimum(series["one"] + 0.55, 1.0)
    series["one"][:, 150:] -= 0.2
    series["one"][3, 150:] = 1.0
    level = highest(series, 3)
    assert named(detector(level=level / 1.5).find(task(series))[0]) == []
    series["one"][3, 150:] = (
        0.95  # it left the limit with the others and may always have been higher
    )
    level = highest(series, 3)
    assert named(detector(level=level / 1.5).find(task(series))[0]) == []
    series["one"][:, :150] -= 0.1  # no offset was hidden
    level = highest(series, 3)
    assert named(detector(level=level / 1.5).find(task(series))[0]) == [3]


@pytest.mark.parametrize(
    ("before", "after", "weak"), [(1.0, 0.88, []), (0.97, 0.85, [3]), (1.0, 0.8, [3])]
)
def test_machine_leaving_limit_must_fall_clearly(
    before: float, after: float, weak: list[int]
) -> None:
    """The offset above the limit is invisible; machines have offsets of up to 0.15."""
    series = healthy(8)
    series["one"] = np.minimum(series["one"] + 0.6, before)
    series["one"][3, 150:] = healthy(8)["two"][3, 150:] - 0.5 + after
    level = highest(series, 3)
    assert named(detector(level=level / 1.5).find(task(series))[0]) == weak
    assert named(detector(level=level / 2.5).find(task(series))[0]) == [3]


def test_nearest_score_is_relative_to_the_machine_threshold() -> None:
    series = healthy(6)
    series["one"][2, 150:] += np.float32(0.3)
    (found,) = detector().find(task(series))[0].findings
    reached = 3.0 * found.score
    for level in (0.8 * reached, 1.25 * reached, 3.0 * reached):
        verdict, _ = detector(level=level).find(task(series))
        near = reached / level
        assert verdict.nearest["one"] == pytest.approx(near if near > 0.5 else 0.0, rel=1e-4)

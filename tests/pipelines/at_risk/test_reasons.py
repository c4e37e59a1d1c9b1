"""Reasons of a synthetic fleet: eight GPUs on each of ten machines, hourly for ten days."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import latest_instances
from forewarn.features.prediction.span_sums import GatheredSums
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import DAY, HOUR, RecordCount
from forewarn.pipelines.at_risk.channel_chart_svg import draw_chart
from forewarn.pipelines.at_risk.channel_charts import Chart, channel_charts
from forewarn.pipelines.at_risk.channel_evidence import ChannelEvidence
from forewarn.pipelines.at_risk.peer_comparison import (
    Grouping,
    PeerComparison,
    deviation,
    tail_share,
)
from forewarn.pipelines.at_risk.reasons import Contributions, Reasons, explain_gpus
from forewarn.pipelines.storage.records.record_store import RecordStore

Change = Callable[[pd.DataFrame], None]
N, HOURS = 80, 240
KINDS = FeatureKinds(
    categorical=("gpu_type", "driver_version"),
    float=("temperature_gpu", "volts"),
    counter=("rows_remapped", "smart_5_raw"),
    binary=("throttled",),
    code=("xid",),
)
SICK = "S011"  # GPU 3 of node-1


def fleet(change: Change) -> pd.DataFrame:
    """Return the records of a fleet without anomalies except `change`."""
    rng = np.random.default_rng(1)
    gpu = np.repeat(np.arange(N), HOURS)
    hour = np.tile(np.arange(HOURS), N)
    frame = pd.DataFrame(
        {
            "gpu_serial": [f"S{i:03d}" for i in gpu],
            "machine_id": [f"node-{i // 8}" for i in gpu],
            "timestamp": pd.Timestamp("2025-01-01", tz="UTC") + pd.to_timedelta(hour, unit="h"),
            "gpu_type": "H100",
            "driver_version": np.where(gpu == 40, "470.1", "550.2"),
            "temperature_gpu": 60 + 5 * (gpu // 8 % 2) + rng.normal(0, 1, len(gpu)),
            "volts": 12.0 + rng.normal(0, 0.01, len(gpu)),
            "rows_remapped": 0,
            "smart_5_raw": 100,
            "throttled": 0,
            "xid": 0,
        }
    )
    change(frame)
    return frame


def healthy(_: pd.DataFrame) -> None:
    pass


def evidence_of(frame: pd.DataFrame, folder: Path) -> ChannelEvidence:
    for day, rows in frame.groupby(frame["timestamp"].dt.strftime("%Y-%m-%d")):
        (folder / f"date={day}").mkdir(parents=True)
        rows.to_parquet(folder / f"date={day}" / "a.parquet")
    plan = FeaturePlan(KINDS, RecordCount(3), HOUR, (4, 56), ("machine_id", "gpu_type"))
    store = RecordStore(folder, KINDS, HOUR, plan.peers)
    end = int(frame["timestamp"].max().value) + HOUR
    timeline = build_timeline(*store.read_known(end - plan.reach, end))
    instances = latest_instances(timeline, window_records=plan.window_records, since=end - DAY)
    values = FeatureExtractor.fit(plan, timeline, instances).values(timeline, instances)
    peers = PeerComparison.from_timeline(timeline, instances, plan)
    return ChannelEvidence(timeline, instances, values, plan, peers)


def rows_of(frame: pd.DataFrame, *, last: int, serial: str = SICK) -> pd.Series:
    """Return a mask of the records in the last hours of a GPU."""
    begin = frame["timestamp"].max() - pd.Timedelta(hours=last - 1)
    marked: pd.Series = (frame["gpu_serial"] == serial) & (frame["timestamp"] >= begin)
    return marked


def reasons(change: Change, folder: Path, *features: str) -> dict[str, Reasons]:
    """Return the reasons of each GPU if a model weights some features equally."""
    evidence = evidence_of(fleet(change), folder)
    speaks = {name: np.full(N, 1.0 - i / 10) for i, name in enumerate(features)}
    said = explain_gpus(evidence, Contributions.from_columns(speaks))
    serials = [evidence.timeline.records.serials[gpu] for gpu in evidence.instances.gpu]
    return {serial: said.get(row, Reasons()) for row, serial in enumerate(serials)}


def only_sick(said: dict[str, Reasons]) -> str:
    assert {serial for serial, reason in said.items() if reason.texts} == {SICK}
    return str(said[SICK])


def test_ordinary_values_give_no_reason(tmp_path: Path) -> None:
    names = ("mean:temperature_gpu:7d", "rows_remapped[-0]", "count:xid", "failures:serial",
             "category:gpu_type=H100", "throttled[-1]", "trend:volts:12h")  # fmt: skip
    said = reasons(healthy, tmp_path, *names)
    assert [reason.texts for reason in said.values()] == [()] * N


def test_counts_are_integers_over_span(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        rows = rows_of(frame, last=140)
        frame.loc[rows, "rows_remapped"] = np.minimum(np.arange(rows.sum()) // 20, 7)

    text = only_sick(reasons(change, tmp_path, "peers:machine_id:rows_remapped:7d"))
    assert text == "6 rows remapped this week; the other GPUs of node-1: none"


def test_recent_count_uses_shorter_span(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[rows_of(frame, last=6), "smart_5_raw"] = 108

    text = only_sick(reasons(change, tmp_path, "rate:smart_5_raw:7d"))
    assert text == "smart_5_raw rose by 8 in the last 12 h; the other GPUs of node-1: none"


def test_hot_gpu_is_compared_with_machine(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        rows = rows_of(frame, last=HOURS)
        frame.loc[rows, "temperature_gpu"] = 80.0

    text = only_sick(reasons(change, tmp_path, "mean:temperature_gpu:7d"))
    assert text.startswith("temperature 80 °C ")
    assert "; the other GPUs of node-1: 6" in text


def test_new_gpu_has_no_weekly_comparison(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        young = (frame["gpu_serial"] == SICK) & ~rows_of(frame, last=30)
        frame.loc[young, "gpu_serial"] = "the one before"
        days = frame["timestamp"].dt.day % 10  # level of the other GPUs before it appeared
        frame.loc[days < 8, "temperature_gpu"] += 30.0

    said = reasons(change, tmp_path, "mean:temperature_gpu:7d", "trend:temperature_gpu:12h")
    assert said[SICK].texts == ()


def test_code_has_meaning(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[rows_of(frame, last=3), "xid"] = [63, 0, 0]

    text = only_sick(reasons(change, tmp_path, "severity:xid"))
    name = "Xid 63 (row of memory remapped)"
    assert text == f"{name} once this week, 2 h ago; the other GPUs of node-1: never"


def test_most_severe_code_is_reported(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[rows_of(frame, last=9), "xid"] = [13, 13, 79, 13, 13, 13, 13, 13, 0]

    assert only_sick(reasons(change, tmp_path, "count:xid")).startswith(
        "Xid 79 (GPU fell off the bus)"
    )


def test_rare_category_and_silent_sensor(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[rows_of(frame, last=5), "volts"] = np.nan

    said = reasons(change, tmp_path, "volts[-0]", "category:driver_version=470.1")
    assert str(said[SICK]) == "no reading of volts in the last 3 h"
    assert str(said["S040"]) == "driver 470.1, shared by 1 of 80 GPUs"


def test_reasons_are_ordered_by_contribution(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[rows_of(frame, last=6), ["smart_5_raw", "rows_remapped", "xid"]] = [108, 2, 63]

    evidence = evidence_of(fleet(change), tmp_path)
    speaks = {
        "rows_remapped[-0]": np.full(N, 0.5),
        "rate:smart_5_raw:7d": np.full(N, 0.3),
        "peers:gpu_type:smart_5_raw:7d": np.full(N, 0.3),
        "count:xid": np.full(N, -1.0),
    }
    said = explain_gpus(evidence, Contributions.from_columns(speaks))
    (sick,) = (reason for reason in said.values() if reason.texts)
    assert [text.split(";")[0] for text in sick.texts] == [
        "smart_5_raw rose by 8 in the last 12 h",
        "2 rows remapped in the last 12 h",
    ]
    assert sick.channels[:2] == ("smart_5_raw", "rows_remapped")
    assert str(sick).count(" | ") == 1


def test_contributions_are_computed_for_needed_gpus(
    tmp_path: Path,
) -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[rows_of(frame, last=6), "rows_remapped"] = 2

    evidence = evidence_of(fleet(change), tmp_path)
    asked: list[int] = []

    def of(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        asked.extend(rows.tolist())
        return np.ones((len(rows), 2))

    names = ("rows_remapped[-0]", "mean:temperature_gpu:7d")
    said = explain_gpus(evidence, Contributions(names, of), drawn=[70])
    assert 70 in asked
    assert len(asked) < N / 4
    assert [row for row, reason in said.items() if "rows remapped" in str(reason)] == [11]
    assert said[70] == Reasons((), ("rows_remapped", "temperature_gpu"))


def test_no_contributions_no_reasons(tmp_path: Path) -> None:
    assert {reason.texts for reason in reasons(healthy, tmp_path).values()} == {()}


def test_chart_contains_gpu_peers_and_events(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        rows = rows_of(frame, last=84)
        frame.loc[rows, "smart_5_raw"] = 100 + np.arange(84)
        frame.loc[rows_of(frame, last=84), "xid"] = [63, *[0] * 83]

    evidence = evidence_of(fleet(change), tmp_path)
    row = [evidence.timeline.records.serials[gpu] for gpu in evidence.instances.gpu].index(SICK)
    channels = ("failures:serial", "smart_5_raw", "temperature_gpu", "volts")
    charts = channel_charts(evidence, {row: channels})[row]
    assert [chart.title for chart in charts] == ["smart_5_raw", "temperature"]
    counter, level = charts
    assert len(counter.peers) == len(level.peers) == 7
    assert counter.own[0] == 0.0
    assert counter.own[-1] == pytest.approx(84, abs=2)
    assert max(peer.max() for peer in counter.peers) == 0
    ((position, label),) = counter.marks
    assert position == pytest.approx(0.5, abs=0.02)
    assert label == "Xid 63"
    drawn = draw_chart(counter)
    assert drawn.count("stroke: var(--muted, #55606e)") == 7
    assert ">Xid 63</text>" in drawn
    assert draw_chart(counter) == drawn


def test_chart_counts_are_cumulative(tmp_path: Path) -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[rows_of(frame, last=84), "smart_5_raw"] = 100 + np.arange(84)
        frame.loc[rows_of(frame, last=30), "rows_remapped"] = np.nan

    read = evidence_of(fleet(change), tmp_path)
    gathered = GatheredSums()
    FeatureExtractor.fit_values(read.plan, read.timeline, read.instances, gathered)
    kept = replace(read, span_sums=gathered.sums(len(read.instances)))
    row = [read.timeline.records.serials[gpu] for gpu in read.instances.gpu].index(SICK)
    for channels in (("smart_5_raw", "rows_remapped"), ("temperature_gpu",)):
        drawn = [draw_chart(chart) for chart in channel_charts(read, {row: channels})[row]]
        assert [draw_chart(chart) for chart in channel_charts(kept, {row: channels})[row]] == drawn
        assert len(drawn) == len(channels)


def test_deviation_and_tail_ignore_missing_values() -> None:
    values = np.array([1.0, 2.0, 3.0, np.nan, 50.0])
    far = deviation(values, values)
    assert far[3] == 0
    assert far[4] > 10
    assert tail_share(values, values).tolist() == [0.6, 0.4, 0.2, 0.8, 0.0]


def test_small_groups_are_compared_with_fleet() -> None:
    """Within a group of three, equal deviations would look usual."""
    type_of = np.array([0] * 30 + [1] * 3)
    wide = Grouping("gpu_type", type_of, ("common", "rare"))
    peers = PeerComparison(wide, wide)
    values = np.where(type_of == 1, 9.0, 1.0) + np.arange(33) / 100
    assert (peers.against(deviation, values)[30:] > 10).all()
    assert peers.against(tail_share, values).tolist()[30:] == [2 / 33, 1 / 33, 0.0]
    alone = replace(peers, wide=replace(wide, code=np.zeros(33, dtype=np.int64)))
    assert len(alone.references) == 1


@pytest.mark.parametrize(("at", "shown"), [((0.74, 0.94), 1), ((0.55, 0.94), 2), ((0.1, 0.3), 2)])
def test_event_labels_do_not_overlap(at: tuple[float, ...], shown: int) -> None:
    """The label of a late event is on its left, where the label of the previous event may be."""
    marks = [(x, "Xid 63") for x in at]
    line = np.array([1.0, 2.0])
    drawn = draw_chart(Chart("temperature", "°C", "12 h", line, [line], marks))
    assert drawn.count("stroke-dasharray") == 2
    assert drawn.count(">Xid 63<") == shown

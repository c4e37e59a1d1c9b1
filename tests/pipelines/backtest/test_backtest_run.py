from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main

Write = Callable[[pd.DataFrame, Path], Path]
Capture = pytest.CaptureFixture[str]
BASELINES = ("random", "last_value", "logistic", "window_gbdt", "rules")


@pytest.fixture(scope="module")
def scores(backtest: Path) -> pd.DataFrame:
    return pd.read_parquet(backtest / "scores.parquet")


@pytest.fixture(scope="module")
def report(backtest: Path) -> dict[str, Any]:
    return dict(json.loads((backtest / "report.json").read_text()))


def _run(records: Path, config: Path, out: Path, *more: str) -> int:
    return main(
        ["backtest", "--records", str(records), "--config", str(config), "--out", str(out), *more]
    )


def test_outputs_match_contract(backtest: Path) -> None:
    names = {path.name for path in backtest.iterdir()}
    others = {f"scores_{name}.parquet" for name in ("expanding", "fixed", "sliding")}
    assert names == {"scores.parquet", "report.json", "report.html"} | others


def test_configured_strategy_leads_report(backtest: Path, report: dict[str, Any]) -> None:
    assert report["configured"] == "expanding"
    assert list(report["calibration"]) == ["expanding", "fixed", "sliding", "variable"]
    assert "retrained each time on all earlier records" in (backtest / "report.html").read_text()


def test_differences_are_those_of_values(report: dict[str, Any]) -> None:
    fleet, found = report["fleet"], report["differences"]["list_precision"]
    assert "blend_expanding" in found["rules_expanding"]
    for first, others in found.items():
        for second, paired in others.items():
            values = [fleet[key]["list_precision"] for key in (first, second)]
            assert paired["difference"] == pytest.approx(values[0] - values[1])
            assert paired["interval"][0] <= paired["interval"][1]


def test_worth_of_models_matches_their_metrics(report: dict[str, Any]) -> None:
    for strategy, worth in report["blend"].items():
        averages = {
            name: report["fleet"][f"{name}_{strategy}"]["average_precision"]
            for name in ("blend", *worth["members"])
        }
        assert worth["average_precision"] == averages["blend"]
        assert sum(member["vote"] for member in worth["members"].values()) == pytest.approx(1.0)
        for name, member in worth["members"].items():
            assert member["average_precision"] == averages[name]
            ahead = averages["blend"] - averages[name]
            assert member["ahead"]["difference"] == pytest.approx(ahead)


def test_columns_have_no_nulls(scores: pd.DataFrame) -> None:
    wanted = {
        "test_window", "gpu_serial", "machine_id", "window_end", "label", "sampled",
        "train_length_days", "flag_parallel", "flag_cascade", "score_gbdt", "score_mlp",
        "score_cascade_first", *(f"score_{name}" for name in BASELINES),
    }  # fmt: skip
    assert wanted <= set(scores.columns)
    assert not scores.isna().any().any()
    assert set(scores["label"]) == {0, 1}


def test_first_retraining_follows_contract(
    scores: pd.DataFrame,
) -> None:
    # 6 days and 24 hours after the first record, which is at midnight
    assert scores["test_window"].min() == pd.Timestamp("2025-01-08", tz="UTC")
    gaps = np.diff(np.unique(scores["test_window"]))
    assert set(gaps) == {np.timedelta64(3, "D")}


def test_labels_match_records(scores: pd.DataFrame, fleet: pd.DataFrame) -> None:
    failed = fleet[fleet["failure"] == 1].groupby("gpu_serial")["timestamp"].min()
    at = scores["gpu_serial"].map(failed)
    ahead = (at - scores["window_end"]).dt.total_seconds() / 3600
    expected = ((ahead > 0) & (ahead <= 24)).astype(int)
    assert (scores["label"] == expected).all()


def test_sample_has_eight_negatives_per_positive(
    scores: pd.DataFrame,
) -> None:
    for _, window in scores.groupby("test_window"):
        positives = int((window["label"] == 1).sum())
        assert window.loc[window["label"] == 1, "sampled"].all()
        negatives = int((window["sampled"] & (window["label"] == 0)).sum())
        assert negatives == min(8 * positives, int((window["label"] == 0).sum()))


def _top(window: pd.DataFrame, name: str, share: float) -> set[int]:
    k = max(1, round(share * len(window)))
    order = window.sort_values(
        [f"score_{name}", "gpu_serial", "window_end"], ascending=[False, True, True]
    )
    return set(order.index[:k])


def test_flags_are_reproducible_from_scores(scores: pd.DataFrame, report: dict[str, Any]) -> None:
    precisions = []
    for _, window in scores[scores["sampled"]].groupby("test_window"):
        flagged = _top(window, "gbdt", 0.1) & _top(window, "mlp", 0.1)
        assert flagged == set(window.index[window["flag_parallel"]])
        first = _top(window, "cascade_first", 0.2)
        stage = window.loc[sorted(first)].sort_values(
            ["score_mlp", "gpu_serial", "window_end"], ascending=[False, True, True]
        )
        k = max(1, round(0.1 * len(window)))
        assert set(stage.index[:k]) == set(window.index[window["flag_cascade"]])
        if flagged and (window["label"] == 1).any():
            precisions.append(window.loc[sorted(flagged), "label"].mean())
    found = report["methods"]["parallel_variable"]["precision_at_k"]
    assert found == pytest.approx(np.mean(precisions))


def test_daily_list_is_reproducible_from_scores(
    scores: pd.DataFrame, report: dict[str, Any]
) -> None:
    midnight = scores["window_end"].dt.floor("D") + pd.Timedelta("1D")
    fails = scores["window_end"] + pd.to_timedelta(
        scores["hours_to_failure"].replace(np.inf, 10**4), unit="h"
    )
    late = (scores["window_end"] >= midnight - pd.Timedelta("2h")) & (fails > midnight)
    windows_with_positives = scores.groupby("test_window")["label"].transform("max") == 1
    assert windows_with_positives.all()
    hits = listed = 0
    for _, day in scores[late].groupby(midnight[late]):
        newest = day.sort_values("window_end").groupby("gpu_serial").tail(1)
        size = max(1, round(0.05 * len(newest)))
        top = newest.sort_values(["score_gbdt", "gpu_serial"], ascending=[False, True])[:size]
        hits, listed = hits + int(top["label"].sum()), listed + size
    assert report["fleet"]["gbdt_variable"]["list_precision"] == pytest.approx(hits / listed)


def test_report_contents(report: dict[str, Any], fleet: pd.DataFrame) -> None:
    assert report["records"] == len(fleet)
    methods = ("gbdt", "mlp", "cascade_first", "parallel", "cascade", *BASELINES)
    for strategy in ("fixed", "sliding", "variable"):
        for method in methods:
            assert f"{method}_{strategy}" in report["methods"]
            assert f"{method}_{strategy}" in report["fleet"]
    assert report["methods"]["parallel_variable"]["average_precision"] is None
    assert report["methods"]["cascade_variable"]["accuracy"] is None


def test_predictable_failures_are_caught(report: dict[str, Any]) -> None:
    gbdt, random = (report["fleet"][f"{name}_variable"] for name in ("gbdt", "random"))
    assert gbdt["average_precision"] > 5 * random["average_precision"]
    assert gbdt["failures_caught"] > random["failures_caught"]
    assert gbdt["lead_time_hours"]["p50"] > 0


def test_fixed_and_sliding_lengths(backtest: Path) -> None:
    for strategy in ("fixed", "sliding"):
        frame = pd.read_parquet(backtest / f"scores_{strategy}.parquet")
        assert set(frame["train_length_days"]) == {6.0}
    first = pd.read_parquet(backtest / "scores.parquet")
    start = first["test_window"].min()
    assert set(first.loc[first["test_window"] == start, "train_length_days"]) == {6.0}


def test_row_order_and_files_do_not_matter(
    backtest: Path, fleet: pd.DataFrame, config: Path, tmp_path: Path
) -> None:
    """Two retrainings give the same again, from other files in another order."""
    shuffled = fleet.sample(frac=1.0, random_state=3)
    for i, part in enumerate((shuffled[::2], shuffled[1::2])):
        for date, rows in part.groupby(part["timestamp"].dt.date):
            folder = tmp_path / "records" / f"date={date}"
            folder.mkdir(parents=True, exist_ok=True)
            rows.to_parquet(folder / f"b{i}.parquet", index=False)
    two = ("--strategies", "variable", "--end", "2025-01-14")
    assert _run(tmp_path / "records", config, tmp_path / "out", *two) == 0
    found = pd.read_parquet(tmp_path / "out" / "scores.parquet")
    whole = pd.read_parquet(backtest / "scores.parquet")
    assert found["test_window"].nunique() == 2
    expected = whole[whole["test_window"].isin(found["test_window"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_future_records_change_no_past_score(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write
) -> None:
    cut = pd.Timestamp("2025-01-13T12:00:00Z")
    future = fleet["timestamp"] >= cut
    changed = fleet.copy()
    rng = np.random.default_rng(1)
    for name in ("temperature_gpu", "power_draw", "xid"):
        changed.loc[future, name] = rng.permutation(changed.loc[future, name])
    frames = []
    for name, frame in (("true", fleet), ("changed", changed)):
        records = write(frame[frame["timestamp"] < "2025-01-16"], tmp_path / name / "records")
        arguments = ("--models", "gbdt", "--strategies", "sliding")
        assert _run(records, config, tmp_path / name / "out", *arguments) == 0
        scores = pd.read_parquet(tmp_path / name / "out" / "scores_sliding.parquet")
        frames.append(scores[scores["window_end"] < cut].reset_index(drop=True))
    assert len(frames[0]) > 1000
    kept = [name for name in frames[0] if name not in ("sampled", "flag_parallel", "flag_cascade")]
    pd.testing.assert_frame_equal(frames[0][kept], frames[1][kept], check_exact=True)


def test_shuffled_labels_score_like_random(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write
) -> None:
    # The failures are permuted among the GPUs, so earlier records are not informative.
    serials = sorted(fleet["gpu_serial"].unique())
    other = dict(zip(serials, np.random.default_rng(7).permutation(serials), strict=True))
    keys = fleet.set_index(["gpu_serial", "timestamp"])["failure"]
    index = pd.MultiIndex.from_arrays([fleet["gpu_serial"].map(other), fleet["timestamp"]])
    shuffled = fleet.assign(failure=keys.reindex(index).to_numpy())
    records = write(shuffled, tmp_path / "records")
    arguments = ("--models", "gbdt", "--strategies", "sliding")
    assert _run(records, config, tmp_path / "out", *arguments) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    found = report["fleet"]["gbdt_sliding"]["average_precision"]
    low, high = report["fleet"]["random_sliding"]["average_precision_interval"]
    assert low / 3 < found < 3 * high


QUICK = ("--models", "gbdt", "--strategies", "sliding")
CUT = pd.Timestamp("2025-01-18T10:00:00Z")


def _judged(out: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    scores = pd.read_parquet(out / "scores_sliding.parquet")
    return scores, json.loads((out / "report.json").read_text())


@pytest.fixture(scope="module")
def uncut(records: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uncut")
    assert _run(records, config, out, *QUICK) == 0
    return out


@pytest.fixture(scope="module")
def cut(
    fleet: pd.DataFrame, config: Path, tmp_path_factory: pytest.TempPathFactory, write: Write
) -> Path:
    out = tmp_path_factory.mktemp("cut")
    records = write(fleet[fleet["timestamp"] < CUT], out / "records")
    assert _run(records, config, out / "out", *QUICK) == 0
    return out / "out"


def test_cut_records_exclude_unfinished_horizons(cut: Path, uncut: Path) -> None:
    (found, report), (whole, _) = _judged(cut), _judged(uncut)
    last = CUT - pd.Timedelta("1h")
    expected = whole[whole["window_end"] + pd.Timedelta("24h") <= last].reset_index(drop=True)
    assert CUT - found["window_end"].max() < pd.Timedelta("28h")
    # The sampled negatives depend on the positives of the window, random scores on its instances.
    drawn = ("sampled", "flag_parallel", "flag_cascade", "score_random")
    kept = [name for name in found if name not in drawn]
    pd.testing.assert_frame_equal(found[kept], expected[kept], check_exact=True)
    random = report["fleet"]["random_sliding"]
    assert random["average_precision"] < 3 * report["prevalence"]


def test_report_lists_excluded_days(cut: Path) -> None:
    _, report = _judged(cut)
    left = report["left_out"]
    assert left["last_record"] == "2025-01-18T09:00:00Z"
    assert pd.Timestamp("2025-01-17T09:00:00Z") < pd.Timestamp(left["from"])
    assert left["days"] == ["2025-01-18"]
    assert left["instances"] > left["positives"] > 0
    dates = [one["date"] for one in report["fleet"]["gbdt_sliding"]["days"]]
    assert dates[-1] == "2025-01-17"
    page = " ".join((cut / "report.html").read_text().split())
    assert "Excluded: " in page
    assert "1 daily list (2025-01-18) is therefore not evaluated" in page


def test_end_limits_retraining_but_not_labels(records: Path, config: Path, tmp_path: Path) -> None:
    assert _run(records, config, tmp_path, *QUICK, "--end", "2025-01-11") == 0
    scores, report = _judged(tmp_path)
    assert scores["test_window"].unique().tolist() == [pd.Timestamp("2025-01-08", tz="UTC")]
    assert scores["window_end"].max() >= pd.Timestamp("2025-01-10T20:00Z")
    assert report["left_out"]["instances"] == 0


def test_two_day_step_ranks_every_gpu_daily(
    records: Path, config_text: str, tmp_path: Path
) -> None:
    config = tmp_path / "sparse.toml"
    config.write_text(
        config_text.replace("step = 2", "step = 48").replace("horizon = 24", "horizon = 72")
    )
    assert _run(records, config, tmp_path / "out", *QUICK) == 0
    scores, report = _judged(tmp_path / "out")
    scores["fails"] = scores["window_end"] + pd.to_timedelta(
        scores["hours_to_failure"].replace(np.inf, 10**4), unit="h"
    )
    unseen = pd.Timestamp(report["left_out"]["from"])
    listed: list[dict[str, Any]] = []
    hits, first = 0, pd.Timestamp("2025-01-11", tz="UTC")
    for midnight in pd.date_range(first, unseen.floor("D"), freq="D"):
        since = midnight - pd.Timedelta("48h")
        rows = scores[(scores["window_end"] >= since) & (scores["window_end"] < midnight)]
        rows = rows[rows["fails"] > midnight].sort_values("window_end")
        rows = rows.groupby("gpu_serial").tail(1)
        size = max(1, round(0.05 * len(rows)))
        top = rows.sort_values(["score_gbdt", "gpu_serial"], ascending=[False, True])[:size]
        caught = int(top["label"].sum())
        listed.append({"date": str(midnight.date()), "listed": size, "hits": caught})
        hits += caught
    found = report["fleet"]["gbdt_sliding"]
    assert len(listed) > 5
    assert found["days"] == listed
    assert found["list_precision"] == pytest.approx(hits / sum(one["listed"] for one in listed))


def test_epoch_timestamp_causes_no_extra_retrainings(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write, capsys: Capture
) -> None:
    short = fleet[fleet["timestamp"] < "2025-01-13"]
    at_boot = short[:1].assign(timestamp=pd.Timestamp("1970-01-01T01:00Z"))
    records = write(pd.concat([short, at_boot]), tmp_path / "records")
    assert _run(records, config, tmp_path / "out", *QUICK, "--end", "2025-01-08") == 0
    skipped = [line for line in capsys.readouterr().err.splitlines() if "skipped" in line]
    assert any("from 1970-01-09T00:00:00Z to 2024-12-" in line for line in skipped)
    assert len(skipped) == 3  # on the other first days of the true records; one message each


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        (("--start", "2025-02-20"), "--start 2025-02-20T00:00:00Z"),
        (("--start", "2025-01-12", "--end", "2025-01-10"), "found `--start` 2025-01-12T00:00:00Z"),
    ],
)
def test_limits_without_retraining_are_refused(
    limits: tuple[str, ...],
    line: str,
    records: Path,
    config: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    assert _run(records, config, tmp_path / "out", *limits) == 2
    assert f"error: {line}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

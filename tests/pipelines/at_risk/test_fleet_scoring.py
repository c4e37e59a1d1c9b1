from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.features.prediction.instances import latest_instances
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.time_units import DAY
from forewarn.models.prediction.builtin_rules import rule_points
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.fleet_scoring import list_contributions, score_with_rules
from forewarn.pipelines.at_risk.past_alerts import monitoring_start
from forewarn.pipelines.at_risk.review_report import review_lists, review_text
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.records import record_store
from forewarn.pipelines.storage.records.record_store import RecordStore

Write = Callable[[pd.DataFrame, Path], Path]
AT = "2025-01-19"


@pytest.fixture(scope="module")
def model(records: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "model"
    arguments = ["--records", str(records), "--config", str(config), "--at", AT]
    assert main(["train", *arguments, "--model", str(folder)]) == 0
    return folder


def _score(records: Path, model: str | Path, out: Path, *more: str, at: str = AT) -> int:
    arguments = ["--records", str(records), "--model", str(model), "--at", at]
    return main(["score", *arguments, "--out", str(out), *more])


@pytest.fixture(scope="module")
def folder(records: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lists")
    assert _score(records, model, out) == 0
    return out / f"date={AT}"


def test_outputs_match_contract(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    lists = {f"at_risk.{kind}" for kind in ("parquet", "csv", "json", "html")}
    assert names == lists | {"unscored.csv", "summary.json", "gpu_extracts.parquet"}


def test_extracts_hold_telemetry_events_and_rack(folder: Path, fleet: pd.DataFrame) -> None:
    extracts = pd.read_parquet(folder / "gpu_extracts.parquet").set_index("gpu_serial")
    table = pd.read_parquet(folder / "at_risk.parquet").set_index("gpu_serial")
    assert set(extracts.index) == set(table.index)
    serial = table.index[0]
    telemetry = json.loads(extracts.loc[serial, "telemetry"])
    channels = {channel["name"]: channel for channel in telemetry["channels"]}
    (n_points,) = {len(channel["levels"]) for channel in channels.values()}
    span = n_points * telemetry["step"]
    end = table.loc[serial, "window_end"]
    assert abs(telemetry["start"] + span - end.timestamp()) <= n_points
    rows = fleet[fleet["gpu_serial"] == serial].set_index("timestamp")
    past = rows[rows.index <= end]
    for name, channel in channels.items():
        known = [level for level in channel["levels"] if level is not None]
        if not channel["counted"]:
            assert past[name].min() - 1e-3 <= min(known) <= max(known) <= past[name].max() * 1.001
    assert extracts["rack"].eq("").all()  # these records name none
    xids = past[(past["xid"] > 0) & (past.index > end - pd.Timedelta(span, "s"))]
    shown = [event[2] for event in json.loads(extracts.loc[serial, "events"])]
    assert shown == xids["xid"].tolist()[-50:]


def test_all_formats_contain_same_rows(folder: Path) -> None:
    table = pd.read_parquet(folder / "at_risk.parquet")
    text = pd.read_csv(folder / "at_risk.csv")
    rows = json.loads((folder / "at_risk.json").read_text())
    assert list(table["gpu_serial"]) == list(text["gpu_serial"])
    assert list(table["gpu_serial"]) == [row["gpu_serial"] for row in rows]
    page = (folder / "at_risk.html").read_text()
    assert table["gpu_serial"].iloc[0] in page


def test_rows_have_rank_flag_and_validity(folder: Path) -> None:
    table = pd.read_parquet(folder / "at_risk.parquet")
    assert list(table["rank"]) == list(range(1, len(table) + 1))
    assert table["probability"].is_monotonic_decreasing
    assert table["probability"].between(0, 1).all()
    assert table["flagged"].sum() == round(0.05 * len(table))
    assert set(table["flagged_by"]) <= {"", "parallel", "cascade", "parallel+cascade"}
    assert ((table["valid_until"] - table["window_end"]) == pd.Timedelta("24h")).all()
    at = pd.Timestamp(AT, tz="UTC")
    assert table["window_end"].between(at - pd.Timedelta("2h"), at, inclusive="left").all()
    assert table["gpu_serial"].is_unique


def test_every_gpu_is_scored_or_explained(folder: Path, fleet: pd.DataFrame) -> None:
    table = pd.read_parquet(folder / "at_risk.parquet")
    unscored = pd.read_csv(folder / "unscored.csv")
    assert set(table["gpu_serial"]) | set(unscored["gpu_serial"]) == set(fleet["gpu_serial"])
    now = fleet[fleet["timestamp"] == pd.Timestamp(AT, tz="UTC") - pd.Timedelta("1h")]
    failed = set(now.loc[now["failure"] == 1, "gpu_serial"])
    assert set(unscored.loc[unscored["reason"] == "failed", "gpu_serial"]) == failed


def test_reasons_contain_rising_counter(folder: Path, fleet: pd.DataFrame) -> None:
    table = pd.read_parquet(folder / "at_risk.parquet")
    assert re.match(
        r"[\d,]+ corrected memory errors .*; the other GPUs of ", table["reasons"].iloc[0]
    ) or table["reasons"].iloc[0].startswith("temperature")
    failed = fleet[fleet["failure"] == 1].groupby("gpu_serial")["timestamp"].min()
    ahead = failed[table["gpu_serial"].iloc[0]] - pd.Timestamp(AT, tz="UTC")
    assert pd.Timedelta(0) < ahead <= pd.Timedelta("24h")
    page = (folder / "at_risk.html").read_text()
    assert page.count('<svg class="picture"') >= 1
    assert "stroke: var(--bad, #b3261e)" in page  # line of this GPU


@pytest.mark.parametrize("n_slices", [2, 64])
def test_slices_give_same_list(
    records: Path, model: Path, folder: Path, tmp_path: Path, n_slices: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(record_store, "number_of_slices", lambda *_: n_slices)
    assert _score(records, model, tmp_path) == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {path.name for path in (tmp_path / folder.name).iterdir()}
    assert "<figcaption>temperature " in (folder / "at_risk.html").read_text()
    for name in names:
        assert (tmp_path / folder.name / name).read_bytes() == (folder / name).read_bytes()


def _priced(config_text: str, tmp_path: Path, prices: str) -> tuple[str, str]:
    path = tmp_path / "priced.toml"
    path.write_text(config_text.replace("[list]", f"[list]\n{prices}"))
    return "--config", str(path)


def test_quiet_day_gives_empty_list(
    records: Path, model: Path, config_text: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    prices = "failure_cost_gpu_hours = 10\ndrain_cost_gpu_hours = 100\nprevented_share = 0.5"
    capsys.readouterr()
    priced = _priced(config_text, tmp_path, prices)
    assert _score(records, model, tmp_path / "out", *priced) == 0
    captured = capsys.readouterr()
    assert "note: No action pays off today: the highest probability is " in captured.err
    assert captured.out.startswith("0 of ")
    made = tmp_path / "out" / f"date={AT}"
    assert not pd.read_csv(made / "at_risk.csv")["flagged"].any()
    assert not any(row["flagged"] for row in json.loads((made / "at_risk.json").read_text()))
    summary = json.loads((made / "summary.json").read_text())
    assert (summary["flagged"], summary["break_even"]) == (0, 20.0)
    assert summary["sentences"][0].startswith("No action pays off today")
    page = (made / "at_risk.html").read_text()
    assert "No GPU is flagged" in page
    assert "No action pays off today" in page


def test_list_contains_justified_actions(
    records: Path, model: Path, config_text: str, tmp_path: Path
) -> None:
    prices = "failure_cost_gpu_hours = 1e6\ndrain_cost_gpu_hours = 1e5\navoid_cost_gpu_hours = 1"
    assert _score(records, model, tmp_path, *_priced(config_text, tmp_path, prices)) == 0
    table = pd.read_parquet(tmp_path / f"date={AT}" / "at_risk.parquet")
    assert table["flagged"].sum() == round(0.05 * len(table))  # never more than the share
    flagged = table[table["flagged"]]
    assert (flagged["action"] == np.where(flagged["probability"] > 0.1, "drain", "avoid")).all()
    assert (table.loc[~table["flagged"], "action"] == "").all()


@pytest.mark.parametrize(
    "prices",
    ["drain_cost_gpu_hours = 24", "failure_cost_gpu_hours = 24", "prevented_share = 0.5"],
)
def test_incomplete_costs_are_refused(
    records: Path, model: Path, config_text: str, tmp_path: Path, prices: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    capsys.readouterr()
    assert _score(records, model, tmp_path / "out", *_priced(config_text, tmp_path, prices)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert prices.split(" =")[0] in error
    assert not (tmp_path / "out").exists()


def test_miscalibration_blocks_flags(
    records: Path, fleet: pd.DataFrame, model: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    failed = set(fleet.loc[fleet["failure"] == 1, "gpu_serial"])
    healthy = sorted(set(fleet["gpu_serial"]) - failed)[:12]
    for day in range(10, 17):  # 7 lists of 12 GPUs with high probabilities, none of which failed
        end = pd.Timestamp(f"2025-01-{day}", tz="UTC") - pd.Timedelta("1h")
        made = tmp_path / f"date=2025-01-{day}"
        made.mkdir()
        past = pd.DataFrame({"gpu_serial": healthy, "window_end": end, "probability": 0.8})
        past = past.assign(rank=np.arange(1, 13), listed=True, flagged=True)
        past.assign(valid_until=end + pd.Timedelta("1D")).to_parquet(made / "at_risk.parquet")
    capsys.readouterr()
    assert _score(records, model, tmp_path) == 0
    assert "Recent probabilities were not calibrated" in capsys.readouterr().err
    table = pd.read_parquet(tmp_path / f"date={AT}" / "at_risk.parquet")
    assert not table["flagged"].any()
    assert table["listed"].sum() == round(0.05 * len(table))  # alerts are still evaluated
    assert list(table["rank"]) == list(range(1, len(table) + 1))
    summary = json.loads((tmp_path / f"date={AT}" / "summary.json").read_text())
    assert (summary["promise"]["state"], summary["promise"]["broken"]) == ("broken", 1)
    page = (tmp_path / f"date={AT}" / "at_risk.html").read_text()
    assert "of 60 past alerts in a row, 48.0 were expected to fail and 0 did." in page
    assert "Since then, of 24 more, 19.2 were expected to fail and 0 did." in page
    assert "No GPU is flagged: recent probabilities were not calibrated" in page
    assert f"The first {table['listed'].sum()} of these" in page
    assert "Nothing to drain" not in page


@pytest.mark.parametrize(("flagged", "state"), [(False, "broken"), (True, "cannot tell")])
def test_blocked_state_is_restored_from_lists(
    records: Path, fleet: pd.DataFrame, model: Path, tmp_path: Path, flagged: bool, state: str
) -> None:
    made = tmp_path / "date=2025-01-16"
    made.mkdir()
    end = pd.Timestamp("2025-01-16", tz="UTC") - pd.Timedelta("1h")
    serials = sorted(set(fleet["gpu_serial"]))[:4]
    past = pd.DataFrame({"gpu_serial": serials, "window_end": end, "probability": 0.01})
    past = past.assign(rank=np.arange(1, 5), listed=True, flagged=flagged)
    past.assign(valid_until=end + pd.Timedelta("1D")).to_parquet(made / "at_risk.parquet")
    assert _score(records, model, tmp_path) == 0
    summary = json.loads((tmp_path / f"date={AT}" / "summary.json").read_text())
    assert summary["promise"]["state"] == state
    assert (summary["flagged"] > 0) == flagged


def test_monitoring_start_is_stable() -> None:
    start = 100 * 45 * DAY
    assert monitoring_start(start) == monitoring_start(start + 45 * DAY - 1) == start - 45 * DAY
    assert monitoring_start(start + 45 * DAY) == start


def test_few_outcomes_give_unknown_calibration(
    records: Path, model: Path, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / f"date={AT}")
    assert _score(records, model, tmp_path, at="2025-01-21") == 0
    page = (tmp_path / "date=2025-01-21" / "at_risk.html").read_text()
    assert "It is not known yet whether the probabilities are calibrated" in page


def test_gap_stale_and_too_new(
    fleet: pd.DataFrame, model: Path, tmp_path: Path, write: Write
) -> None:
    at = pd.Timestamp(AT, tz="UTC")
    age = (at - fleet["timestamp"]).dt.total_seconds() / 3600
    serial = fleet["gpu_serial"]
    gone = (serial == "S000") & (age <= 5)
    hole = (serial == "S002") & age.between(3, 4)
    young = (serial == "S004") & (age > 4)
    records = write(fleet[~(gone | hole | young)], tmp_path / "records")
    assert _score(records, model, tmp_path / "out") == 0
    unscored = pd.read_csv(tmp_path / "out" / f"date={AT}" / "unscored.csv")
    reasons = dict(zip(unscored["gpu_serial"], unscored["reason"], strict=True))
    assert {s: reasons.get(s) for s in ("S000", "S002", "S004")} == {
        "S000": "stale", "S002": "gap", "S004": "too new",
    }  # fmt: skip


def test_new_gpu_in_slot_replaces_silent_one(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write
) -> None:
    at = pd.Timestamp(AT, tz="UTC")
    age = (at - fleet["timestamp"]).dt.total_seconds() / 3600
    serial = fleet["gpu_serial"]
    successor = fleet[(serial == "S000") & (age <= 20)].assign(gpu_serial="S900")
    # S004 is lost, and another known GPU now has its index.
    renumbered = (serial == "S005") & (age <= 20)
    present = fleet[~(serial.isin(["S000", "S004"]) & (age <= 20))]
    present = present.assign(slot=present["slot"].where(~renumbered, 0))
    records = write(pd.concat([present, successor]), tmp_path / "records")
    made = score_with_rules(load_settings(config), records, at.value)
    replaced = made.unscored.set_index("gpu_serial")["replaced"]
    assert (replaced["S000"], replaced["S004"]) == (True, False)
    unscored = pd.read_csv(made.write(tmp_path / "lists") / "unscored.csv")
    assert "replaced" not in unscored


def test_later_data_is_ignored(
    fleet: pd.DataFrame, config: Path, model: Path, folder: Path, tmp_path: Path, write: Write
) -> None:
    past = fleet[fleet["timestamp"] < AT]
    records = write(past, tmp_path / "records")
    again = tmp_path / "model"
    arguments = ["--records", str(records), "--config", str(config), "--at", AT]
    assert main(["train", *arguments, "--model", str(again)]) == 0
    assert (again / "predictor.json").read_text() == (model / "predictor.json").read_text()
    assert _score(records, again, tmp_path / "out") == 0
    for name in ("at_risk.csv", "at_risk.json", "at_risk.html", "unscored.csv"):
        assert (tmp_path / "out" / f"date={AT}" / name).read_bytes() == (folder / name).read_bytes()


def test_model_requires_columns_and_interval(
    fleet: pd.DataFrame, model: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    capsys.readouterr()
    records = write(fleet.drop(columns="power_draw"), tmp_path / "records")
    assert _score(records, model, tmp_path / "out") == 2
    assert "power_draw" in capsys.readouterr().err
    sparse = write(fleet[fleet["timestamp"].dt.hour % 3 == 0], tmp_path / "sparse")
    assert _score(sparse, model, tmp_path / "out") == 2
    assert "3 h apart" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_list_before_training_cutoff_is_refused(
    records: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert _score(records, model, tmp_path / "out", at="2025-01-18") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--at 2025-01-18T00:00:00Z is before the training cutoff" in said
    assert f"{model} (2025-01-19T00:00:00Z)" in said
    assert "--hindsight" in said
    assert not (tmp_path / "out").exists()


def test_hindsight_list_is_marked(
    records: Path, model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert _score(records, model, tmp_path, "--hindsight", at="2025-01-18") == 0
    assert "note: made in hindsight" in capsys.readouterr().err
    made = tmp_path / "date=2025-01-18"
    assert pd.read_parquet(made / "at_risk.parquet")["hindsight"].all()
    assert all(row["hindsight"] for row in json.loads((made / "at_risk.json").read_text()))
    assert "Made in hindsight" in (made / "at_risk.html").read_text()
    # The option is not needed: no message, and no change.
    assert _score(records, model, tmp_path, "--hindsight") == 0
    assert "hindsight" not in capsys.readouterr().err
    for name in ("at_risk.csv", "at_risk.json", "at_risk.html"):
        assert (tmp_path / f"date={AT}" / name).read_bytes() == (folder / name).read_bytes()


def test_invalid_model_folder(
    records: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "model"
    shutil.copytree(model, broken)
    (broken / "predictor.json").write_text("{")
    for path in (broken, tmp_path):
        assert _score(records, path, tmp_path / "out") == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert _score(records, "models:/gpu-failure@champion", tmp_path / "out") == 2


def test_builtin_rules_need_no_failures(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write
) -> None:
    frame = fleet.drop(columns="failure")
    last = frame["timestamp"] == pd.Timestamp(AT, tz="UTC") - pd.Timedelta("1h")
    frame.loc[last & (frame["gpu_serial"] == "S010"), "xid"] = 79
    records = write(frame, tmp_path / "records")
    assert _score(records, "builtin:rules", tmp_path / "out", "--config", str(config)) == 0
    table = pd.read_parquet(tmp_path / "out" / f"date={AT}" / "at_risk.parquet")
    assert table["gpu_serial"].iloc[0] == "S010"
    assert "Xid 79 (GPU fell off the bus) once in the last day" in table["reasons"].iloc[0]
    assert np.isnan(table["probability"]).all()


def test_rules_flag_only_gpus_with_a_reason(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write
) -> None:
    records = write(fleet.drop(columns="failure").assign(xid=0), tmp_path / "records")
    wide = tmp_path / "wide.toml"
    wide.write_text(re.sub(r"share = [0-9.]+", "share = 0.9", config.read_text()))
    assert _score(records, "builtin:rules", tmp_path / "out", "--config", str(wide)) == 0
    folder = tmp_path / "out" / f"date={AT}"
    table = pd.read_parquet(folder / "at_risk.parquet")
    has_reason = table["reasons"] != ""
    assert 0 < has_reason.sum() < 0.9 * len(table)
    assert (table["flagged"] == has_reason).all()
    page = (folder / "at_risk.html").read_text()
    assert f"No rule speaks against {(~has_reason).sum()} GPUs" in page
    assert "Next on the list" not in page


def test_builtin_rules_use_counters_and_codes(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write
) -> None:
    kinds = load_settings(config).features.kinds
    looked_at = {"gpu_serial", "timestamp", "failure", "machine_id", "slot"}
    looked_at |= {*kinds.counter, *kinds.code, *load_settings(config).features.peers}
    others = sorted({*kinds.names} - looked_at)
    assert "temperature_gpu" in others
    last = fleet["timestamp"] == pd.Timestamp(AT, tz="UTC") - pd.Timedelta("1h")
    good, lists = fleet.copy(), []
    good.loc[last & (fleet["gpu_serial"] == "S010"), "xid"] = 79
    for name, frame in (("good", good), ("odd", good.assign(**dict.fromkeys(others, "cold")))):
        records, out = write(frame, tmp_path / name), tmp_path / f"list-{name}"
        assert _score(records, "builtin:rules", out, "--config", str(config)) == 0
        lists.append({path.name: path.read_bytes() for path in (out / f"date={AT}").iterdir()})
    assert lists[0] == lists[1]
    assert b"Xid" in lists[0]["at_risk.html"]


def test_review_counts_hits_and_misses(
    folder: Path, fleet: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = fleet[fleet["failure"] == 1].groupby("gpu_serial")["timestamp"].min()
    failures = tmp_path / "failures.csv"
    failed.rename("failed_at").reset_index().to_csv(failures, index=False)
    capsys.readouterr()
    arguments = ["--at-risk", str(folder.parent), "--failures", str(failures)]
    assert main(["review", *arguments, "--until", "2025-01-21", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    table = pd.read_parquet(folder / "at_risk.parquet")
    ahead = table["gpu_serial"].map(failed) - table["window_end"]
    hit = (ahead > pd.Timedelta(0)) & (ahead <= pd.Timedelta("24h"))
    assert figures["flagged"] == int(table["flagged"].sum())
    assert figures["hits"] == int((hit & table["flagged"]).sum())
    assert figures["caught"] + figures["missed"] == figures["failures"]
    assert main(["review", *arguments]) == 0
    assert "precision" in capsys.readouterr().out
    prices = tmp_path / "prices.toml"
    prices.write_text("[list]\nfailure_cost_gpu_hours = 200\ndrain_cost_gpu_hours = 10\n")
    priced = ["--until", "2025-01-21", "--json", "--config", str(prices)]
    assert main(["review", *arguments, *priced]) == 0
    hours = json.loads(capsys.readouterr().out)
    assert hours["gpu_hours_spent"] == 10 * hours["alerts"] == 10 * hours["flagged"]
    assert hours["gpu_hours_net"] == 200 * hours["hits"] - hours["gpu_hours_spent"]


def test_review_notes_unmatched_serials(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = tmp_path / "failures.csv"
    failures.write_text("gpu_serial,failed_at\nUUID-7,2025-01-20T00:00:00Z\n")
    capsys.readouterr()
    assert main(["review", "--at-risk", str(folder.parent), "--failures", str(failures)]) == 0
    assert "(such as 'UUID-7') is on any list (such as 'S0" in capsys.readouterr().err


def test_review_without_flags_has_no_time_hint(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = pd.read_parquet(folder / "at_risk.parquet").assign(flagged=False)
    path = tmp_path / "lists" / folder.name / "at_risk.parquet"
    path.parent.mkdir(parents=True)
    lists.to_parquet(path)
    failures = tmp_path / "failures.csv"
    failures.write_text("gpu_serial,failed_at\nS001,2025-01-30T00:00:00Z\n")
    assert main(["review", "--at-risk", str(tmp_path / "lists"), "--failures", str(failures)]) == 0
    assert capsys.readouterr().out.startswith(
        "No GPU was flagged on the lists whose horizon is over"
    )


def test_review_reads_incident_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = pd.Timestamp("2025-03-01", tz="UTC")
    hours = [day + pd.Timedelta(hour, unit="h") for hour in range(48)]
    listed = {
        "gpu_serial": ["A", "B", "C"],
        "machine_id": ["m1", "m2", "m3"],
        "window_end": [day] * 3,
        "valid_until": [hours[24]] * 3,
        "flagged": [True] * 3,
    }
    (tmp_path / "lists" / "date=2025-03-01").mkdir(parents=True)
    pd.DataFrame(listed).to_parquet(tmp_path / "lists" / "date=2025-03-01" / "at_risk.parquet")
    write = {
        "failures": {"gpu_serial": ["A", "X"], "failed_at": [hours[5], hours[40]]},
        # The failure of A with a different clock, and a failure without a ticket.
        "incident_failures": {"gpu_serial": ["A", "B"], "failed_at": [hours[6], hours[7]]},
        "out_of_service": {"machine_id": ["m2", "m3"], "start": [hours[2]] * 2},
    }
    for name, columns in write.items():
        pd.DataFrame(columns).to_parquet(tmp_path / f"{name}.parquet")
    arguments = ["--at-risk", str(tmp_path / "lists")]
    arguments += ["--failures", str(tmp_path / "failures.parquet")]
    assert main(["review", *arguments, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["hits"], figures["false_alarms"], figures["rows_unknown"]) == (2, 0, 1)
    assert figures["failures"] == 2
    assert main(["review", *arguments]) == 0
    assert "1 rows were excluded: their machine was out of service" in capsys.readouterr().out


def test_two_day_step_uses_previous_instance(
    fleet: pd.DataFrame, config_text: str, tmp_path: Path, write: Write
) -> None:
    # S004 has no records for 40 hours before the list, S008 for 50: only S004 within a step.
    end, silent = pd.Timestamp(AT, tz="UTC"), {"S004": "40h", "S008": "50h"}
    gone = [
        (fleet["gpu_serial"] == serial) & (fleet["timestamp"] >= end - pd.Timedelta(hours))
        for serial, hours in silent.items()
    ]
    records = write(fleet[~(gone[0] | gone[1])], tmp_path / "records")
    config = tmp_path / "sparse.toml"
    config.write_text(
        config_text.replace("step = 2", "step = 48").replace("history = [4]", "history = []")
    )
    assert _score(records, "builtin:rules", tmp_path / "out", "--config", str(config)) == 0
    folder = tmp_path / "out" / f"date={AT}"
    table = pd.read_parquet(folder / "at_risk.parquet").set_index("gpu_serial")
    assert table.loc["S004", "window_end"] == end - pd.Timedelta("41h")
    assert table.loc["S000", "window_end"] == end - pd.Timedelta("1h")
    unscored = pd.read_csv(folder / "unscored.csv").set_index("gpu_serial")
    assert unscored.loc["S008", "reason"] == "stale"


REVIEWED = {
    "rows_unknown": 0,
    "random_precision": 0.01,
    "precision_interval": None,
    "expected_hits": None,
}


def test_review_reports_lead_times() -> None:
    figures = REVIEWED | {
        "flagged": 20, "hits": 10, "precision": 0.5, "caught": 10, "failures": 12, "missed": 2,
        "false_alarms": 10, "rows_not_over_yet": 0, "lead_time_hours": {"p10": 24.0, "p50": 36.0},
    }  # fmt: skip
    text = review_text(figures)
    assert (
        "Half of these 10 were flagged at least 36.0 h before they failed, and one in ten at most "
        "24.0 h before." in text
    )
    one = review_text(figures | {"hits": 1, "lead_time_hours": {"p10": 9.0, "p50": 9.0}})
    assert "It was flagged 9.0 h before it failed." in one
    none = review_text(figures | {"hits": 0, "lead_time_hours": {"p10": None, "p50": None}})
    assert "before" not in none


def test_review_ends_at_newest_failure(tmp_path: Path) -> None:
    # The failure was reported ten days later, so later failures in that time may be unknown.
    ends = pd.to_datetime(["2025-01-01T00:00Z", "2025-01-05T00:00Z"])
    lists = pd.DataFrame(
        {
            "gpu_serial": ["A", "B"],
            "window_end": ends,
            "valid_until": ends + pd.Timedelta("1D"),
            "flagged": True,
        }
    )
    (tmp_path / "date=2025-01-05").mkdir()
    lists.to_parquet(tmp_path / "date=2025-01-05" / "at_risk.parquet")
    failures = tmp_path / "failures.csv"
    failures.write_text(
        "gpu_serial,failed_at,known_at\nA,2025-01-01T06:00Z,\nC,2025-01-03T00:00Z,2025-01-13T00:00Z\n"
    )
    reviewed = review_lists(tmp_path, failures)
    assert reviewed.rows["gpu_serial"].tolist() == ["A"]
    assert reviewed.not_over == 1


def test_review_excludes_presumed_repairs(tmp_path: Path) -> None:
    """A failed on the 2nd and again on the 4th, before its repair was presumed: one failure."""
    ends = pd.to_datetime([f"2025-01-{day:02}T00:00Z" for day in (1, 2, 3, 4, 10)])
    lists = pd.DataFrame(
        {
            "gpu_serial": "A",
            "window_end": ends,
            "valid_until": ends + pd.Timedelta("1D"),
            "flagged": True,
        }
    )
    (tmp_path / "date=2025-01-05").mkdir()
    lists.to_parquet(tmp_path / "date=2025-01-05" / "at_risk.parquet")
    failures = tmp_path / "failures.csv"
    failures.write_text(
        "gpu_serial,failed_at,end_source,unknown_until\n"
        "A,2025-01-01T06:00Z,presumed,2025-01-08T06:00Z\nA,2025-01-04T06:00Z,,\n"
        "B,2025-01-12T00:00Z,,\n"
    )
    reviewed = review_lists(tmp_path, failures)
    assert reviewed.rows["window_end"].dt.day.tolist() == [1, 10]
    assert reviewed.rows["hit"].tolist() == [True, False]
    assert (len(reviewed.failures), reviewed.unknown) == (1, 3)


def test_review_excludes_hindsight_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = tmp_path / "failures.csv"
    failures.write_text("gpu_serial,failed_at\nA,2025-01-01T06:00Z\nZ,2025-01-09T00:00Z\n")
    for day, told in (("2025-01-01", {}), ("2025-01-02", {"hindsight": True})):
        end = pd.Timestamp(day, tz="UTC")
        row = {"gpu_serial": ["A"], "window_end": end, "valid_until": end + pd.Timedelta("1D")}
        (tmp_path / f"date={day}").mkdir()
        listed = pd.DataFrame({**row, "flagged": True, **told})
        listed.to_parquet(tmp_path / f"date={day}" / "at_risk.parquet")
    assert len(review_lists(tmp_path, failures).rows) == 1
    assert "date=2025-01-02/at_risk.parquet: was made in hindsight" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "date=2025-01-01")
    with pytest.raises(ValueError, match="every list was made in hindsight"):
        review_lists(tmp_path, failures)


def _measured(records: Path, predictor: Predictor) -> InstanceValues:
    """Return the newest instance of every GPU."""
    plan = predictor.encoder.measures.plan
    store = RecordStore(records, plan.kinds, plan.interval, plan.peers)
    at = parse_moment(AT)
    timeline = build_timeline(*store.read_known(at - plan.reach, at))
    newest = latest_instances(timeline, window_records=plan.window_records, since=at - 10**13)
    return predictor.encoder.measures.values(timeline, newest)


def test_contributions_follow_vote_shares(records: Path, model: Path) -> None:
    saved = Predictor.load(model)
    values = _measured(records, saved)
    everybody = np.arange(len(values))
    trees, both, linear = (
        list_contributions(replace(saved, committee=replace(saved.committee, linear=share)), values)
        for share in (0.0, 0.25, 1.0)
    )
    mixed = 0.75 * trees.compute(everybody) + 0.25 * linear.compute(everybody)
    assert both.compute(everybody) == pytest.approx(mixed)
    assert np.abs(linear.compute(everybody)).sum() > 0.0


def test_contributions_include_rules(records: Path, model: Path) -> None:
    saved = Predictor.load(model)
    predictor = replace(saved, committee=replace(saved.committee, rules=1.0))
    silent = replace(predictor, committee=replace(predictor.committee, rules=0.0))
    plan, values = predictor.encoder.measures.plan, _measured(records, predictor)
    spoken, trees = (list_contributions(one, values) for one in (predictor, silent))
    everybody = np.arange(len(values))
    added = (spoken.compute(everybody) - trees.compute(everybody)).sum(axis=1)
    points = np.sum(list(rule_points(values, plan).values()), axis=0)
    assert spoken.names == trees.names
    assert (points > 0).any()
    assert added == pytest.approx(points)

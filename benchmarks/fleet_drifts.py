"""Drifts of a simulated fleet from a day on, for `drift_study.py`: they edit its records.

The simulator is unaware of them. Each drift edits the records of one day after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["DRIFTS", "FleetHistory", "write_drifted"]

Drift = Callable[[pd.DataFrame], pd.DataFrame]
_COUNTERS = ("ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays")
_LOCATION_COLUMNS = ("machine_id", "slot", "rack", "data_center", "expiration_date")
_SIGNS, _INTERVAL = pd.Timedelta(days=3), pd.Timedelta(minutes=10)
_WITH_SIGNS, _REMOVED, _NEW = 0.1, 0.75, 0.3  # share of healthy GPUs, of failing GPUs, of machines
_LEVELS = {"temperature_gpu": 1.2, "power_draw": 1.6, "memory_used": 2.0, "clock_sm": 1.3}


@dataclass(frozen=True)
class FleetHistory:
    """A fleet written by `simulate_fleet_to`, and the day from which it drifts."""

    folder: Path
    day: pd.Timestamp
    end: pd.Timestamp
    rng: np.random.Generator

    @property
    def boards(self) -> pd.DataFrame:
        """All boards by serial."""
        return pd.read_csv(self.folder / "cmdb.csv", dtype=str).set_index("gpu_serial")

    @property
    def failures(self) -> pd.DataFrame:
        """All failures, by time."""
        return pd.read_csv(self.folder / "truth.csv", parse_dates=["failed_at"])

    def records(self, start: pd.Timestamp, end: pd.Timestamp, serial: str) -> pd.DataFrame:
        """Return the records of a GPU in a span, by time."""
        days = pd.date_range(start.normalize(), end, freq="D")
        paths = [self.folder / f"records/date={day:%Y-%m-%d}/part-0.parquet" for day in days]
        filters = [("gpu_serial", "==", serial)]
        frame = pd.concat([pd.read_parquet(p, filters=filters) for p in paths if p.exists()])
        return frame[(frame["timestamp"] >= start) & (frame["timestamp"] < end)]


def unchanged(_: FleetHistory) -> Drift:
    """Change nothing."""
    return lambda frame: frame


def exchanged(past: FleetHistory) -> Drift:
    """Let other GPUs fail than those with precursors.

    At each failure the failing GPU and a healthy one of its type swap identities for good: the
    precursors end without a failure, and the other GPU fails without precursors.
    """
    boards, failures = past.boards, past.failures
    name: dict[str, str] = {}  # of swapped GPUs

    def drift(frame: pd.DataFrame) -> pd.DataFrame:
        names = frame["gpu_serial"].astype(str).map(lambda serial: name.get(serial, serial))
        serials = frame["gpu_serial"].astype(str)
        start = frame["timestamp"].min().normalize()
        today = failures[failures["failed_at"].between(start, start + pd.Timedelta("1D"), "left")]
        for failing, at in zip(today["gpu_serial"], today["failed_at"], strict=True):
            later = frame["timestamp"] >= at
            same = frame["gpu_type"].astype(str) == boards.loc[failing, "gpu_type"]
            others = serials[later & same & (frame["failure"] == 0)].unique()
            other = str(past.rng.choice(others[others != failing]))
            first, second = name.get(failing, failing), name.get(other, other)
            name[failing], name[other] = second, first
            names[later & (serials == failing)], names[later & (serials == other)] = second, first
        moved = names != serials
        places = boards.loc[names[moved]]
        frame = frame.astype(dict.fromkeys(("gpu_serial", *_LOCATION_COLUMNS), object))
        frame["gpu_serial"] = names
        for column in _LOCATION_COLUMNS:
            texts = places[column].to_numpy()
            frame.loc[moved, column] = texts.astype(int) if column == "slot" else texts
        return frame.astype({"slot": "int16"})

    return drift


def false_signs(past: FleetHistory) -> Drift:
    """Copy codes and counters of GPUs before their failure to a tenth of the healthy GPUs."""
    failures = past.failures
    known = failures[(failures["mechanism"] != "sudden") & (failures["failed_at"] < past.day)]
    signs = [
        past.records(at - _SIGNS, at, serial)
        for serial, at in zip(known["gpu_serial"], known["failed_at"], strict=True)
    ]
    signs = [s for s in signs if s["xid"].fillna(0).any() or _rise(s).to_numpy().any()]
    numbers = np.arange(len(signs))
    healthy = np.setdiff1d(past.boards.index.to_numpy(), failures["gpu_serial"])
    last = int((past.end - _SIGNS - past.day) / _INTERVAL)
    plan = {
        str(serial): (past.day + int(past.rng.integers(last)) * _INTERVAL, past.rng.choice(numbers))
        for serial in past.rng.choice(healthy, int(_WITH_SIGNS * len(healthy)), replace=False)
    }

    def drift(frame: pd.DataFrame) -> pd.DataFrame:
        for serial, rows in frame.groupby("gpu_serial", observed=True).indices.items():
            if serial in plan:
                start, number = plan[serial]
                _copy_sign(frame, np.asarray(rows), start, signs[number])
        return frame

    return drift


def _copy_sign(
    frame: pd.DataFrame, rows: npt.NDArray[np.intp], start: pd.Timestamp, sign: pd.DataFrame
) -> None:
    """Add the counts and codes of a precursor to some rows of a day, from a time on."""
    age = frame["timestamp"].iloc[rows] - start
    seen = sign["timestamp"] - sign["timestamp"].iloc[0]
    at = np.searchsorted(seen, age, side="right") - 1
    rows, age, at = rows[at >= 0], age[at >= 0], at[at >= 0]
    rises = _rise(sign)
    for column in _COUNTERS:
        frame.loc[frame.index[rows], column] += rises[column].to_numpy()[at]
    code = np.where(age <= seen.iloc[-1], sign["xid"].fillna(0).to_numpy()[at], 0)
    frame.loc[frame.index[rows[code > 0]], "xid"] = code[code > 0]


def _rise(records: pd.DataFrame) -> pd.DataFrame:
    """Return the increase of the counters since the first record."""
    counters = records[list(_COUNTERS)].astype("float64").ffill().bfill().fillna(0)
    return (counters - counters.iloc[:1].to_numpy()).clip(lower=0).astype("int64")


def rarer(past: FleetHistory) -> Drift:
    """Let three quarters of the failing GPUs continue without failure."""
    failures, boards = past.failures, past.boards
    failing = failures.loc[failures["failed_at"] >= past.day, "gpu_serial"].unique()
    spared = set(past.rng.choice(failing, int(_REMOVED * len(failing)), replace=False))
    name: dict[str, str] = {}  # of boards that would have replaced a spared one
    for _, serials in (
        boards.sort_values("installed").groupby(["machine_id", "slot"]).groups.items()
    ):
        for before, serial in pairwise(serials):
            if before in spared or before in name:
                name[serial] = name.get(before, before)

    def drift(frame: pd.DataFrame) -> pd.DataFrame:
        serials = frame["gpu_serial"].astype(str)
        frame["gpu_serial"] = serials.map(lambda serial: name.get(serial, serial))
        return frame[~(frame["gpu_serial"].isin(spared) & (frame["failure"] == 1))]

    return drift


def new_type(past: FleetHistory) -> Drift:
    """Install boards of a new type, with other levels, in three of ten machines."""
    machines = past.boards["machine_id"].unique()
    new = set(past.rng.choice(machines, int(_NEW * len(machines)), replace=False))

    def drift(frame: pd.DataFrame) -> pd.DataFrame:
        rows = frame["machine_id"].isin(new)
        frame = frame.astype({"gpu_serial": object, "gpu_type": object})
        frame.loc[rows, "gpu_serial"] = "N" + frame.loc[rows, "gpu_serial"].astype(str)
        frame.loc[rows, "gpu_type"] = "of a new kind"
        for column, factor in (_LEVELS | dict.fromkeys(_COUNTERS, 4)).items():
            frame.loc[rows, column] *= factor
        return frame

    return drift


DRIFTS: Mapping[str, Callable[[FleetHistory], Drift]] = {
    "none": unchanged,
    "signs on others": exchanged,
    "false signs": false_signs,
    "failures rarer": rarer,
    "a new type": new_type,
}


def write_drifted(past: FleetHistory, name: str, out: Path) -> None:
    """Write the drifted records; earlier days are the same files."""
    drift = DRIFTS[name](past)
    for path in sorted((past.folder / "records").glob("date=*/*.parquet")):
        target = out / path.relative_to(past.folder / "records")
        target.parent.mkdir(parents=True)
        if name == "none" or path.parent.name[5:] < f"{past.day:%Y-%m-%d}":
            os.link(path, target)
        else:
            drift(pd.read_parquet(path)).to_parquet(target, index=False)

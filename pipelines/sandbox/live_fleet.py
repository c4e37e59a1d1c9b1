"""The simulated fleet of a live demonstration: its records by day, and what fails when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from forewarn.evaluation.simulation.operations.month_plan import Breakdown, MonthPlan, plan_month
from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

__all__ = ["FleetFailure", "LiveFleet", "corrected_errors", "threshold_of"]

GPUS_PER_MACHINE: Final = 8
_FAILED_COLUMNS = ["gpu_serial", "timestamp", "failure", "machine_id", "xid"]
_LONGEST_REPAIR: Final = 30 * DAY


@dataclass(frozen=True, slots=True)
class FleetFailure:
    """A GPU fails at `at` and is repaired at `repaired`, nanoseconds since 1970 UTC.

    `xid` is what its kernel log says then; 0 for nothing.
    """

    gpu_serial: str
    machine: int
    at: Nanoseconds
    repaired: Nanoseconds
    xid: int


@dataclass(frozen=True, slots=True)
class LiveFleet:
    """Records of a month before and of the month that is shown.

    Attributes
    ----------
    folder : Path
        Written by `simulate_fleet_to`.
    start, end : int
        The month that is shown, nanoseconds since 1970 UTC.
    racks : mapping of str to str
        Rack by machine.
    failures : tuple of FleetFailure
        Of the month that is shown, by time.
    """

    folder: Path
    start: Nanoseconds
    end: Nanoseconds
    racks: dict[str, str]
    failures: tuple[FleetFailure, ...]

    @classmethod
    def simulate(
        cls, folder: Path, *, n_gpus: int, past_days: int, days: int, seed: int
    ) -> LiveFleet:
        """Simulate the fleet below `folder`."""
        simulate_fleet_to(folder, n_gpus=n_gpus, n_days=past_days + days, seed=seed)
        dates = sorted(path.name[5:] for path in (folder / "records").glob("date=*"))
        start = parse_moment(dates[past_days])
        cmdb = pd.read_csv(folder / "cmdb.csv")
        racks = dict(zip(cmdb["machine_id"], cmdb["rack"], strict=True))
        end = Nanoseconds(start + days * DAY)
        return cls(folder, Nanoseconds(start), end, racks, tuple(_failures(folder, start)))

    @property
    def n_machines(self) -> int:
        """Number of machines."""
        return len(self.racks)

    def day_file(self, date: str) -> Path:
        """Return the file with the records of a day."""
        return self.folder / "records" / f"date={date}" / "part-0.parquet"

    def plan(self, seed: int) -> MonthPlan:
        """Return the month's jobs, with the failures of this fleet."""
        days = (self.end - self.start) // DAY
        plan = plan_month(self.n_machines, days, seed=seed, start=self.start)
        broken = tuple(Breakdown(f.machine, f.at, f.repaired) for f in self.failures)
        return replace(plan, breakdowns=broken, alerts=())


def _failures(folder: Path, start: int) -> list[FleetFailure]:
    """Return the failures from `start` on; each ends with the last failed record of its GPU."""
    truth = pd.read_csv(folder / "truth.csv")
    failed = pd.concat(
        _failed_rows(path) for path in sorted((folder / "records").glob("date=*/*.parquet"))
    )
    by_serial = dict(list(failed.groupby("gpu_serial", observed=True)))
    failures = []
    for serial, text in zip(truth["gpu_serial"], truth["failed_at"], strict=True):
        at = parse_moment(text)
        rows = by_serial.get(serial)
        if at < start or rows is None:
            continue
        times = rows["timestamp"].astype("int64").to_numpy()
        rows, times = rows[times >= at], times[times >= at]
        if len(rows):
            end = min(int(times[-1]) + 10 * MINUTE, at + _LONGEST_REPAIR)
            first = rows.iloc[0]
            number = int(str(first["machine_id"]).removeprefix("node-"))
            times_at = Nanoseconds(at), Nanoseconds(end)
            failures.append(FleetFailure(serial, number, *times_at, int(first["xid"])))
    return sorted(failures, key=lambda failure: failure.at)


def _failed_rows(path: Path) -> pd.DataFrame:
    rows = pd.read_parquet(path, columns=_FAILED_COLUMNS)
    rows = rows[rows["failure"] == 1].copy()
    rows["timestamp"] = rows["timestamp"].astype("datetime64[ns, UTC]")
    rows["gpu_serial"] = rows["gpu_serial"].astype(str)
    return rows.sort_values("timestamp", kind="stable")


def corrected_errors(path: Path) -> dict[str, float]:
    """Return the rise of corrected errors in a day's file, the highest of each machine's GPUs."""
    rows = pd.read_parquet(path, columns=["gpu_serial", "machine_id", "ecc_corrected"])
    counted = rows.groupby(["machine_id", "gpu_serial"], observed=True)["ecc_corrected"]
    rise = (counted.max() - counted.min()).fillna(0.0)
    highest = rise.groupby("machine_id", observed=True).max()
    return {str(name): float(value) for name, value in highest.items()}


def threshold_of(files: list[Path], share: float) -> float:
    """Return the daily rise of corrected errors that a share of machine-days exceeds."""
    rises = [value for path in files for value in corrected_errors(path).values()]
    return float(np.quantile(rises, 1.0 - share)) if rises else 0.0

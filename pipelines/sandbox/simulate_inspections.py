"""Writes results of inspections of simulated machines, some of which have a defect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.array_types import Float64Array
from forewarn.features.inspection.check_results import RESULTS
from forewarn.features.inspection.check_table import CheckTable
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.csv_table import write_csv
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["DEFECTS", "simulate_inspections_to"]

DEFECTS: Final = ("slower by 10 %", "slower by 5 %", "jitter", "slow now and then")

_VALUES, _GPUS, _RUNS = 20, 8, 2
_WITHIN, _BETWEEN = 0.01, 0.005
_BEGIN: Final = pd.Timestamp("2025-01-06", tz="UTC")
_VERSIONS: Final = '{"hardware": "simulated"}'


def simulate_inspections_to(
    out: Path, checks: Mapping[str, CheckTable], *, n_machines: int, n_defects: int, seed: int
) -> None:
    """Write `out/results/date=YYYY-MM-DD/results.parquet` of two weekly runs, and `out/truth.csv`.

    Parameters
    ----------
    out : Path
        Folder; created if it does not exist.
    checks : mapping of str to CheckTable
        Those that are compared by more or less are simulated, `gpu` checks on eight GPUs a machine.
    n_machines, n_defects : int
        Each defect is of one check on one machine, or of one of its GPUs.
    seed : int
    """
    generator = np.random.default_rng(seed)
    measured = [
        name
        for name, check in checks.items()
        if check.value.better != "equal" and "fleet" in check.compare
    ]
    units = [
        (name, f"node-{machine:04}", f"gpu{slot}" if checks[name].category == "gpu" else None)
        for name in measured
        for machine in range(n_machines)
        for slot in range(_GPUS if checks[name].category == "gpu" else 1)
    ]
    chosen = generator.choice(len(units), size=min(n_defects, len(units)), replace=False)
    defects = {int(unit): DEFECTS[number % len(DEFECTS)] for number, unit in enumerate(chosen)}
    levels = 1.0 + _BETWEEN * generator.standard_normal(len(units))
    for run in range(_RUNS):
        start = _BEGIN + pd.Timedelta(days=7 * run)
        columns = [
            _rows(units[number], checks, start, _values(generator, level, defects.get(number)))
            for number, level in enumerate(levels)
        ]
        _write(columns, out / "results" / f"date={start:%Y-%m-%d}" / "results.parquet")
    truth = [
        {"check": name, "machine": machine, "slot": slot or "", "defect": defects[number]}
        for number in sorted(defects)
        for name, machine, slot in [units[number]]
    ]
    with replacing(out / "truth.csv") as hidden:
        write_csv(pd.DataFrame(truth, columns=["check", "machine", "slot", "defect"]), hidden)


def _values(generator: np.random.Generator, level: float, defect: str | None) -> Float64Array:
    """Return the achieved shares of the nominal performance."""
    spread = 5.0 * _WITHIN if defect == "jitter" else _WITHIN
    values = level * (1.0 + spread * generator.standard_normal(_VALUES))
    match defect:
        case "slower by 10 %":
            values *= 0.9
        case "slower by 5 %":
            values *= 0.95
        case "slow now and then":
            values[generator.permutation(_VALUES)[:3]] *= 0.8
    return values


def _rows(
    unit: tuple[str, str, str | None],
    checks: Mapping[str, CheckTable],
    start: pd.Timestamp,
    shares: Float64Array,
) -> dict[str, list[Any]]:
    name, machine, slot = unit
    check = checks[name]
    nominal = _nominal(check)
    values = nominal * shares if check.value.better == "higher" else nominal / shares
    return {
        "timestamp": [start + pd.Timedelta(seconds=n) for n in range(_VALUES)],
        "value": values.tolist(),
        **{
            key: [value] * _VALUES
            for key, value in {
                **{"machine": machine, "slot": slot, "check": name, "unit": check.value.unit},
                **{"run": f"weekly {start:%Y-%m-%d}", "status": "ok", "seconds": 1.0},
                **{"versions": _VERSIONS, "set": "weekly", "text": None},
            }.items()
        },
    }


def _nominal(check: CheckTable) -> float:
    """Return a value well within the limits of a check."""
    limit = check.limit
    if limit is None:
        return 100.0
    if limit.min is not None and limit.max is not None:
        return (limit.min + limit.max) / 2.0
    return 2.0 * limit.min + 1.0 if limit.min is not None else (limit.max or 0.0) / 2.0


def _write(columns: list[dict[str, list[Any]]], path: Path) -> None:
    joined = {name: [value for rows in columns for value in rows[name]] for name in RESULTS.names}
    table = pa.table(joined, schema=RESULTS)
    with replacing(path) as hidden:
        pq.write_table(table, arrow_path(hidden), compression="zstd")

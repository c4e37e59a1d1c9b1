"""Real tasks in which one machine does another one's work for a while, as a set for studies.

    python tests/grafted_machines.py --metrics FOLDER --config FILE --out OUT [--n N] [--seed S]
        [--second-half]

FOLDER holds tasks without faults. Half of them are for the fit. Each pull is one of the others in
which a span of one machine is replaced by that of a machine of yet another task; without the
replacement it is a healthy pull. OUT has the format of `simulate incidents`, so that `detect fit`
and `study detection` read it.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.detection.task_metrics import find_pulls, task_name

KEYS = ("timestamp", "machine", "group")
TRUTH = ("task", "machine", "fault", "start_s", "machines")


def _read(folder: Path) -> pd.DataFrame:
    table = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
    return table.sort_values(["machine", "timestamp"], ignore_index=True)


def graft(
    task: pd.DataFrame, other: pd.DataFrame, generator: np.random.Generator
) -> tuple[pd.DataFrame, str, int]:
    """Replace a span of one machine; return the table, the machine and the first row of it.

    The span begins in the second or third quarter and lasts a sixth to a half of the task.
    """
    machine, donor = (generator.choice(table["machine"].unique()) for table in (task, other))
    rows = np.flatnonzero(task["machine"] == machine)
    donated = np.flatnonzero(other["machine"] == donor)
    n = min(len(rows), len(donated))
    begin = int(generator.integers(n // 4, n * 7 // 12))
    end = min(begin + int(generator.integers(n // 6, n // 2)), n)
    metrics = [name for name in task.columns if name not in KEYS and name in other.columns]
    grafted = task.copy()
    grafted.loc[rows[begin:end], metrics] = other.loc[donated[begin:end], metrics].to_numpy()
    return grafted, str(machine), begin


def write_set(pulls: Sequence[Path], out: Path, n: int, seed: int, interval_s: float) -> None:
    """Write the pulls and `truth.csv`: all tasks as they are, and n with a graft."""
    generator, tables = np.random.default_rng(seed), {path: _read(path) for path in pulls}
    rows = []
    for path, table in tables.items():
        shutil.copytree(path, out / "pulls" / path.name)
        rows.append((task_name(path), "", "", 0.0, table["machine"].nunique()))
    for number in range(n):
        first, second = generator.choice(len(pulls), 2, replace=False)
        task, other = tables[pulls[first]], tables[pulls[second]]
        grafted, machine, begin = graft(task, other, generator)
        name = f"graft-{number:03d}"
        (out / "pulls" / f"task={name}").mkdir()
        grafted.to_parquet(out / "pulls" / f"task={name}" / "part-0.parquet", index=False)
        rows.append((name, machine, "graft", begin * interval_s, task["machine"].nunique()))
    pd.DataFrame(rows, columns=TRUTH).to_csv(out / "truth.csv", index=False)


def main() -> None:
    """Write the set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("metrics", "config", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--second-half", action="store_true", help="swap the halves")
    args = parser.parse_args()
    pulls, half = find_pulls(args.metrics), int(args.second_half)
    for path in pulls[half::2]:
        shutil.copytree(path, args.out / "train" / path.name)
    shutil.copyfile(args.config, args.out / "detect.toml")
    interval_s = load_settings(args.config).detection.interval / 1e9
    write_set(pulls[1 - half :: 2], args.out, args.n, args.seed, interval_s)


if __name__ == "__main__":
    main()

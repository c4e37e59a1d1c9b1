"""Time of building a training set, beside pyarrow reading the same columns of the same files.

    python benchmarks/training_set.py [--short]

Prints medians of several runs, the ratio, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from forewarn.evaluation.walk import as_of
from forewarn.features.instances import find_instances
from forewarn.features.records import DAY, FAILURE, SERIAL, TIMESTAMP
from forewarn.models.training import build_training_set, known
from forewarn.pipelines.job import Job, open_job
from forewarn.pipelines.settings import Settings
from forewarn.pipelines.simulate import simulate_fleet_to
from forewarn.pipelines.stages import Stages


def _build(job: Job, moment: int, stages: Stages) -> int:
    """Build the training set of the longest length as of `moment`, as `forewarn train` does."""
    terms = job.terms
    with stages("read and sort"):
        records = job.store.read(moment - terms.reach, moment)
    with stages("failures"):
        failures = job.store.read_failures(records, moment)
    with stages("timeline and instances"):
        timeline = as_of(records, failures, moment, terms.reach)
        found = find_instances(
            timeline,
            length=terms.recipe.plan.length,
            step=terms.step,
            horizon=terms.recipe.horizon,
        )
        chosen = known(found, moment, max(terms.lengths), terms.recipe.horizon)
    with stages("measure and encode"):
        _, training = build_training_set(terms.recipe, timeline, chosen)
    return len(training.labels)


def _read(job: Job, paths: list[Path]) -> int:
    """Read what a training set needs, into memory, as plain pyarrow does."""
    names = (SERIAL, TIMESTAMP, FAILURE, *job.store.kinds.names, *job.store.groups)
    columns = list(dict.fromkeys(names))
    return len(pq.read_table(paths, columns=columns))


def _median(work: Callable[[], int], runs: int) -> float:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    """Simulate a fleet in a temporary folder and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small fleet, once")
    short = parser.parse_args().short
    n_gpus, n_days, runs = (100, 32, 1) if short else (800, 45, 5)
    with tempfile.TemporaryDirectory() as folder:
        simulate_fleet_to(Path(folder), n_gpus=n_gpus, n_days=n_days, seed=0)
        job = open_job(Path(folder) / "records", Settings())
        files = job.store.files()
        moment = (files[-1][0].toordinal() - 719_163) * DAY
        paths = [path for date, path in files if (date.toordinal() - 719_163) * DAY < moment]
        first = moment - job.terms.reach
        paths = [p for d, p in files if first - DAY < (d.toordinal() - 719_163) * DAY < moment]
        stages = Stages()
        reading = _median(lambda: _read(job, paths), runs)
        building = _median(lambda: _build(job, moment, stages), runs)
        print(f"{n_gpus} GPUs, {len(paths)} of {n_days} days, median of {runs}")
        print(f"pyarrow reads the columns   {reading:8.3f} s")
        print(f"forewarn builds the set     {building:8.3f} s   ratio {building / reading:.2f}")
        for stage in stages.figures()["stages"]:
            print(f"  {stage['name']:<25} {stage['seconds'] / runs:8.3f} s (mean)")
        print(f"peak memory {stages.figures()['peak_rss_bytes'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()

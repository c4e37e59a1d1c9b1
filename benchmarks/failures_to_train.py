"""Known failures from which a trained predictor is not below the built-in rules.

    nice python -m benchmarks.failures_to_train [--seeds 901,902] [--gpus N] [--counts 3,6,12]

Simulates a fleet for each seed, with a rate of failures, a share of failures without symptoms and a
rate of defects that heal drawn by the seed. For each count, it trains the default models on day 24
on as many whole machines as had so many failures until then. Predictor and rules rank the same
daily lists of all GPUs on the 15 days that follow. Differences are those of the average precision,
paired by seed; brackets are 95 % intervals of the mean over seeds (Student's t).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import stats

from forewarn.evaluation.prediction.metrics.daily_list import DayRows
from forewarn.evaluation.prediction.metrics.ranking_metrics import average_precision
from forewarn.evaluation.prediction.walk_forward.walk_forward import (
    WalkForward,
    find_scorable_instances,
)
from forewarn.evaluation.prediction.walk_forward.window_scores import RecipeRows, score_window
from forewarn.evaluation.simulation.fleet import failure_rates, fault_process
from forewarn.features.array_types import Int8Array
from forewarn.features.prediction.instances import Instances, hours_to_failure
from forewarn.features.records.record_table import MACHINE
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.trained_recipe import RecipeTrainer, TrainedRecipe
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import Job, open_job
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

DAYS, FIRST = 40, 24  # simulated days, and days before the training
SEEDS = ",".join(str(seed) for seed in range(901, 905))
_EPOCH = 719_163  # ordinal of 1970-01-01

Outcome = dict[int, tuple[float, float]]  # average precision of predictor and rules, by count


def _simulate(folder: Path, n_gpus: int, seed: int) -> None:
    """Simulate a fleet whose failures occur and show themselves as drawn by the seed."""
    rng = np.random.default_rng(seed)
    drawn = (
        (failure_rates, "FAILURES_PER_GPU_DAY", 0.08 / 30 * rng.uniform(0.75, 1.5)),
        (failure_rates, "_SILENT", rng.uniform(0.1, 0.6)),
        (fault_process, "_BENIGN_PER_FATAL", rng.uniform(0.5, 3.0)),
    )
    with ExitStack() as changed:
        for module, name, value in drawn:
            changed.enter_context(patch.object(module, name, value))
        simulate_fleet_to(folder, n_gpus=n_gpus, n_days=DAYS, seed=seed, progress=False)


def _walk(job: Job, end: int) -> WalkForward:
    """Return a walk over the records until `end`."""
    settings = replace(job.walk_settings, every=Nanoseconds((DAYS - FIRST) * DAY), baselines=())
    records, failures = job.store.read_known(0, end)
    found = find_scorable_instances(records, failures, settings)
    return WalkForward(settings, RecipeTrainer(settings.recipe), records, failures, found)


def _machines(walk: WalkForward, moment: int, count: int, seed: int) -> list[str]:
    """Return machines, in an order drawn by the seed, until they had `count` known failures."""
    known = walk.failures.known_before(moment)
    names = np.array(walk.records.texts[MACHINE].texts, dtype=object)
    rows = walk.records.gpu_bounds()[:-1]
    of_gpu = walk.records.codes(MACHINE, rows)
    failed = np.bincount(of_gpu[known.gpu], minlength=len(names))
    order = np.random.default_rng(seed).permutation(len(names))
    total = np.cumsum(failed[order])
    return [str(name) for name in names[order[: int(np.searchsorted(total, count)) + 1]]]


def _trained(fleet: Path, part: Path, machines: Sequence[str], moment: int) -> TrainedRecipe | None:
    """Train on the records of some machines before a moment."""
    for path in sorted((fleet / "records").glob("date=*/*.parquet"))[: FIRST + 1]:
        table = pq.read_table(path, partitioning=None)
        own = table.filter(pc.is_in(table[MACHINE].cast("string"), pa.array(machines)))
        target = part / path.relative_to(fleet / "records")
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(own, target)
    return _walk(open_job(part, Settings()), moment).train_on_all(moment)


def _lists(walk: WalkForward, moment: int) -> tuple[Instances, Int8Array]:
    """Return the GPUs of each daily list after a moment, and whether they fail by the next one."""
    recipe, window = walk.settings.recipe, walk.settings.every
    tested = walk.instances.between(moment, moment + window)
    tested = tested.select((tested.label >= 0) & (tested.end <= walk.last_tested))
    hours = hours_to_failure(walk.truth, tested.gpu, tested.end, recipe.horizon)
    fails_at = tested.end + hours * HOUR
    days = DayRows.from_instances(
        tested.gpu.astype(np.int64), tested.end, fails_at, step=recipe.step, day=DAY
    )
    listed = tested.select(np.unique(days.row))
    return listed, listed.label


def _of_seed(options: tuple[int, int, tuple[int, ...]]) -> Outcome:
    """Return the average precision of predictor and rules of a fleet, by count."""
    seed, n_gpus, counts = options
    with tempfile.TemporaryDirectory() as scratch:
        fleet = Path(scratch) / "fleet"
        _simulate(fleet, n_gpus, seed)
        job = open_job(fleet / "records", Settings())
        first = (job.store.files()[0][0].toordinal() - _EPOCH) * DAY
        moment = first + FIRST * DAY
        walk = _walk(job, first + DAYS * DAY)
        trained = {}
        for count in counts:
            machines = _machines(walk, moment, count, seed)
            recipe = _trained(fleet, Path(scratch) / str(count), machines, moment)
            if recipe is not None:
                trained[count] = recipe
        return _compared(walk, moment, trained)


def _compared(walk: WalkForward, moment: int, trained: Mapping[int, TrainedRecipe]) -> Outcome:
    listed, labels = _lists(walk, moment)
    rows = [RecipeRows(recipe, None) for recipe in trained.values()]
    future = walk.measured_in(moment, listed)
    scores = score_window(walk.settings.recipe.plan, *future, rows, lambda _: nullcontext())
    outcome = {}
    for count, of_count in zip(trained, scores, strict=True):
        blend = walk.settings.committee.blend(of_count)
        pair = average_precision(labels, blend), average_precision(labels, of_count["rules"])
        outcome[count] = pair[0] or 0.0, pair[1] or 0.0
    return outcome


def _line(count: int, outcomes: Sequence[Outcome]) -> str:
    """Return a row of the table: means over seeds, and the paired difference."""
    pairs = np.array([outcome[count] for outcome in outcomes if count in outcome])
    if len(pairs) < 2:
        return f"| {count} | {len(pairs)} | - | - | - |"
    difference = pairs[:, 0] - pairs[:, 1]
    low, high = stats.t.interval(0.95, len(pairs) - 1, difference.mean(), stats.sem(difference))
    predictor, rules = pairs.mean(axis=0)
    return (
        f"| {count} | {len(pairs)} | {predictor:.4f} | {rules:.4f} | "
        f"{difference.mean():+.4f} [{low:+.4f}, {high:+.4f}] |"
    )


def main() -> None:
    """Simulate, train and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default=SEEDS)
    parser.add_argument("--gpus", type=int, default=2400)
    parser.add_argument("--counts", default="3,6,12,25,50,100")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    counts = tuple(map(int, args.counts.split(",")))
    work = [(int(seed), args.gpus, counts) for seed in args.seeds.split(",")]
    outcomes = []
    with ProcessPoolExecutor(args.processes) as pool:
        for (seed, *_), outcome in zip(work, pool.map(_of_seed, work), strict=True):
            outcomes.append(outcome)
            pairs = "; ".join(f"{n}: {a:.4f} {b:.4f}" for n, (a, b) in outcome.items())
            print(f"seed {seed}: {pairs}", flush=True)
    print("| failures | fleets trained | predictor | rules | difference |")
    print("|---|---|---|---|---|")
    for count in counts:
        print(_line(count, outcomes))


if __name__ == "__main__":
    main()

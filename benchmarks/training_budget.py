"""Average precision and cost of training sets limited by `training.max_instances`.

    python benchmarks/training_budget.py [--gpus N] [--seeds 1,2,3] [--budgets 0,20000,5000]

Simulates a fleet for each seed and trains trees on the last 15 days before day 24, once for each
budget (0: all instances). Each model scores the following eight days, with all failing instances
and one healthy one in four. Brackets are bootstrap intervals over machines; differences are paired
with all instances. CPU seconds are those of building the set and fitting, over all threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from forewarn.evaluation.bootstrap import bootstrap_weights, percentile_interval
from forewarn.evaluation.prediction.metrics.ranking_metrics import average_precision_draws
from forewarn.evaluation.prediction.walk_forward.walk_forward import (
    WalkForward,
    find_scorable_instances,
)
from forewarn.features.array_types import Float64Array
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.instances import Instances, find_instances
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.model_fitting import fit_model
from forewarn.models.prediction.trained_recipe import RecipeTrainer
from forewarn.models.prediction.training_candidates import instances_known_at
from forewarn.models.prediction.training_set import (
    Recipe,
    TrainingSet,
    UndersampledInstances,
    build_training_sets,
)
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import Job, open_job
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

DAYS, FIRST, EVERY, MODEL = 40, 24, 8, "gbdt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One training: its size and cost, and the average precision of every bootstrap draw."""

    positives: int
    instances: int
    seconds: float
    draws: Float64Array


def _training(recipe: Recipe, timeline: Timeline, walk: WalkForward, moment: int) -> Instances:
    every = find_instances(
        timeline,
        window_records=recipe.plan.window_records,
        step_records=recipe.step_records,
        horizon=recipe.horizon,
    )
    return instances_known_at(every, moment, walk.settings.longest, recipe.horizon)


def _tested(walk: WalkForward, moment: int) -> Instances:
    """Return all failing instances that follow, and one healthy one in four."""
    instances = walk.instances.between(moment, moment + EVERY * DAY)
    instances = instances.select((instances.label >= 0) & (instances.end <= walk.last_tested))
    hashes = sampling_hash(0, walk.records.serials, instances.gpu, instances.end)
    return instances.select((instances.label == 1) | (hashes % np.uint64(4) == 0))


def _outcomes(job: Job, moment: int, budgets: Sequence[int]) -> Iterator[Outcome]:
    settings = replace(job.walk_settings, every=Nanoseconds(EVERY * DAY))
    records, failures = job.store.read_known(moment - settings.reach, moment + (EVERY + 1) * DAY)
    trainer = RecipeTrainer(settings.recipe)
    walk = WalkForward(
        settings, trainer, records, failures, find_scorable_instances(records, failures, settings)
    )
    timeline = as_of(records, failures, moment, settings.reach)
    training, tested = _training(settings.recipe, timeline, walk, moment), _tested(walk, moment)
    future = walk.measured_in(moment, tested)
    machine = records.codes("machine_id", tested.row).astype(np.int64)
    draws = bootstrap_weights(int(machine.max()) + 1, seed=0)
    draws = np.vstack([np.ones(draws.shape[1]), draws])  # the first row is the sample itself
    for budget in budgets:
        started = time.process_time()
        recipe = replace(settings.recipe, max_instances=budget)
        thinned = UndersampledInstances.from_instances(recipe, timeline, training)
        encoder, built = next(build_training_sets(recipe, timeline, [thinned]))
        model = fit_model(recipe, MODEL, built)
        seconds = time.process_time() - started
        scores = model.score(encoder.encode(encoder.measures.values(*future)))
        averages = average_precision_draws(tested.label, scores, machine, draws)
        yield Outcome(*_size(built), seconds, averages)


def _size(training: TrainingSet) -> tuple[int, int]:
    return int((training.labels == 1).sum()), len(training.labels)


def _of_seed(folder: Path, n_gpus: int, seed: int, budgets: Sequence[int]) -> list[list[Outcome]]:
    """Return the outcomes of both retrainings, by budget."""
    if not (folder / "records").exists():
        simulate_fleet_to(folder, n_gpus=n_gpus, n_days=DAYS, seed=seed)
    job = open_job(folder / "records", Settings(), [MODEL])
    begin = (job.store.files()[0][0].toordinal() - 719_163) * DAY
    moments = [begin + (FIRST + i * EVERY) * DAY for i in range((DAYS - 1 - FIRST) // EVERY)]
    return [list(_outcomes(job, moment, budgets)) for moment in moments]


def _line(name: str, outcomes: Sequence[Outcome], whole: Sequence[Outcome]) -> str:
    draws = np.mean([outcome.draws for outcome in outcomes], axis=0)
    difference = draws - np.mean([outcome.draws for outcome in whole], axis=0)
    positives, instances, seconds = np.mean(
        [(each.positives, each.instances, each.seconds) for each in outcomes], axis=0
    )
    figures = [f"{seconds:.1f}"]
    for values in (draws, difference):
        low, high = percentile_interval(values[1:]) or (np.nan, np.nan)
        figures.append(f"{values[0]:+.3f} [{low:.3f}, {high:.3f}]")
    return f"| {name} | {positives:.0f} | {instances:,.0f} | {' | '.join(figures)} |"


def main() -> None:
    """Simulate, train and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=2000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--budgets", default="0,40000,20000,10000,5000,2500")
    parser.add_argument("--fleets", type=Path, help="folder of fleets, created if missing")
    args = parser.parse_args()
    budgets = [int(text) for text in args.budgets.split(",")]
    pooled: list[list[Outcome]] = [[] for _ in budgets]
    print("| max_instances | positives | instances | CPU s | average precision | against all |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for seed in map(int, args.seeds.split(",")):
            folder = (args.fleets or Path(scratch)) / f"fleet{seed}"
            outcomes = _of_seed(folder, args.gpus, seed, budgets)
            for number, budget in enumerate(budgets):
                pooled[number] += [of_moment[number] for of_moment in outcomes]
                of_seed = [of_moment[number] for of_moment in outcomes]
                whole = [of_moment[0] for of_moment in outcomes]
                print(_line(f"{budget or 'all'}, seed {seed}", of_seed, whole), flush=True)
    for number, budget in enumerate(budgets):
        print(_line(f"{budget or 'all'}, all seeds", pooled[number], pooled[0]))


if __name__ == "__main__":
    main()

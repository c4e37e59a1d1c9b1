"""Criteria for inspections: which defects they find, and how often they call a healthy machine bad.

    python -m benchmarks.inspection_criteria [--short] [--speed]

Simulated results of one check on 40 machines of one type (and for our rule on 1,000), 20 values
each; healthy machines differ by 0.5 %, values of one machine by 1 %. Noise is normal, Student's t
with 4 degrees of freedom, or skewed towards slow (gamma with shape 2), both within and between
machines. One machine has a defect: it is slower by 1, 2, 5 or 10 %; its values scatter five times
as much (`jitter`); a tenth of them is 20 % slower (`rare`); or one of its eight GPUs is 10 % slower
(`one GPU`), where only our rule judges GPUs one by one.

- `mean 5 %`: mean more than 5 % below the mean of the others, which leaves such machines out until
  nothing changes (rules that SuperBench ships)
- `similarity 0.95`: area between distribution functions above 5 % of the reference
- `6 spreads`: area above six robust spreads of the healthy areas
- `ours`: criteria of level and scatter, learned from a run of 100 checks, for 0.1 false alarms a
  run in a fleet of 1,000 machines, or for what the run supports, which is printed

Detection is over all trials of three seeds, with a Wilson interval. False alarms are healthy
machines beyond the criterion in a single run, converted to a fleet of 1,000 with 100 checks, with
an exact Poisson interval. `twice`: beyond it in a second run of the same machines too, which is
what an action needs. `--speed` judges 20,000 machines x 100 checks x 20 values.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.stats import binomtest, chi2

from forewarn.features.array_types import BoolArray, Float64Array
from forewarn.models.inspection.criterion import PooledTail
from forewarn.models.inspection.distributions import quantile_functions
from forewarn.models.inspection.fleet_comparison import (
    Comparison,
    compare_levels,
    compare_scatter,
)

MACHINES, VALUES, GPUS = 40, 20, 8
WITHIN, BETWEEN = 0.01, 0.005
TESTS = 1_000 * 100  # of a weekly run
RATE = 0.1 / TESTS
SIZES = {MACHINES: (500, 10_000), 1_000: (100, 400)}  # trials of detection and groups, by machines
SEEDS = (1, 2, 3)
NOISE = ("normal", "t4", "skewed")
DEFECTS = ("1 %", "2 %", "5 %", "10 %", "jitter", "rare", "one GPU")


@dataclass(frozen=True)
class Fleets:
    """Draws results of healthy and defective machines."""

    generator: np.random.Generator
    noise: str
    machines: int = MACHINES

    def errors(self, shape: tuple[int, ...]) -> Float64Array:
        """Return noise with mean 0 and variance 1; negative is slower."""
        match self.noise:
            case "normal":
                return self.generator.standard_normal(shape)
            case "t4":
                return np.asarray(self.generator.standard_t(4, shape) / np.sqrt(2.0))
            case _:
                return np.asarray((2.0 - self.generator.gamma(2.0, 1.0, shape)) / np.sqrt(2.0))

    def levels(self, n_units: int | None = None) -> Float64Array:
        """Return what healthy machines achieve."""
        return 1.0 + BETWEEN * self.errors((n_units or self.machines, 1))

    def run(self, levels: Float64Array) -> Float64Array:
        """Return the values of one run."""
        return levels * (1.0 + WITHIN * self.errors((len(levels), VALUES)))

    def defective(self, defect: str) -> Float64Array:
        """Return the values of a fleet whose first machine has a defect."""
        values = self.run(self.levels())
        match defect:
            case "jitter":
                values[0] = self.levels(1) * (1.0 + 5.0 * WITHIN * self.errors((1, VALUES)))
            case "rare":
                values[0] *= np.where(self.generator.random(VALUES) < 0.1, 0.8, 1.0)
            case _:
                values[0] *= 1.0 - float(defect.split()[0]) / 100.0
        return values


def by_mean(values: Float64Array) -> BoolArray:
    """Return machines more than 5 % below the mean of those that are not."""
    means = values.mean(axis=1)
    low = np.zeros(len(means), dtype=np.bool_)
    while not np.array_equal(low, now := means < 0.95 * means[~low].mean()):
        low = now
    return low


def comparison(values: Float64Array) -> Comparison:
    """Compare each row with the others."""
    compared = compare_levels(np.sort(values, axis=1), higher_is_better=True)
    assert compared is not None
    return compared


def scatter(values: Float64Array) -> Comparison:
    """Compare how each row scatters with the others."""
    compared = compare_scatter(np.sort(values, axis=1))
    assert compared is not None
    return compared


def by_similarity(values: Float64Array) -> BoolArray:
    """Return machines with a similarity below 0.95."""
    return comparison(values).distances > 0.05


def by_spreads(values: Float64Array) -> BoolArray:
    """Return machines beyond six robust spreads of the areas."""
    distances = comparison(values).distances
    middle = np.median(distances)
    spread = 1.4826 * np.median(np.abs(distances - middle))
    return np.asarray(distances > middle + 6.0 * spread)


def learned_tails(fleets: Fleets, n_checks: int = 100) -> list[PooledTail]:
    """Return the tails of level and scatter in a weekly run."""
    compared = [
        [compare(run) for compare in (comparison, scatter)]
        for run in (fleets.run(fleets.levels()) for _ in range(n_checks))
    ]
    return [
        PooledTail.from_tails([tail for part in parts if (tail := part.tail) is not None])
        for parts in zip(*compared, strict=True)
    ]


def learned(fleets: Fleets) -> Callable[[Float64Array], BoolArray]:
    """Return our rule, with the tails of a weekly run."""
    pooled = learned_tails(fleets)

    def rule(values: Float64Array) -> BoolArray:
        beyond = np.zeros(len(values), dtype=np.bool_)
        for compare, far in zip((comparison, scatter), pooled, strict=True):
            compared = compare(values)
            assert compared.tail is not None
            beyond |= compared.beyond(far.limit(compared.tail, far.supported_rate(RATE / 2)))
        return beyond

    return rule


def rules(fleets: Fleets) -> dict[str, Callable[[Float64Array], BoolArray]]:
    """Return the rules by name."""
    fixed = {"mean 5 %": by_mean, "similarity 0.95": by_similarity, "6 spreads": by_spreads}
    return {**(fixed if fleets.machines == MACHINES else {}), "ours": learned(fleets)}


def one_gpu_trial(fleets: Fleets, name: str, rule: Callable[[Float64Array], BoolArray]) -> bool:
    """Tell whether a machine is found of which one GPU of eight is 10 % slower."""
    gpus = fleets.run(fleets.levels(fleets.machines * GPUS))
    gpus[0] *= 0.9
    if name == "ours":
        return bool(rule(gpus)[0])
    return bool(rule(gpus.reshape(fleets.machines, GPUS, VALUES).mean(axis=1))[0])


def detections(noise: str, trials: int, machines: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield defect, rule, and in how many of how many trials it was found."""
    hits: dict[tuple[str, str], int] = {}
    for seed in SEEDS:
        fleets = Fleets(np.random.default_rng([seed, NOISE.index(noise)]), noise, machines)
        for (name, rule), defect in product(rules(fleets).items(), DEFECTS):
            for _ in range(trials):
                hit = (
                    one_gpu_trial(fleets, name, rule)
                    if defect == "one GPU"
                    else bool(rule(fleets.defective(defect))[0])
                )
                hits[defect, name] = hits.get((defect, name), 0) + hit
    for (defect, name), number in hits.items():
        yield defect, name, number, trials * len(SEEDS)


def false_alarms(noise: str, groups: int, machines: int) -> dict[str, tuple[int, int, int]]:
    """Return by rule: machines beyond it, those twice, and machines judged."""
    counts: dict[str, tuple[int, int, int]] = {}
    for seed in SEEDS:
        fleets = Fleets(np.random.default_rng([seed, NOISE.index(noise), 7]), noise, machines)
        for name, rule in rules(fleets).items():
            first = second = 0
            for _ in range(groups):
                levels = fleets.levels()
                beyond = rule(fleets.run(levels))
                first += int(beyond.sum())
                second += int((beyond & rule(fleets.run(levels))).sum()) if beyond.any() else 0
            before = counts.get(name, (0, 0, 0))
            counts[name] = (before[0] + first, before[1] + second, before[2] + groups * machines)
    return counts


def supported(noise: str, machines: int) -> str:
    """Return the false alarms that a run of the first seed supports, and their bound."""
    fleets = Fleets(np.random.default_rng([SEEDS[0], NOISE.index(noise), 7]), noise, machines)
    rates = [(far, far.supported_rate(RATE / 2)) for far in learned_tails(fleets)]
    expected = sum(rate for _, rate in rates) * TESTS
    return f"{expected:.2g}, at most {sum(far.bound(rate) for far, rate in rates) * TESTS:.2g}"


def per_run(events: int, judged: int) -> str:
    """Return events a run of 1,000 machines x 100 checks, with their interval."""
    low = chi2.ppf(0.025, 2 * events) / 2 if events else 0.0
    high = chi2.ppf(0.975, 2 * events + 2) / 2
    scale = TESTS / judged
    return f"{events * scale:.3g} ({low * scale:.2g} to {high * scale:.2g})"


def share(hits: int, trials: int) -> str:
    """Return a share with its Wilson interval."""
    interval = binomtest(hits, trials).proportion_ci(method="wilson")
    return f"{hits / trials:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def speed(n_machines: int, n_checks: int) -> None:
    """Print the time to judge, by that of sorting the same values, and the memory."""
    fleets = Fleets(np.random.default_rng(0), "normal")
    values = [fleets.run(fleets.levels(n_machines)).ravel() for _ in range(n_checks)]
    joined = np.concatenate(values)
    started = time.perf_counter()
    np.sort(joined)
    sort_seconds = time.perf_counter() - started
    del joined
    started = time.perf_counter()
    counts = np.full(n_machines, VALUES)
    compared: list[tuple[Comparison, Comparison]] = []
    for column in values:
        quantiles = quantile_functions(column, counts)
        levels, spreads = (
            compare_levels(quantiles, higher_is_better=True),
            compare_scatter(quantiles),
        )
        assert levels is not None
        assert spreads is not None
        compared.append((levels, spreads))
    beyond = 0
    for statistic in zip(*compared, strict=True):
        tails = [tail for group in statistic if (tail := group.tail) is not None]
        pooled = PooledTail.from_tails(tails)
        for group, tail in zip(statistic, tails, strict=True):
            beyond += int(group.beyond(pooled.limit(tail, RATE / 2)).sum())
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{n_machines} machines x {n_checks} checks x {VALUES} values: {seconds:.1f} s, "
        f"{seconds / sort_seconds:.2f} x numpy.sort; peak {peak:.1f} GiB; {beyond} beyond"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="few trials, for CI")
    parser.add_argument("--speed", action="store_true", help="only the speed")
    args = parser.parse_args()
    if args.speed:
        speed(*((2_000, 10) if args.short else (20_000, 100)))
        return
    sizes = {MACHINES: (20, 50), 200: (2, 10)} if args.short else SIZES
    for noise, (machines, (trials, groups)) in product(NOISE, sizes.items()):
        print(f"\n{noise}, {machines} machines: detected share of {3 * trials} trials")
        for defect, name, hits, number in detections(noise, trials, machines):
            print(f"  {defect:8} {name:16} {share(hits, number)}")
        print(f"{noise}, {machines} machines: false alarms a run of 1,000 machines x 100 checks")
        print(f"  {'ours expects':16} {supported(noise, machines)}")
        for name, (first, second, judged) in false_alarms(noise, groups, machines).items():
            print(f"  {name:16} {per_run(first, judged)}; twice {per_run(second, judged)}")


if __name__ == "__main__":
    main()

"""Time to simulate a year of a job that recovers from its faults.

    python benchmarks/recovery_year.py [--short]

The median of several years of one job, with all mechanisms and three rates of interruptions. What
its time was used for has to add up.
"""

from __future__ import annotations

import argparse
import statistics
import time

from forewarn.pipelines.studies.recovery_study import RATES, SimulatedSite, year_figures

DAYS = 360


def main() -> None:
    """Print the seconds of a year for each rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small job, once")
    is_short = parser.parse_args().short
    gpus, n_years = (1_024, 1) if is_short else (16_384, 5)
    for source, rate in RATES.items():
        site = SimulatedSite(DAYS, rate)
        seconds = []
        for seed in range(n_years):
            start = time.perf_counter()
            figures = year_figures(site, gpus, "+ escalation", seed)
            seconds.append(time.perf_counter() - start)
            total = sum(figures["gpu_hours"].values())
            assert abs(total / (gpus * DAYS * 24) - 1) < 1e-9, total
        print(
            f"{source}: {gpus:,} GPUs, {figures['interruptions']:,} interruptions: "
            f"{statistics.median(seconds):.2f} s"
        )


if __name__ == "__main__":
    main()

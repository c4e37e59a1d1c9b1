"""The fleets of a ranking study: simulated by seed, or existing records."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured_fleet import Study

from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

__all__ = ["StudiedFleets", "parse_seeds"]


def parse_seeds(text: str) -> list[int]:
    """Parse comma-separated seeds."""
    return [int(seed) for seed in text.split(",") if seed]


@dataclass(frozen=True)
class StudiedFleets:
    """Common options of the studies; yields one fleet after another, measured on demand."""

    args: argparse.Namespace

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """Add the options that select fleets and how they are studied."""
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--seeds", default="", help="seeds of fleets to simulate")
        which.add_argument("--records", type=Path, help="records of an existing fleet")
        parser.add_argument("--gpus", type=int, default=1000)
        parser.add_argument("--days", type=int, default=60)
        parser.add_argument("--config", type=Path)
        parser.add_argument("--keep", type=int, default=3, help="use one instance in N")
        parser.add_argument(
            "--first", type=int, default=24, help="days before the first retraining"
        )
        parser.add_argument("--every", type=int, default=9, help="days between retrainings")

    @property
    def seeds(self) -> list[int]:
        """Seeds of the simulated fleets."""
        return parse_seeds(self.args.seeds)

    def __iter__(self) -> Iterator[tuple[str, Study]]:
        """Yield the seed or the folder of each fleet, and its features."""
        if self.args.records:
            yield str(self.args.records), self._measured(self.args.records)
        for seed in self.seeds:
            yield str(seed), self.simulated(seed)

    def simulated(self, seed: int, measures: FeatureExtractor | None = None) -> Study:
        """Simulate a fleet and compute its features, with given measures if there are any."""
        size = {"n_gpus": self.args.gpus, "n_days": self.args.days}
        with tempfile.TemporaryDirectory() as folder:
            simulate_fleet_to(Path(folder), **size, seed=seed)
            return self._measured(Path(folder) / "records", measures)

    def _measured(self, records: Path, measures: FeatureExtractor | None = None) -> Study:
        job = open_job(records, load_settings(self.args.config), ["gbdt"])
        schedule = self.args.keep, self.args.first, self.args.every
        return Study.measure(job, *schedule, measures)

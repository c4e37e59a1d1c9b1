"""Held-out sites and their other sites: changed fleets, drive models, and machine models."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from benchmarks.changed_fleets import simulate_changed_fleet
from benchmarks.measured_fleet import Study

from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

__all__ = ["SITES", "HeldOut"]

_ROOT = Path(__file__).parents[1]
_TESTS, _DATA = _ROOT / "tests" / "real_data", _ROOT.parent / "shared" / "data"


@dataclass(frozen=True)
class HeldOut:
    """A held-out site.

    Attributes
    ----------
    study : Study
    others : mapping of sequence of Study
        Other sites, by what the table calls them.
    as_of : bool
        The others share its calendar: they are trained on what was known at each retraining.
    """

    study: Study
    others: Mapping[str, Sequence[Study]]
    as_of: bool


@dataclass(frozen=True)
class _Measured:
    """How a site's records are studied."""

    config: Path | None
    keep: int
    first: int
    every: int

    def study(self, records: Path, measures: FeatureExtractor | None) -> Study:
        job = open_job(records, load_settings(self.config), ["gbdt"])
        return Study.measure(job, self.keep, self.first, self.every, measures)


def _simulated(size: Mapping[str, int], seed: int, measures: FeatureExtractor | None) -> Study:
    """Return a fleet of changed parameters; of the simulator as it is for a negative seed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        if seed < 0:
            simulate_fleet_to(out, **size, seed=-seed, progress=False)
        else:
            simulate_changed_fleet(out, **size, seed=seed)
        return _Measured(None, 3, 24, 6).study(out / "records", measures)


def _simulated_sites(args: argparse.Namespace) -> Iterator[HeldOut]:
    size = {"n_gpus": args.gpus, "n_days": args.days}
    seeds = [int(seed) for seed in args.seeds.split(",")]
    model = _simulated(size, -1, None)
    studies = [_simulated(size, seed, model.measures) for seed in seeds]
    for number, study in enumerate(studies):
        others = [studies[(number + step) % len(studies)] for step in range(1, 5)]
        sources = {"one other": others[:1], "four others": others, "a simulated one": [model]}
        yield HeldOut(study, sources, as_of=False)


def _records(write: str, source: Path, folder: Path) -> Path:
    """Convert a table of a data set to records with the script of the tests."""
    subprocess.run([sys.executable, str(_TESTS / write), str(source), str(folder)], check=True)
    return folder


def _drive_sites(_: argparse.Namespace) -> Iterator[HeldOut]:
    how = _Measured(_TESTS / "drives.toml", 2, 300, 120)
    with tempfile.TemporaryDirectory() as scratch:
        parts = []
        table = pd.read_parquet(_DATA / "drives" / "ST4000DM000.parquet")
        number = table["serial"].astype("category").cat.codes
        for part in range(4):
            path = Path(scratch) / f"{part}.parquet"
            table[number % 16 == part].to_parquet(path)
            parts.append(path)
        parts.append(_DATA / "drives" / "ST31500541AS.parquet")
        studies: list[Study] = []
        for path in parts:
            folder = _records("drives_records.py", path, Path(scratch) / f"{path.stem}_records")
            studies.append(how.study(folder, studies[0].measures if studies else None))
    *quarters, older = studies
    yield HeldOut(older, {"one other": quarters[:1], "four others": quarters}, as_of=True)
    yield HeldOut(quarters[0], {"one other": [older]}, as_of=True)


def _azure_sites(_: argparse.Namespace) -> Iterator[HeldOut]:
    how = _Measured(_TESTS / "azure.toml", 1, 50, 10)
    with tempfile.TemporaryDirectory() as scratch:
        folder = _records("azure_records.py", _DATA / "azure_pdm", Path(scratch) / "records")
        dates = {path: pd.read_parquet(path) for path in folder.glob("date=*/*.parquet")}
        failures = pd.read_parquet(folder / "failures.parquet")
        studies: list[Study] = []
        for site in (Path(scratch) / "others", Path(scratch) / "model3"):
            serials: set[str] = set()
            for path, records in dates.items():
                own = records[(records["model"] == "model3") == (site.name == "model3")]
                (site / path.parent.name).mkdir(parents=True)
                own.to_parquet(site / path.relative_to(folder), index=False)
                serials |= set(own["gpu_serial"])
            failures[failures["gpu_serial"].isin(serials)].to_parquet(site / "failures.parquet")
            studies.append(how.study(site, studies[0].measures if studies else None))
    for held_out, other in (studies, studies[::-1]):
        yield HeldOut(held_out, {"one other": [other]}, as_of=True)


SITES = {"simulated": _simulated_sites, "drives": _drive_sites, "azure": _azure_sites}

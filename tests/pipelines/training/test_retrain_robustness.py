"""Retraining that is killed, run twice at once, run out of order, or run on damaged files."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from forewarn.evaluation.prediction.walk_forward.retraining_schedule import last_finished_window
from forewarn.features.records.record_table import RecordsError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.scheduled_tasks import score_site
from forewarn.pipelines.storage.files import file_lock as lock_module
from forewarn.pipelines.storage.files.file_lock import locked
from forewarn.pipelines.storage.files.stale_temporary_files import temporary_path
from forewarn.pipelines.storage.registry.model_registry import Registry
from forewarn.pipelines.storage.registry.registered_version import Version
from forewarn.pipelines.training import retrain as retrain_module
from forewarn.pipelines.training import training_cache as recipes_module
from forewarn.pipelines.training.retrain import retrain
from forewarn.pipelines.training.retraining_decision import RetrainingOutcome

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:alembic"),
]

FIRST, SECOND = "2025-01-19", "2025-01-25"
TREES = '[ensembles]\nparallel = ["gbdt"]\ncascade = [["gbdt", 0.2]]\n'

Write = Callable[[pd.DataFrame, Path], Path]
Fleet = Callable[[int, int], pd.DataFrame]


@dataclass
class Site:
    """Records, a configuration with only trees, and a separate registry."""

    records: Path
    config: Path

    @property
    def registry(self) -> Registry:
        return Registry(load_settings(self.config).registry, create=True)

    def retrain(self, day: str) -> RetrainingOutcome:
        job = open_job(self.records, load_settings(self.config))
        return retrain(job, parse_moment(day), self.registry)

    def recipe_files(self) -> list[Path]:
        """Return the folders of the stored recipes."""
        return sorted((self.config.parent / "mlflow" / "artifacts").glob("*/artifacts/recipe"))


def site_in(folder: Path, records: Path, config_text: str, store: bytes) -> Site:
    head, rest = config_text.split("[ensembles]")
    path = folder / "config.toml"
    tail = rest[rest.index("[evaluation]") :]
    path.write_text(f'{head}{TREES}{tail}[registry]\nstore = "{folder}/mlflow"\n')
    (folder / "mlflow").mkdir()
    (folder / "mlflow" / "mlflow.db").write_bytes(store)
    return Site(records, path)


@pytest.fixture(scope="module")
def records(fleet_of: Fleet, write: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(fleet_of(60, 30), tmp_path_factory.mktemp("fleet30") / "records")


def _save_nothing(_: Any, target: Any, **__: Any) -> None:
    """Write an empty picture to a path or a text buffer."""
    if isinstance(target, io.StringIO):
        target.write("<svg></svg>")
    else:
        Path(target).write_bytes(b"")


@pytest.fixture(scope="module", autouse=True)
def no_pictures() -> Any:
    """Replace plots by empty pictures; other tests cover them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("matplotlib.figure.Figure.savefig", _save_nothing)
        yield


@pytest.fixture
def empty_site(records: Path, config_text: str, empty_store: bytes, tmp_path: Path) -> Site:
    """Return a site with an empty registry."""
    return site_in(tmp_path, records, config_text, empty_store)


@pytest.fixture(scope="module")
def undisturbed(
    records: Path,
    config_text: str,
    empty_store: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Site, RetrainingOutcome, RetrainingOutcome]:
    """Retrain twice; no test changes the result."""
    site = site_in(tmp_path_factory.mktemp("undisturbed"), records, config_text, empty_store)
    return site, site.retrain(FIRST), site.retrain(SECOND)


def without_run(outcome: RetrainingOutcome) -> RetrainingOutcome:
    return replace(outcome, run="")


class KilledError(BaseException):
    """Simulated kill: no later call of the process reaches the registry."""


class Process:
    """Records the calls to MLflow, and dies before or after the first call of a type."""

    WRITES = (
        *("create_run", "update_run", "set_terminated", "log_batch", "log_inputs", "set_tag"),
        *("log_artifacts", "create_registered_model", "create_model_version"),
        *("update_model_version", "set_registered_model_alias", "set_model_version_tag"),
    )

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.deadline, self.dead = ("", ""), False
        for name in self.WRITES:
            real = getattr(mlflow.MlflowClient, name)
            patched.setattr(mlflow.MlflowClient, name, self._watched(name, real))
        watched = self._watched("log_model", mlflow.pyfunc.log_model)
        patched.setattr(mlflow.pyfunc, "log_model", watched)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            step = _step(name, arguments, options)
            self._reach("before", step)
            done = real(*arguments, **options)
            self._reach("after", step)
            return done

        return call

    def _reach(self, *moment: str) -> None:
        self.dead = self.dead or moment == self.deadline
        if self.dead:
            raise KilledError

    def begin(self, deadline: tuple[str, str]) -> None:
        self.deadline, self.dead = deadline, False
        stack: Any = mlflow.tracking.fluent._active_run_stack
        stack.get().clear()  # a new process has no run


def _step(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Name a call by its purpose, as far as its arguments show it."""
    texts = [one for one in arguments if isinstance(one, str)]
    match name:
        case "create_run":
            purpose = options["tags"]["forewarn.kind"]
        case "set_terminated":
            purpose = (*texts, "FINISHED")[1]
        case "log_artifacts":
            purpose = texts[-1]
        case "set_registered_model_alias":
            purpose = texts[1]
        case _:
            purpose = next((text for text in texts if text.startswith("forewarn.")), "")
    return f"{name} {purpose}".strip()


KILLED = (
    ("after", "create_run retraining"),
    ("before", "set_terminated KILLED"),
    ("after", "create_run recipe"),
    ("before", "log_artifacts recipe"),
    ("after", "log_artifacts recipe"),
    ("after", "set_terminated FINISHED"),
    ("after", "create_run model"),
    ("before", "log_artifacts plots"),
    ("after", "log_inputs"),
    ("before", "log_model"),
    ("before", "update_run"),
    ("after", "update_run"),
    ("before", "create_model_version"),
    ("after", "create_model_version"),
    ("before", "set_tag forewarn.outcome"),
    ("after", "set_tag forewarn.outcome"),
    ("after", "set_tag forewarn.gate"),
    ("before", "update_model_version"),
    ("after", "update_model_version"),
    ("after", "set_model_version_tag forewarn.gate"),
    ("after", "set_registered_model_alias challenger"),
    ("after", "set_model_version_tag forewarn.follows"),
    ("after", "set_model_version_tag forewarn.champion"),
    ("after", "set_model_version_tag forewarn.champion_since"),
    ("after", "set_model_version_tag forewarn.champion_until"),
    ("before", "set_registered_model_alias champion"),
    ("after", "set_registered_model_alias champion"),
    ("before", "set_terminated FINISHED"),
)


def _untimed(version: Version) -> Version:
    """Return a version without the times of its promotion and replacement."""
    times = ("forewarn.champion_since", "forewarn.champion_until")
    assert version.tags.keys() & {*times[: 1 + (version.number == "1")]}
    return replace(version, tags={k: v for k, v in version.tags.items() if k not in times})


def test_killed_retraining_resumes_with_same_result(
    undisturbed: tuple[Site, RetrainingOutcome, RetrainingOutcome],
    empty_site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each retry is killed one step later, until one completes."""
    site = empty_site
    assert without_run(site.retrain(FIRST)) == without_run(undisturbed[1])
    process = Process(monkeypatch)
    for deadline in KILLED:
        process.begin(deadline)
        with pytest.raises(KilledError):
            site.retrain(SECOND)
        assert process.dead, deadline
    process.begin(("", ""))
    outcome = site.retrain(SECOND)
    assert without_run(outcome) == without_run(undisturbed[2])
    assert site.retrain(SECOND) == outcome
    registry, theirs = site.registry, undisturbed[0].registry
    assert [_untimed(v) for v in registry.versions()] == [_untimed(v) for v in theirs.versions()]
    assert registry.find({}, status="RUNNING") == []
    finished = registry.find({"forewarn.kind": "retraining"})
    assert [run.info.run_id for run in finished].count(outcome.run) == 1
    assert len(finished) == 2


@pytest.fixture
def site(undisturbed: tuple[Site, RetrainingOutcome, RetrainingOutcome], tmp_path: Path) -> Site:
    """Return a copy of the registry in which FIRST and SECOND were retrained."""
    there = undisturbed[0]
    shutil.copytree(there.config.parent / "mlflow", tmp_path / "mlflow")
    config = there.config.read_text().replace(str(there.config.parent), str(tmp_path))
    (tmp_path / "config.toml").write_text(config)
    with closing(sqlite3.connect(tmp_path / "mlflow" / "mlflow.db")) as base:
        places = {
            ("experiments", "artifact_location"), ("runs", "artifact_uri"),
            ("logged_models", "artifact_location"), ("model_versions", "storage_location"),
            ("model_versions", "source"),
        }  # fmt: skip
        for table, column in places:
            change = f"update {table} set {column} = replace({column}, ?, ?)"
            base.execute(change, (str(there.config.parent), str(tmp_path)))
        base.commit()
    return Site(there.records, tmp_path / "config.toml")


def champion_of(site: Site) -> str:
    champion = site.registry.champion()
    assert champion is not None
    return champion.number


@pytest.mark.parametrize("outcome", [None, "[]", '{"version": "1"}', "{"])
def test_finished_run_without_outcome_is_repeated(
    site: Site, undisturbed: tuple[Site, RetrainingOutcome, RetrainingOutcome], outcome: str | None
) -> None:
    """A kill between the end of the MLflow run and the outcome leaves this state."""
    registry, run = site.registry, undisturbed[2].run
    registry.name("champion", "1")
    mlflow.MlflowClient(registry.uri).delete_tag(run, "forewarn.outcome")
    if outcome is not None:
        registry.tag(run, {"forewarn.outcome": outcome})
    assert without_run(site.retrain(SECOND)) == without_run(undisturbed[2])
    assert champion_of(site) == "2"
    assert len(registry.versions()) == 2


def test_older_retraining_is_not_promoted(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    older = site.retrain("2025-01-22")
    assert not older.promoted
    assert "2025-01-25T00:00:00Z; use `forewarn models promote`" in older.reasons[-1]
    assert (champion_of(site), older.champion) == ("2", "2")
    assert "alert (refused)" in capsys.readouterr().err
    assert main(["models", "promote", older.version, "--config", str(site.config)]) == 0
    assert "trained as of 2025-01-22T00:00:00Z, replaces version 2" in capsys.readouterr().err
    assert champion_of(site) == older.version


def test_concurrent_retrainings_give_one_champion(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older retraining starts while the newer one runs: it waits, and is refused."""
    waiting, outcomes = threading.Event(), {}
    real = retrain_module._retrain
    begun: list[int] = []

    def held(job: Any, moment: int, registry: Registry, run: str) -> Any:
        begun.append(moment)
        if len(begun) == 1:
            other.start()
            assert waiting.wait(600)
            assert len(begun) == 1
        return real(job, moment, registry, run)

    def retrain_older() -> None:
        outcomes["older"] = site.retrain("2025-01-22")

    other = threading.Thread(target=retrain_older)
    monkeypatch.setattr(retrain_module, "_retrain", held)
    monkeypatch.setattr(lock_module, "note", lambda _: waiting.set())
    newer = site.retrain("2025-01-28")
    other.join()
    assert (newer.promoted, outcomes["older"].promoted) == (True, False)
    assert champion_of(site) == newer.version
    assert "the champion (version 3)" in outcomes["older"].reasons[-1]


def test_changed_champion_is_not_replaced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    register = retrain_module._register

    def meanwhile(*arguments: Any) -> str:
        number: str = register(*arguments)
        site.registry.rollback()
        return number

    monkeypatch.setattr(retrain_module, "_register", meanwhile)
    outcome = site.retrain("2025-01-28")
    assert not outcome.promoted
    assert outcome.reasons == ("the champion changed in the meantime, from version 2 to 1",)
    assert champion_of(site) == outcome.champion == "1"
    assert site.registry.version(outcome.version).tags["forewarn.gate"].startswith("refused")
    assert site.retrain("2025-01-28") == outcome


def test_rolled_back_version_is_not_promoted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.begin(("after", "set_registered_model_alias champion"))
    with pytest.raises(KilledError):
        site.retrain("2025-01-28")
    process.begin(("", ""))
    assert champion_of(site) == "3"
    site.registry.rollback()
    assert not site.retrain("2025-01-28").promoted
    assert champion_of(site) == "2"


def test_lock_of_killed_process_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path\n"
        "from forewarn.pipelines.storage.files.file_lock import locked\n"
        "with locked(Path(sys.argv[1]), 'another'):\n print('held', flush=True); time.sleep(600)"
    )
    call = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with path.open("a") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
        holder.wait()
    with locked(path, "another"):
        pass


def _truncate(folder: Path) -> None:
    path = next(folder.rglob("*.txt"))
    path.write_bytes(path.read_bytes()[:100])


def _empty(folder: Path) -> None:
    (folder / "predictor.json").write_text("")


def _change_a_digit(folder: Path) -> None:
    path = next(folder.rglob("parameters.json"))
    path.write_text(path.read_text().replace("1", "2"))


def _make_old(folder: Path) -> None:
    path = folder / "predictor.json"
    path.write_text(path.read_text().replace('"format":', '"format": 0, "was":'))


def _forget_the_balance(folder: Path) -> None:
    path = folder / "predictor.json"
    path.write_text(path.read_text().replace('"balance":', '"ballast":'))


@pytest.mark.parametrize(
    "damage",
    [_truncate, _empty, _change_a_digit, _make_old, _forget_the_balance, shutil.rmtree],
    ids=lambda damage: damage.__name__.strip("_"),
)
def test_damaged_recipe_is_retrained(
    site: Site, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    folders = site.recipe_files()
    for folder in folders:
        damage(folder)
    job, registry = open_job(site.records, load_settings(site.config)), site.registry
    recipes = recipes_module.RecipeCache(registry, job.walk_settings, "")
    moment = parse_moment(FIRST)
    (kept,) = registry.find({"forewarn.kind": "recipe", "forewarn.at": format_iso(moment)})
    span = Nanoseconds(pd.Timedelta(kept.data.tags["forewarn.length"]).value)
    tags = recipes._tags(moment, span)
    assert recipes.recall(moment, span) is None
    said = capsys.readouterr().err
    assert said.count("cannot be used and will be retrained") == 1
    assert registry.find(tags) == []
    assert kept.info.run_id in {run.info.run_id for run in registry.find(tags, status="FAILED")}


def test_length_trained_ahead_is_reused(
    undisturbed: tuple[Site, RetrainingOutcome, RetrainingOutcome], empty_site: Site
) -> None:
    site = empty_site
    job, moment = open_job(site.records, load_settings(site.config)), parse_moment(SECOND)
    walk = job.walk_settings
    start = last_finished_window(moment, every=walk.every, horizon=walk.recipe.horizon)
    recipes_module.train_recipe(job.store, walk, moment, walk.longest, site.registry)
    tags = {"forewarn.kind": "recipe", "forewarn.at": format_iso(start)}
    (kept,) = site.registry.find(tags)
    span = Nanoseconds(pd.Timedelta(kept.data.tags["forewarn.length"]).value)
    ahead, expected = (
        recipes_module.RecipeCache(registry, job.walk_settings, "").recall(start, span)
        for registry in (site.registry, undisturbed[0].registry)
    )
    assert ahead is not None
    assert expected is not None
    assert ahead.encoder.to_dict() == expected.encoder.to_dict()
    assert (ahead.balance, ahead.prevalence) == (expected.balance, expected.prevalence)


def metrics_of(site: Site, day: str) -> dict[str, float]:
    """Return the metrics of a retraining, except its cost."""
    tags = {"forewarn.kind": "retraining", "forewarn.at": format_iso(parse_moment(day))}
    (run,) = site.registry.find(tags)
    costs = ("seconds", "peak_rss")
    return {name: value for name, value in run.data.metrics.items() if not name.startswith(costs)}


def test_large_retraining_gives_same_result(
    undisturbed: tuple[Site, RetrainingOutcome, RetrainingOutcome],
    empty_site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.pipelines.backtest.windowed_records._MAX_SPAN_ROWS", 9000)
    for day, expected in zip((FIRST, SECOND), undisturbed[1:], strict=True):
        outcome = empty_site.retrain(day)
        assert without_run(outcome) == without_run(expected)
        assert metrics_of(empty_site, day) == metrics_of(undisturbed[0], day)


def test_damaged_cache_does_not_stop_retraining(site: Site) -> None:
    for path in (site.config.parent / "mlflow" / "artifacts").rglob("predictor.json"):
        path.write_text(path.read_text()[:40])
    outcome = site.retrain("2025-01-28")
    assert outcome.promoted
    assert outcome.comparison is None
    assert champion_of(site) == "3"


def test_stale_temporary_files_are_removed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    temporary = tmp_path / "temporary"
    names = (f"forewarn-scratch-{ended.pid}-a1", f"forewarn-scratch-{os.getpid()}-b2", "tmp_c3")
    for name in names:
        (temporary / name / "predictor").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    site.retrain(SECOND)
    assert {path.name for path in temporary.iterdir()} == set(names[1:])


def model_of(site: Site, day: str) -> str:
    """Make the list of a day as the scheduler does; return the model used."""
    folder = Path(score_site(str(site.config), day))
    (version,) = set(pd.read_parquet(folder / "at_risk.parquet")["model_version"])
    return str(version)


@pytest.fixture
def scheduled(site: Site) -> Site:
    with site.config.open("a") as file:
        file.write(f'[site]\nrecords = "{site.records}"\n')
    return site


def test_earlier_list_uses_champion_of_its_time(
    scheduled: Site,
    undisturbed: tuple[Site, RetrainingOutcome, RetrainingOutcome],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, first, second = undisturbed
    for day, maker in (
        ("2025-01-26", second.name),
        ("2025-01-24", second.name),  # as of its final midnight, the training cutoff
        ("2025-01-23", first.name),
        ("2025-01-18", first.name),
    ):
        assert model_of(scheduled, day) == maker, day
    assert "alert (built-in rules)" not in capsys.readouterr().err
    assert model_of(scheduled, "2025-01-17") == "builtin:rules"
    assert "no champion was trained by 2025-01-18T00:00:00Z" in capsys.readouterr().err
    with pytest.raises(RecordsError, match="no records"):
        model_of(scheduled, "2020-01-01")
    assert "alert" not in capsys.readouterr().err
    # A model that was rolled back makes no list, however new it is.
    scheduled.registry.rollback()
    assert model_of(scheduled, "2025-01-26") == first.name


def test_site_without_predictor_uses_rules(empty_site: Site) -> None:
    with empty_site.config.open("a") as file:
        file.write(f'[site]\nrecords = "{empty_site.records}"\n')
    assert model_of(empty_site, "2025-01-06") == "builtin:rules"


def test_repeated_list_is_identical(
    scheduled: Site,
) -> None:
    folder = Path(score_site(str(scheduled.config), "2025-01-23"))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    left = temporary_path(folder / "at_risk.csv")
    left = left.with_name(left.name.replace(f".{os.getpid()}.", f".{ended.pid}."))
    left.write_text("unfinished")
    score_site(str(scheduled.config), "2025-01-23")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

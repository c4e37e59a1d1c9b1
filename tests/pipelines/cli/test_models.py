"""`forewarn models` on a registry with foreign versions or damage."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mlflow
import pytest

from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:alembic")

MODEL = "gpu-failure"
EVIL = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"


class Site:
    """A configuration with a registry, and an MLflow client to change it directly."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "config.toml"
        self.config.write_text(f'[registry]\nstore = "{folder}/mlflow"\n')

    @property
    def client(self) -> mlflow.MlflowClient:
        address = f"sqlite:///{self.folder}/mlflow/mlflow.db"
        return mlflow.MlflowClient(address, address)

    def add(self, tags: dict[str, str], source: Path | None = None) -> str:
        """Register a model that forewarn did not create."""
        place = (source or self.folder / "nothing").as_uri()
        return str(self.client.create_model_version(MODEL, place, tags=tags).version)

    def models(self, *arguments: str) -> int:
        return main(["models", *arguments, "--config", str(self.config)])


@pytest.fixture
def site(empty_store: bytes, tmp_path: Path) -> Site:
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "mlflow.db").write_bytes(empty_store)
    site = Site(tmp_path)
    site.client.create_registered_model(MODEL)
    return site


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("forewarn: error: ")
    return line


def test_foreign_version_cannot_be_promoted(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.add({})
    site.add({"forewarn.at": "soon", "forewarn.length": "-3", "forewarn.champion": "yes"})
    site.add({"forewarn.at": "9" * 400, "forewarn.length": "²", "forewarn.gate": "\x1b[2J\n\u202e"})
    assert site.models("list") == 0
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == ["3", "2", "1"]
    assert printed.count("not registered by forewarn") == 3
    assert "3  not registered by forewarn  \\x1b[2J\\n\\u202e" in printed
    assert site.models("list", "--json") == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["trained_at"] for one in listed] == [None] * 3
    for command in ("show", "promote"):
        for number in "123":
            assert site.models(command, number) == 2
            assert f"models:/{MODEL}/{number}" in one_line(capsys)
    assert "champion" not in site.client.get_registered_model(MODEL).aliases


@pytest.mark.parametrize("follows", ["77", "../../1", "1", "2", "", "²"])
def test_rollback_to_missing_version_is_refused(
    site: Site, follows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add({})
    site.add({"forewarn.follows": follows, "forewarn.champion": "yes"})
    site.client.set_registered_model_alias(MODEL, "champion", "2")
    assert site.models("rollback") == 2
    assert MODEL in one_line(capsys)
    champion = site.client.get_model_version_by_alias(MODEL, "champion")
    assert (str(champion.version), champion.tags["forewarn.champion"]) == ("2", "yes")


def artefact_in(folder: Path, description: str) -> Path:
    """Write an MLflow model with its own code, and a predictor with this description."""
    place = folder / "artefact"
    (place / "code").mkdir(parents=True)
    (place / "code" / "evil_loader.py").write_text(EVIL)
    (place / "MLmodel").write_text(
        "flavors:\n  python_function:\n    loader_module: evil_loader\n    code: code\n"
        "    data: data/predictor\nmodel_uuid: 0\n"
    )
    (place / "data" / "predictor").mkdir(parents=True)
    (place / "data" / "predictor" / "predictor.json").write_text(description)
    return place


OUTSIDE = {"format": 1, "models": ["../../../../outside"], "digests": {}, "encoder": {}}


@pytest.mark.parametrize("description", ["", "[]", "null", "\ud800", json.dumps(OUTSIDE)])
def test_artefact_code_and_paths_are_not_trusted(
    site: Site, tmp_path: Path, description: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("found")
    place = artefact_in(tmp_path, description.encode("utf-8", "surrogatepass").decode("latin-1"))
    number = site.add({}, place)
    before = set(sys.modules)
    for command in ("show", "promote"):
        assert site.models(command, number) == 2
        assert "secret" not in one_line(capsys)
    assert "evil_loader" not in set(sys.modules) - before
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize("command", [("list",), ("show", "1"), ("promote", "1"), ("rollback",)])
def test_damaged_registry_is_one_line(
    tmp_path: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "mlflow.db").write_bytes(b"no database " * 500)
    assert site.models(*command) == 2
    assert f"`registry.store` {tmp_path}/mlflow" in one_line(capsys)


def test_registry_password_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[registry]\nstore = "nosuch://user:hunter2@host/base"\n')
    assert main(["models", "list", "--config", str(config)]) == 2
    line = one_line(capsys)
    assert "nosuch://host/base" in line
    assert "hunter2" not in line

"""`forewarn config check` lists what is set, what is default, and what is doubtful."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.config_check import check_config
from forewarn.pipelines.config.prediction_tables import DEFAULT_COLUMNS
from forewarn.pipelines.config.setting_values import default_values
from forewarn.pipelines.config.settings import Settings, SettingsError, parse_settings

EXAMPLE = Path(__file__).parents[3] / "forewarn.example.toml"


def doubts(folder: Path, text: str, columns: set[str] | None = None) -> dict[str, str]:
    path = folder / "my.toml"
    path.write_text(text)
    return {doubt.key: doubt.why for doubt in check_config(path, columns).doubts}


def nested(values: dict[str, Any]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for key, value in values.items():
        *parents, name = key.split(".")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
        table[name] = value
    return tables


def test_defaults_can_be_written_into_a_file() -> None:
    values = default_values(Settings())
    assert values["training.lengths"] == ["9d", "12d", "15d"]
    assert values["collector.publish_every"] == "5s"
    assert values["features.code"] == ["xid"]
    assert parse_settings(nested(values), name="all") == Settings()


def test_keys_are_set_or_default_never_both(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[list]\nshare = 0.01\n[features]\ncode = ["xid"]\n')
    result = check_config(tmp_path / "my.toml", None)
    assert result.settings == {"list.share": 0.01, "features.code": ["xid"]}
    assert not result.settings.keys() & result.defaults.keys()
    everything = default_values(Settings()).keys()
    assert everything == (result.settings.keys() | result.defaults.keys()) & everything
    assert result.defaults["features.float"] == []


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[site]\nprometheus = "http://h:9090"\ncmdb = "gone.csv"', "site.cmdb"),
        ('[site]\nprometheus = "http://me:secret@h:9090"', "site.prometheus"),
        ('[site]\nrecords = "elsewhere"', "site.records"),
        ('[site]\nraw = "."\n[cmdb]\npreset = "netbox"', "site.cmdb"),
        ('[site]\nraw = "."\n[tickets]\ncolumns = {gpu_serial = "S/N"}', "site.repairs"),
        ('[site]\nraw = "."\n[records]\ncolumns = {frob = "x"}', "records.columns.frob"),
        ('[site]\nraw = "."\n[records]\ninterval = "1min"', "windows.horizon"),
        ('[site]\nraw = "."\n[list]\nshare = 0.5', "list.share"),
        ('[site]\nraw = "."\n[collector]\nhost = "0.0.0.0"', "collector.host"),
        ('[site]\nraw = "."\n[features]\nfloat = ["fan"]', "features.code"),
        ('[site]\nraw = "."\n[respond.pools.a]\ncontrol = 0.1', "respond.salt"),
    ],
)
def test_doubtful_settings_are_named(tmp_path: Path, text: str, key: str) -> None:
    assert list(doubts(tmp_path, text)) == [key]


def test_example_is_beyond_doubt(tmp_path: Path) -> None:
    columns = {name for names in DEFAULT_COLUMNS.values() for name in names}
    assert doubts(tmp_path, EXAMPLE.read_text(), columns) == {}


def test_features_are_compared_with_the_records(tmp_path: Path) -> None:
    text = '[features]\nfloat = ["fan"]\ncode = ["xid"]\n'
    doubtful = doubts(tmp_path, text, {"gpu_serial", "timestamp", "xid"})
    assert doubtful == {"features": "The records have no column `fan`."}


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.toml"
    path.write_text(
        '[site]\nprometheus = "http://me:hunter2@h"\n[respond]\nsalt = "hunter2"\n'
        'ledger = "postgresql+psycopg://me:hunter2@h/db"\n'
    )
    for options in ([], ["--json"]):
        assert main(["config", "check", "--config", str(path), *options]) == 0
        output = capsys.readouterr()
        assert "hunter2" not in output.out + output.err


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.toml"
    path.write_text('[site]\nraw = "."\n')
    assert main(["config", "check", "--config", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result) == ["config", "set", "default", "doubtful"]
    assert result["doubtful"] == []


def test_invalid_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[windows]\nlenght = 3\n")
    with pytest.raises(SettingsError, match=r"unknown key `windows.lenght`"):
        check_config(tmp_path / "my.toml", None)


def test_missing_configuration_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOREWARN_CONFIG", raising=False)
    assert main(["config", "check"]) == 2
    assert "no configuration found, expected --config FILE" in capsys.readouterr().err

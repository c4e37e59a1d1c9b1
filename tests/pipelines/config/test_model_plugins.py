from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.prediction.hyperparameters import hyperparameters_of
from forewarn.models.prediction.model_catalogue import BUILTIN
from forewarn.models.prediction.model_names import MODEL_NAMES, RESERVED_NAMES
from forewarn.pipelines.config.model_plugins import (
    PluginError,
    check_models,
    find_plugins,
)
from forewarn.pipelines.config.settings import Settings, SettingsError, parse_settings

EXAMPLE = Path(__file__).parents[3] / "forewarn.example.toml"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with one plug-in model."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(package: str, name: str, value: str, code: str = "", version: str = "1.0") -> None:
        info = tmp_path / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[forewarn.models]\n{name} = {value}\n")
        (tmp_path / f"{value.partition(':')[0]}.py").write_text(code)

    return install


def read(text: str) -> Settings:
    return parse_settings(tomllib.loads(text), name="some.toml")


def refused(text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def check(text: str) -> None:
    table = read(text).models
    check_models(table.plugins, table.hyperparameters, table.catalogue)


FOREST = "class Forest:\n    def __init__(self, *, seed: int, purge: int, trees: int = 9): ...\n"


def test_package_not_allowed_is_never_imported(install: Install) -> None:
    install("evil-models", "evil", "evil_module:Model", "raise SystemExit('imported')")
    install("good-models", "forest", "good_module:Forest", FOREST)
    catalogue = read('models.plugins = ["forest"]').models.catalogue
    assert catalogue.class_of("forest").__name__ == "Forest"  # type: ignore[attr-defined]
    assert "evil" not in catalogue.plugins
    with pytest.raises(ValueError, match="`name` must be one of"):
        catalogue.class_of("evil")
    with pytest.raises(ValueError, match="`name` must be one of"):
        BUILTIN.class_of("forest")
    assert "evil_module" not in sys.modules


def test_package_is_imported_at_first_use(install: Install) -> None:
    install("slow-models", "forest", "slow_module:Forest", FOREST)
    plugin = find_plugins(["forest"])["forest"]
    assert "slow_module" not in sys.modules
    assert (plugin.package, plugin.version) == ("slow-models", "1.0")
    plugin.import_class()
    assert "slow_module" in sys.modules


def test_two_packages_of_one_name_are_refused(install: Install) -> None:
    install("first-models", "forest", "first_module:Forest", FOREST)
    install("second-models", "forest", "second_module:Forest", FOREST)
    with pytest.raises(PluginError, match="first-models and second-models both declare"):
        find_plugins(["forest"])


@pytest.mark.parametrize(
    ("value", "code"), [("gone_module:Forest", "import nonsense_xyz"), ("empty_module:Forest", "")]
)
def test_package_that_fails_is_one_line(install: Install, value: str, code: str) -> None:
    install("bad-models", "forest", value, code)
    with pytest.raises(PluginError, match=f"model `forest`: cannot import {value}") as caught:
        find_plugins(["forest"])["forest"].import_class()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES | {"start_gbdt"}))
def test_plugin_cannot_take_known_name(name: str) -> None:
    assert f"`models.plugins` names `{name}`" in refused(f'models.plugins = ["{name}"]')


@pytest.mark.parametrize("name", ["", "../x", "Forest", "a/b", "a.b", "1st", "x" * 33])
def test_plugin_name_is_plain_word(name: str) -> None:
    assert "models.plugins.0" in refused(f'models.plugins = ["{name}"]')


def test_ensembles_name_known_models_only() -> None:
    assert "`ensembles.parallel` names 'forest'" in refused('ensembles.parallel = ["forest"]')
    allowed = read('models.plugins = ["forest"]\nensembles.parallel = ["forest", "gbdt"]')
    assert allowed.ensembles.parallel == ("forest", "gbdt")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models.forest.trees = 3", "`models.forest` names no model"),
        ("models.gbdt = 3", "key `models.gbdt`: found 3"),
        ("models.gbdt.num_leaves = [3]", "models.gbdt.num_leaves"),
        ("models.gbdt.num_leaves = 2020-01-01", "models.gbdt.num_leaves"),
    ],
)
def test_wrong_model_table_is_refused(text: str, expected: str) -> None:
    assert expected in refused(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models.gbdt.leaves = 3", "`models.gbdt`: unknown key `leaves`, expected one of learning"),
        ("models.gbdt.num_leaves = 1", "`models.gbdt`: `num_leaves` is 1, expected 2 to 4096"),
        ("models.gbdt.num_leaves = 8.0", "`num_leaves` is 8.0, expected a value of type int"),
        ("models.gbdt.num_leaves = true", "`num_leaves` is True, expected a value of type int"),
        ("models.gbdt.num_leaves = '8'", "`num_leaves` is '8', expected a value of type int"),
        ("models.cnn.l2 = nan", "`l2` is nan, expected a value of type float"),
        ("models.cnn.l2 = false", "`l2` is False, expected a value of type float"),
    ],
)
def test_hyperparameters_are_checked_by_class(text: str, expected: str) -> None:
    with pytest.raises(PluginError) as caught:
        check(text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hyperparameters_of_plugin_are_checked(install: Install) -> None:
    install("good-models", "forest", "checked_module:Forest", FOREST)
    check('models.plugins = ["forest"]\nmodels.forest.trees = 3')
    with pytest.raises(PluginError, match=r"`models\.forest`: unknown key `leaves`"):
        check('models.plugins = ["forest"]\nmodels.forest.leaves = 3')


def test_allowed_plugin_has_to_be_installed() -> None:
    expected = "model `forest`: no installed package declares it"
    with pytest.raises(PluginError, match=expected):
        check('models.plugins = ["forest"]')


VALUES = st.one_of(
    st.integers(-5, 5000), st.floats(), st.booleans(), st.text(max_size=3)
)  # of any type that a table may hold


@given(st.sampled_from(MODEL_NAMES), st.data())
def test_accepted_values_construct_the_model(name: str, data: st.DataObject) -> None:
    declared = hyperparameters_of(BUILTIN.class_of(name))
    key = data.draw(st.sampled_from(sorted(declared)))
    value = data.draw(VALUES)
    settings = Settings.model_validate({"models": {name: {key: value}}})
    try:
        check_models((), settings.models.hyperparameters, BUILTIN)
    except PluginError:
        assert declared[key].problem(value)
        return
    limits: Any = declared[key].limits
    assert limits.low <= float(value) <= limits.high
    hyperparameters = settings.models.hyperparameters[name]
    BUILTIN.make(name, seed=0, purge=0, hyperparameters=hyperparameters)


def test_example_shows_hyperparameters_with_defaults() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    lines = text[text.index("[models]") : text.index("[ensembles]")].splitlines()
    keys = re.compile(r"# (\[models\.\w+\]|\w+ = .*)")
    tables = tomllib.loads("\n".join(m.group(1) for line in lines if (m := keys.match(line))))
    for name, shown in tables["models"].items():
        declared = hyperparameters_of(BUILTIN.class_of(name))
        assert shown == {key: item.default for key, item in declared.items()}, name
    networks = [hyperparameters_of(BUILTIN.class_of(name)) for name in ("cnn", "mlp", "lstm")]
    assert set(tables["models"]) == {"gbdt", "linear", "cnn"}
    assert networks[0] == networks[1] == networks[2]

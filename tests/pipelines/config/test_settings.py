from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND
from forewarn.pipelines.config.settings import (
    Settings,
    SettingsError,
    load_settings,
    parse_duration,
    parse_settings,
)

EXAMPLE = Path(__file__).parents[3] / "forewarn.example.toml"
# Copied from the contract by hand, because example and code could be wrong together.
CONTRACT = """
[records]
interval = "10min"
[windows]
length = 18
horizon = 144
step = 10
[features]
categorical = ["gpu_type", "driver_version", "data_center"]
float   = ["temperature_gpu", "power_draw", "utilization_gpu", "utilization_memory", "memory_used", "clock_sm", "pcie_link_width"]
counter = ["ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays"]
binary  = []
code    = ["xid"]
date    = ["expiration_date"]
history = [4, 16, 56]
peers   = ["machine_id", "gpu_type"]
residuals = [["temperature_gpu", "power_draw"], ["power_draw", "utilization_gpu"]]
[training]
retrain_every = "3d"
lengths = ["9d", "12d", "15d"]
negatives_per_positive = 1.0
positive_weight = 1.0
cascade_positive_weight = 10.0
select_by = "parallel"
seed = 0
[ensembles]
parallel = ["cnn", "mlp", "gbdt"]
cascade = [["cnn", 0.05], ["mlp", 0.02]]
[evaluation]
k = 0.02
negatives_per_positive = 8
threshold = 0.7
[list]
share = 0.003
[detection]
interval = "1s"
window = 8
stride = 1
continuity = "4min"
"""  # noqa: E501


def read(text: str) -> Settings:
    return parse_settings(tomllib.loads(text), name="some.toml")


def refused(text: str) -> str:
    """Return the error line with which a configuration is refused."""
    with pytest.raises(SettingsError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith("some.toml: ")
    assert "\n" not in message
    return message


# --- defaults ----------------------------------------------------------------------------------


def test_defaults_match_contract() -> None:
    assert read(CONTRACT) == Settings()
    assert [metric.name for metric in Settings().detection.metrics] == [
        "pfc_tx_packet_rate", "cpu_usage", "gpu_duty_cycle", "power_draw",
        "graphics_engine_activity", "tensor_core_activity", "nvlink_bandwidth",
    ]  # fmt: skip
    first, second = Settings().detection.metrics[:2]
    assert (first.low, first.high, first.scale) == (0.0, 20000.0, "log")
    assert (second.low, second.high, second.scale) == (0.0, 100.0, "linear")


def test_example_holds_defaults() -> None:
    example = load_settings(EXAMPLE)
    assert example == Settings()
    assert example.model_dump() == Settings().model_dump() == load_settings(None).model_dump()


def test_example_holds_every_key_once() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    commented = set(re.findall(r"^# (\w+) = ", text, re.MULTILINE))  # without a default
    assert set(tables) == set(Settings.model_fields)
    for name, table in tables.items():
        model = getattr(Settings(), name)
        if name == "messages":  # tables of a site, described in comments
            assert table == model == {}
            continue
        assert isinstance(model, BaseModel)
        fields = type(model).model_fields
        optional = {key for key, field in fields.items() if field.default is None}
        assert set(table) | (optional & commented) == set(fields), name


def test_empty_file_has_all_defaults() -> None:
    assert read("") == Settings()


def test_horizon_and_step_are_nanoseconds() -> None:
    assert Settings().horizon == DAY
    assert Settings().step == 100 * MINUTE
    hourly = read('records = {interval = "1h"}\nwindows = {horizon = 24, step = 2}')
    assert (hourly.horizon, hourly.step) == (DAY, 120 * MINUTE)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().windows.length = 3


# --- durations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("10min", 10 * MINUTE),
        ("4h", 240 * MINUTE),
        ("3d", 3 * DAY),
        ("1s", 10**9),
        ("1ms", 10**6),
        ("0.5h", 30 * MINUTE),
        ("1.5d", 36 * HOUR),
        ("10 min", 10 * MINUTE),
    ],
)
def test_duration_has_number_and_unit(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@given(st.integers(1, 10**5), st.sampled_from(["ms", "s", "min", "h", "d"]))
def test_durations_scale_with_number_and_unit(number: int, unit: str) -> None:
    units = {"ms": 10**6, "s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY}
    assert parse_duration(f"{number}{unit}") == number * units[unit]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "d",
        "3w",
        "3days",
        "-3d",
        "0d",
        "0.0h",
        "3d4h",
        "1e3s",
        " 3d",
        "3d\n",
        "999999999999d",
        3,
        3.0,
        None,
        True,
    ],
)
def test_invalid_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match='expected a duration such as "10min"'):
        parse_duration(text)


def test_duration_is_never_rounded_to_zero() -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration("0.0000001ms")


# --- refused values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[trainig]\nseed = 1", "trainig"),
        ("[training]\nsead = 1", "training.sead"),
        ("seed = 1", "seed"),
        ('[[detection.metrics]]\nname = "a"\nlimit = 3.0', "detection.metrics.0.limit"),
        ("[features]\nfloat = ['a']\ninteger = ['b']", "features.integer"),
    ],
)
def test_unknown_key_is_named(text: str, key: str) -> None:
    assert f"unknown key `{key}`" in refused(text)


@pytest.mark.parametrize(
    ("text", "key", "found"),
    [
        ("[windows]\nlength = 0", "windows.length", "0"),
        ("[windows]\nlength = 1.5", "windows.length", "1.5"),
        ("[windows]\nhorizon = -1", "windows.horizon", "-1"),
        ("[windows]\nstep = 'ten'", "windows.step", "'ten'"),
        ("[records]\ninterval = 600", "records.interval", "600"),
        ("[training]\nretrain_every = '3 weeks'", "training.retrain_every", "'3 weeks'"),
        ("[training]\nlengths = ['9d', 'long']", "training.lengths.1", "'long'"),
        ("[training]\nlengths = '9d'", "training.lengths", "'9d'"),
        ("[training]\nseed = -1", "training.seed", "-1"),
        ("[training]\nnegatives_per_positive = -1.0", "training.negatives_per_positive", "-1.0"),
        ("[training]\npositive_weight = 0.0", "training.positive_weight", "0.0"),
        ("[training]\npositive_weight = nan", "training.positive_weight", "nan"),
        ("[ensembles]\nparallel = []", "ensembles.parallel", "[]"),
        ("[ensembles]\nparallel = ['rnn']", "ensembles.parallel", "'rnn'"),
        ("[ensembles]\ncascade = [['cnn', 0.0]]", "ensembles.cascade.0.1", "0.0"),
        ("[ensembles]\ncascade = [['cnn', 1.1]]", "ensembles.cascade.0.1", "1.1"),
        ("[ensembles]\ncascade = ['cnn']", "ensembles.cascade.0", "'cnn'"),
        ("[evaluation]\nk = 0", "evaluation.k", "0"),
        ("[evaluation]\nk = nan", "evaluation.k", "nan"),
        ("[evaluation]\nthreshold = 1.01", "evaluation.threshold", "1.01"),
        ("[evaluation]\nnegatives_per_positive = 0", "evaluation.negatives_per_positive", "0"),
        ("[list]\nshare = 2.0", "list.share", "2.0"),
        ("[features]\nfloat = 'power_draw'", "features.float", "'power_draw'"),
        ("[features]\nfloat = ['a']\nhistory = [0]", "features.history.0", "0"),
        ("[features]\nfloat = ['a']\nresiduals = [['a']]", "features.residuals.0.1", "['a']"),
        ("windows = 18", "windows", "18"),
        ("[[detection.metrics]]\nlow = 1.0", "detection.metrics.0.name", ""),
        ("[[detection.metrics]]\nname = 'a'\nscale = 'ln'", "detection.metrics.0.scale", "'ln'"),
    ],
)
def test_invalid_value_is_quoted(text: str, key: str, found: str) -> None:
    message = refused(text)
    assert f"`{key}`" in message
    assert found in message
    assert "expected" in message


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[training]\npositive_weight = inf", "training.positive_weight"),
        ("[training]\ncascade_positive_weight = inf", "training.cascade_positive_weight"),
        ("[training]\nnegatives_per_positive = inf", "training.negatives_per_positive"),
        ("[evaluation]\nnegatives_per_positive = inf", "evaluation.negatives_per_positive"),
    ],
)
def test_infinity_is_refused(text: str, key: str) -> None:
    assert f"`{key}`" in refused(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[windows]\nlength = true", "windows.length"),
        ("[evaluation]\nk = true", "evaluation.k"),
        ("[training]\nseed = false", "training.seed"),
    ],
)
def test_boolean_is_not_a_number(text: str, key: str) -> None:
    assert f"`{key}`" in refused(text)


def test_integers_are_accepted_as_floats() -> None:
    assert read("[training]\nnegatives_per_positive = 4").training.negatives_per_positive == 4.0
    assert read("[training]\nnegatives_per_positive = 0").training.negatives_per_positive == 0.0


def test_empty_lengths_are_refused() -> None:
    assert "`training.lengths` is empty" in refused("[training]\nlengths = []")


def test_select_by_names_ensemble_or_member() -> None:
    message = refused("[training]\nselect_by = 'lstm'")
    assert "`training.select_by` is 'lstm', expected one of cascade, cnn, gbdt, mlp" in message
    member = "[training]\nselect_by = 'lstm'\n[ensembles]\nparallel = ['lstm', 'gbdt']"
    assert read(member).training.select_by == "lstm"
    for name in ("parallel", "cascade", "mlp"):
        assert read(f"[training]\nselect_by = '{name}'").training.select_by == name


def test_column_has_one_kind() -> None:
    for text in ("float = ['a', 'a']", "float = ['a']\ncounter = ['b', 'a']"):
        assert "names column `a` twice" in refused(f"[features]\n{text}")


@pytest.mark.parametrize("text", ["", "categorical = ['a']", "date = ['a']", "float = []"])
def test_some_column_must_change_over_time(text: str) -> None:
    assert "names no column that changes over time" in refused(f"[features]\n{text}")


def test_serial_cannot_be_categorical() -> None:
    # Each would be a category of its own, and the serial is not kept as a column.
    message = refused("[features]\ncategorical = ['gpu_serial']\nfloat = ['a']")
    assert "`gpu_serial`" in message


# --- files -------------------------------------------------------------------------------------


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[list]\nshare = 0.01\n")
    assert load_settings(path).list.share == 0.01


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(SettingsError, match=f"{path}: cannot be read"):
            load_settings(path)


@pytest.mark.parametrize("content", [b"[windows\n", b"a = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_invalid_toml_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"{path}: is not a TOML file") as caught:
        load_settings(path)
    assert "\n" not in str(caught.value)


def test_invalid_value_names_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[list]\nshares = 0.01\n")
    with pytest.raises(InputError, match=rf"{path}: unknown key `list.shares`"):
        load_settings(path)


# --- features and their plan ---------------------------------------------------------------------

COLUMNS = {
    "machine_id", "gpu_type", "temperature_gpu", "power_draw", "utilization_gpu", "xid",
}  # fmt: skip
RESIDUALS = (("temperature_gpu", "power_draw"), ("power_draw", "utilization_gpu"))


def test_omitted_feature_kind_is_empty() -> None:
    features = read("[features]\nfloat = ['vibration']").features
    assert features.kinds.names == ("vibration",)
    assert features.history == (4, 16, 56)
    assert features.peers == ("machine_id", "gpu_type")
    assert features.residuals == RESIDUALS


def test_plan_follows_settings() -> None:
    settings = read('records = {interval = "1h"}\nwindows = {length = 6}')
    plan, notes = settings.plan(COLUMNS)
    assert (plan.window_records, plan.interval, plan.history) == (6, HOUR, (4, 16, 56))
    assert plan.kinds == settings.features.kinds
    assert plan.peers == ("machine_id", "gpu_type")
    assert plan.residuals == RESIDUALS
    assert notes == ()


def test_missing_default_peers_are_noted() -> None:
    plan, notes = Settings().plan(COLUMNS - {"machine_id"})
    assert plan.peers == ("gpu_type",)
    assert len(notes) == 1
    assert "machine_id" in notes[0]


def test_configured_peers_must_exist() -> None:
    settings = read("[features]\nfloat = ['power_draw']\npeers = ['rack']")
    with pytest.raises(SettingsError, match=r"`features.peers` names `rack`"):
        settings.plan(COLUMNS)
    assert settings.plan(COLUMNS | {"rack"})[0].peers == ("rack",)


def test_default_residuals_need_float_columns() -> None:
    plan, notes = read("[features]\nfloat = ['temperature_gpu', 'power_draw']").plan(COLUMNS)
    assert plan.residuals == (("temperature_gpu", "power_draw"),)
    assert len(notes) == 1
    assert "residuals" in notes[0]


def test_configured_residuals_must_be_floats() -> None:
    message = refused("[features]\nfloat = ['a']\nresiduals = [['a', 'b']]")
    assert "`features.residuals` names `b`, expected a column of `float`" in message


def test_empty_list_disables_feature() -> None:
    text = "[features]\nfloat = ['temperature_gpu']\nhistory = []\npeers = []\nresiduals = []"
    plan, notes = read(text).plan(set())
    assert (plan.history, plan.peers, plan.residuals, notes) == ((), (), (), ())


@pytest.mark.parametrize("name", ["power_draw", "xid", "gpu_serial"])
def test_peers_must_be_text_columns(name: str) -> None:
    text = f"[features]\nfloat = ['power_draw']\ncode = ['xid']\npeers = ['{name}']"
    with pytest.raises(SettingsError, match=name):
        read(text).plan({*COLUMNS, "gpu_serial"})

from __future__ import annotations

import pytest

from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.pipelines.config.settings import Settings, SettingsError, parse_settings
from forewarn.response.state.pool import Limits, Pool, PoolMode
from forewarn.response.state.step import Step


def _respond(**table: object) -> Settings:
    return parse_settings({"respond": table}, name="my.toml")


def test_default_mode_only_observes() -> None:
    respond = Settings().respond
    assert respond.driver == "none"
    assert respond.pools == {}
    assert _respond(pools={"train": {}}).respond.pool("train").mode is PoolMode.OBSERVE


def test_pool_limits_apply_with_fleet_limits() -> None:
    table = {"mode": "act", "control": 0.1, "machines": 3, "share": 0.5, "killed_jobs": 0}
    respond = _respond(driver="slurm", fleet_rate=4, refill="2d", pools={"train": table}).respond
    limits = Limits(machines=3, share=0.5, fleet_rate=4, killed_jobs=0, refill=Nanoseconds(2 * DAY))
    assert respond.pool("train") == Pool("train", PoolMode.ACT, 0.1, limits)
    assert _respond(pools={"train": {}}).respond.pool("train").limits.machines is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"pools": {"train": {"mode": "act"}}}, "`respond.pools.train` has mode 'act'"),
        ({"pools": {"a": {"partition": "x", "selector": "rack=r1"}}}, "exclude each other"),
        ({"pools": {"a": {"mode": "yes"}}}, "respond.pools.a.mode"),
        ({"pools": {"a": {"control": 1.5}}}, "respond.pools.a.control"),
        ({"freeze": [["soon", "later"]]}, "'soon', expected a date"),
        ({"freeze": [["2025-02-01", "2025-01-01"]]}, "ends before it begins"),
        ({"certificate": "c.pem"}, "belong together"),
        ({"ledger": ""}, "respond.ledger"),
        ({"pools": {"a": {"steps": {"drain": {"command": ["x"]}}}}}, "respond.pools.a.steps.drain"),
        ({"pools": {"a": {"steps": {"reset": {"command": []}}}}}, "either `command` or `scheduler"),
        ({"pools": {"a": {"steps": {"reset": {}}}}}, "either `command` or `scheduler"),
        (
            {"check": ["x"], "pools": {"a": {"steps": {"restart": {"scheduler": True}}}}},
            "Slurm carries out `restart`, Kubernetes",
        ),
        ({"pools": {"a": {"steps": {"reset": {"command": "x"}}}}}, "steps.reset.command"),
        ({"pools": {"a": {"steps": {"reset": {"command": ["{gpu}"]}}}}}, "has {gpu}, expected"),
        ({"pools": {"a": {"steps": {"reset": {"command": ["x"]}}}}}, "`respond.check` is empty"),
        ({"pools": {"a": {"replace": "yes"}}}, "respond.pools.a.replace"),
        ({"job_folder": "/jobs"}, "`respond.job_folder` is '/jobs', expected a path that ends in"),
        ({"job_folder": "/jobs/{task}/x"}, "`respond.job_folder` is '/jobs/{task}/x', expected"),
    ],
)
def test_contradictory_settings_are_refused(table: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=r"^my\.toml: ") as caught:
        _respond(**table)
    assert words in str(caught.value)


def test_step_timeouts_differ_by_step() -> None:
    steps = {step: {"command": ["x"]} for step in ("reset", "restart")}
    pools = {"train": {"steps": steps | {"replace": {"command": ["x"], "timeout": "2h"}}}}
    pool = _respond(check=["true"], pools=pools).respond.pool("train")
    minutes = {step: command.timeout // MINUTE for step, command in pool.steps.items()}
    assert minutes == {Step.RESET: 10, Step.RESTART: 30, Step.REPLACE: 120}
    assert all(command.needs_idle for command in pool.steps.values())
    assert not pool.replaces


def test_freeze_is_a_utc_span() -> None:
    (span,) = _respond(freeze=[["1970-01-02", "1970-01-03T12:00:00Z"]]).respond.frozen
    assert span == (DAY, 2 * DAY + DAY // 2)

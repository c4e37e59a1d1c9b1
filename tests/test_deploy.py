from __future__ import annotations

import configparser
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from forewarn.features.inspection.check_table import CheckTable, CheckValue
from forewarn.pipelines.cli.main import build_parser
from forewarn.pipelines.config.agent_policy import (
    AgentPolicy,
    CollectionPolicy,
    JobsTable,
    load_policy,
)
from forewarn.pipelines.config.settings import load_settings

DEPLOY = Path(__file__).parents[1] / "deploy"


def test_policy_explains_every_key() -> None:
    policy = load_policy(DEPLOY / "agent.toml")
    assert policy.collector == "https://collector.example:8470"
    assert policy.collection == CollectionPolicy()
    assert policy.model_copy(update={"collector": None}) == AgentPolicy()
    text = (DEPLOY / "agent.toml").read_text()
    named = set(re.findall(r"^(?:# )?(\w+) =", text, re.MULTILINE))
    tables = (AgentPolicy, CollectionPolicy, JobsTable, CheckTable, CheckValue)
    keys = {field.alias or name for table in tables for name, field in table.model_fields.items()}
    assert named == keys - {"collection", "jobs", "check", "value"}


def test_burn_in_goes_on_until_it_has_ended() -> None:
    text = (DEPLOY / "forewarn-burn-in.service").read_text()
    start, end = (shlex.split(line) for line in re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE))
    args = build_parser("inspect").parse_args(start[1:])
    assert (args.name, args.burn_in) == ("burn_in", 48 * 3600.0)
    assert f"ConditionPathExists={end[-1]}" in text
    assert "Restart=on-failure" in text
    assert str(args.out) == "/var/lib/forewarn-inspections"


def test_unit_runs_agent_and_keeps_state() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(DEPLOY / "forewarn-agent.service")
    command = shlex.split(unit["Service"]["ExecStart"])
    assert command[1:] == ["agent", "--policy", "/etc/forewarn/agent.toml"]
    policy = load_policy(DEPLOY / "agent.toml")
    assert str(policy.state) == f"/var/lib/{unit['Service']['StateDirectory']}"
    assert unit["Service"]["Restart"] == "always"


def test_container_is_named_after_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_MACHINE_ID", "node-17")
    assert AgentPolicy().machine_id == "node-17"
    monkeypatch.setenv("FOREWARN_MACHINE_ID", "../node")
    with pytest.raises(ValueError, match="a name of letters"):
        AgentPolicy()


def test_prometheus_of_compose_scrapes_what_listens(
    require_program: Callable[[str, str], Path], tmp_path: Path
) -> None:
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    for mount in services["prometheus"]["volumes"][1:]:  # as in the container, without it
        source, target, _ = mount.split(":")
        file = tmp_path / Path(target).name
        file.write_text((DEPLOY / "compose" / source).resolve().read_text())
    promtool = require_program("promtool", "prometheus")
    run = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "SUCCESS: 1 rule files found" in run.stdout
    settings = load_settings(DEPLOY / "compose" / "forewarn.toml")
    collector, respond = settings.collector, settings.respond
    assert {collector.host, respond.host} == {"0.0.0.0"}
    ports = {"collector": collector.port, "responder": respond.port}
    scraped = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]
    targets = scraped[0]["static_configs"][0]["targets"]
    assert targets == [f"{name}:{port}" for name, port in ports.items()]
    for name, port in ports.items():
        assert services[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
        assert services[name]["read_only"]
    assert settings.respond.driver == "none"  # it can only observe

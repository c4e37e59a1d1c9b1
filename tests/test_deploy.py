from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import pytest

from forewarn.pipelines.config.agent_policy import (
    AgentPolicy,
    CollectionPolicy,
    JobsTable,
    load_policy,
)
from forewarn.pipelines.config.check_table import CheckTable

DEPLOY = Path(__file__).parents[1] / "deploy"


def test_policy_explains_every_key() -> None:
    policy = load_policy(DEPLOY / "agent.toml")
    assert policy.collector == "https://collector.example:8470"
    assert policy.collection == CollectionPolicy()
    assert policy.model_copy(update={"collector": None}) == AgentPolicy()
    text = (DEPLOY / "agent.toml").read_text()
    named = set(re.findall(r"^(?:# )?(\w+) =", text, re.MULTILINE))
    tables = (AgentPolicy, CollectionPolicy, JobsTable, CheckTable)
    keys = {name for table in tables for name in table.model_fields}
    assert named == keys - {"collection", "jobs", "check"}


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

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from forewarn.pipelines.config.agent_policy import (
    AgentPolicy,
    CollectionPolicy,
    JobsTable,
    load_policy,
)
from forewarn.pipelines.config.check_table import CheckTable

DEPLOY = Path(__file__).parents[1] / "deploy"


@pytest.fixture(scope="module")
def daemon_set() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "forewarn-agent.yaml").read_text())
    return found


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


def test_daemon_set_provides_inputs_of_policy(daemon_set: dict[str, Any]) -> None:
    pod = daemon_set["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    policy = load_policy(DEPLOY / "agent.toml")
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts) == {"/etc/forewarn", str(policy.state), str(policy.kernel_log)}
    assert set(mounts.values()) == set(volumes)
    assert volumes["kmsg"]["hostPath"] == {"path": "/dev/kmsg", "type": "CharDevice"}
    secrets = {one["name"]: one.get("valueFrom") for one in container["env"]}
    assert secrets["FOREWARN_TOKEN"]["secretKeyRef"]["name"] == "forewarn-agent"
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == labels


def test_container_is_named_after_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_MACHINE_ID", "node-17")
    assert AgentPolicy().machine_id == "node-17"
    monkeypatch.setenv("FOREWARN_MACHINE_ID", "../node")
    with pytest.raises(ValueError, match="a name of letters"):
        AgentPolicy()

"""The Helm chart, installed on a real API server as a new user would, up to a dry run.

Helm is that of `.ci/setup_helm`. No controllers run, so no pod starts: the responder is started
here, with the configuration and the service account that the chart made.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import ROOT, skip_or_fail
from tests.pipelines.incidents.schedulers.kubernetes.conftest import (
    CACHE,
    KUBECONFIG,
    ROLE,
    STEPS_ROLE,
)

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.agent_policy import load_policy

CHART = ROOT.parent / "deploy" / "chart" / "forewarn"
RULES = ROOT.parent / "deploy" / "prometheus" / "forewarn.rules.yml"
SPACE = "gpu-watch"
SEVERAL = """\
[respond]
ledger = "postgresql+psycopg://forewarn@db/forewarn"
[respond.kubernetes]
lease = "gpu-watch/respond"
"""
# What server 1.20 does not know yet.
OLDER_APIS = {"jobs.yaml": ("apiVersion: batch/v1\n", "apiVersion: batch/v1beta1\n")}


@pytest.fixture(scope="module")
def helm() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folders = [str(folder) for folder in CACHE.glob("helm-python-sdk-*")]
        if not folders:
            skip_or_fail("Helm is not installed: .ci/setup_helm")
        patch.syspath_prepend(folders[-1])
        return importlib.import_module("helm_python")


@pytest.fixture(scope="module")
def render(helm: Any) -> Callable[..., list[dict[str, Any]]]:
    """Return `render(**values)`: the objects of the chart without a cluster."""

    def objects(**values: Any) -> list[dict[str, Any]]:
        with helm.Chart.load(str(CHART)) as chart:
            texts = chart.render(values, name="fw", namespace=SPACE)
        manifests = [text for name, text in texts.items() if name.endswith(".yaml")]
        return [item for text in manifests for item in yaml.safe_load_all(text) if item]

    return objects


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the component and the specification of each pod that objects describe."""
    for item in objects:
        spec = item.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


@pytest.fixture
def release(
    kubernetes: Any, helm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return `change(**values)` of a release of the chart that has its defaults."""
    chart = tmp_path / "forewarn"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(text.replace('kubeVersion: ">=1.22.0-0"\n', ""))
    for name, (new, old) in OLDER_APIS.items():
        path = chart / "templates" / name
        path.write_text(path.read_text().replace(new, old))
    admin = tmp_path / "admin"
    admin.write_text(kubernetes.kubeconfig.read_text().replace("forewarn-token", "admin-token"))
    monkeypatch.chdir(tmp_path)  # without a home folder, Helm keeps its caches here
    with helm.Config(kubeconfig_path=str(admin), namespace=SPACE) as config:
        config.install(str(chart), "fw", {}, namespace=SPACE, create_namespace=True)
        yield lambda **values: config.upgrade(str(chart), "fw", values, namespace=SPACE)
        config.uninstall("fw")


def test_release_of_new_user_is_accepted_and_observes(
    kubernetes: Any,
    release: Callable[..., dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    account = "fw-forewarn-responder"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{account}/token"
    token = kubernetes.call("POST", path, body)["status"]["token"]
    kubeconfig = KUBECONFIG.format(port=kubernetes.port, folder=kubernetes.folder)
    (tmp_path / "kubeconfig").write_text(kubeconfig.replace("forewarn-token", token))
    path = f"/api/v1/namespaces/{SPACE}/configmaps/fw-forewarn-config"
    text = kubernetes.call("GET", path)["data"]["forewarn.toml"]
    mounted = text.replace("/var/lib/", f"{tmp_path}/")
    (tmp_path / "forewarn-ledger").mkdir()
    extra = f'[respond.kubernetes]\nkubeconfig = "{tmp_path}/kubeconfig"\n'
    (tmp_path / "forewarn.toml").write_text(mounted + extra)

    kubernetes.report_condition("node-00003", "GpuXid", "True")
    before = kubernetes.node("node-00003")
    arguments = ["respond", "--once", "--json", "--config", str(tmp_path / "forewarn.toml")]
    assert main(arguments) == 0
    (decision,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (decision["machine"], decision["ruling"]) == ("node-00003", "observe")
    assert kubernetes.node("node-00003") == before

    config = f"{SEVERAL}[collector]\ncertificate = '/etc/forewarn-tls/tls.crt'\n"
    jobs = {name: {"enabled": True} for name in ("ingest", "retrain", "review")}
    responder = {"replicas": 2, "act": True, "steps": True}
    tls, agent = {"secretName": "forewarn-tls"}, {"privileged": False}
    changed = release(config=config, jobs=jobs, responder=responder, tls=tls, agent=agent)
    assert changed["status"] == "deployed"


def test_prometheus_operator_gets_the_rules_and_all_services(
    render: Callable[..., list[dict[str, Any]]],
) -> None:
    """Rendered only: Debian's server of 1.20 crashes on any custom resource (reflect2, Go 1.19)."""
    objects = render(monitoring={"enabled": True, "labels": {"release": "stack"}})
    (rule,) = [o for o in objects if o["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    (monitor,) = [o for o in objects if o["kind"] == "ServiceMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "stack"
    chosen = monitor["spec"]["selector"]["matchLabels"].items()
    services = [o["metadata"] for o in objects if o["kind"] == "Service"]
    assert len(services) == 3
    assert all(chosen <= service["labels"].items() for service in services)
    assert {port["port"] for port in monitor["spec"]["endpoints"]} == {"http"}


@pytest.mark.parametrize(("act", "steps"), [(False, False), (True, False), (True, True)])
def test_rights_are_those_of_the_shipped_roles(
    render: Callable[..., list[dict[str, Any]]], act: bool, steps: bool
) -> None:
    _, shipped, *_ = yaml.safe_load_all(ROLE.read_text())
    more, *_ = yaml.safe_load_all(STEPS_ROLE.read_text())
    objects = render(responder={"act": act, "steps": steps})
    (role,) = [o for o in objects if o["kind"] == "ClusterRole"]
    reading = [r for r in shipped["rules"] if set(r["verbs"]) <= {"get", "list"}]
    assert 0 < len(reading) < len(shipped["rules"])
    expected = shipped["rules"] if act else reading
    assert role["rules"] == expected + (more["rules"] if steps else [])


@pytest.mark.parametrize("privileged", [False, True])
def test_pods_run_without_root_and_with_read_only_files(
    render: Callable[..., list[dict[str, Any]]], privileged: bool
) -> None:
    jobs = {name: {"enabled": True} for name in ("ingest", "retrain", "review")}
    found = dict(pods(render(agent={"privileged": privileged}, jobs=jobs)))
    expected = [
        "agent",
        "collector",
        "compact",
        "ingest",
        "responder",
        "retrain",
        "review",
        "score",
    ]
    assert sorted(found) == expected
    for component, pod in found.items():
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"], component
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert "/tmp" in mounts
        assert pod.get("automountServiceAccountToken", True) == (component == "responder")
        if component == "agent" and privileged:  # for /dev/kmsg
            continue
        assert pod["securityContext"]["runAsNonRoot"], component
        assert security["capabilities"] == {"drop": ["ALL"]}, component
        assert security["allowPrivilegeEscalation"] is False, component


@pytest.mark.parametrize(("privileged", "log"), [(True, "/dev/kmsg"), (False, "/var/log/kern.log")])
def test_agent_reads_what_is_mounted(
    render: Callable[..., list[dict[str, Any]]], tmp_path: Path, privileged: bool, log: str
) -> None:
    objects = render(agent={"privileged": privileged}, tls={"secretName": ""})
    (text,) = [o["data"]["agent.toml"] for o in objects if "agent.toml" in o.get("data", {})]
    (tmp_path / "agent.toml").write_text(text)
    policy = load_policy(tmp_path / "agent.toml")
    assert policy.collector == "http://fw-forewarn-collector:8470"
    assert str(policy.kernel_log) == log
    pod = dict(pods(objects))["agent"]
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert any(log.startswith(mount) for mount in mounts)
    assert str(policy.state) in mounts


def test_several_responders_share_a_database(
    render: Callable[..., list[dict[str, Any]]],
) -> None:
    objects = render(responder={"replicas": 3}, config=SEVERAL)
    kinds = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert ("PersistentVolumeClaim", "fw-forewarn-ledger") not in kinds
    assert ("RoleBinding", "fw-forewarn-responder") in kinds
    (responder,) = [
        o
        for o in objects
        if o["metadata"]["name"] == "fw-forewarn-responder" and o["kind"] == "Deployment"
    ]
    assert responder["spec"]["strategy"] == {"type": "RollingUpdate"}
    (lease,) = [o for o in objects if o["kind"] == "Role"]
    role = [o for o in yaml.safe_load_all(ROLE.read_text()) if o["kind"] == "Role"]
    assert lease["rules"] == role[0]["rules"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"responder": {"replicas": 2}}, "needs a ledger in PostgreSQL"),
        ({"tls": {"secretName": "own"}}, "config names no certificate"),
        ({"responder": {"acts": True}}, "acts"),
        ({"volumes": {"data": {"size": "much"}}}, "size"),
    ],
)
def test_wrong_values_are_refused(
    helm: Any,
    render: Callable[..., list[dict[str, Any]]],
    values: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(helm.HelmError, match=message):
        render(**values)


def test_chart_is_clean_and_complete(helm: Any, tmp_path: Path) -> None:
    assert helm.lint(str(CHART), strict=True)["errors"] == []
    archive = helm.package(str(CHART), destination=str(tmp_path))
    with helm.Chart.load(archive) as chart:  # links to files outside of it are resolved
        files = {item["name"]: item["data"] for item in chart.files}
    names = {"forewarn.rules.yml", "forewarn-role.yaml", "forewarn-steps-role.yaml"}
    assert {f"files/{name}" for name in names} <= files.keys()

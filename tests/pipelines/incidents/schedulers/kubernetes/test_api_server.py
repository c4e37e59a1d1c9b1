"""Tests of the connection to a real API server, and of its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import incluster_config, kube_config
from tests.pipelines.incidents.schedulers.kubernetes.conftest import Cluster

from forewarn.pipelines.incidents.schedulers.driver import DriverError, DriverTimeoutError
from forewarn.pipelines.incidents.schedulers.kubernetes import api_server
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import ApiServer


def test_service_account_of_a_pod_is_used(
    kubernetes: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "token").write_text("forewarn-token")
    certificate = str(kubernetes.folder / "apiserver.crt")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certificate)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kubernetes.port))
    nodes, _ = ApiServer().read_all("/api/v1/nodes")
    assert len(nodes) == 16
    assert capsys.readouterr().out == ""  # decisions as JSON are printed there


def test_missing_cluster_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    missing = str(tmp_path / "none")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", missing)
    for server in (ApiServer(), ApiServer(missing)):
        with pytest.raises(DriverError, match="no access to a Kubernetes cluster"):
            server.read("/api/v1/nodes/a")


@pytest.mark.parametrize("text", ["{: [", "text", "", "clusters: 5"])
def test_damaged_kubeconfig_is_a_refusal(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(DriverError, match=r"no access to a Kubernetes cluster: [^\n]+$"):
        ApiServer(str(tmp_path / "kubeconfig")).read("/api/v1/nodes/a")


def test_lists_are_read_page_by_page(kubernetes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "_PAGE_ITEMS", 5)
    nodes, _ = kubernetes.server.read_all("/api/v1/nodes")
    assert len({node["metadata"]["name"] for node in nodes}) == 16


def test_wrong_token_is_refused(kubernetes: Cluster, tmp_path: Path) -> None:
    text = kubernetes.kubeconfig.read_text().replace("forewarn-token", "old-token")
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(DriverError, match=r"GET /api/v1/nodes: access denied \(Unauthorized\)"):
        ApiServer(str(tmp_path / "kubeconfig")).read_all("/api/v1/nodes")


@pytest.mark.parametrize(
    ("status", "kind"), [(500, DriverTimeoutError), (503, DriverTimeoutError), (422, DriverError)]
)
def test_error_of_the_server_leaves_result_unknown(status: int, kind: Any) -> None:
    """After a 5xx the change may have been made; after a 4xx it was not."""
    error = api_server._refusal(status, {"message": "etcd\n is  gone"}, "PATCH /x")
    assert (type(error), str(error)) == (kind, "PATCH /x: etcd is gone")
